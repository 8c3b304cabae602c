//! `find`: names that fit a glob (T-FIND-1), in memory that does not grow with their number.

use std::collections::BinaryHeap;

use protocol::{Found, Outcome, Skipped};

use super::connection::Exchange;
use super::fault::Fault;
use super::page::{MAX_BYTES, MAX_LINES};
use super::path::Resolved;
use super::search::{Clock, Globs, Item, ItemKind, Stop, Visitor, Walk, push_name, shown_root};
use super::{Scratch, open};

/// Characters that make a pattern more than the name of one file.
const SPECIAL: &[u8] = b"*?[]{}!\\";

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) pattern: &'a str,
    /// As the model gave it.
    pub(super) path: Option<&'a str>,
    pub(super) limit: u64,
    pub(super) include_ignored: bool,
    /// This is the resident worker, which leaves what takes long to others.
    pub(super) resident: bool,
}

/// Finds names below `target`; their paths go to the payload.
pub(super) fn find(
    exchange: &Exchange,
    scratch: &mut Scratch,
    target: &Resolved,
    order: Order,
) -> Result<Outcome, Fault> {
    if order.limit == 0 {
        return Err(Fault::Argument("limit is 0, but must be 1 or more".to_owned()));
    }
    let path = target.path.as_str();
    let globs = Globs::new(order.pattern, "pattern")?;
    let root = open::folder(path, scratch.proc_device)?;
    let most = usize::try_from(order.limit.min(MAX_LINES)).unwrap_or(usize::MAX);
    let mut search = Search {
        first: First { most, heap: BinaryHeap::new(), bytes: 0 },
        clock: Clock::start(exchange.deadline(), order.resident),
        root: shown_root(order.path),
        globs,
        total: 0,
        named: None,
    };
    let name = order.pattern.strip_prefix("./").unwrap_or(order.pattern).trim_end_matches('/');
    let named = open::named_below(&root, name).map(|found| ItemKind::of(&found));
    if let Some(kind) = named.filter(|kind| *kind == ItemKind::Folder || !order.pattern.ends_with('/')) {
        search.add(name.as_bytes(), kind);
        search.named = Some(name.as_bytes());
    }
    let mut walk = Walk::new(!order.include_ignored, false);
    // A path without wildcards names one file and no other.
    let names_one = name.contains('/') && !name.bytes().any(|byte| SPECIAL.contains(&byte));
    let ended = if names_one { Ok(()) } else { walk.run(&root, path, &mut search)? };
    let partial = match ended {
        Ok(()) => None,
        Err(Stop::Partial(why)) => Some(why),
        Err(Stop::NeedsChild) => return Ok(Outcome::NeedsChild),
    };
    let (shown, cut) = search.first.write(&search.root, &mut scratch.payload);
    let total = search.total;
    Ok(Outcome::Found(Found { shown, cut, total, names: walk.seen, skipped: walk.skipped, partial }))
}

/// A search under way.
struct Search<'a> {
    first: First,
    clock: Clock,
    /// What stands before paths.
    root: Vec<u8>,
    globs: Globs,
    total: u64,
    /// The path that the pattern names; it was added before the walk.
    named: Option<&'a [u8]>,
}

impl Search<'_> {
    fn add(&mut self, path: &[u8], kind: ItemKind) {
        self.total += 1;
        self.first.offer(path, kind == ItemKind::Folder);
    }
}

impl Visitor for Search<'_> {
    fn wants(&self, item: &Item) -> bool {
        self.globs.mean(item.path, item.name, false)
    }

    fn visit(&mut self, item: &Item, _: &mut Skipped) -> Result<(), Stop> {
        let folder = item.kind == ItemKind::Folder;
        if (!folder || self.globs.mean(item.path, item.name, true)) && self.named != Some(item.path) {
            self.add(item.path, item.kind);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Stop> {
        self.clock.check()
    }
}

/// The first paths in the order of their bytes, as many as can be shown.
#[derive(Debug)]
struct First {
    most: usize,
    heap: BinaryHeap<Vec<u8>>,
    /// Bytes of all of them.
    bytes: u64,
}

impl First {
    fn offer(&mut self, path: &[u8], folder: bool) {
        let full = self.heap.len() == self.most || self.bytes > MAX_BYTES;
        if full && self.heap.peek().is_some_and(|last| path > last.as_slice()) {
            return;
        }
        let mut path = path.to_owned();
        if folder {
            path.push(b'/');
        }
        self.bytes += path.len() as u64;
        self.heap.push(path);
        // The last one may go when the others are enough by themselves.
        while let Some(last) = self.heap.peek() {
            let rest = self.bytes - last.len() as u64;
            if self.heap.len() <= self.most && rest <= MAX_BYTES {
                break;
            }
            self.bytes = rest;
            self.heap.pop();
        }
    }

    /// Writes them, one a line; says how many, and whether the output limit kept some out.
    fn write(self, root: &[u8], text: &mut Vec<u8>) -> (u64, bool) {
        let mut shown = 0;
        let all = self.heap.into_sorted_vec();
        let count = all.len();
        for path in all {
            let before = text.len();
            text.extend_from_slice(root);
            push_name(text, &path);
            text.push(b'\n');
            if text.len() as u64 > MAX_BYTES {
                text.truncate(before);
                break;
            }
            shown += 1;
        }
        (shown, shown < count as u64)
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
