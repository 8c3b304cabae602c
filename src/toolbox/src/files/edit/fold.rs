//! Texts with some of their differences taken away, and the way back to where something stands in the text itself.
//!
//! Nothing here keeps a position for each byte: a folded text has at most the length of the text, and a place in it is
//! found again by walking the text once more, from the nearest of some marks.

use std::ops::{ControlFlow, Range};

use memchr::{memchr, memchr3};

/// What is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Line endings: CRLF becomes LF.
    Endings,
    /// Line endings, blanks at the ends of lines, and the typographic forms of quotes, dashes and blanks.
    Tolerant,
}

/// Bytes of the text between two marks, at least.
const MARK: usize = 64 * 1024;

/// A text as folded.
#[derive(Debug)]
pub(super) struct Folded {
    /// Its bytes.
    pub(super) text: Vec<u8>,
    mode: Mode,
    /// Places behind line ends: in the folded text and in the text itself.
    marks: Vec<(usize, usize)>,
}

/// A part of the text, in order, and what it is folded to.
enum Piece<'a> {
    /// It stands as it is.
    Same(&'a [u8]),
    /// One byte stands for so many.
    One(u8, usize),
    /// Nothing stands for so many bytes.
    Gap(usize),
}

impl Folded {
    /// Folds `raw`.
    pub(super) fn new(raw: &[u8], mode: Mode) -> Self {
        let mut text = Vec::with_capacity(raw.len());
        let mut marks = vec![(0, 0)];
        let mut at = 0;
        let _: ControlFlow<()> = walk(raw, mode, |piece| {
            match piece {
                Piece::Same(bytes) => {
                    text.extend_from_slice(bytes);
                    at += bytes.len();
                }
                Piece::One(byte, length) => {
                    text.push(byte);
                    at += length;
                    if byte == b'\n' && marks.last().is_some_and(|(_, last)| at - last >= MARK) {
                        marks.push((text.len(), at));
                    }
                }
                Piece::Gap(length) => at += length,
            }
            ControlFlow::Continue(())
        });
        Self { text, mode, marks }
    }

    /// Where `range` of the folded text, which is not empty, stands in `raw`. With `blanks`, blanks that were taken away
    /// behind it belong to it.
    pub(super) fn locate(&self, raw: &[u8], range: &Range<usize>, blanks: bool) -> Range<usize> {
        let (mut folded, mut at) = self.marks[self.marks.partition_point(|(folded, _)| *folded <= range.start) - 1];
        let (mut start, mut end) = (None, None);
        let _ = walk(&raw[at..], self.mode, |piece| {
            let (stands_for, length) = match piece {
                Piece::Same(bytes) => (bytes.len(), bytes.len()),
                Piece::One(_, length) => (1, length),
                Piece::Gap(length) => {
                    if let Some(end) = &mut end
                        && blanks
                    {
                        *end += length;
                    }
                    (0, length)
                }
            };
            if end.is_some() {
                return ControlFlow::Break(());
            }
            // Where a piece is one byte for several, only its two ends can be meant.
            if start.is_none() && range.start < folded + stands_for {
                start = Some(at + range.start - folded);
            }
            if range.end <= folded + stands_for {
                end = Some(if stands_for == length { at + range.end - folded } else { at + length });
            }
            folded += stands_for;
            at += length;
            ControlFlow::Continue(())
        });
        start.unwrap_or(raw.len())..end.unwrap_or(raw.len())
    }
}

/// Gives the pieces of `raw` to `visit` until it breaks off.
fn walk<'a>(raw: &'a [u8], mode: Mode, mut visit: impl FnMut(Piece<'a>) -> ControlFlow<()>) -> ControlFlow<()> {
    let mut rest = raw;
    if mode == Mode::Endings {
        while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
            visit(Piece::Same(&rest[..at]))?;
            visit(Piece::One(b'\n', 2))?;
            rest = &rest[at + 2..];
        }
        return visit(Piece::Same(rest));
    }
    while let Some(at) = memchr(b'\n', rest) {
        let (line, ending) = match rest[..at].strip_suffix(b"\r") {
            Some(line) => (line, 2),
            None => (&rest[..at], 1),
        };
        walk_line(line, &mut visit)?;
        visit(Piece::One(b'\n', ending))?;
        rest = &rest[at + 1..];
    }
    walk_line(rest, &mut visit)
}

fn walk_line<'a>(line: &'a [u8], visit: &mut impl FnMut(Piece<'a>) -> ControlFlow<()>) -> ControlFlow<()> {
    let mut rest = trim_end(line);
    let gap = line.len() - rest.len();
    while let Some((at, plain, length)) = next_typographic(rest) {
        visit(Piece::Same(&rest[..at]))?;
        visit(Piece::One(plain, length))?;
        rest = &rest[at + length..];
    }
    visit(Piece::Same(rest))?;
    if gap > 0 { visit(Piece::Gap(gap)) } else { ControlFlow::Continue(()) }
}

/// The line without the blanks at its end, typographic ones included.
pub(super) fn trim_end(mut line: &[u8]) -> &[u8] {
    loop {
        let blank = (1..=line.len().min(3)).find(|length| {
            let end = &line[line.len() - length..];
            matches!(end, b" " | b"\t") || plain(end) == Some((b' ', *length))
        });
        match blank {
            Some(length) => line = &line[..line.len() - length],
            None => return line,
        }
    }
}

/// A line's typographic characters made plain; blanks at its end stay.
pub(super) fn made_plain(line: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((at, plain, length)) = next_typographic(rest) {
        text.extend_from_slice(&rest[..at]);
        text.push(plain);
        rest = &rest[at + length..];
    }
    text.extend_from_slice(rest);
    text
}

/// Place, plain form and length of the next typographic character.
fn next_typographic(text: &[u8]) -> Option<(usize, u8, usize)> {
    let mut from = 0;
    while let Some(at) = memchr3(0xc2, 0xe2, 0xe3, &text[from..]) {
        if let Some((plain, length)) = plain(&text[from + at..]) {
            return Some((from + at, plain, length));
        }
        from += at + 1;
    }
    None
}

/// The plain form of the typographic character that `text` begins with, and its length in bytes.
fn plain(text: &[u8]) -> Option<(u8, usize)> {
    let plain = match text {
        // U+00A0.
        [0xc2, 0xa0, ..] => return Some((b' ', 2)),
        // U+2000 to U+200A, U+202F, U+205F and U+3000: blanks of all widths.
        [0xe2, 0x80, 0x80..=0x8a | 0xaf, ..] | [0xe2, 0x81, 0x9f, ..] | [0xe3, 0x80, 0x80, ..] => b' ',
        // U+2010 to U+2015 and the minus sign U+2212.
        [0xe2, 0x80, 0x90..=0x95, ..] | [0xe2, 0x88, 0x92, ..] => b'-',
        // U+2018 to U+201B, U+201C to U+201F.
        [0xe2, 0x80, 0x98..=0x9b, ..] => b'\'',
        [0xe2, 0x80, 0x9c..=0x9f, ..] => b'"',
        _ => return None,
    };
    Some((plain, 3))
}
