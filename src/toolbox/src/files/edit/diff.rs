//! A unified diff, written from the places that are known to change (T-EDIT-4).
//!
//! No more of the file is looked at than the lines around these places, and only so much of a long line.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use memchr::{memchr, memchr_iter, memrchr};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::plan::Change;
use crate::files::chars::prefix;
use crate::files::page::{MAX_BYTES, MAX_LINE, MAX_LINES};
use crate::files::search::push_name;

/// Lines that do not change, shown before and behind those that do.
const CONTEXT: usize = 3;

/// Bytes of a line looked at before and behind a change.
const REACH: usize = 1_000;

/// Lines and bytes on one side of a change from which on nobody looks which of them stay as they were.
const LONG: (usize, usize) = (2_000, 256 * 1024);

/// The time for looking, after which the rest counts as changed.
const PATIENCE: Duration = Duration::from_millis(200);

/// Lines of a diff, as many as a result may show, and the count of all.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The first lines, as UTF-8.
    pub(super) text: String,
    /// How many these are.
    pub(super) shown: u64,
    /// Lines in all.
    pub(super) total: u64,
    /// Bytes in all.
    pub(super) bytes: u64,
    full: bool,
}

impl Lines {
    fn push(&mut self, parts: &[&str]) {
        let length = parts.iter().map(|part| part.len() as u64).sum::<u64>() + 1;
        self.total += 1;
        self.bytes += length;
        self.full |= self.shown == MAX_LINES || self.text.len() as u64 + length > MAX_BYTES;
        if !self.full {
            self.text.extend(parts.iter().copied());
            self.text.push('\n');
            self.shown += 1;
        }
    }

    fn append(&mut self, other: &Self) {
        // Not by `lines`: a CR belongs to its line.
        for line in other.text.split_terminator('\n') {
            self.push(&[line]);
        }
        self.total += other.total - other.shown;
        self.bytes += other.bytes - other.text.len() as u64;
        self.full |= other.full;
    }
}

/// The diff of these changes of the file at `path`, which stand in the order of the file.
pub(super) fn unified(raw: &[u8], changes: &[Change], path: &str) -> Lines {
    let mut diff = Writer { raw, out: Lines::default(), hunk: None, counted: (0, 1), added: 0 };
    // On one line, whatever characters the name has.
    let mut name = Vec::new();
    push_name(&mut name, path.as_bytes());
    let name = String::from_utf8_lossy(&name);
    diff.out.push(&["--- ", &name]);
    diff.out.push(&["+++ ", &name]);
    let deadline = Instant::now() + PATIENCE;
    let mut rest = changes;
    while !rest.is_empty() {
        let (block, behind) = Block::first(raw, rest);
        block.write(&mut diff, deadline);
        rest = behind;
    }
    diff.end_hunk();
    diff.out
}

/// Changes that share lines, and these lines.
struct Block<'a> {
    raw: &'a [u8],
    /// The lines in the file; parts of them where they are long.
    old: Range<usize>,
    changes: &'a [Change<'a>],
}

impl<'a> Block<'a> {
    /// The first block of `changes`, and the changes behind it.
    fn first(raw: &'a [u8], changes: &'a [Change<'a>]) -> (Self, &'a [Change<'a>]) {
        let start = line_start(raw, changes[0].range.start);
        let mut end = 0;
        let mut count = 0;
        while let Some(change) = changes.get(count)
            && (count == 0 || change.range.start < end)
        {
            let Range { start: from, end: to } = change.range;
            let ended = change.new.ends_with(b"\n") || (change.new.is_empty() && from == start);
            end = if raw[to - 1] == b'\n' && ended { to } else { line_end(raw, to) };
            count += 1;
        }
        let (mine, behind) = changes.split_at(count);
        (Self { raw, old: start..end, changes: mine }, behind)
    }

    /// The lines as they are now.
    fn new_lines(&self) -> Vec<u8> {
        let mut new = Vec::new();
        let mut from = self.old.start;
        for change in self.changes {
            new.extend_from_slice(&self.raw[from..change.range.start]);
            new.extend_from_slice(&change.new);
            from = change.range.end;
        }
        new.extend_from_slice(&self.raw[from..self.old.end]);
        new
    }

    fn write(&self, diff: &mut Writer, deadline: Instant) {
        let (old, new) = (&self.raw[self.old.clone()], self.new_lines());
        let old_lines: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
        let new_lines: Vec<&[u8]> = new.split_inclusive(|byte| *byte == b'\n').collect();
        let long = |lines: &[&[u8]], bytes: &[u8]| lines.len() > LONG.0 || bytes.len() > LONG.1;
        let ops = if diff.out.full || long(&old_lines, old) || long(&new_lines, &new) {
            around_the_same(&old_lines, &new_lines)
        } else {
            capture_diff_slices_deadline(Algorithm::Myers, &old_lines, &new_lines, Some(deadline))
        };
        let offset = |index: usize| self.old.start + old_lines[..index].iter().map(|line| line.len()).sum::<usize>();
        for op in ops.into_iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
            let (olds, news) = (op.old_range(), op.new_range());
            let at = offset(olds.start);
            let removed = &old_lines[olds.clone()];
            diff.atom(
                at,
                removed,
                &new_lines[news.clone()],
                news.end == new_lines.len() && self.old.end == self.raw.len(),
            );
        }
    }
}

/// Everything between the lines that are the same at both ends, as one change.
fn around_the_same(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    let before = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let pairs = old[before..].iter().rev().zip(new[before..].iter().rev());
    let behind = pairs.take_while(|(a, b)| a == b).count();
    let (old_len, new_len) = (old.len() - before - behind, new.len() - before - behind);
    if old_len + new_len == 0 {
        return Vec::new();
    }
    vec![DiffOp::Replace { old_index: before, old_len, new_index: before, new_len }]
}

/// Where the line begins that `at` lies in, or a place in it not too far before.
fn line_start(raw: &[u8], at: usize) -> usize {
    let reach = at.saturating_sub(REACH);
    match memrchr(b'\n', &raw[reach..at]) {
        Some(end) => reach + end + 1,
        None => whole_character(raw, reach),
    }
}

/// Where the line ends that `at` lies in, or a place in it not too far behind.
fn line_end(raw: &[u8], at: usize) -> usize {
    let reach = (at + REACH).min(raw.len());
    match memchr(b'\n', &raw[at..reach]) {
        Some(end) => at + end + 1,
        None => whole_character(raw, reach),
    }
}

/// The same place, or one up to three bytes further on that is not inside of a character.
fn whole_character(raw: &[u8], at: usize) -> usize {
    (at..raw.len()).take(4).find(|at| raw[*at] & 0xc0 != 0x80).unwrap_or(at.min(raw.len()))
}

/// Writes hunks.
struct Writer<'a> {
    raw: &'a [u8],
    out: Lines,
    hunk: Option<Hunk>,
    /// A place, and the number of the line that it lies in.
    counted: (usize, u64),
    /// Lines that the file has more by now; fewer when negative.
    added: i64,
}

/// A hunk that is being written.
struct Hunk {
    old: (u64, u64),
    new: (u64, u64),
    body: Lines,
    /// Where the file goes on behind it.
    end: usize,
}

impl Writer<'_> {
    /// Adds lines that change: those at `at` go, others come. `last` says that nothing comes behind those.
    fn atom(&mut self, at: usize, removed: &[&[u8]], added: &[&[u8]], last: bool) {
        let raw = self.raw;
        let near = self.hunk.as_ref().and_then(|hunk| lines_between(raw, hunk.end, at, 2 * CONTEXT));
        if let Some(between) = near {
            self.context(&between);
        } else {
            self.end_hunk();
            let before = lines_before(raw, at);
            let start = before.first().map_or(at, |line| line.start);
            self.counted.1 += memchr_iter(b'\n', &raw[self.counted.0..start]).count() as u64;
            self.counted.0 = start;
            let line = self.counted.1;
            let new_line = line.saturating_add_signed(self.added);
            self.hunk = Some(Hunk { old: (line, 0), new: (new_line, 0), body: Lines::default(), end: start });
            self.context(&before);
        }
        let Some(hunk) = &mut self.hunk else { return };
        hunk.end = at;
        for line in removed {
            let starts_inside = hunk.end > 0 && raw[hunk.end - 1] != b'\n';
            hunk.end += line.len();
            hunk.old.1 += 1;
            hunk.line("-", line, starts_inside, hunk.end == raw.len());
        }
        for (number, line) in added.iter().enumerate() {
            let starts_inside = number == 0 && at > 0 && raw[at - 1] != b'\n';
            hunk.new.1 += 1;
            hunk.line("+", line, starts_inside, last && number + 1 == added.len());
        }
        self.added += signed(added.len()) - signed(removed.len());
    }

    /// Adds lines that stay.
    fn context(&mut self, lines: &[Range<usize>]) {
        let Some(hunk) = &mut self.hunk else { return };
        for line in lines {
            let starts_inside = line.start > 0 && self.raw[line.start - 1] != b'\n';
            hunk.old.1 += 1;
            hunk.new.1 += 1;
            hunk.line(" ", &self.raw[line.clone()], starts_inside, line.end == self.raw.len());
            hunk.end = line.end;
        }
    }

    fn end_hunk(&mut self) {
        let Some(hunk) = &self.hunk else { return };
        // Behind a part of a long line there is the rest of it, which says nothing.
        let whole = hunk.end == 0 || self.raw[hunk.end - 1] == b'\n';
        let behind = if whole { lines_behind(self.raw, hunk.end, CONTEXT) } else { Vec::new() };
        self.context(&behind);
        let Some(hunk) = self.hunk.take() else { return };
        // A side without lines is numbered by the line before it.
        let side = |(line, count): (u64, u64)| format!("{},{count}", if count == 0 { line - 1 } else { line });
        let mut header = String::new();
        let _ = write!(header, "@@ -{} +{} @@", side(hunk.old), side(hunk.new));
        self.out.push(&[&header]);
        self.out.append(&hunk.body);
    }
}

impl Hunk {
    fn line(&mut self, sign: &str, line: &[u8], starts_inside: bool, ends_file: bool) {
        let (text, ended) = line.strip_suffix(b"\n").map_or((line, false), |text| (text, true));
        let (length, _) = prefix(text, MAX_LINE);
        let dots = |there: bool| if there { "…" } else { "" };
        let cut = length < text.len() || !(ended || ends_file);
        self.body.push(&[sign, dots(starts_inside), &String::from_utf8_lossy(&text[..length]), dots(cut)]);
        if ends_file && !ended {
            self.body.push(&["\\ No newline at end of file"]);
        }
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The lines before the one that begins at `at`; none when it is a part of a line.
fn lines_before(raw: &[u8], at: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut end = at;
    while lines.len() < CONTEXT && end > 0 && raw[end - 1] == b'\n' {
        let start = line_start(raw, end - 1);
        lines.push(start..end);
        end = start;
    }
    lines.reverse();
    lines
}

/// The first lines at `at`.
fn lines_behind(raw: &[u8], at: usize, most: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = at;
    while lines.len() < most && start < raw.len() {
        let end = line_end(raw, start);
        lines.push(start..end);
        start = end;
        if raw[end - 1] != b'\n' {
            break;
        }
    }
    lines
}

/// The lines between two places, when they are at most so many.
fn lines_between(raw: &[u8], from: usize, to: usize, most: usize) -> Option<Vec<Range<usize>>> {
    let lines = lines_behind(&raw[..to], from, most);
    (lines.last().map_or(from, |line| line.end) == to).then_some(lines)
}
