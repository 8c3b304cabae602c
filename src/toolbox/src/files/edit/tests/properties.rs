//! Random files and edits against a plain model.

use proptest::prelude::*;

use super::*;
use crate::files::edit::find::Found;
use crate::files::edit::fold::{Folded, Mode, trim_end};

/// A line's content: a number that makes it unique, and what may stand around it.
fn line(number: usize) -> impl Strategy<Value = Vec<u8>> {
    let noise = prop_oneof![
        "[a-c “”–’\u{a0}é\t]{0,6}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>().prop_filter("no line end", |byte| !b"\r\n".contains(byte)), 0..4),
    ];
    (noise.clone(), noise)
        .prop_map(move |(before, behind)| [before, format!("<{number}>").into_bytes(), behind].concat())
}

fn ending() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![Just(b"\n".as_slice()), Just(b"\r\n".as_slice()), Just(b" \n".as_slice()), Just(b"\t \r\n".as_slice())]
}

/// The lines of a file, each with its ending, perhaps with a BOM and without the last ending.
fn file() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let lines =
        (1usize..12).prop_flat_map(|count| (0..count).map(|number| (line(number), ending())).collect::<Vec<_>>());
    (lines, any::<bool>(), any::<bool>(), 0u8..3).prop_map(|(lines, bom, unended, only)| {
        let count = lines.len();
        let mut lines: Vec<Vec<u8>> = lines
            .into_iter()
            .enumerate()
            .map(|(number, (line, ending))| {
                let ending = match only {
                    0 => b"\n",
                    1 => b"\r\n".as_slice(),
                    _ => ending,
                };
                let ending = if unended && number + 1 == count { b"" } else { ending };
                [&line, ending].concat()
            })
            .collect();
        if bom {
            lines[0].splice(0..0, *b"\xef\xbb\xbf");
        }
        lines
    })
}

/// Ranges of lines that do not overlap, one for each edit, with the text that comes.
fn ranges() -> impl Strategy<Value = Vec<(usize, usize, String)>> {
    prop::collection::vec((0usize..4, 1usize..3, "[xyz\n]{0,8}"), 1..4)
}

/// The new text with the endings of whole lines that it replaces; those of the file when these have none.
fn model_of_new(old: &[u8], new: &str) -> Vec<u8> {
    let ends: Vec<bool> = old
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .map(|line| line.ends_with(b"\r\n"))
        .collect();
    let mut result = Vec::new();
    for (number, line) in new.split('\n').enumerate() {
        if number > 0 {
            let crlf = ends.get(number - 1).or(ends.last()).copied().unwrap_or(false);
            result.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
        }
        result.extend_from_slice(line.as_bytes());
    }
    result
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// T-EDIT-1, T-EDIT-2, bug 20: with every line ending written as LF, what is named by whole lines is replaced, and
    /// every byte outside is as it was; when one of the edits cannot be made, all bytes are.
    #[test]
    fn only_what_is_named_changes(lines in file(), ranges in ranges(), spoil in any::<bool>()) {
        let raw = lines.concat();
        let (mut at, mut edits, mut spans) = (0, Vec::new(), Vec::new());
        for (skip, take, new) in ranges {
            let (from, to) = (at + skip, at + skip + take);
            if to > lines.len() {
                break;
            }
            let old = lines[from..to].concat();
            // A LF for each CRLF, as a model writes it; what is no UTF-8 it cannot name.
            if let Some(old) = text(&old).map(|old| old.replace("\r\n", "\n")) && old != new {
                // Around a last line without an ending the line before says which; the model does not look there.
                let new = if old.contains('\n') { new } else { new.replace('\n', "") };
                edits.push(Replacement { old, new });
                spans.push((lines[..from].concat().len(), lines[..to].concat().len()));
            }
            at = to;
        }
        prop_assume!(!edits.is_empty());
        if spoil {
            edits.push(Replacement { old: "not in any file".to_owned(), new: String::new() });
        }
        let found = Text::new(&raw);
        let planned = plan(&found, &edits, "f", || Ok(()));
        if spoil {
            prop_assert!(planned.is_err());
            return Ok(());
        }
        let Ok(changes) = planned else {
            // Only an edit that changes nothing may be refused here.
            let message = planned.unwrap_err().to_string();
            prop_assert!(message.contains("change nothing"), "{}", message);
            return Ok(());
        };
        // The model: what is before, between and behind the named lines, and the new text with its endings.
        let (mut expected, mut rest) = (Vec::new(), 0);
        for (edit, (from, to)) in edits.iter().zip(&spans) {
            expected.extend_from_slice(&raw[rest..*from]);
            expected.extend(model_of_new(&raw[*from..*to], &edit.new));
            rest = *to;
        }
        expected.extend_from_slice(&raw[rest..]);
        for (change, (from, to)) in changes.iter().zip(&spans) {
            prop_assert!(change.range == (*from..*to) && !change.tolerant);
        }
        let mut desk = Desk::new();
        desk.file(&raw);
        let pairs: Vec<(&str, &str)> = edits.iter().map(|edit| (edit.old.as_str(), edit.new.as_str())).collect();
        let reply = desk.edit(&pairs);
        prop_assert_eq!(edited(&reply).bytes, expected.len() as u64);
        prop_assert_eq!(fs::read(desk.path("f")).unwrap(), expected);
    }

    /// T-EDIT-3, bug 21: a text whose quotes, dashes and blanks were made plain is found where it came from, and the range
    /// begins and ends with it.
    #[test]
    fn tolerant_ranges_are_tight(lines in file(), from in 0usize..10, take in 1usize..4) {
        let raw = lines.concat();
        prop_assume!(from + take <= lines.len());
        let span = lines[..from].concat().len()..lines[..from + take].concat().len();
        let Some(original) = text(&raw[span.clone()]) else { return Ok(()) };
        let mut plain = String::from_utf8(Folded::new(original.as_bytes(), Mode::Tolerant).text).unwrap();
        if from == 0 {
            plain = plain.trim_start_matches('\u{feff}').to_owned();
        }
        prop_assume!(plain.contains('<'));
        match Text::new(&raw).find(plain.as_bytes()) {
            Found::Once { range, .. } => {
                prop_assert!(range.start >= span.start && range.end <= span.end);
                let found = Folded::new(&raw[range.clone()], Mode::Tolerant).text;
                prop_assert_eq!(found, plain.as_bytes());
                // Nothing before it was taken along, and behind it only what belongs to its last line end.
                prop_assert!(range.start == span.start || raw[span.start..range.start] == *b"\xef\xbb\xbf");
            }
            other => prop_assert!(false, "{:?} in {:?}: {:?}", plain, raw, other),
        }
    }

    /// Whatever is in a text, a place in what it is folded to is found again.
    #[test]
    fn folded_places_are_found_again(raw in prop::collection::vec(prop_oneof![
        Just(b"\r\n".to_vec()), Just(b"\n".to_vec()), Just(b"\r".to_vec()), Just(b" ".to_vec()), Just(b"\t".to_vec()),
        Just("“".as_bytes().to_vec()), Just("\u{a0}".as_bytes().to_vec()), Just(b"\xe2\x80".to_vec()), Just(b"x".to_vec()),
    ], 0..40), a in 0usize..40, b in 0usize..40) {
        let raw = raw.concat();
        for mode in [Mode::Endings, Mode::Tolerant] {
            let folded = Folded::new(&raw, mode);
            let (start, end) = (a.min(b), a.max(b) + 1);
            if end > folded.text.len() { continue; }
            let range = folded.locate(&raw, &(start..end), false);
            prop_assert!(range.start < range.end && range.end <= raw.len());
            let again = Folded::new(&raw[range.clone()], mode).text;
            // What ends in a blank would lose it if it were a line.
            prop_assert_eq!(trim_end(&again), trim_end(&folded.text[start..end]));
        }
    }

    /// T-EDIT-4: the diff, applied to the file as it was, gives the file as it is.
    #[test]
    fn diffs_apply(lines in prop::collection::vec("[ab]{0,2}\n", 0..40), unended in "[ab]{0,1}", cuts in prop::collection::vec((0usize..100, 1usize..30, "[abc\n]{0,12}"), 1..5)) {
        let raw = lines.concat() + &unended;
        let mut changes: Vec<Change> = Vec::new();
        let mut at = 0;
        for (index, (skip, take, new)) in cuts.iter().enumerate() {
            let range = at + skip..at + skip + take;
            if range.end > raw.len() { break; }
            at = range.end;
            if &raw[range.clone()] == new { continue; }
            changes.push(Change { index, range, new: new.as_bytes().into(), tolerant: false });
        }
        let mut now = String::new();
        let mut from = 0;
        for change in &changes {
            now += &raw[from..change.range.start];
            now += std::str::from_utf8(&change.new).unwrap();
            from = change.range.end;
        }
        now += &raw[from..];
        let diff = diff::unified(raw.as_bytes(), &changes, "/f");
        prop_assert_eq!(diff.shown, diff.total);
        prop_assert_eq!(diff.text.len() as u64, diff.bytes);
        prop_assert_eq!(apply(&raw, &diff.text), now, "{}", diff.text);
    }
}

/// Applies a unified diff strictly.
fn apply(raw: &str, diff: &str) -> String {
    let old: Vec<&str> = raw.split_inclusive('\n').collect();
    let mut out = String::new();
    let mut at = 0;
    let (mut want_old, mut want_new) = (0, 0);
    let mut new_line = 0;
    let mut last = "";
    for line in diff.lines().skip(2) {
        if let Some(header) = line.strip_prefix("@@ -") {
            assert_eq!((want_old, want_new), (0, 0), "counts of a hunk");
            let numbers: Vec<usize> =
                header.split([',', ' ', '+', '@']).filter_map(|number| number.parse().ok()).collect();
            let &[old_start, old_count, new_start, new_count] = numbers.as_slice() else { panic!("{line}") };
            let start = if old_count == 0 { old_start } else { old_start - 1 };
            assert!(start >= at, "hunks overlap");
            out.extend(old[at..start].iter().copied());
            new_line += start - at;
            at = start;
            assert_eq!(new_line, if new_count == 0 { new_start } else { new_start - 1 }, "{line}");
            (want_old, want_new) = (old_count, new_count);
            continue;
        }
        let (sign, text) = line.split_at(1);
        if sign == "\\" {
            if last != "-" {
                out.pop();
            }
            continue;
        }
        last = sign;
        if sign != "+" {
            assert_eq!(old[at].trim_end_matches('\n'), text);
            at += 1;
            want_old -= 1;
        }
        if sign != "-" {
            out += text;
            out += "\n";
            new_line += 1;
            want_new -= 1;
        }
    }
    let rest = &old[at..];
    out.extend(rest.iter().copied());
    out
}
