//! The matches of a `grep`, as the searcher hands them over file by file.

use std::cell::Cell;
use std::io::{self, ErrorKind};

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

use super::clock::Clock;
use super::lines::{Kind, Lines, MAX_LINE, push_name};

/// Matches between two looks at the clock, after which there is only counting.
const CLOCK: u64 = 1024;

/// What has been found.
#[derive(Debug, Default)]
pub(in crate::files) struct Hits {
    /// The lines that are shown.
    pub(in crate::files) lines: Lines,
    /// Most matching lines shown.
    pub(in crate::files) limit: u64,
    /// Matching lines shown.
    pub(in crate::files) shown: u64,
    /// Matching lines met.
    pub(in crate::files) matches: u64,
    /// Files that they are in.
    pub(in crate::files) matched_files: u64,
    /// Files searched.
    pub(in crate::files) files: u64,
}

impl Hits {
    /// True when nothing more may be shown.
    pub(in crate::files) fn are_enough(&self) -> bool {
        self.shown == self.limit || self.lines.is_full()
    }
}

/// Takes the matches of one file.
pub(in crate::files) struct FileSink<'a> {
    hits: &'a mut Hits,
    clock: &'a Cell<Clock>,
    matcher: &'a RegexMatcher,
    root: &'a [u8],
    path: &'a [u8],
    /// Its path as it is shown, once it is.
    shown_path: Vec<u8>,
    /// Its matching lines.
    pub(in crate::files) matches: u64,
    /// A NUL byte was met.
    pub(in crate::files) binary: bool,
    /// The lines after the last match that is shown are over.
    closed: bool,
}

impl<'a> FileSink<'a> {
    /// Takes the matches of the file at `path`, below what is shown as `root`.
    pub(in crate::files) fn new(
        hits: &'a mut Hits,
        clock: &'a Cell<Clock>,
        matcher: &'a RegexMatcher,
        root: &'a [u8],
        path: &'a [u8],
    ) -> Self {
        let closed = hits.are_enough();
        Self { hits, clock, matcher, root, path, shown_path: Vec::new(), matches: 0, binary: false, closed }
    }

    fn add(&mut self, number: Option<u64>, line: &[u8], kind: Kind) -> bool {
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
            if self.matches.is_multiple_of(CLOCK) {
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
        if self.add(found.line_number(), line, Kind::Match { begin, end }) {
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
            self.add(found.line_number(), bare(found.bytes()), Kind::Context);
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
