//! `edit`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{read, write};
use crate::attack::program;
use crate::harness::{Answer, Desk, Place, resident_bytes};

/// Makes one edit.
#[track_caller]
fn edit(desk: &mut Desk, path: &str, old: &str, new: &str) -> Answer {
    desk.call("edit", &json!({"path": path, "oldText": old, "newText": new}))
}

/// Arguments of several edits.
fn edits(path: &str, edits: &[(&str, &str)]) -> Value {
    let edits: Vec<Value> = edits.iter().map(|(old, new)| json!({"oldText": old, "newText": new})).collect();
    json!({"path": path, "edits": edits})
}

/// T-EDIT-1, T-EDIT-4: edits match the file as it was; all are made or none; the result is a diff; the mode stays.
#[test]
fn all_edits_or_none() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("mkdir /tmp/d; seq 12 > /tmp/d/f; chmod 751 /tmp/d/f; ln -s d/f /tmp/link").ok();
        let both = desk.call("edit", &edits("/tmp/link", &[("11\n12", "12\neleven"), ("2\n3\n", "2\n11\n")]));
        assert_eq!(
            both.ok(),
            "--- /tmp/link\n+++ /tmp/link\n@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+11\n 4\n 5\n 6\n@@ -8,5 +8,5 @@\n 8\n 9\n 10\n-11\n 12\n+eleven\n"
        );
        assert_eq!(both.details()["edits"], 2);
        let state = "cat /tmp/d/f | tr '\\n' ' '; stat -c %a /tmp/d/f; ls -A /tmp/d; readlink /tmp/link";
        let after = "1 2 11 4 5 6 7 8 9 10 12 eleven 751\nf\nd/f\n";
        assert_eq!(desk.bash(state).ok(), after);
        for (list, complaint) in [
            (
                edits("/tmp/d/f", &[("4", "four"), ("elfen", "x")]),
                "edits[1]: oldText is not in /tmp/d/f; the nearest line is 12; it differs from character 3 on:\n  the file \
                 has \"eleven\"\n  oldText has \"elfen\"\nnone of the edits was made",
            ),
            (
                edits("/tmp/d/f", &[("4", "four"), ("5\n6", "x"), ("6\n7", "y")]),
                "edits[2]: overlaps edits[1] at line 6: make one edit of both\nnone of the edits was made",
            ),
            (
                edits("/tmp/d/f", &[("1", "x")]),
                "oldText is in /tmp/d/f 5 times, in lines 1, 3, 3, 10, 11: add lines around it until it is there once",
            ),
            (edits("/tmp/d/f", &[("4", "4")]), "oldText and newText are equal, so there is nothing to change"),
        ] {
            assert_eq!(desk.call("edit", &list).fails("invalid"), complaint);
            assert_eq!(desk.bash(state).ok(), after);
        }
    }
}

/// T-1, T-EDIT-1: edits come in one of two forms, the list also as a string of JSON.
#[test]
fn forms_of_edits() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        write(&mut desk, "/tmp/f", "a\n").ok();
        let text = r#"[{"oldText": "a", "newText": "b"}]"#;
        desk.call("edit", &json!({"path": "/tmp/f", "edits": text})).ok();
        assert_eq!(read(&mut desk, "/tmp/f").ok(), "b\n");
        for (args, complaint) in [
            (json!({}), "give `edits`, or `oldText` and `newText`"),
            (json!({"oldText": "b"}), "`newText` is missing"),
            (json!({"newText": "b"}), "`oldText` is missing"),
            (json!({"edits": [{"oldText": "b", "newText": "c"}], "newText": "b"}), "`edits` stands alone"),
            (json!({"edits": []}), "/edits: "),
            (
                json!({"edits": "nonsense"}),
                "- /edits: the value is not of type \"array\" (rule `type`); received \"nonsense\"",
            ),
            (json!({"edits": [{"oldText": "b"}]}), "- /edits/0: \"newText\" is a required property"),
            (json!({"edits": [{"oldText": "", "newText": "c"}]}), "- /edits/0/oldText: "),
            (json!({"edits": [{"oldText": "b", "new_text": "c"}]}), "(did you mean \"newText\"?)"),
            (json!({"old_string": "b", "new_string": "c"}), "rule `additionalProperties`"),
        ] {
            let mut args = args;
            args["path"] = json!("/tmp/f");
            let refused = desk.call("edit", &args);
            assert!(refused.fails("invalid").contains(complaint), "{refused:?}");
        }
        assert_eq!(read(&mut desk, "/tmp/f").ok(), "b\n");
    }
}

/// T-EDIT-2, bug 20: CRLF, mixed endings, BOM, invalid bytes and a missing last line end stay, byte for byte.
#[test]
fn other_bytes_stay() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        for (before, old, new, after) in [
            ("a\\r\\nb\\r\\nc\\r\\n", "a\nb\n", "x\ny\n", "x\\r\\ny\\r\\nc\\r\\n"),
            ("\\357\\273\\277a\\r\\nb\\nc", "a\nb", "x\ny\nz", "\\357\\273\\277x\\r\\ny\\r\\nz\\nc"),
            ("\\377\\376\\000a \\t\\nb  ", "b", "", "\\377\\376\\000a \\t\\n  "),
        ] {
            desk.bash(&format!("printf '{before}' > /tmp/f; printf '{after}' > /tmp/wanted")).ok();
            edit(&mut desk, "/tmp/f", old, new).ok();
            assert_eq!(desk.bash("cmp /tmp/f /tmp/wanted && echo same").ok(), "same\n", "{before:?}");
        }
    }
}

/// T-EDIT-3, bug 21, bug 22: a tolerant match changes its place only and is told; what is nowhere is told with the nearest line.
#[test]
fn near_misses() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        write(&mut desk, "/tmp/f", "“keep”\u{a0}\nsay “hi” – now  \nend\n").ok();
        assert_eq!(
            edit(&mut desk, "/tmp/f", "say \"hi\" - now\nend", "said").ok(),
            "--- /tmp/f\n+++ /tmp/f\n@@ -1,3 +1,2 @@\n “keep”\u{a0}\n-say “hi” – now  \n-end\n+said\n\
             [oldText was there with other blanks at line ends, or other forms of quotes, dashes or blanks]"
        );
        assert_eq!(read(&mut desk, "/tmp/f").ok(), "“keep”\u{a0}\nsaid\n");
        assert_eq!(
            edit(&mut desk, "/tmp/f", "  said\n", "x").fails("invalid"),
            "oldText is not in /tmp/f; the nearest line is 2 (for line 1 of oldText); the blanks at its beginning differ:\n  \
             the file has \"said\"\n  oldText has \"  said\""
        );
        write(&mut desk, "/tmp/f", "“a”\n“a”  \n").ok();
        let twice = edit(&mut desk, "/tmp/f", "\"a\"", "x");
        assert!(
            twice
                .fails("invalid")
                .ends_with(" is in /tmp/f 2 times, in lines 1, 2: add lines around it until it is there once")
        );
        assert_eq!(read(&mut desk, "/tmp/f").ok(), "“a”\n“a”  \n");
    }
}

/// T-5, T-6, T-EDIT-4: a long diff is cut with its counts; bytes that are no text are shown as U+FFFD.
#[test]
fn diffs_are_bounded() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("printf 'a\\377b\\n' > /tmp/f").ok();
        let shown = edit(&mut desk, "/tmp/f", "b", "c");
        assert_eq!(shown.ok(), "--- /tmp/f\n+++ /tmp/f\n@@ -1,1 +1,1 @@\n-a\u{fffd}b\n+a\u{fffd}c\n");
        let long = edit(&mut desk, "/tmp/f", "c", &"a line of it\n".repeat(9_000));
        let (diff, note) = long.ok().rsplit_once('\n').expect("a note");
        assert_eq!(diff.lines().count(), 2_000);
        assert_eq!(
            note,
            "[diff cut: 9005 lines, 126054 bytes in all; the first 2000 lines are shown; everything was changed: use read on \
             /tmp/f for the rest]"
        );
    }
}

/// T-3, T-4, T-11, bug 23, bug 25: only regular files below /tmp are edited, and the answer comes at once.
#[test]
fn only_files_below_tmp() {
    for place in Place::on_each_image() {
        let socket = program::build("socket", &["../files/socket.c"]);
        let mut desk = place.desk_with("worker", &["--in", &format!("{}:/tmp/make", socket.display())]);
        let lead = "mkfifo pipe; ./make socket; ln -s /dev/zero zero; ln -s loop loop; ln -s /etc etc; mkdir d; echo a > ~/f; \
                    ln -s /app/static/SKILL.md skill; ln -s /proc/self/environ env; echo shm > /dev/shm/x; ln -s /dev/shm shm";
        desk.bash(&format!("cd /tmp; {lead}")).ok();
        edit(&mut desk, "@~/f", "a", "b").ok();
        let begun = Instant::now();
        for (path, cause, word) in [
            ("/tmp/pipe", "invalid", "a FIFO (named pipe)"),
            ("/tmp/socket", "invalid", "a Unix socket"),
            ("/tmp/zero", "invalid", "a character device"),
            ("/dev/zero", "invalid", "a character device"),
            ("/tmp/d", "invalid", "/tmp/d is a folder: use ls"),
            ("/tmp/gone", "not_found", "/tmp/gone does not exist"),
            ("/tmp/gone/f", "not_found", "does not exist"),
            ("/tmp/loop", "denied", "a loop of links"),
            ("/tmp/etc/hosts", "denied", "the root file system is read-only"),
            ("/tmp/skill", "denied", "the root file system is read-only"),
            ("SKILL.md", "denied", "the root file system is read-only"),
            ("/dev/shm/x", "denied", "the root file system is read-only"),
            ("/tmp/shm/x", "denied", "the root file system is read-only"),
            ("/tmp/env", "denied", ""),
            ("/proc/self/environ", "denied", ""),
            ("/proc/1/environ", "denied", ""),
        ] {
            let refused = edit(&mut desk, path, "s", "x");
            assert!(refused.fails(cause).contains(word), "{path}: {refused:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(16 * 3));
        assert_eq!(desk.bash("cat /dev/shm/x ~/f; [ ! -e /tmp/gone ]").ok(), "shm\nb\n");
    }
}

/// T-7, bug 26: a file of 3 GB is refused at once, in bounded memory; one of some megabytes is edited in a small sandbox.
#[test]
fn long_files() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"64m\"\ntmpSize = \"16m\"\n");
        let mut desk = place.desk();
        desk.bash("truncate -s 3G /tmp/huge").ok();
        let before = resident_bytes(desk.pid());
        assert_eq!(
            edit(&mut desk, "/tmp/huge", "a", "b").fails("limit"),
            "/tmp/huge has 3221225472 bytes; edit takes files of up to 4194304 bytes here: change it with a program in bash"
        );
        let long = edit(&mut desk, "/tmp/huge", &"a".repeat(5 << 20), "b");
        assert_eq!(
            long.fails("limit"),
            "the edits have 5242902 bytes, more than the 4m there is room for: make fewer at once"
        );
        desk.bash("rm /tmp/huge; yes 'a line of it' | tr '\\n' '\\r' | sed 's/\\r/\\r\\n/g' | head -c 4194000 > /tmp/f; echo end >> /tmp/f").ok();
        let long = "x\n".repeat(500_000);
        assert!(edit(&mut desk, "/tmp/f", "end", &long).ok().contains("[diff cut: 500"));
        let missing = "a line of it\n".repeat(100_000) + "b";
        edit(&mut desk, "/tmp/f", &missing, "x").fails("invalid");
        assert!(resident_bytes(desk.pid()).saturating_sub(before) < 64 << 20);
        assert_eq!(desk.bash("tail -n 2 /tmp/f; ls -A /tmp").ok(), "x\n\n.runner\nf\nhome\n");
    }
}

/// T-8: edits and writes of one real file wait for each other: no edit is lost.
#[test]
fn edits_of_one_file_do_not_mix() {
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "12"]);
        desk.bash("mkdir /tmp/d; ln -s d /tmp/other; seq 12 | sed 's/.*/<&>/' > /tmp/d/f").ok();
        let calls = (1..=12).map(|number| {
            let path = if number % 2 == 0 { "/tmp/d/f" } else { "/tmp/other/f" };
            ("edit", json!({"path": path, "oldText": format!("<{number}>"), "newText": format!("[{number}]")}))
        });
        for answer in desk.together(calls) {
            answer.ok();
        }
        assert_eq!(desk.bash("seq 12 | sed 's/.*/[&]/' | cmp - /tmp/d/f && ls -A /tmp/d").ok(), "f\n");
    }
}

/// T-10, T-EDIT-1, bug 36: on a full /tmp the file is as it was, and size and use are told.
#[test]
fn a_full_tmp_keeps_the_file() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"128m\"\ntmpSize = \"4m\"\n");
        let mut desk = place.desk();
        desk.bash("yes line | head -c 1000000 > /tmp/f; echo end >> /tmp/f; sha256sum /tmp/f > /tmp/sum; head -c 9000000 /dev/zero > /tmp/fill").text();
        let refused = edit(&mut desk, "/tmp/f", "end", "the end");
        assert!(refused.fails("no_space").starts_with("no space: /tmp uses 4.0 of 4.0 MiB and "), "{refused:?}");
        assert_eq!(
            desk.bash("rm /tmp/fill; sha256sum -c /tmp/sum; ls -A /tmp").ok(),
            "/tmp/f: OK\n.runner\nf\nhome\nsum\n"
        );
        edit(&mut desk, "/tmp/f", "end", "the end").ok();
    }
}
