//! From what is asked to what changes: every edit is found in the file as it was, or none is made (T-EDIT-1).

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};
use protocol::Replacement;

use super::find::{Found, Text, line_numbers};
use super::near;
use crate::files::fault::Fault;

/// Most edits whose faults are told at once.
const MOST_FAULTS: usize = 3;

/// One part of the file that changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    /// Which edit it is, from 0.
    pub(super) index: usize,
    /// Where it stands in the file as it was; never empty.
    pub(super) range: Range<usize>,
    /// What stands there now.
    pub(super) new: Cow<'a, [u8]>,
    /// The text that stood there is not exactly the one that was given.
    pub(super) tolerant: bool,
}

/// Finds what each edit changes in the file at `path`; in the order of the file. `go_on` says between two edits when the
/// time is up.
pub(super) fn plan<'a>(
    text: &Text,
    edits: &'a [Replacement],
    path: &str,
    go_on: impl Fn() -> Result<(), Fault>,
) -> Result<Vec<Change<'a>>, Fault> {
    let mut changes = Vec::with_capacity(edits.len());
    let mut faults = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        go_on()?;
        match change(text, index, edit, path, faults.len() < MOST_FAULTS) {
            Ok(change) => changes.push(change),
            Err(fault) => faults.push((index, fault)),
        }
    }
    if faults.is_empty() {
        changes.sort_unstable_by_key(|change: &Change| change.range.start);
        for pair in changes.windows(2).filter(|pair| pair[0].range.end > pair[1].range.start) {
            let (first, second) = (pair[0].index.min(pair[1].index), pair[0].index.max(pair[1].index));
            // To count lines takes as long as the file is; only the first few are told.
            let fault = if faults.len() < MOST_FAULTS {
                let line = line_numbers(text.raw, &[pair[1].range.start])[0];
                format!("overlaps edits[{first}] at line {line}: make one edit of both")
            } else {
                String::new()
            };
            faults.push((second, fault));
        }
    }
    if faults.is_empty() { Ok(changes) } else { Err(Fault::Argument(in_words(&faults, edits.len()))) }
}

fn in_words(faults: &[(usize, String)], edits: usize) -> String {
    if edits == 1 {
        return faults[0].1.clone();
    }
    let told = faults.iter().take(MOST_FAULTS).map(|(index, fault)| format!("edits[{index}]: {fault}"));
    let mut words = told.collect::<Vec<_>>().join("\n");
    if faults.len() > MOST_FAULTS {
        let more = faults[MOST_FAULTS..].iter().take(20).map(|(index, _)| format!("edits[{index}]"));
        let more = more.collect::<Vec<_>>().join(", ");
        let dots = if faults.len() > MOST_FAULTS + 20 { ", …" } else { "" };
        words = format!("{words}\n{} more cannot be made: {more}{dots}", faults.len() - MOST_FAULTS);
    }
    words + "\nnone of the edits was made"
}

fn change<'a>(text: &Text, index: usize, edit: &'a Replacement, path: &str, tell: bool) -> Result<Change<'a>, String> {
    let (old, new) = (edit.old.as_bytes(), edit.new.as_bytes());
    if old.is_empty() {
        return Err("oldText is empty: give text that stands in the file, or use write for a whole file".to_owned());
    }
    if old == new {
        return Err("oldText and newText are equal, so there is nothing to change".to_owned());
    }
    match text.find(old) {
        Found::Once { range, tolerant } => {
            let new = with_endings(text, &range, new);
            if text.raw[range.clone()] == *new {
                return Err(
                    "it would change nothing: newText, with the line endings of what it replaces, stands there \
                            already (to change line endings use bash)"
                        .to_owned(),
                );
            }
            Ok(Change { index, range, new, tolerant })
        }
        Found::Nowhere if tell => {
            // `read` shows it for what is not UTF-8, which no text can name.
            let shown = if edit.old.contains(char::REPLACEMENT_CHARACTER) && std::str::from_utf8(text.raw).is_err() {
                "U+FFFD in oldText was shown for bytes that are not UTF-8: leave that character out, or use bash; "
            } else {
                ""
            };
            Err(format!("oldText is not in {path}; {shown}{}", near::nearest(text.raw, old)))
        }
        Found::Nowhere => Err(String::new()),
        Found::Often { count, lines, tolerant } => {
            let how = if tolerant { ", blanks at line ends and forms of quotes, dashes and blanks aside," } else { "" };
            let dots = if count > lines.len() as u64 { ", …" } else { "" };
            let lines = lines.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            Err(format!(
                "oldText{how} is in {path} {count} times, in lines {lines}{dots}: add lines around it until it is there once"
            ))
        }
    }
}

/// `new` with the line endings of what it replaces: its first LF takes the ending of the first line that ends in `range`,
/// and so on; those beyond the last take that one's, or the one of the line around a range within it. A CR that `new` has
/// stays.
fn with_endings<'a>(text: &Text, range: &Range<usize>, new: &'a [u8]) -> Cow<'a, [u8]> {
    if !text.crlf || memchr(b'\n', new).is_none() {
        return Cow::Borrowed(new);
    }
    let (raw, replaced) = (text.raw, &text.raw[range.clone()]);
    let is_crlf = |text: &[u8], at: usize| at > 0 && text[at - 1] == b'\r';
    let mut replaced_ends = memchr_iter(b'\n', replaced).map(|at| is_crlf(replaced, at));
    let mut ending = memchr(b'\n', &raw[range.end..])
        .map(|at| range.end + at)
        .or_else(|| memrchr(b'\n', &raw[..range.start]))
        .is_some_and(|at| is_crlf(raw, at));
    let mut result = Vec::with_capacity(new.len() + 16);
    let mut from = 0;
    for at in memchr_iter(b'\n', new) {
        ending = replaced_ends.next().unwrap_or(ending);
        result.extend_from_slice(&new[from..at]);
        let has_one = if at == 0 { is_crlf(raw, range.start) } else { is_crlf(new, at) };
        if ending && !has_one {
            result.push(b'\r');
        }
        result.push(b'\n');
        from = at + 1;
    }
    result.extend_from_slice(&new[from..]);
    Cow::Owned(result)
}
