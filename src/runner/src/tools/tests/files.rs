//! `read`, `write`, `edit` and `ls`.

use protocol::{ListEntry, ListKind, TextWindow};

use super::*;

fn window(first: u64, last: u64, total_lines: u64, clipped: Vec<(u64, u64)>) -> Outcome {
    Outcome::Text(TextWindow {
        path: "/tmp/f".to_owned(),
        first,
        last,
        total_lines,
        total_bytes: 4000,
        clipped,
        cut: last < total_lines,
    })
}

fn read(outcome: Outcome, payload: impl Into<Vec<u8>>) -> ToolResult {
    call("read", json!({"path": "f"}), vec![Ok(reply(outcome, payload))])
}

/// T-READ-1: text as it is; an empty file; T-5: the note on what is not shown.
#[test]
fn text_is_shown_as_it_is_with_notes() {
    assert_eq!(told(&read(window(1, 2, 2, vec![]), "a\r\n\tb")), (false, None, "a\r\n\tb"));
    let empty = Outcome::Text(TextWindow {
        path: "/tmp/f".to_owned(),
        first: 0,
        last: 0,
        total_lines: 0,
        total_bytes: 0,
        clipped: vec![],
        cut: false,
    });
    assert_eq!(told(&read(empty, "")), (false, None, "(file is empty)"));
    insta::assert_snapshot!(read(window(1, 2, 10, vec![]), "a\nb\n").text, @r"
a
b
[lines 1–2 of 10 (4000 bytes in all); continue with offset 3]
");
    insta::assert_snapshot!(read(window(9, 10, 10, vec![]), "i\nj").text, @r"
i
j
");
}

/// T-READ-2: clipped lines carry their length.
#[test]
fn clipped_lines_say_their_length() {
    insta::assert_snapshot!(read(window(7, 9, 9, vec![(8, 5000), (9, 3000)]), "a\nbb\ncc").text, @r"
a
bb… [line 8 has 5000 characters, clipped]
cc… [line 9 has 3000 characters, clipped]
");
}

/// T-5: lines whose invalid bytes take three each leave the result at a line's end.
#[test]
fn windows_of_invalid_bytes_end_early() {
    let line = [b"\xff".repeat(1023).as_slice(), b"\n"].concat();
    let text = read(window(1, 40, 40, vec![]), line.repeat(40)).text;
    assert!(text.len() <= text::MAX_BYTES + 100, "{}", text.len());
    assert!(
        text.ends_with("\n[lines 1–16 of 40 (4000 bytes in all); continue with offset 17]"),
        "{}",
        &text[text.len() - 90..]
    );
}

/// T-READ-3: images and other binary files.
#[test]
fn images_and_binary_files_are_named() {
    let binary = Outcome::Binary { kind: "ELF program".to_owned(), bytes: 77 };
    assert_eq!(told(&read(binary, "")), (false, None, "f is not text: ELF program, 77 bytes"));
    let image = || Reply {
        streamed: vec![1, 2, 3],
        ..reply(
            Outcome::Image {
                media_type: "image/png".to_owned(),
                size: (2000, 1000),
                scaled_from: Some((4000, 2000)),
                bytes: 3,
            },
            "",
        )
    };
    let result = call("read", json!({"path": "f"}), vec![Ok(image())]);
    assert_eq!(told(&result), (false, None, "image/png, 2000×1000 pixels, 3 bytes, scaled down from 4000×2000"));
    assert_eq!(result.image, Some(("image/png".to_owned(), vec![1, 2, 3])));
    let blind = ToolSession::new(Duration::from_secs(1), limits(), false);
    let result = call_with(&Scripted::new(vec![Ok(image())]), &blind, "read", json!({"path": "f"}));
    assert_eq!(result.image, None);
    assert!(result.text.ends_with("; this model takes no images"), "{}", result.text);
}

/// T-WRITE-1: says bytes and path.
#[test]
fn writes_say_bytes_and_path() {
    let hands = Scripted::new(vec![
        Ok(reply(Outcome::Written { path: "/tmp/home/x".to_owned(), bytes: 5, replaced: false }, "")),
        Ok(reply(Outcome::Written { path: "/tmp/home/x".to_owned(), bytes: 0, replaced: true }, "")),
    ]);
    let first = call_with(&hands, &session(), "write", json!({"path": "~/x", "content": "hällo"}));
    assert_eq!(told(&first), (false, None, "wrote /tmp/home/x: 5 bytes"));
    let second = call_with(&hands, &session(), "write", json!({"path": "~/x", "content": ""}));
    assert_eq!(told(&second), (false, None, "replaced /tmp/home/x: 0 bytes"));
    let asked = hands.asked.borrow();
    assert_eq!(asked[0].request, Request::Write { path: "~/x".to_owned() });
    assert_eq!(asked[0].body.as_ref(), "hällo".as_bytes());
}

fn edited(tolerant: Vec<u64>, edits: u64, diff_lines: u64) -> Outcome {
    let path = "/tmp/f".to_owned();
    Outcome::Edited(protocol::Edited { path, bytes: 9, edits, tolerant, diff_lines, diff_bytes: 50, shown_lines: 3 })
}

/// T-EDIT-1, T-1: both forms of edits, and the list as JSON in a string, are the same call; a smaller sandbox takes less.
#[test]
fn forms_of_edits_are_one_call() {
    let forms = [
        json!({"path": "f", "oldText": "a", "newText": ""}),
        json!({"path": "f", "edits": [{"oldText": "a", "newText": ""}]}),
        json!({"path": "f", "edits": "[{\"oldText\": \"a\", \"newText\": \"\"}]"}),
    ];
    for args in forms {
        let hands = Scripted::new(vec![Ok(reply(edited(vec![], 1, 3), "--- a\n+++ a\n@@\n"))]);
        assert_eq!(told(&call_with(&hands, &session(), "edit", args)), (false, None, "--- a\n+++ a\n@@\n"));
        let asked = hands.asked.borrow();
        assert_eq!(asked[0].request, Request::Edit { path: "f".to_owned(), most: 16 << 20 });
        assert_eq!(asked[0].body.as_ref(), br#"[{"old":"a","new":""}]"#);
    }
    let result = call("edit", json!({"path": "f", "oldText": "x".repeat(17 << 20), "newText": ""}), vec![]);
    assert_eq!(result.cause, Some(Cause::Limit));
    insta::assert_snapshot!(result.text, @"the edits have 17825813 bytes, more than the 16m there is room for: make fewer at once");
    let both = refused(
        "edit",
        json!({"path": "f", "oldText": "a", "newText": "b", "edits": [{"oldText": "a", "newText": "b"}]}),
    );
    assert_eq!(both, "`edits` stands alone: put `oldText` and `newText` into it, or leave it out");
    assert_eq!(refused("edit", json!({"path": "f"})), "give `edits`, or `oldText` and `newText`");
}

/// T-EDIT-3, T-EDIT-4, T-5: what the diff does not show is told; one that is too long as text is cut all the same.
#[test]
fn edits_are_told_as_a_diff_with_notes() {
    let edit = |outcome, diff: &[u8]| {
        call("edit", json!({"path": "f", "oldText": "a", "newText": "b"}), vec![Ok(reply(outcome, diff))])
    };
    insta::assert_snapshot!(edit(edited(vec![0], 1, 3), b"a\n").text, @r"
a
[oldText was there with other blanks at line ends, or other forms of quotes, dashes or blanks]
");
    insta::assert_snapshot!(edit(edited(vec![0, 2], 3, 70), b"a\n").text, @r"
a
[diff cut: 70 lines, 50 bytes in all; the first 3 lines are shown; everything was changed: use read on /tmp/f for the rest]
[edits[0], edits[2]: oldText was there with other blanks at line ends, or other forms of quotes, dashes or blanks]
");
    assert!(edit(edited(vec![], 1, 3), &b"\xff".repeat(60_000)).text.len() <= text::MAX_BYTES);
}

/// T-LS-1: one entry a line, whatever its name; bug 18: control characters in names do not break the listing.
#[test]
fn listings_have_one_entry_a_line() {
    let entry = |name: &str, kind: ListKind| ListEntry { name: name.to_owned(), kind };
    let entries = vec![
        entry(".hidden", ListKind::File),
        entry("dir", ListKind::Folder),
        entry("link", ListKind::Link("../x".to_owned())),
        entry("two\nlines\u{1b}[2J", ListKind::File),
    ];
    let listing = |shown, total, entries: &[ListEntry]| {
        let outcome = Outcome::Listing { path: "/tmp".to_owned(), shown, total };
        call("ls", json!({"path": "/tmp"}), vec![Ok(reply(outcome, serde_json::to_vec(entries).unwrap()))])
    };
    assert_eq!(told(&listing(4, 4, &entries)), (false, None, ".hidden\ndir/\nlink@ -> ../x\ntwo\\nlines\\u{1b}[2J\n"));
    assert_eq!(
        listing(1, 4, &entries[..1]).text,
        ".hidden\n[the first 1 of 4 entries; no more fit into a result, use bash for the rest]"
    );
    assert_eq!(told(&listing(0, 0, &[])), (false, None, "(empty directory)"));
}
