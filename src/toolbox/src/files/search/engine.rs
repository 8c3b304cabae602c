//! What a `grep` searches a file with, and the quick look that most files get away with.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use grep_matcher::Matcher as _;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};

use super::pattern::Pattern;

/// Bytes of a file that say whether it is binary.
pub(in crate::files) const SAMPLE: usize = 8 * 1024;

/// Files over this size are first looked through in pieces of it, which stay in the processor's nearest cache.
pub(in crate::files) const PIECE: usize = 32 * 1024;

/// Longest line of a file that streams by, with the context around it.
pub(in crate::files) const MAX_STREAMED_LINE: usize = 4 * 1024 * 1024;

/// What searches.
pub(in crate::files) struct Engine {
    /// What is searched for.
    pub(in crate::files) pattern: Pattern,
    context: usize,
    /// Searches what is in the buffer as a whole.
    pub(in crate::files) slices: Searcher,
    /// Made when the first long file is met.
    streams: Option<Searcher>,
    /// The file at hand, or a piece of it.
    pub(in crate::files) buffer: Vec<u8>,
}

impl Engine {
    /// With so many lines of context.
    pub(in crate::files) fn new(pattern: Pattern, context: u64) -> Self {
        let context = usize::try_from(context).unwrap_or(0);
        // Slices need no buffer of their own.
        let slices = builder(&pattern, context).heap_limit(Some(4096)).build();
        Self { pattern, context, slices, streams: None, buffer: Vec::new() }
    }
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum Verdict {
    /// It was searched and has so many matches.
    Searched(u64),
    /// It is not text.
    Binary,
    /// It is over the size limit.
    TooLarge,
    /// It is no regular file.
    Special,
}

impl Engine {
    /// The pattern, and what searches for it in files that stream by.
    pub(in crate::files) fn stream(&mut self) -> (&Pattern, &mut Searcher) {
        let Self { pattern, streams, context, .. } = self;
        let searcher = streams.get_or_insert_with(|| {
            builder(pattern, *context)
                .heap_limit(Some(MAX_STREAMED_LINE))
                .binary_detection(BinaryDetection::quit(0))
                .build()
        });
        (pattern, searcher)
    }

    /// Reads the first piece of a file into the buffer, or all of a shorter one.
    pub(in crate::files) fn begin(&mut self, file: &mut File) -> io::Result<usize> {
        if self.buffer.len() < PIECE {
            self.buffer.resize(PIECE, 0);
        }
        read_some(file, &mut self.buffer[..PIECE])
    }

    /// Looks through a file of `size` bytes, of which the buffer has those that were `begun`, for lines that may match,
    /// whole lines at a time. Most files have none, and this is the cheapest way to know; none when it does not.
    pub(in crate::files) fn screen(
        &mut self,
        file: &mut File,
        size: usize,
        begun: usize,
    ) -> io::Result<Option<Verdict>> {
        let piece = &mut self.buffer[..PIECE];
        let (mut held, mut seen) = (begun, begun);
        if is_binary(&piece[..held.min(SAMPLE)]) {
            return Ok(Some(Verdict::Binary));
        }
        if without_mark(&piece[..held]).len() < held {
            return Ok(None);
        }
        loop {
            let room = (PIECE - held).min(size.saturating_sub(seen));
            let count = fill(file, &mut piece[held..held + room])?;
            held += count;
            seen += count;
            let text = &piece[..held];
            let last = count < room || seen >= size;
            let end = match memchr::memrchr(b'\n', text) {
                _ if last => held,
                Some(at) => at + 1,
                // A line that is longer than a piece.
                None => return Ok(None),
            };
            match self.pattern.matcher.find_candidate_line(&text[..end]) {
                Ok(None) if last => return Ok(Some(Verdict::Searched(0))),
                Ok(None) => {}
                _ => return Ok(None),
            }
            piece.copy_within(end..held, 0);
            held -= end;
        }
    }
}

fn builder(pattern: &Pattern, context: usize) -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder.line_terminator(pattern.line_end).before_context(context).after_context(context).bom_sniffing(false);
    builder
}

/// A NUL byte makes a file binary, as for ripgrep. UTF-16 is, too, as for `read`; without ASCII it may hold no NUL.
pub(in crate::files) fn is_binary(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") || memchr::memchr(0, text).is_some()
}

/// Without the byte order mark of UTF-8, so that `^` matches before the first character.
pub(in crate::files) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Reads once.
fn read_some(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Fills as much of `buffer` as there is.
pub(in crate::files) fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match read_some(file, &mut buffer[length..])? {
            0 => break,
            count => length += count,
        }
    }
    Ok(length)
}
