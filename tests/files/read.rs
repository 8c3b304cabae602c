//! `read`: text.

use serde_json::json;

use super::read;
use crate::harness::{Place, resident_bytes};

/// T-READ-1: text as it is; what is empty or past the end is said.
#[test]
fn text_comes_unchanged() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("cd /tmp; printf 'a\\r\\n\\tb  \\n\\n日本語' > text; : > empty; printf '\\xef\\xbb\\xbfbom\\n' > bom; echo > line").ok();
        assert_eq!(read(&mut desk, "/tmp/text").ok(), "a\r\n\tb  \n\n日本語");
        assert_eq!(read(&mut desk, "/tmp/empty").ok(), "(file is empty)");
        assert_eq!(read(&mut desk, "/tmp/bom").ok(), "\u{feff}bom\n");
        assert_eq!(read(&mut desk, "/tmp/line").ok(), "\n");
        let part = |offset: u64, limit: u64| json!({"path": "/tmp/text", "offset": offset, "limit": limit});
        assert_eq!(
            desk.call("read", &part(2, 1)).ok(),
            "\tb  \n[lines 2–2 of 4 (18 bytes in all); continue with offset 3]"
        );
        assert_eq!(desk.call("read", &part(4, 9)).ok(), "日本語");
        assert_eq!(desk.call("read", &part(5, 1)).fails("invalid"), "offset 5 is past the end: /tmp/text has 4 lines");
        let empty = desk.call("read", &json!({"path": "/tmp/empty", "offset": 2}));
        assert_eq!(empty.fails("invalid"), "offset 2 is past the end: /tmp/empty has 0 lines");
        assert_eq!(read(&mut desk, "/tmp/none").fails("not_found"), "/tmp/none does not exist");
    }
}

/// T-READ-2: long lines are clipped and say their length; lines are counted as they are.
#[test]
fn long_lines_are_clipped() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let content = format!("one\n{}\nthree\n{}\n{}", "ü".repeat(2000), "🙂".repeat(2001), "x".repeat(300_000));
        super::write(&mut desk, "/tmp/long", &content).ok();
        let clipped = format!(
            "one\n{}\nthree\n{}… [line 4 has 2001 characters, clipped]\n{}… [line 5 has 300000 characters, clipped]",
            "ü".repeat(2000),
            "🙂".repeat(2000),
            "x".repeat(2000)
        );
        assert_eq!(read(&mut desk, "/tmp/long").ok(), clipped);
        let third = desk.call("read", &json!({"path": "/tmp/long", "offset": 3, "limit": 1}));
        assert!(third.ok().starts_with("three\n[lines 3–3 of 5 ("), "{third:?}");
    }
}

/// T-5: a window ends at 2,000 lines or 50 KiB, says what there is, and where to go on; all windows are the file.
#[test]
fn long_files_are_read_in_windows() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("seq 5321 > /tmp/lines; seq 1000000000 1000020000 > /tmp/bytes").ok();
        let first = read(&mut desk, "/tmp/lines");
        assert!(first.ok().ends_with("\n2000\n[lines 1–2000 of 5321 (25498 bytes in all); continue with offset 2001]"));
        for (path, expected) in [("/tmp/lines", 1..=5321), ("/tmp/bytes", 1_000_000_000..=1_000_020_000)] {
            let (mut offset, mut whole) = (1, String::new());
            while offset > 0 {
                let answer = desk.call("read", &json!({"path": path, "offset": offset}));
                let text = answer.ok();
                let (window, note) = text.rsplit_once("\n[").map_or((text, ""), |(window, note)| (window, note));
                assert!(window.len() <= 50 * 1024 && window.lines().count() <= 2000);
                whole.push_str(window.trim_end_matches('\n'));
                whole.push('\n');
                let next =
                    note.rsplit_once("continue with offset ").map_or("0", |(_, next)| next.trim_end_matches(']'));
                offset = next.parse().expect("a number");
            }
            let numbers: Vec<u64> = whole.lines().map(|line| line.parse().expect("a number")).collect();
            assert!(numbers.iter().copied().eq(expected), "{path} came otherwise");
        }
    }
}

/// T-3: `~`, `@` and relative paths.
#[test]
fn paths_are_resolved() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(super::write(&mut desk, "~/notes", "mine\n").ok(), "wrote /tmp/home/notes: 5 bytes");
        for path in
            ["~/notes", "@~/notes", "/tmp/home/notes", "@/tmp/home/notes", "/tmp//home/./notes", "../../tmp/home/notes"]
        {
            assert_eq!(read(&mut desk, path).ok(), "mine\n", "{path}");
        }
        let skill = read(&mut desk, "SKILL.md").ok().to_owned();
        assert!(skill.ends_with("\nDo what the script says.\n"), "{skill}");
        for path in ["@SKILL.md", "./SKILL.md", "/app/static/SKILL.md"] {
            assert_eq!(read(&mut desk, path).ok(), skill, "{path}");
        }
        assert_eq!(read(&mut desk, "~nobody/x").fails("not_found"), "/app/static/~nobody/x does not exist");
        assert_eq!(read(&mut desk, "a\0b").fails("invalid"), "the path holds a NUL byte, which no file name can");
        read(&mut desk, &"x/".repeat(3000)).fails("invalid");
        assert_eq!(
            read(&mut desk, &format!("/tmp/{}", "x".repeat(300))).fails("invalid").rsplit(": ").next(),
            Some("file name too long")
        );
    }
}

/// T-6: bytes that are no text are shown as U+FFFD, and control bytes as they are.
#[test]
fn any_bytes_are_shown_as_text() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("printf 'a\\377b\\0c\\033[2J\\n' > /tmp/bytes").ok();
        assert_eq!(read(&mut desk, "/tmp/bytes").ok(), "a\u{fffd}b\0c\u{1b}[2J\n");
    }
}

/// T-READ-3, T-7: the window of a file of 3 GB is read in bounded memory.
#[test]
fn a_huge_file_is_read_in_bounded_memory() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"64m\"\ntmpSize = \"16m\"\n");
        let mut desk = place.desk();
        desk.bash("seq 100000 > /tmp/huge; truncate -s 3G /tmp/huge; printf '\\nlast\\n' >> /tmp/huge").ok();
        let before = resident_bytes(desk.pid());
        let window = desk.call("read", &json!({"path": "/tmp/huge", "offset": 99_999, "limit": 2}));
        assert_eq!(
            window.ok(),
            "99999\n100000\n[lines 99999–100000 of 100002 (3221225478 bytes in all); continue with offset 100001]"
        );
        let end = desk.call("read", &json!({"path": "/tmp/huge", "offset": 100_002}));
        assert_eq!(end.ok(), "last\n");
        assert!(resident_bytes(desk.pid()).saturating_sub(before) < 32 << 20);
        assert_eq!(desk.bash("echo fine").ok(), "fine\n");
    }
}
