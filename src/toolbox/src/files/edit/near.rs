//! The line of a file that comes nearest to a text that is not in it, and what differs (T-EDIT-3).
//!
//! All of it takes time that grows with the file's length alone: only so many lines of the text are looked for, in so many
//! places, and only the beginning of a line is compared.

use std::collections::HashMap;
use std::fmt::Write as _;

use memchr::memmem::find_iter;
use memchr::{memchr, memchr_iter, memrchr};
use similar::{Algorithm, capture_diff_slices, diff_ratio};

use super::fold::{Folded, Mode};

/// Lines of the text that are looked at.
const MOST_LINES: usize = 1_000;

/// Of these, the longest are looked for in the file.
const ANCHORS: usize = 8;

/// Places of each of them that are looked at.
const HITS: usize = 64;

/// Bytes of a line that are compared.
const COMPARED: usize = 400;

/// Lines that are alike by a quick look, which get a closer one.
const CANDIDATES: usize = 8;

/// So much alike must two lines be that showing one for the other helps.
const ALIKE: f32 = 0.5;

/// Characters of a line shown on each side of the first that differs.
const SHOWN: usize = 60;

/// Says which line of `raw` comes nearest to `old`.
pub(super) fn nearest(raw: &[u8], old: &[u8]) -> String {
    if raw.is_empty() {
        return "the file is empty".to_owned();
    }
    let count = memchr_iter(b'\n', old).count() + 1;
    let lines: Vec<&[u8]> = old.split(|byte| *byte == b'\n').take(MOST_LINES).map(without_cr).collect();
    let mut wanted: Vec<(usize, &[u8])> = lines.iter().map(|line| clip(line.trim_ascii())).enumerate().collect();
    wanted.retain(|(_, line)| !line.is_empty());
    // The longest say most; of equal ones the first.
    wanted.sort_by_key(|(_, line)| std::cmp::Reverse(line.len()));
    let Some(&(longest, _)) = wanted.first() else {
        return "it is nothing but blanks and line ends, which do not stand so in the file".to_owned();
    };
    wanted.truncate(ANCHORS);
    if let Some(start) = best_start(raw, &wanted) {
        if let Some(pair) = first_difference(raw, &start, &lines, count) {
            return pair.in_words(count);
        }
        return format!("it is nearest at line {}", start.line);
    }
    match most_alike(raw, lines[longest].trim_ascii()) {
        Some((line, theirs)) => Pair { line, theirs, of: longest, ours: lines[longest] }.in_words(count),
        None => "no line of the file is like it".to_owned(),
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn clip(line: &[u8]) -> &[u8] {
    &line[..line.len().min(COMPARED)]
}

/// A line of the file at `raw[at..]`, without its end.
fn line_at(raw: &[u8], at: usize) -> &[u8] {
    let rest = &raw[at..];
    without_cr(&rest[..memchr(b'\n', rest).unwrap_or(rest.len())])
}

/// Where the text would begin if the lines of it that are in the file stood in their places.
struct Start {
    /// Line of the file, from 1.
    line: usize,
    /// Where that line begins.
    at: usize,
    /// Lines of the text that would stand before the file's first.
    skipped: usize,
}

/// The start for which most of the wanted lines are where they would be; none when none is in the file.
fn best_start(raw: &[u8], wanted: &[(usize, &[u8])]) -> Option<Start> {
    let hits = wanted.iter().flat_map(|(of, line)| find_iter(raw, line).take(HITS).map(|at| (at, *of)));
    let mut hits: Vec<(usize, usize)> = hits.collect();
    hits.sort_unstable();
    let (mut line, mut from) = (1, 0);
    // The number of a start may be below 1, so it is kept with the number of lines added.
    let mut starts: HashMap<usize, (usize, usize, usize)> = HashMap::new();
    for (at, of) in hits {
        line += memchr_iter(b'\n', &raw[from..at]).count();
        from = at;
        starts.entry(line + MOST_LINES - of).or_insert((0, at, of)).0 += 1;
    }
    let best = starts.into_iter().max_by_key(|(start, (votes, _, _))| (*votes, std::cmp::Reverse(*start)));
    let (start, (_, hit, of)) = best?;
    let back = of.min(start + of - MOST_LINES - 1);
    let mut at = memrchr(b'\n', &raw[..hit]).map_or(0, |end| end + 1);
    for _ in 0..back {
        at = memrchr(b'\n', &raw[..at - 1]).map_or(0, |end| end + 1);
    }
    Some(Start { line: start + of - MOST_LINES - back, at, skipped: of - back })
}

/// The first line of the text that the file has otherwise, by what the tolerant pass would not overlook.
fn first_difference<'a>(raw: &'a [u8], start: &Start, lines: &[&'a [u8]], count: usize) -> Option<Pair<'a>> {
    let (mut at, mut line) = (start.at, start.line);
    for (of, ours) in lines.iter().enumerate().skip(start.skipped) {
        let theirs = if at < raw.len() { line_at(raw, at) } else { b"" };
        let (a, b) = (folded(theirs), folded(ours));
        let agree = match (of == 0, of + 1 == count) {
            // Its first and last line may be parts of the file's.
            (true, false) => theirs.len() > COMPARED || a.ends_with(&b),
            (false, true) => a.starts_with(&b),
            (true, true) => false,
            (false, false) => a == b,
        };
        if !agree {
            return Some(Pair { line, theirs, of, ours });
        }
        at = memchr(b'\n', raw.get(at..)?).map_or(raw.len(), |end| at + end + 1);
        line += 1;
    }
    None
}

fn folded(line: &[u8]) -> Vec<u8> {
    Folded::new(clip(line), Mode::Tolerant).text
}

/// The line that is most alike to `wanted`, with its number.
fn most_alike<'a>(raw: &'a [u8], wanted: &[u8]) -> Option<(usize, &'a [u8])> {
    let wanted = clip(wanted);
    let mut pairs = vec![0u64; 1024];
    for pair in wanted.windows(2) {
        let number = usize::from(pair[0]) << 8 | usize::from(pair[1]);
        pairs[number >> 6] |= 1 << (number & 63);
    }
    // Score, number, line; the best first.
    let mut best: Vec<(usize, usize, &[u8])> = Vec::new();
    for (number, line) in raw.split(|byte| *byte == b'\n').enumerate() {
        let inner = clip(line.trim_ascii());
        if inner.is_empty() {
            continue;
        }
        let common = inner.windows(2).filter(|pair| {
            let number = usize::from(pair[0]) << 8 | usize::from(pair[1]);
            pairs[number >> 6] >> (number & 63) & 1 == 1
        });
        let score = 2_000 * common.count().min(wanted.len()) / (inner.len() + wanted.len());
        if best.len() < CANDIDATES || score > best[CANDIDATES - 1].0 {
            let place = best.partition_point(|(other, _, _)| *other >= score);
            best.insert(place, (score, number + 1, without_cr(line)));
            best.truncate(CANDIDATES);
        }
    }
    let ratio = |line: &[u8]| {
        let line = clip(line.trim_ascii());
        diff_ratio(&capture_diff_slices(Algorithm::Myers, line, wanted), line.len(), wanted.len())
    };
    let rated = best.into_iter().map(|(_, number, line)| (ratio(line), number, line));
    let (alike, number, line) = rated.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (alike >= ALIKE).then_some((number, line))
}

/// A line of the file and the one of the text that should stand there.
struct Pair<'a> {
    /// Number of the file's, from 1.
    line: usize,
    theirs: &'a [u8],
    /// Number of the text's, from 0.
    of: usize,
    ours: &'a [u8],
}

impl Pair<'_> {
    fn in_words(&self, count: usize) -> String {
        let of = if count > 1 { format!(" (for line {} of oldText)", self.of + 1) } else { String::new() };
        // Long lines differ early, or further on than is worth looking.
        let text = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(64 * 1024)]).into_owned();
        let (theirs, ours) = (text(self.theirs), text(self.ours));
        let same = theirs.chars().zip(ours.chars()).take_while(|(a, b)| a == b).count();
        let how = if theirs == ours {
            // Bytes that are not UTF-8, or the end of a very long line.
            "what differs cannot be shown".to_owned()
        } else if theirs.trim_start() == ours.trim_start() {
            "the blanks at its beginning differ".to_owned()
        } else if theirs.split_whitespace().eq(ours.split_whitespace()) {
            "only blanks differ".to_owned()
        } else if theirs.to_lowercase() == ours.to_lowercase() {
            format!("upper and lower case differ from character {} on", same + 1)
        } else {
            format!("it differs from character {} on", same + 1)
        };
        let mut words = format!("the nearest line is {}{of}; {how}:", self.line);
        for (who, line) in [("the file", &theirs), ("oldText", &ours)] {
            let _ = write!(words, "\n  {who} has {}", around(line, same));
        }
        words
    }
}

/// The part of a line around a character, in quotes, its control characters escaped.
fn around(line: &str, character: usize) -> String {
    let from = character.saturating_sub(SHOWN);
    let part: String = line.chars().skip(from).take(2 * SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if line.chars().nth(from + 2 * SHOWN).is_some() { "…" } else { "" };
    format!("{before}{part:?}{after}")
}
