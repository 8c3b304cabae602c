//! `ls`: the names in a folder (T-LS-1), in memory that does not grow with their number.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{SFlag, fstatat};
use protocol::{ListEntry, ListKind, Outcome};

use super::connection::Exchange;
use super::fault::Fault;
use super::open;
use super::page::{MAX_BYTES, MAX_LINES};
use super::path::Resolved;

/// Names after which the resident worker gives up: it has to answer the next call soon.
pub(super) const RESIDENT_NAMES: u64 = 100_000;

/// Most bytes of JSON, which may escape one byte of a name as six.
const MAX_JSON: usize = 200 * 1024;

/// Names between two looks at the clock.
const CLOCK: u64 = 4096;

/// Lists `target`; the entries go to `payload`. `heavy` says that this server may take its time.
pub(super) fn ls(
    exchange: &Exchange,
    proc_device: u64,
    payload: &mut Vec<u8>,
    target: &Resolved,
    limit: u64,
    heavy: bool,
) -> Result<Outcome, Fault> {
    if limit == 0 {
        return Err(Fault::Argument("limit is 0, but must be 1 or more".to_owned()));
    }
    let shown = target.path.as_str();
    let fault = |errno| Fault::of(errno, shown);
    let most = usize::try_from(limit.min(MAX_LINES)).unwrap_or(usize::MAX);
    let mut folder = Dir::from_fd(open::folder(shown, proc_device)?).map_err(fault)?;
    let mut first = First::new(most);
    let mut total = 0;
    for entry in folder.iter() {
        let entry = entry.map_err(fault)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        total += 1;
        first.offer(name, entry.file_type());
        if total > RESIDENT_NAMES && !heavy {
            return Ok(Outcome::NeedsChild);
        }
        if total % CLOCK == 0 {
            exchange.check_time()?;
        }
    }
    let mut bytes = 0;
    let mut count = 0;
    payload.push(b'[');
    for name in first.heap.into_sorted_vec() {
        let kind = kind(&folder, &name);
        let shown_name = name.bytes.to_string_lossy();
        let mark = match &kind {
            ListKind::File => 0,
            ListKind::Folder => 1,
            ListKind::Link(target) => "@ -> ".len() + target.len(),
        };
        bytes += shown_name.len() + mark + 1;
        let before = payload.len();
        if before > 1 {
            payload.push(b',');
        }
        let entry = ListEntry { name: shown_name.into_owned(), kind };
        serde_json::to_writer(&mut *payload, &entry).map_err(|error| Fault::Argument(error.to_string()))?;
        if bytes as u64 > MAX_BYTES || payload.len() > MAX_JSON {
            payload.truncate(before);
            break;
        }
        count += 1;
    }
    payload.push(b']');
    Ok(Outcome::Listing { path: target.path.clone(), shown: count, total })
}

fn kind(folder: &Dir, name: &Name) -> ListKind {
    let kind = name.kind.or_else(|| {
        let found = fstatat(folder.as_fd(), name.bytes.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFDIR => Some(Type::Directory),
            SFlag::S_IFLNK => Some(Type::Symlink),
            _ => None,
        }
    });
    match kind {
        Some(Type::Directory) => ListKind::Folder,
        Some(Type::Symlink) => {
            let target = readlinkat(folder.as_fd(), name.bytes.as_c_str()).unwrap_or_default();
            ListKind::Link(String::from_utf8_lossy(target.as_bytes()).into_owned())
        }
        _ => ListKind::File,
    }
}

/// The first names of a folder in the order they are shown in.
#[derive(Debug)]
struct First {
    most: usize,
    heap: BinaryHeap<Name>,
    /// The key of the name at hand; kept to be filled again.
    key: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Name {
    /// What it is sorted by: its lower-case form.
    key: String,
    bytes: CString,
    kind: Option<Type>,
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.key.as_str(), &self.bytes).cmp(&(other.key.as_str(), &other.bytes))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl First {
    fn new(most: usize) -> Self {
        Self { most, heap: BinaryHeap::new(), key: String::new() }
    }

    fn offer(&mut self, name: &CStr, kind: Option<Type>) {
        self.key.clear();
        self.key.extend(name.to_string_lossy().chars().flat_map(char::to_lowercase));
        if self.heap.len() == self.most {
            let last = self.heap.peek().expect("the limit is at least 1");
            if (self.key.as_str(), name) >= (last.key.as_str(), last.bytes.as_c_str()) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Name { key: self.key.clone(), bytes: name.to_owned(), kind });
    }
}

#[cfg(test)]
#[path = "ls_tests.rs"]
mod tests;
