//! What is said: errors and diffs.

use super::*;

/// T-EDIT-1, bug 22: what cannot be made is told, with the edit that it is.
#[test]
fn what_cannot_be_made() {
    let mut desk = Desk::new();
    let text = "a\nb\na\nc\n";
    assert_eq!(desk.refused(text, &[("b", "b")]), "oldText and newText are equal, so there is nothing to change");
    assert!(desk.refused(text, &[("", "x")]).starts_with("oldText is empty: "));
    assert_eq!(
        desk.refused(text, &[("a\n", "x")]),
        "oldText is in f 2 times, in lines 1, 3: add lines around it until it is there once"
    );
    assert_eq!(
        desk.refused("xaaax", &[("aa", "x")]),
        "oldText is in f 2 times, in lines 1, 1: add lines around it until it is there once"
    );
    assert_eq!(
        desk.refused(text, &[("b\na", "x"), ("c", "y"), ("a\nc", "z")]),
        "edits[2]: overlaps edits[0] at line 3: make one edit of both\n\
         edits[2]: overlaps edits[1] at line 4: make one edit of both\nnone of the edits was made"
    );
    let chain = [("1\n2", "x"), ("2\n3", "x"), ("3\n4", "x"), ("4\n5", "x"), ("5\n6", "x")];
    assert_eq!(
        desk.refused("1\n2\n3\n4\n5\n6\n", &chain),
        "edits[1]: overlaps edits[0] at line 2: make one edit of both\n\
         edits[2]: overlaps edits[1] at line 3: make one edit of both\n\
         edits[3]: overlaps edits[2] at line 4: make one edit of both\n\
         1 more cannot be made: edits[4]\nnone of the edits was made"
    );
    assert_eq!(
        desk.refused(text, &[("c", "y"), ("b", "b"), ("d", "x")]),
        "edits[1]: oldText and newText are equal, so there is nothing to change\n\
         edits[2]: oldText is not in f; no line of the file is like it\nnone of the edits was made"
    );
    assert!(desk.refused("a\r\nb\r\n", &[("a\r\n", "a\n")]).contains("it would change nothing"));
    // What `read` showed is not what stands there.
    assert_eq!(
        desk.refused(b"caf\xe9 au lait\n", &[("caf\u{fffd} au lait", "x")]),
        "oldText is not in f; U+FFFD in oldText was shown for bytes that are not UTF-8: leave that character out, or \
         use bash; the nearest line is 1; what differs cannot be shown:\n  the file has \"caf\u{fffd} au lait\"\n  \
         oldText has \"caf\u{fffd} au lait\""
    );
    assert_eq!(
        desk.refused("“a”\n“a”  \n", &[("\"a\"", "x")]),
        "oldText, blanks at line ends and forms of quotes, dashes and blanks aside, is in f 2 times, in lines 1, 2: add \
         lines around it until it is there once"
    );
}

/// T-EDIT-3: the nearest line, its number and what differs.
#[test]
fn nearest_lines() {
    let mut desk = Desk::new();
    let text = "fn main() {\n    let count = 1;\n    println!(\"{count}\");\n}\n";
    let mut near = |old: &str| {
        let message = desk.refused(text, &[(old, "x")]);
        message.strip_prefix("oldText is not in f; ").unwrap_or_else(|| panic!("{message}")).to_owned()
    };
    assert_eq!(
        near("let count = 2;"),
        "the nearest line is 2; it differs from character 1 on:\n  the file has \"    let count = 1;\"\n  oldText has \"let count = 2;\""
    );
    assert_eq!(
        near("fn main() {\n\tlet count = 1;\n"),
        "the nearest line is 2 (for line 2 of oldText); the blanks at its beginning differ:\n  \
         the file has \"    let count = 1;\"\n  oldText has \"\\tlet count = 1;\""
    );
    assert_eq!(
        near("    let count = 1;\n    println!(\"{counts}\");\n}"),
        "the nearest line is 3 (for line 2 of oldText); it differs from character 21 on:\n  \
         the file has \"    println!(\\\"{count}\\\");\"\n  oldText has \"    println!(\\\"{counts}\\\");\""
    );
    assert_eq!(
        near("    Let count = 1;"),
        "the nearest line is 2; upper and lower case differ from character 5 on:\n  the file has \"    let count = 1;\"\n  \
         oldText has \"    Let count = 1;\""
    );
    assert_eq!(near("zzz"), "no line of the file is like it");
    assert_eq!(near("  \t"), "it is nothing but blanks and line ends, which do not stand so in the file");
    assert_eq!(desk.refused("", &[("a", "b")]), "oldText is not in f; the file is empty");
    let long = format!("{}ab{}", "x".repeat(5_000), "y".repeat(5_000));
    let message = desk.refused(&long, &[(&long.replace("ab", "ba"), "")]);
    assert!(message.contains("it differs from character 5001 on") && message.len() < 1_000, "{message}");
}

/// T-7: looking for the nearest line takes bounded time, whatever the file and the text are.
#[test]
fn nearest_lines_of_long_texts() {
    let mut desk = Desk::new();
    let old = "ab".repeat(50_000) + "c";
    for unit in ["ab", "a\n", "ab\n", "\n", "abababababababababababababab\n", "“", "\u{a0}"] {
        let file = unit.repeat((4 << 20) / unit.len());
        assert!(desk.refused(&file, &[(&old, "x")]).starts_with("oldText is not in f"));
        let lines = "ab\n".repeat(33_000) + "c";
        assert!(desk.refused(&file, &[(&lines, "x")]).starts_with("oldText is not in f"));
    }
}

fn diff(before: impl AsRef<[u8]>, edits: &[(&str, &str)]) -> String {
    let mut desk = Desk::new();
    desk.file(before);
    let reply = desk.edit(edits);
    assert!(matches!(reply.outcome, Outcome::Edited(_)), "{:?}", reply.outcome);
    let path = format!("--- {0}\n+++ {0}\n", desk.path("f").display());
    reply.text().strip_prefix(&path).unwrap().to_owned()
}

/// T-EDIT-4: a unified diff with three lines around, hunks that meet in one.
#[test]
fn diffs() {
    let numbers: String = (1..=30).map(|number| number.to_string() + "\n").collect();
    assert_eq!(
        diff(&numbers, &[("5\n6\n7\n", "5\nsix\n7\n"), ("29", "x\ny")]),
        "@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n@@ -26,5 +26,6 @@\n 26\n 27\n 28\n-29\n+x\n+y\n 30\n"
    );
    assert_eq!(
        diff(&numbers, &[("\n9\n", "\n"), ("16\n", "a16\n")]),
        "@@ -6,14 +6,13 @@\n 6\n 7\n 8\n-9\n 10\n 11\n 12\n 13\n 14\n 15\n-16\n+a16\n 17\n 18\n 19\n"
    );
    assert_eq!(
        diff("a\nb", &[("b", "c")]),
        "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    );
    assert_eq!(diff("a\nb", &[("b", "b\n")]), "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n");
    assert_eq!(diff("a\n", &[("a\n", "")]), "@@ -1,1 +0,0 @@\n-a\n");
    assert_eq!(diff("a\r\nb\r\n", &[("a", "x\ny")]), "@@ -1,2 +1,3 @@\n-a\r\n+x\r\n+y\r\n b\r\n");
    assert_eq!(diff("one two three\n", &[("one", "1"), ("three", "3")]), "@@ -1,1 +1,1 @@\n-one two three\n+1 two 3\n");
}

/// T-6, T-5: bytes that are no text are shown as U+FFFD, and of long lines the part around the change.
#[test]
fn diffs_of_odd_files() {
    assert_eq!(
        diff(b"\xff\na\xe2\x80b\0\n", &[("b", "c")]),
        "@@ -1,2 +1,2 @@\n \u{fffd}\n-a\u{fffd}b\0\n+a\u{fffd}c\0\n"
    );
    let name = "a\n+++ b";
    let mut desk = Desk::new();
    fs::write(desk.path(name), "one\n").unwrap();
    let reply = desk.edit_as(name, &[("one", "two")], MOST);
    let shown = reply.text().replace(&format!("{}/", desk.folder.path().display()), "");
    assert_eq!(shown, "--- a\\n+++ b\n+++ a\\n+++ b\n@@ -1,1 +1,1 @@\n-one\n+two\n");
    let long = format!("{}!{}\nnext\n", "é".repeat(100_000), "ü".repeat(100_000));
    let shown = diff(&long, &[("!", "?")]);
    assert!(shown.len() < 6_000 && shown.starts_with("@@ -1,1 +1,1 @@\n-…é") && shown.ends_with("ü…\n"), "{shown}");
    assert!(shown.contains("é!ü") && shown.contains("é?ü") && !shown.contains('\u{fffd}'));
}

/// T-5: a diff is cut at a line's end, with the counts of all of it.
#[test]
fn long_diffs_are_cut() {
    let mut desk = Desk::new();
    for (unit, count) in [("a\n", 30_000), ("0123456789abcdef0123456789abcdef\n", 3_000), ("é日\n", 100_000)] {
        desk.file("start\n");
        let new = unit.repeat(count);
        let reply = desk.edit(&[("start\n", &new)]);
        let edited = edited(&reply);
        assert_eq!(edited.diff_lines, count as u64 + 4);
        assert!(edited.shown_lines <= 2_000 && reply.payload.len() <= 50 * 1024);
        assert!(edited.shown_lines == 2_000 || reply.payload.len() > 50 * 1024 - 100);
        assert_eq!(reply.text().lines().count() as u64, edited.shown_lines);
        assert!(edited.diff_bytes > (unit.len() * count) as u64);
    }
}
