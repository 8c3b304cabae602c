//! `read`, `write` and `ls`.

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
