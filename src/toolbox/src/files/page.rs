//! A window of lines, cut out of a text that streams by (T-5, T-READ-1, T-READ-2).

use memchr::{memchr, memchr_iter};
use protocol::TextWindow;

use super::chars::{Counter, prefix};

/// Most lines shown (T-5).
pub(super) const MAX_LINES: u64 = 2_000;

/// Most bytes of UTF-8 shown (T-5).
pub(super) const MAX_BYTES: u64 = 50 * 1024;

/// Characters of a line that are shown (T-READ-2).
pub(super) const MAX_LINE: u64 = 2_000;

/// Bytes that are sure to hold the first [`MAX_LINE`] characters of a line.
const LINE_BYTES: usize = 4 * 2_000;

/// Collects the lines from `first` on until a limit is reached, and counts all others. Only whole lines are shown, a
/// clipped one counting as whole, so the next window can start where this one ended.
#[derive(Debug)]
pub(super) struct Page<'a> {
    shown: &'a mut Vec<u8>,
    first: u64,
    /// Lines asked for, at most [`MAX_LINES`].
    most: u64,
    /// That was a limit of ours, not of the caller.
    most_is_ours: bool,
    /// Number of the line being read, from 1.
    line: u64,
    /// Beginning of that line, when it is to be shown.
    begun: Vec<u8>,
    counter: Counter,
    shown_lines: u64,
    shown_bytes: u64,
    full: bool,
    clipped: Vec<(u64, u64)>,
    total_bytes: u64,
    unfinished: bool,
}

impl<'a> Page<'a> {
    /// A window of at most `limit` lines from line `first` (from 1), appended to `shown`.
    pub(super) fn new(shown: &'a mut Vec<u8>, first: u64, limit: Option<u64>) -> Self {
        Self {
            shown,
            first,
            most: limit.unwrap_or(MAX_LINES).min(MAX_LINES),
            most_is_ours: limit.is_none_or(|limit| limit > MAX_LINES),
            line: 1,
            begun: Vec::new(),
            counter: Counter::default(),
            shown_lines: 0,
            shown_bytes: 0,
            full: false,
            clipped: Vec::new(),
            total_bytes: 0,
            unfinished: false,
        }
    }

    /// Takes the next bytes of the text.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.total_bytes += bytes.len() as u64;
        self.unfinished = *last != b'\n';
        while !bytes.is_empty() {
            if self.ended() {
                self.line += memchr_iter(b'\n', bytes).count() as u64;
                return;
            }
            bytes = if self.line < self.first { self.skip(bytes) } else { self.collect(bytes) };
        }
    }

    /// Takes `length` NUL bytes without having them.
    pub(super) fn hole(&mut self, length: u64) {
        const ZEROS: [u8; LINE_BYTES] = [0; LINE_BYTES];
        let real = length.min(LINE_BYTES as u64);
        self.feed(&ZEROS[..usize::try_from(real).unwrap_or(LINE_BYTES)]);
        let rest = length - real;
        self.total_bytes += rest;
        if !self.ended() && self.line >= self.first {
            self.counter.add_zeros(rest);
        }
    }

    fn ended(&self) -> bool {
        self.full || self.shown_lines == self.most
    }

    /// Passes over lines before the window; returns what is left.
    fn skip<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let ends = memchr_iter(b'\n', bytes).count() as u64;
        let wanted = self.first - self.line;
        if ends < wanted {
            self.line += ends;
            return &[];
        }
        let nth = usize::try_from(wanted - 1).expect("fewer than the bytes at hand");
        let at = memchr_iter(b'\n', bytes).nth(nth).expect("they were just counted");
        self.line = self.first;
        &bytes[at + 1..]
    }

    /// Takes the lines at hand, or as much of one as there is; returns what is left.
    fn collect<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if self.begun.is_empty() {
            // As most lines of most files are.
            let plain = self.show_plain(bytes);
            if plain > 0 {
                return &bytes[plain..];
            }
        }
        let (part, end) = memchr(b'\n', bytes).map_or((bytes, bytes.len()), |at| (&bytes[..at], at + 1));
        self.counter.feed(part);
        let room = LINE_BYTES - self.begun.len();
        self.begun.extend_from_slice(&part[..part.len().min(room)]);
        if end > part.len() {
            self.end_line(true);
        }
        &bytes[end..]
    }

    /// Shows the whole short lines of ASCII that `bytes` begins with, as many as fit, as they stand; returns their
    /// length.
    fn show_plain(&mut self, bytes: &[u8]) -> usize {
        let room = usize::try_from(MAX_BYTES - self.shown_bytes).expect("a small limit");
        let plain = bytes[..bytes.len().min(room)].chunks(1024).take_while(|piece| piece.is_ascii()).map(<[u8]>::len);
        let plain = plain.sum();
        let lines_left = usize::try_from(self.most - self.shown_lines).expect("a small limit");
        let mut end = 0;
        let mut lines = 0;
        for at in memchr_iter(b'\n', &bytes[..plain]).take(lines_left) {
            if (at + 1 - end) as u64 > MAX_LINE {
                break;
            }
            end = at + 1;
            lines += 1;
        }
        self.shown.extend_from_slice(&bytes[..end]);
        self.shown_bytes += end as u64;
        self.shown_lines += lines;
        self.line += lines;
        end
    }

    fn end_line(&mut self, newline: bool) {
        let whole = self.counter.finish();
        let clip = whole.chars > MAX_LINE;
        let (length, bytes) = if clip {
            let (length, count) = prefix(&self.begun, MAX_LINE);
            (length, count.bytes)
        } else {
            (self.begun.len(), whole.bytes)
        };
        let bytes = bytes + u64::from(newline);
        if self.shown_bytes + bytes > MAX_BYTES {
            self.full = true;
        } else {
            self.shown.extend_from_slice(&self.begun[..length]);
            if newline {
                self.shown.push(b'\n');
            }
            self.shown_bytes += bytes;
            self.shown_lines += 1;
            if clip {
                self.clipped.push((self.line, whole.chars));
            }
        }
        self.begun.clear();
        self.line += u64::from(newline);
    }

    /// Ends the text. `Err` holds its number of lines when it ended before the window began.
    pub(super) fn finish(mut self, path: &str) -> Result<TextWindow, u64> {
        let total_lines = self.line - 1 + u64::from(self.unfinished);
        if self.unfinished && self.line >= self.first && !self.ended() {
            self.end_line(false);
        }
        if self.first > total_lines && (self.first > 1 || total_lines > 0) {
            return Err(total_lines);
        }
        let empty = total_lines == 0;
        let last = if empty { 0 } else { self.first + self.shown_lines - 1 };
        Ok(TextWindow {
            path: path.to_owned(),
            first: if empty { 0 } else { self.first },
            last,
            total_lines,
            total_bytes: self.total_bytes,
            clipped: self.clipped,
            cut: last < total_lines && (self.full || self.most_is_ours),
        })
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
