//! The lines of a `grep`'s result, formed and bounded here, so that the host has only text to show.

use crate::files::chars::prefix;
use crate::files::page::{MAX_BYTES, MAX_LINES};

/// Characters of a line that are shown (T-GREP-1).
pub(in crate::files) const MAX_LINE: usize = 500;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum Kind {
    /// It matches, in these of its bytes.
    Match {
        /// The first.
        begin: usize,
        /// The first after it.
        end: usize,
    },
    /// It stands near one.
    Context,
}

/// Collects lines until a limit is reached.
#[derive(Debug, Default)]
pub(in crate::files) struct Lines {
    text: Vec<u8>,
    count: u64,
    full: bool,
}

/// A place in the lines to go back to.
#[derive(Debug, Clone, Copy)]
pub(in crate::files) struct Mark {
    text: usize,
    count: u64,
    full: bool,
}

impl Lines {
    /// True when no more fits (T-5).
    pub(in crate::files) fn is_full(&self) -> bool {
        self.full
    }

    /// The text so far.
    pub(in crate::files) fn into_text(self) -> Vec<u8> {
        self.text
    }

    /// The place that has been reached.
    pub(in crate::files) fn mark(&self) -> Mark {
        Mark { text: self.text.len(), count: self.count, full: self.full }
    }

    /// Forgets what was added since.
    pub(in crate::files) fn go_back(&mut self, mark: Mark) {
        self.text.truncate(mark.text);
        (self.count, self.full) = (mark.count, mark.full);
    }

    /// Adds a line of a file, its end not included; false when it does not fit any more.
    pub(in crate::files) fn add(&mut self, path: &[u8], number: u64, line: &[u8], kind: Kind) -> bool {
        let mark = self.mark();
        self.text.extend_from_slice(path);
        let sign = if kind == Kind::Context { '-' } else { ':' };
        self.text.extend_from_slice(format!("{sign}{number}{sign} ").as_bytes());
        push_clipped(&mut self.text, line, kind);
        self.text.push(b'\n');
        self.keep(mark)
    }

    /// Adds the line between lines that do not stand together.
    pub(in crate::files) fn add_break(&mut self) {
        let mark = self.mark();
        self.text.extend_from_slice(b"--\n");
        self.keep(mark);
    }

    fn keep(&mut self, mark: Mark) -> bool {
        self.count += 1;
        if self.full || self.count > MAX_LINES || self.text.len() as u64 > MAX_BYTES {
            self.go_back(mark);
            self.full = true;
        }
        !self.full
    }
}

/// Adds a line as text, clipped around its match.
fn push_clipped(text: &mut Vec<u8>, line: &[u8], kind: Kind) {
    let (whole, _) = prefix(line, MAX_LINE as u64);
    if whole == line.len() {
        push_lossy(text, line);
        return;
    }
    let (begin, end) = match kind {
        Kind::Match { begin, end } => (begin, end),
        Kind::Context => (0, 0),
    };
    // Characters from the match on, at most as many as are shown, and those of the match among them.
    let (_, after) = prefix(&line[begin..], MAX_LINE as u64);
    let (_, matched) = prefix(&line[begin..end.max(begin)], MAX_LINE as u64);
    let (after, matched) = (after.chars, matched.chars);
    let room = MAX_LINE as u64 - matched;
    // Half of the rest in front, more when there is little behind.
    let wanted = (room / 2).max(MAX_LINE as u64 - after);
    let (from, before) = suffix(&line[..begin], wanted);
    let (length, _) = prefix(&line[begin..], MAX_LINE as u64 - before);
    if from > 0 {
        text.extend_from_slice("…".as_bytes());
    }
    push_lossy(text, &line[from..begin]);
    push_lossy(text, &line[begin..begin + length]);
    if begin + length < line.len() {
        text.extend_from_slice("…".as_bytes());
    }
}

/// Where the last characters of `bytes` begin, at most so many, and how many these are.
fn suffix(bytes: &[u8], chars: u64) -> (usize, u64) {
    // A character has four bytes at most; one that the cut falls into is left out.
    let most = usize::try_from(chars).unwrap_or(usize::MAX).saturating_mul(4);
    let mut from = bytes.len().saturating_sub(most);
    for _ in 0..3 {
        from += usize::from(from > 0 && bytes.get(from).is_some_and(|byte| byte & 0xc0 == 0x80));
    }
    let (_, count) = prefix(&bytes[from..], u64::MAX);
    let (left_out, _) = prefix(&bytes[from..], count.chars.saturating_sub(chars));
    (from + left_out, count.chars.min(chars))
}

/// Adds bytes as text, invalid UTF-8 as U+FFFD (T-6).
fn push_lossy(text: &mut Vec<u8>, bytes: &[u8]) {
    text.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes());
}

/// Adds a name or path on one line: control characters and backslashes are escaped, as `\n`.
pub(in crate::files) fn push_name(text: &mut Vec<u8>, name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    if !name.contains(|c: char| c.is_control() || c == '\\') {
        text.extend_from_slice(name.as_bytes());
        return;
    }
    for c in name.chars() {
        if c.is_control() || c == '\\' {
            text.extend(c.escape_default().map(|c| c as u8));
        } else {
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clipped(line: &[u8], kind: Kind) -> String {
        let mut text = Vec::new();
        push_clipped(&mut text, line, kind);
        String::from_utf8(text).unwrap()
    }

    /// T-GREP-1: 500 characters around the match, with a mark where something is missing.
    #[test]
    fn long_lines_are_clipped_around_the_match() {
        let line = format!("{}needle{}", "é".repeat(2000), "日".repeat(2000));
        let (begin, end) = (4000, 4006);
        let text = clipped(line.as_bytes(), Kind::Match { begin, end });
        assert_eq!(text, format!("…{}needle{}…", "é".repeat(247), "日".repeat(247)));
        let early = format!("needle{}", "x".repeat(2000));
        assert_eq!(clipped(early.as_bytes(), Kind::Match { begin: 0, end: 6 }), format!("needle{}…", "x".repeat(494)));
        let late = format!("{}needle", "x".repeat(2000));
        assert_eq!(
            clipped(late.as_bytes(), Kind::Match { begin: 2000, end: 2006 }),
            format!("…{}needle", "x".repeat(494))
        );
        assert_eq!(clipped(late.as_bytes(), Kind::Context), format!("{}…", "x".repeat(500)));
        assert_eq!(clipped(&[b'x'; 500], Kind::Context), "x".repeat(500));
    }

    /// T-5: 2,000 lines and 50 KiB.
    #[test]
    fn bounded() {
        let mut lines = Lines::default();
        let all = (1..9_999).take_while(|number| lines.add(b"a", *number, b"x", Kind::Context)).count();
        assert_eq!((all as u64, lines.is_full()), (MAX_LINES, true));
        let mut lines = Lines::default();
        while lines.add(b"a", 1, &[0xff; 499], Kind::Context) {}
        let text = lines.into_text();
        assert!(text.len() as u64 <= MAX_BYTES && text.len() as u64 + 2000 > MAX_BYTES);
    }

    proptest! {
        /// T-GREP-1, T-6: whatever the line, at most 500 characters are shown, the match's first ones among them.
        #[test]
        fn any_line(
            bytes in prop::collection::vec(prop_oneof![
                "[ab日🙂é]{1,90}".prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 1..90),
            ], 0..30).prop_map(|parts| parts.concat()),
            at in any::<prop::sample::Index>(),
            length in 0usize..700,
        ) {
            let begin = if bytes.is_empty() { 0 } else { at.index(bytes.len()) };
            let end = (begin + length).min(bytes.len());
            let text = clipped(&bytes, Kind::Match { begin, end });
            let inner = text.strip_prefix('…').unwrap_or(&text);
            let inner = inner.strip_suffix('…').unwrap_or(inner);
            prop_assert!(inner.chars().count() <= MAX_LINE);
            let match_text: String = String::from_utf8_lossy(&bytes[begin..end]).chars().take(100).collect();
            if bytes.is_ascii() {
                prop_assert!(text.contains(&match_text));
            }
            if String::from_utf8_lossy(&bytes).chars().count() <= MAX_LINE {
                prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
            }
        }
    }
}
