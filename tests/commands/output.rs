//! What is shown and kept of a command's output.

use std::process::Command;

use serde_json::json;

use super::command_for;
use crate::harness::{Answer, Place, resident_bytes, seq};

const KIB: usize = 1024;

/// The path of the kept output.
#[track_caller]
fn kept(answer: &Answer) -> &str {
    answer.details()["kept"].as_str().unwrap_or_else(|| panic!("nothing is kept of {}", answer.0))
}

/// T-BASH-7, T-5, bug 15: what fits is shown whole, both outputs in the order in which they came.
#[test]
fn short_output_is_whole() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(desk.bash("echo a; echo b >&2; echo c; echo d >&2; printf e").ok(), "a\nb\nc\nd\ne");
        let line = format!("{}\n", "x".repeat(209));
        let print = "line=$(head -c 209 /dev/zero | tr '\\0' x); for i in $(seq 200); do echo $line; done";
        assert_eq!(desk.bash(print).ok(), line.repeat(200));
        assert_eq!(desk.bash("seq 2000").ok(), seq(1..=2000));
        assert_eq!(desk.bash("head -c 51200 /dev/zero | tr '\\0' x").ok(), "x".repeat(50 * KIB));
    }
}

/// T-BASH-7, T-5, bug 15: longer output is its beginning, a note with exact counts, and its end; `read` has the rest.
#[test]
fn long_output_is_cut_and_kept() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let answer = desk.bash("seq 2001");
        let note = "[output cut: 2001 lines, 8898 bytes in all; 1 lines, 4 bytes left out here; all of it is in \
                /tmp/.runner/out/1.log: use read with offset]\n";
        assert_eq!(answer.ok(), format!("{}{note}{}", seq(1..=400), seq(402..=2001)));
        let rest = desk.call("read", &json!({"path": kept(&answer), "offset": 400, "limit": 3}));
        assert_eq!(rest.ok(), "400\n401\n402\n[lines 400–402 of 2001 (8898 bytes in all); continue with offset 403]");

        let answer = desk.bash("for i in $(seq 1000); do printf 'line %054d\\n' $i; done");
        let line = |number: usize| format!("line {number:054}\n");
        let (head, note_and_tail) = answer.ok().split_once("\n[output cut: ").expect("a note");
        let (note, tail) = note_and_tail.split_once("]\n").expect("a note's end");
        let whole: String = (1..=1000).map(line).collect();
        assert!(whole.starts_with(head) && whole.ends_with(tail));
        assert_eq!((head.len(), tail.len()), (10 * KIB, 40 * KIB));
        let left_out = whole.len() - 50 * KIB;
        let between = whole[10 * KIB..whole.len() - 40 * KIB].matches('\n').count();
        assert_eq!(
            note,
            format!(
                "1000 lines, 60000 bytes in all; {between} lines, {left_out} bytes left out here; all of it is in \
             /tmp/.runner/out/2.log: use read with offset"
            )
        );
        assert_eq!(desk.bash(&format!("cat {} | tail -n 1", kept(&answer))).ok(), line(1000));
        assert_eq!(desk.bash(&format!("wc -c < {}", kept(&answer))).ok(), "60000\n");

        let answer = desk.bash("seq 3000; exit 7");
        assert!(answer.fails("exit").ends_with("\n3000\n[exit code 7]"), "{answer:?}");
    }
}

/// T-7, T-BASH-7, bugs 15 and 17: counts are exact and memory is bounded, however much comes and however fast.
#[test]
fn floods_are_counted_and_bounded() {
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "8"]);
        desk.bash("true").ok();
        let before = resident_bytes(desk.pid());
        let answer = desk.bash("head -c 104857600 /dev/zero | tr '\\0' x");
        let text = answer.ok();
        let note = "\n[output cut: 1 lines, 104857600 bytes in all; 0 lines, 104806400 bytes left out here; its beginning and \
                end are in /tmp/.runner/out/1.log: use bash with tail -c and head -c]\n";
        assert_eq!(text, format!("{}{note}{}", "x".repeat(10 * KIB), "x".repeat(40 * KIB)));
        assert_eq!(desk.bash("wc -c < /tmp/.runner/out/1.log").ok(), "67108864\n");
        // Everything at once and the shell is gone: what is in the pipe then counts as well.
        let answers = desk.together((0..8).map(|_| super::command("head -c 3000000 /dev/zero | tr '\\0' y")));
        for answer in &answers {
            assert_eq!(
                (&answer.details()["total_bytes"], answer.text().len() / KIB),
                (&json!(3_000_000), 50),
                "{answer:?}"
            );
        }
        let answers = desk.together((0..8).map(|_| command_for(2.0, "cat /dev/zero | tr '\\0' x")));
        for answer in &answers {
            let text = answer.fails("timeout");
            assert!(text.len() < 52 * KIB && text.ends_with("x\n[timed out after 2 s]"), "{}", text.len());
        }
        let growth = resident_bytes(desk.pid()).saturating_sub(before);
        assert!(growth < 32 << 20, "the runner grew by {growth} bytes");
    }
}

/// T-6, bug 16: any bytes are text; characters that come in pieces stay whole, cuts fall between them.
#[test]
fn any_bytes_are_shown_as_text() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(desk.bash("printf 'a\\377b\\0c'").ok(), "a\u{fffd}b\0c");
        assert_eq!(
            desk.bash("printf '\\033]52;c;eA==\\a\\033[2J\\302\\233'").ok(),
            "\u{1b}]52;c;eA==\u{7}\u{1b}[2J\u{9b}"
        );
        let noise = desk.bash("head -c 100000 /dev/urandom");
        assert!(noise.ok().len() < 52 * KIB, "{}", noise.text().len());
        let unit = "日本語🙂";
        let written = desk.call("write", &json!({"path": "/tmp/whole", "content": unit.repeat(15_800)}));
        assert_eq!(written.ok(), "wrote /tmp/whole: 205400 bytes");
        let pieces = |bytes: usize, size: usize| {
            let count = bytes.div_ceil(size);
            format!(
                "for i in $(seq 0 {}); do dd if=/tmp/whole bs={size} count=1 skip=$i 2>/dev/null; sleep .01; done",
                count - 1
            )
        };
        let short = desk
            .bash(&format!("head -c 13000 /tmp/whole > /tmp/short; {}", pieces(13_000, 997).replace("whole", "short")));
        assert_eq!(short.ok(), unit.repeat(1000));
        let long = desk.bash(&pieces(205_400, 4093));
        assert!(!long.ok().contains('\u{fffd}'), "{long:?}");
        let (head, rest) = long.ok().split_once("\n[output cut: ").expect("a note");
        let tail = rest.split_once("]\n").expect("a note's end").1;
        assert!(unit.repeat(1000).starts_with(head) && unit.repeat(4000).ends_with(tail));
        assert_eq!(desk.bash(&format!("cmp /tmp/whole {} && echo same", kept(&long))).ok(), "same\n");
    }
}

/// T-6, bug 18: a person's terminal gets escapes as text; a program gets what was printed.
#[test]
fn terminals_get_no_commands() {
    for place in Place::on_each_image() {
        let call = "{\"command\": \"printf '\\\\033]0;owned\\\\a\\\\033[2J'; echo end\"}";
        let tool = ["tool", "--agent", "worker", "bash", call];
        assert_eq!(place.run(tool).exits(0).stdout, "\u{1b}]0;owned\u{7}\u{1b}[2Jend\n");
        let program = place.command(tool);
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let quoted = words.map(|word| format!("'{}'", word.to_str().expect("UTF-8").replace('\'', "'\\''")));
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &quoted.collect::<Vec<_>>().join(" "), "/dev/null"]);
        terminal.current_dir(place.project()).env("RUNNER_STATE", place.state()).stdin(std::process::Stdio::null());
        let shown =
            String::from_utf8(terminal.output().expect("script is part of every Debian").stdout).expect("UTF-8");
        assert!(shown.contains("\\u{1b}]0;owned\\u{7}\\u{1b}[2Jend"), "{shown:?}");
        assert!(!shown.contains("\u{1b}]0;owned"), "{shown:?}");
    }
}

/// T-BASH-7: kept outputs take a quarter of /tmp, the oldest go; one that cannot be kept fails nothing.
#[test]
fn kept_outputs_take_a_quarter_of_tmp() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"128m\"\ntmpSize = \"16m\"\n");
        let mut desk = place.desk();
        let print = "head -c 1500000 /dev/zero | tr '\\0' ";
        let paths: Vec<String> = "abcd".chars().map(|c| kept(&desk.bash(&format!("{print}{c}"))).to_owned()).collect();
        let list = "cd /tmp/.runner/out; wc -c *.log | awk '{print $1, $2}'; cut -c1 $(ls *.log)";
        assert_eq!(desk.bash(list).ok(), "1500000 3.log\n1500000 4.log\n3000000 total\nc\nd\n", "{paths:?}");
        // Longer than the quarter: beginning and end of it.
        let long = desk.bash("head -c 9000000 /dev/zero | tr '\\0' x");
        assert!(long.ok().contains("its beginning and end are in"), "{}", &long.text()[10_000..10_500]);
        assert_eq!(desk.bash("cd /tmp/.runner/out; ls; wc -c < 5.log").ok(), "5.log\n4194304\n");
        desk.bash("rm /tmp/.runner/out/*; head -c 20000000 /dev/zero > /tmp/fill; true").ok();
        let unkept = desk.bash(&format!("{print}x; true"));
        assert!(
            unkept.ok().contains("; it was not kept: redirect it to a file under /tmp and use read]\n"),
            "{unkept:?}"
        );
    }
}
