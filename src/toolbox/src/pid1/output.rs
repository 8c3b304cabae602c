//! What is shown of a command's output: all of it when it is short, else its beginning and its end, with exact counts
//! of what is left out. Memory stays bounded whatever comes (T-7, T-BASH-7).

use std::collections::VecDeque;

/// Shown whole up to this many bytes …
const WHOLE_BYTES: usize = 50 * 1024;
/// … and this many lines.
const WHOLE_LINES: u64 = 2000;
/// Else this many bytes of the beginning …
const HEAD_BYTES: usize = 10 * 1024;
/// … in at most this many lines, …
const HEAD_LINES: u64 = 400;
/// … and this many bytes of the end …
const TAIL_BYTES: usize = 40 * 1024;
/// … in at most this many lines.
const TAIL_LINES: u64 = 1600;

/// The output of one command, while it comes.
#[derive(Debug, Default)]
pub(super) struct Output {
    head: Vec<u8>,
    head_lines: u64,
    /// The last bytes after the head, enough for all of it when the whole is short.
    recent: VecDeque<u8>,
    bytes: u64,
    line_ends: u64,
    unfinished: bool,
}

/// The shown part of an output that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// The shown bytes: the beginning, then the end.
    pub(super) payload: Vec<u8>,
    /// How many of them are the beginning; all when nothing is left out.
    pub(super) head: usize,
    /// Bytes in all.
    pub(super) total_bytes: u64,
    /// Lines in all; an unfinished last line counts.
    pub(super) total_lines: u64,
    /// Bytes left out.
    pub(super) omitted_bytes: u64,
    /// Line ends left out.
    pub(super) omitted_lines: u64,
}

impl Output {
    /// Whether the output is too long to be shown whole once `next` has come.
    pub(super) fn would_be_cut(&self, next: &[u8]) -> bool {
        let Some(last) = next.last() else { return self.is_cut() };
        self.bytes + next.len() as u64 > WHOLE_BYTES as u64
            || self.line_ends + line_ends(next) + u64::from(*last != b'\n') > WHOLE_LINES
    }

    /// Everything that came, in two or three pieces. Only meaningful before the output was cut.
    pub(super) fn so_far(&self) -> [&[u8]; 3] {
        let (first, second) = self.recent.as_slices();
        [&self.head, first, second]
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, next: &[u8]) {
        let Some(last) = next.last() else { return };
        self.bytes += next.len() as u64;
        self.line_ends += line_ends(next);
        self.unfinished = *last != b'\n';
        let after_head = self.fill_head(next);
        let kept = &after_head[after_head.len().saturating_sub(WHOLE_BYTES)..];
        let excess = (self.recent.len() + kept.len()).saturating_sub(WHOLE_BYTES);
        self.recent.drain(..excess);
        self.recent.extend(kept);
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Shown {
        let (total_bytes, total_lines, cut) = (self.bytes, self.lines(), self.is_cut());
        let mut payload = std::mem::take(&mut self.head);
        let recent = &*self.recent.make_contiguous();
        let head = if cut {
            payload.truncate(whole_characters(&payload));
            let head = payload.len();
            payload.extend_from_slice(tail(recent));
            head
        } else {
            payload.extend_from_slice(recent);
            payload.len()
        };
        Shown {
            head,
            total_bytes,
            total_lines,
            omitted_bytes: total_bytes - payload.len() as u64,
            omitted_lines: self.line_ends - line_ends(&payload),
            payload,
        }
    }

    fn lines(&self) -> u64 {
        self.line_ends + u64::from(self.unfinished)
    }

    fn is_cut(&self) -> bool {
        self.bytes > WHOLE_BYTES as u64 || self.lines() > WHOLE_LINES
    }

    /// Moves what still belongs to the head there and gives back the rest.
    fn fill_head<'a>(&mut self, next: &'a [u8]) -> &'a [u8] {
        // The head is full for good once anything came after it.
        if self.head_lines >= HEAD_LINES || self.head.len() >= HEAD_BYTES {
            return next;
        }
        let mut end = next.len().min(HEAD_BYTES - self.head.len());
        let mut found = 0;
        for (index, _) in next[..end].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            found += 1;
            if self.head_lines + found == HEAD_LINES {
                end = index + 1;
                break;
            }
        }
        self.head_lines += found;
        self.head.extend_from_slice(&next[..end]);
        &next[end..]
    }
}

#[allow(clippy::naive_bytecount)] // The plain loop is vectorised; no crate is worth it.
fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The end of `recent` within the tail's limits, beginning with a whole character.
fn tail(recent: &[u8]) -> &[u8] {
    let by_bytes = recent.len().saturating_sub(TAIL_BYTES);
    let lines_begin = recent
        .iter()
        .enumerate()
        .rev()
        // A line end at the very end closes the last line and begins none.
        .filter(|(index, byte)| **byte == b'\n' && index + 1 < recent.len())
        .nth(usize::try_from(TAIL_LINES - 1).expect("small"))
        .map_or(0, |(index, _)| index + 1);
    if lines_begin >= by_bytes {
        return &recent[lines_begin..];
    }
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let skipped = recent[by_bytes..].iter().take(3).take_while(|byte| is_inside(byte)).count();
    &recent[by_bytes + skipped..]
}

/// The length of `bytes` without an unfinished UTF-8 character at its end.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let needed = match bytes[at] {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            0b1000_0000..=0b1011_1111 => continue,
            _ => 1,
        };
        return if needed > back { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Shows `pieces`, and checks that nothing is ever held beyond the bound.
    fn show(pieces: &[&[u8]]) -> Shown {
        let mut output = Output::default();
        for piece in pieces {
            let cut_next = output.would_be_cut(piece);
            if !cut_next {
                assert!(!output.is_cut() || piece.is_empty());
            }
            output.push(piece);
            assert_eq!(output.is_cut(), cut_next);
            assert!(output.head.len() + output.recent.len() <= HEAD_BYTES + WHOLE_BYTES);
        }
        output.finish()
    }

    fn lines_of(bytes: &[u8]) -> u64 {
        line_ends(bytes) + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
    }

    /// T-BASH-7, T-5, bug 15, bug 17: what is shown follows from the whole output alone, however it was cut in pieces.
    fn check(whole: &[u8], shown: &Shown) -> Result<(), TestCaseError> {
        let (head, tail) = shown.payload.split_at(shown.head);
        prop_assert!(whole.starts_with(head));
        prop_assert!(whole.ends_with(tail));
        prop_assert_eq!(shown.total_bytes, whole.len() as u64);
        prop_assert_eq!(shown.total_lines, lines_of(whole));
        prop_assert_eq!(shown.omitted_bytes, (whole.len() - shown.payload.len()) as u64);
        let middle = &whole[head.len()..whole.len() - tail.len()];
        prop_assert_eq!(shown.omitted_lines, line_ends(middle));
        if whole.len() <= WHOLE_BYTES && lines_of(whole) <= WHOLE_LINES {
            prop_assert_eq!(&shown.payload, whole);
            prop_assert_eq!(shown.head, whole.len());
            return Ok(());
        }
        prop_assert!(head.len() <= HEAD_BYTES && lines_of(head) <= HEAD_LINES);
        prop_assert!(tail.len() <= TAIL_BYTES && lines_of(tail) <= TAIL_LINES);
        // No limit is left unused: one more character on either side would break it.
        prop_assert!(head.len() + 4 > HEAD_BYTES || line_ends(head) == HEAD_LINES);
        prop_assert!(tail.len() + 4 > TAIL_BYTES || lines_of(tail) == TAIL_LINES);
        Ok(())
    }

    fn cut(whole: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
        let mut rest = whole;
        let mut pieces = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Lines of any length, in pieces of any size.
        #[test]
        fn any_lines(
            lines in prop::collection::vec((0usize..200, 0usize..40), 0..80),
            closed in any::<bool>(),
            sizes in prop::collection::vec(1usize..70_000, 1..6),
        ) {
            let mut whole = Vec::new();
            for (length, times) in lines {
                for _ in 0..times {
                    whole.extend(std::iter::repeat_n(b'x', length));
                    whole.push(b'\n');
                }
            }
            if !closed {
                whole.extend_from_slice(b"unfinished");
            }
            let pieces = cut(&whole, &sizes);
            let shown = show(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
            check(&whole, &shown)?;
        }

        /// Bug 16: cuts fall on characters, so valid UTF-8 stays valid on both sides.
        #[test]
        fn characters_stay_whole(
            text in "[a-z日本語🙂é]{10}",
            times in 1usize..12_000,
            sizes in prop::collection::vec(1usize..9_000, 1..6),
        ) {
            let whole = text.repeat(times).into_bytes();
            let pieces = cut(&whole, &sizes);
            let shown = show(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
            check(&whole, &shown)?;
            let (head, tail) = shown.payload.split_at(shown.head);
            prop_assert!(std::str::from_utf8(head).is_ok());
            prop_assert!(std::str::from_utf8(tail).is_ok());
        }

        /// Any bytes at all.
        #[test]
        fn any_bytes(
            seed in prop::collection::vec(any::<u8>(), 1..3000),
            times in 1usize..60,
            sizes in prop::collection::vec(1usize..70_000, 1..6),
        ) {
            let whole = seed.repeat(times);
            let pieces = cut(&whole, &sizes);
            let shown = show(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
            check(&whole, &shown)?;
        }
    }

    #[test]
    fn the_limits_themselves_are_shown_whole() {
        let shown = show(&[&vec![b'x'; WHOLE_BYTES]]);
        assert_eq!((shown.omitted_bytes, shown.head), (0, WHOLE_BYTES));
        let shown = show(&[&b"y\n".repeat(2000)]);
        assert_eq!((shown.omitted_bytes, shown.total_lines), (0, 2000));
        let shown = show(&[&b"y\n".repeat(2001)]);
        assert_eq!((shown.omitted_bytes, shown.omitted_lines, shown.total_lines), (2, 1, 2001));
    }
}
