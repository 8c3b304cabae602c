//! Where a text stands in a file (T-EDIT-1 to T-EDIT-3).

use std::cell::OnceCell;
use std::ops::Range;

use memchr::memmem::{Finder, find};
use memchr::{memchr, memchr_iter, memrchr};

use super::fold::{Folded, Mode, made_plain, trim_end};

/// Most places that are named.
pub(super) const MOST_PLACES: usize = 20;

/// A file's text, with what is made of it when it is needed.
#[derive(Debug)]
pub(super) struct Text<'a> {
    /// As it stands in the file.
    pub(super) raw: &'a [u8],
    /// It has a CRLF.
    pub(super) crlf: bool,
    unended: OnceCell<Folded>,
    tolerant: OnceCell<Folded>,
}

/// Where a text was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// In one place.
    Once {
        /// Which.
        range: Range<usize>,
        /// It is not the exact text that stands there.
        tolerant: bool,
    },
    /// Nowhere.
    Nowhere,
    /// In several places.
    Often {
        /// In how many.
        count: u64,
        /// Lines of the first of them, from 1; one is named as often as the text begins in it.
        lines: Vec<u64>,
        /// It is not the exact text that stands there.
        tolerant: bool,
    },
}

impl<'a> Text<'a> {
    /// The text of a file.
    pub(super) fn new(raw: &'a [u8]) -> Self {
        let crlf = find(raw, b"\r\n").is_some();
        Self { raw, crlf, unended: OnceCell::new(), tolerant: OnceCell::new() }
    }

    /// Finds `old`, which is not empty: as it is, or else with what the tolerant pass allows.
    pub(super) fn find(&self, old: &[u8]) -> Found {
        match self.exactly(old) {
            Found::Nowhere => self.tolerantly(old),
            found => found,
        }
    }

    /// LF means either ending. Whoever writes a CR means that CR.
    fn exactly(&self, old: &[u8]) -> Found {
        if !self.crlf || memchr(b'\r', old).is_some() || memchr(b'\n', old).is_none() {
            let places = Places::of(self.raw, old);
            return places.found(self.raw, false, |range| range);
        }
        let folded = self.unended.get_or_init(|| Folded::new(self.raw, Mode::Endings));
        let places = Places::of(&folded.text, old);
        places.found(&folded.text, false, |range| folded.locate(self.raw, &range, false))
    }

    fn tolerantly(&self, old: &[u8]) -> Found {
        let trimmed = Folded::new(old, Mode::Tolerant).text;
        if trimmed.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\n')) {
            return Found::Nowhere;
        }
        let folded = self.tolerant.get_or_init(|| Folded::new(self.raw, Mode::Tolerant));
        let text = folded.text.as_slice();
        let last_line = &old[memrchr(b'\n', old).map_or(0, |at| at + 1)..];
        if trim_end(last_line).len() == last_line.len() {
            return Places::of(text, &trimmed).found(text, true, |range| folded.locate(self.raw, &range, false));
        }
        // Blanks at its end either stand before something else, or end a line, where there may be more or fewer.
        let before = memrchr(b'\n', &trimmed).map_or(0, |at| at + 1);
        let mut inside = Places::of(text, &[&trimmed[..before], &made_plain(last_line)].concat());
        let mut at_end = Places::of(text, &[&trimmed, b"\n".as_slice()].concat());
        at_end.length = trimmed.len();
        if text.ends_with(&trimmed) {
            at_end.add(text.len() - trimmed.len());
        }
        if inside.count == 0 {
            return at_end.found(text, true, |range| folded.locate(self.raw, &range, true));
        }
        inside.count += at_end.count;
        inside.starts.extend(at_end.starts);
        inside.starts.sort_unstable();
        inside.found(text, true, |range| folded.locate(self.raw, &range, false))
    }
}

/// Where a needle stands in a haystack.
struct Places {
    count: u64,
    /// The first of them.
    starts: Vec<usize>,
    length: usize,
}

impl Places {
    /// Takes time that grows with the lengths of both and not with their product, whatever they are.
    fn of(haystack: &[u8], needle: &[u8]) -> Self {
        let finder = Finder::new(needle);
        let mut places = Self { count: 0, starts: Vec::new(), length: needle.len() };
        for start in finder.find_iter(haystack) {
            places.add(start);
        }
        // The iterator steps over what it found, but a second place may begin inside of it.
        if let [only] = places.starts[..] {
            let end = (only + 2 * needle.len() - 1).min(haystack.len());
            if let Some(second) = finder.find(&haystack[only + 1..end]) {
                places.add(only + 1 + second);
            }
        }
        places
    }

    fn add(&mut self, start: usize) {
        self.count += 1;
        if self.starts.len() < MOST_PLACES {
            self.starts.push(start);
        }
    }

    fn found(&self, haystack: &[u8], tolerant: bool, locate: impl FnOnce(Range<usize>) -> Range<usize>) -> Found {
        match self.starts[..] {
            [] => Found::Nowhere,
            [only] if self.count == 1 => Found::Once { range: locate(only..only + self.length), tolerant },
            _ => Found::Often { count: self.count, lines: line_numbers(haystack, &self.starts), tolerant },
        }
    }
}

/// Numbers of the lines in which these places, in order, lie.
pub(super) fn line_numbers(text: &[u8], places: &[usize]) -> Vec<u64> {
    let (mut line, mut from) = (1, 0);
    let mut number = |place: &usize| {
        line += memchr_iter(b'\n', &text[from..*place]).count() as u64;
        from = *place;
        line
    };
    places.iter().map(&mut number).collect()
}
