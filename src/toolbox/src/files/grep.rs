//! `grep`: lines that match, in a file or in all files of a tree (T-GREP-1, T-GREP-2).
//!
//! Files are read and never mapped into memory: an agent that cuts a mapped file off would have this process killed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read, Seek as _};

use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, fstat, stat};
use protocol::{Matches, Outcome, Skipped};

use super::connection::Exchange;
use super::fault::Fault;
use super::path::Resolved;
use super::search::{
    Clock, Engine, FileSink, Globs, Hits, Item, ItemKind, PIECE, Pattern, SAMPLE, Stop, Verdict, Visitor, Walk, Wanted,
    fill, is_binary, shown_root, without_mark,
};
use super::{Scratch, open};

/// Largest file of a tree that is searched. One that is named itself may be larger.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Files up to this size are read as a whole; others stream by.
const WHOLE: u64 = 1024 * 1024;

/// Most that is read of a file that does not say its size, as those of /proc.
const UNSIZED: u64 = MAX_FILE;

/// Most lines of context.
const MAX_CONTEXT: u64 = 100;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) wanted: Wanted<'a>,
    /// As the model gave it.
    pub(super) path: Option<&'a str>,
    pub(super) glob: Option<&'a str>,
    pub(super) context: u64,
    pub(super) limit: u64,
    pub(super) include_ignored: bool,
    /// This is the resident worker, which leaves what takes long to others.
    pub(super) resident: bool,
}

/// Searches `target`; the lines go to the payload.
pub(super) fn grep(
    exchange: &Exchange,
    scratch: &mut Scratch,
    target: &Resolved,
    order: Order,
) -> Result<Outcome, Fault> {
    if order.limit == 0 {
        return Err(Fault::Argument("limit is 0, but must be 1 or more".to_owned()));
    }
    let clock = Cell::new(Clock::start(exchange.deadline(), order.resident));
    let globs = order.glob.map(|glob| Globs::new(glob, "glob")).transpose()?;
    let Some(pattern) = Pattern::new(order.wanted, order.resident)? else { return Ok(Outcome::NeedsChild) };
    let path = target.path.as_str();
    let found = stat(path).map_err(|errno| Fault::of(errno, path))?;
    let mut search = Search {
        engine: Engine::new(pattern, order.context.min(MAX_CONTEXT)),
        hits: Hits { limit: order.limit, ..Hits::default() },
        globs,
        root: shown_root(order.path),
        clock: &clock,
    };
    let mut walk = Walk::new(!order.include_ignored, true);
    let ended = if open::is(&found, SFlag::S_IFDIR) {
        walk.run(&open::folder(path, scratch.proc_device)?, path, &mut search)?
    } else {
        let (file, found) = open::regular(path, scratch.proc_device)?;
        search.root.pop();
        search.file(file, Some(&found), b"", &mut walk.skipped)
    };
    let partial = match ended {
        Ok(()) => None,
        Err(Stop::Partial(why)) => Some(why),
        Err(Stop::NeedsChild) => return Ok(Outcome::NeedsChild),
    };
    let Hits { lines, shown, matches, matched_files, files, .. } = search.hits;
    let cut = lines.is_full();
    scratch.payload = lines.into_text();
    Ok(Outcome::Matches(Matches { shown, cut, matches, matched_files, files, skipped: walk.skipped, partial }))
}

/// A search under way.
struct Search<'a> {
    engine: Engine,
    hits: Hits,
    globs: Option<Globs>,
    /// What stands before paths.
    root: Vec<u8>,
    clock: &'a Cell<Clock>,
}

impl Visitor for Search<'_> {
    fn wants(&self, item: &Item) -> bool {
        item.kind != ItemKind::Link && self.globs.as_ref().is_none_or(|globs| globs.mean(item.path, item.name, false))
    }

    fn visit(&mut self, item: &Item, skipped: &mut Skipped) -> Result<(), Stop> {
        match item.kind {
            ItemKind::Folder | ItemKind::Link => Ok(()),
            ItemKind::Special => {
                skipped.special += 1;
                Ok(())
            }
            ItemKind::File => {
                self.check()?;
                match item.open() {
                    Ok(fd) => self.file(fd.into(), None, item.path, skipped)?,
                    // Something else has its name by now.
                    Err(Errno::ENOENT | Errno::ELOOP) => {}
                    Err(_) => skipped.unreadable += 1,
                }
                Ok(())
            }
        }
    }

    fn check(&self) -> Result<(), Stop> {
        self.clock.get().check()
    }
}

impl Search<'_> {
    /// Searches one file; the state of one that was named itself is `named`.
    fn file(&mut self, file: File, named: Option<&FileStat>, path: &[u8], skipped: &mut Skipped) -> Result<(), Stop> {
        let (mark, shown, clock) = (self.hits.lines.mark(), self.hits.shown, self.clock.get());
        let undo = match self.search(file, named, path) {
            Ok(Verdict::Searched(matches)) => {
                self.hits.files += 1;
                self.hits.matches += matches;
                self.hits.matched_files += u64::from(matches > 0);
                return Ok(());
            }
            Ok(Verdict::Binary) => &mut skipped.binary,
            Ok(Verdict::Special) => &mut skipped.special,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let matches = self.hits.shown - shown;
                self.hits.matches += matches;
                self.hits.matched_files += u64::from(matches > 0);
                return Err(self.clock.get().stop());
            }
            Err(error) if error.raw_os_error().is_some() => &mut skipped.unreadable,
            // All that is left of errors is a line that does not fit into the buffer.
            Ok(Verdict::TooLarge) | Err(_) => &mut skipped.too_large,
        };
        *undo += 1;
        self.hits.lines.go_back(mark);
        self.hits.shown = shown;
        self.clock.set(clock);
        Ok(())
    }

    fn search(&mut self, mut file: File, named: Option<&FileStat>, path: &[u8]) -> io::Result<Verdict> {
        let begun = self.engine.begin(&mut file)?;
        let size = match named {
            // The folder said that it is a regular file, and what is short has been read as a whole. (Had a pipe taken
            // its place in between, nothing is lost: it was opened without waiting.)
            None if begun < PIECE => return self.slice(begun, path),
            None => {
                let found = fstat(&file)?;
                if !open::is(&found, SFlag::S_IFREG) {
                    return Ok(Verdict::Special);
                }
                found.st_size
            }
            Some(found) => found.st_size,
        };
        let size = u64::try_from(size).unwrap_or(0);
        if size > MAX_FILE && named.is_none() {
            return Ok(Verdict::TooLarge);
        }
        if size == 0 || size > WHOLE {
            file.rewind()?;
            return self.stream(file, size, path);
        }
        let size = usize::try_from(size).unwrap_or(0);
        if let Some(verdict) = self.engine.screen(&mut file, size, begun)? {
            return Ok(verdict);
        }
        file.rewind()?;
        if self.engine.buffer.len() < size {
            self.engine.buffer.resize(size, 0);
        }
        let length = fill(&mut file, &mut self.engine.buffer[..size])?;
        self.slice(length, path)
    }

    /// Searches a file that is in the buffer as a whole.
    fn slice(&mut self, length: usize, path: &[u8]) -> io::Result<Verdict> {
        let Engine { pattern, slices, buffer, .. } = &mut self.engine;
        let text = &buffer[..length];
        if is_binary(&text[..length.min(SAMPLE)]) {
            return Ok(Verdict::Binary);
        }
        let mut sink = FileSink::new(&mut self.hits, self.clock, &pattern.matcher, &self.root, path);
        slices.search_slice(&pattern.matcher, without_mark(text), &mut sink)?;
        // To look for a NUL costs as much as to search. Without a match nobody has to know of one that comes late.
        let binary = sink.matches > 0 && is_binary(text);
        Ok(if binary { Verdict::Binary } else { Verdict::Searched(sink.matches) })
    }

    /// Searches a file piece by piece.
    fn stream(&mut self, mut file: File, size: u64, path: &[u8]) -> io::Result<Verdict> {
        let mut begun = [0; SAMPLE];
        let length = fill(&mut file, &mut begun)?;
        let text = &begun[..length];
        if is_binary(text) {
            return Ok(Verdict::Binary);
        }
        let (pattern, searcher) = self.engine.stream();
        // A file that grows is read as far as it went when it was opened, or a writer could keep this one reading.
        let most = if size > 0 { size } else { UNSIZED };
        let rest = Timed { file: file.take(most.saturating_sub(length as u64)), clock: self.clock };
        let mut sink = FileSink::new(&mut self.hits, self.clock, &pattern.matcher, &self.root, path);
        searcher.search_reader(&pattern.matcher, Cursor::new(without_mark(text)).chain(rest), &mut sink)?;
        Ok(if sink.binary { Verdict::Binary } else { Verdict::Searched(sink.matches) })
    }
}

/// A file that is read until time is up.
struct Timed<'a> {
    file: io::Take<File>,
    clock: &'a Cell<Clock>,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.clock.get().check().map_err(|_| io::Error::from(ErrorKind::TimedOut))?;
        self.file.read(buffer)
    }
}

#[cfg(test)]
#[path = "grep_tests.rs"]
mod tests;
