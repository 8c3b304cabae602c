//! `grep`: lines that match, in a file or in all files of a tree (T-GREP-1, T-GREP-2).
//!
//! Files are read and never mapped into memory: an agent that cuts a mapped file off would have this process killed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch};
use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, fstat, stat};
use protocol::{Matches, Outcome, Skipped};

use super::connection::Exchange;
use super::fault::Fault;
use super::path::Resolved;
use super::search::{
    Clock, Globs, Item, ItemKind, LineKind, Lines, MAX_LINE, Pattern, Stop, Visitor, Walk, Wanted, push_name,
    shown_root,
};
use super::{Scratch, open};

/// Largest file of a tree that is searched. One that is named itself may be larger.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Files up to this size are read as a whole; others stream by.
const WHOLE: u64 = 1024 * 1024;

/// Longest line of a file that streams by, with the context around it.
const MAX_STREAMED_LINE: usize = 4 * 1024 * 1024;

/// Most that is read of a file that does not say its size, as those of /proc.
const UNSIZED: u64 = MAX_FILE;

/// Most lines of context.
const MAX_CONTEXT: u64 = 100;

/// Matches between two looks at the clock, after which there is only counting.
const CLOCK: u64 = 1024;

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
        walk.run(open::folder(path, scratch.proc_device)?, path, &mut search)?
    } else {
        let (file, found) = open::regular(path, scratch.proc_device)?;
        search.root.pop();
        search.file(file, &found, b"", true, &mut walk.skipped)
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

/// What has been found.
#[derive(Debug, Default)]
struct Hits {
    lines: Lines,
    limit: u64,
    shown: u64,
    matches: u64,
    matched_files: u64,
    files: u64,
}

impl Hits {
    fn are_enough(&self) -> bool {
        self.shown == self.limit || self.lines.is_full()
    }
}

/// What searches.
struct Engine {
    pattern: Pattern,
    context: usize,
    slices: Searcher,
    /// Made when the first long file is met.
    streams: Option<Searcher>,
    buffer: Vec<u8>,
}

impl Engine {
    fn new(pattern: Pattern, context: u64) -> Self {
        let context = usize::try_from(context).unwrap_or(0);
        // Slices need no buffer of their own.
        let slices = builder(&pattern, context).heap_limit(Some(4096)).build();
        Self { pattern, context, slices, streams: None, buffer: Vec::new() }
    }
}

fn builder(pattern: &Pattern, context: usize) -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder.line_terminator(pattern.line_end).before_context(context).after_context(context).bom_sniffing(false);
    builder
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
                match item.open().and_then(|fd| Ok((fstat(&fd)?, fd))) {
                    Ok((found, fd)) if open::is(&found, SFlag::S_IFREG) => {
                        self.file(fd.into(), &found, item.path, false, skipped)?;
                    }
                    // Something else has its name by now.
                    Ok(_) | Err(Errno::ENOENT | Errno::ELOOP) => {}
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
    /// Searches one file.
    fn file(
        &mut self,
        mut file: File,
        found: &FileStat,
        path: &[u8],
        named: bool,
        skipped: &mut Skipped,
    ) -> Result<(), Stop> {
        let size = u64::try_from(found.st_size).unwrap_or(0);
        if size > MAX_FILE && !named {
            skipped.too_large += 1;
            return Ok(());
        }
        let (mark, shown, clock) = (self.hits.lines.mark(), self.hits.shown, self.clock.get());
        let ended = if size == 0 && !named {
            Ok(Some(0))
        } else if size > 0 && size <= WHOLE {
            self.whole(&mut file, size, path)
        } else {
            self.stream(file, size, path)
        };
        let undo = match ended {
            Ok(Some(matches)) => {
                self.hits.files += 1;
                self.hits.matches += matches;
                self.hits.matched_files += u64::from(matches > 0);
                return Ok(());
            }
            Ok(None) => &mut skipped.binary,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let matches = self.hits.shown - shown;
                self.hits.matches += matches;
                self.hits.matched_files += u64::from(matches > 0);
                return Err(self.clock.get().stop());
            }
            Err(error) if error.raw_os_error().is_some() => &mut skipped.unreadable,
            // All that is left is a line that does not fit into the buffer.
            Err(_) => &mut skipped.too_large,
        };
        *undo += 1;
        self.hits.lines.go_back(mark);
        self.hits.shown = shown;
        self.clock.set(clock);
        Ok(())
    }

    /// Searches a file that fits into memory. Gives the number of matches; none when it is binary.
    fn whole(&mut self, file: &mut File, size: u64, path: &[u8]) -> io::Result<Option<u64>> {
        let size = usize::try_from(size).unwrap_or(0);
        let Engine { pattern, slices, buffer, .. } = &mut self.engine;
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let length = fill(file, &mut buffer[..size])?;
        let text = &buffer[..length];
        if is_utf16(text) || memchr::memchr(0, text).is_some() {
            return Ok(None);
        }
        let mut sink = FileSink::new(&mut self.hits, self.clock, &pattern.matcher, &self.root, path);
        slices.search_slice(&pattern.matcher, without_mark(text), &mut sink)?;
        Ok(Some(sink.matches))
    }

    /// Searches a file piece by piece.
    fn stream(&mut self, mut file: File, size: u64, path: &[u8]) -> io::Result<Option<u64>> {
        let mut begun = [0; 4096];
        let length = fill(&mut file, &mut begun)?;
        let text = &begun[..length];
        if is_utf16(text) || memchr::memchr(0, text).is_some() {
            return Ok(None);
        }
        let Engine { pattern, streams, context, .. } = &mut self.engine;
        let searcher = streams.get_or_insert_with(|| {
            builder(pattern, *context)
                .heap_limit(Some(MAX_STREAMED_LINE))
                .binary_detection(BinaryDetection::quit(0))
                .build()
        });
        // A file that grows is read as far as it went when it was opened, or a writer could keep this one reading.
        let most = if size > 0 { size } else { UNSIZED };
        let rest = Timed { file: file.take(most.saturating_sub(length as u64)), clock: self.clock };
        let mut sink = FileSink::new(&mut self.hits, self.clock, &pattern.matcher, &self.root, path);
        searcher.search_reader(&pattern.matcher, Cursor::new(without_mark(text)).chain(rest), &mut sink)?;
        Ok((!sink.binary).then_some(sink.matches))
    }
}

/// UTF-16 counts as binary, as it does for `read`; without ASCII in it, it may hold no NUL byte.
fn is_utf16(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff")
}

/// Without the byte order mark of UTF-8, so that `^` matches before the first character.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Fills as much of `buffer` as there is.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
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

/// Takes the matches of one file.
struct FileSink<'a> {
    hits: &'a mut Hits,
    clock: &'a Cell<Clock>,
    matcher: &'a RegexMatcher,
    root: &'a [u8],
    path: &'a [u8],
    /// Its path as it is shown, once it is.
    shown_path: Vec<u8>,
    matches: u64,
    binary: bool,
    /// The lines after the last match that is shown are over.
    closed: bool,
}

impl<'a> FileSink<'a> {
    fn new(
        hits: &'a mut Hits,
        clock: &'a Cell<Clock>,
        matcher: &'a RegexMatcher,
        root: &'a [u8],
        path: &'a [u8],
    ) -> Self {
        let closed = hits.are_enough();
        Self { hits, clock, matcher, root, path, shown_path: Vec::new(), matches: 0, binary: false, closed }
    }

    fn add(&mut self, number: Option<u64>, line: &[u8], kind: LineKind) -> bool {
        if self.shown_path.is_empty() {
            self.shown_path.extend_from_slice(self.root);
            push_name(&mut self.shown_path, self.path);
        }
        self.hits.lines.add(&self.shown_path, number.unwrap_or(0), line, kind)
    }
}

/// A line without its end.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.matches += 1;
        if self.hits.are_enough() {
            self.closed = true;
            if self.matches % CLOCK == 0 {
                self.clock.get().check().map_err(|_| io::Error::from(ErrorKind::TimedOut))?;
            }
            return Ok(true);
        }
        let line = bare(found.bytes());
        let (mut begin, mut end) = (0, 0);
        if line.len() > MAX_LINE {
            // That it does not match itself, which happens with `\r`, only means that its beginning is shown.
            if let Ok(Some(place)) = self.matcher.find(line) {
                (begin, end) = (place.start(), place.end());
            }
        }
        if self.add(found.line_number(), line, LineKind::Match { begin, end }) {
            self.hits.shown += 1;
        }
        if self.hits.are_enough() {
            let mut clock = self.clock.get();
            clock.only_count();
            self.clock.set(clock);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        let unwanted = self.hits.are_enough() && *found.kind() != SinkContextKind::After;
        if !self.closed && !unwanted {
            self.add(found.line_number(), bare(found.bytes()), LineKind::Context);
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.closed |= self.hits.are_enough();
        if !self.closed {
            self.hits.lines.add_break();
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}

#[cfg(test)]
#[path = "grep_tests.rs"]
mod tests;
