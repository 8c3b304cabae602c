//! Many commands at once.

use serde_json::{Value, json};

use super::command;
use crate::harness::Place;

/// T-8: calls run at the same time, and their results come in the order asked.
#[test]
fn calls_run_at_the_same_time_and_answer_in_order() {
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "4"]);
        desk.bash("mkfifo /tmp/there /tmp/back").ok();
        // Each waits for the other.
        let answers = desk.together([
            command("cat /tmp/there; echo second > /tmp/back; sleep .3"),
            command("echo first > /tmp/there; cat /tmp/back"),
            ("ls", json!({"path": "/app/static"})),
        ]);
        let texts: Vec<&str> = answers.iter().map(|answer| answer.ok()).collect();
        assert_eq!(texts, ["first\n", "second\n", "config.toml\nSKILL.md\n"]);
    }
}

/// T-8: the calls of a model's turn as well.
#[test]
fn the_calls_of_a_turn_run_at_the_same_time() {
    for place in Place::on_each_image() {
        place.script(&json!([
            {"calls": [{"id": "make", "tool": "bash", "args": {"command": "mkfifo /tmp/there /tmp/back"}}]},
            {"calls": [
                {"id": "a", "tool": "bash", "args": {"command": "cat /tmp/there; echo second > /tmp/back"}},
                {"id": "b", "tool": "bash", "args": {"command": "echo first > /tmp/there; cat /tmp/back"}},
            ], "expect": {"a": {"contains": "first\n"}, "b": {"contains": "second\n"}}},
            {"text": "done"},
        ]));
        place.run(["start", "--agent", "worker"]).exits(0);
    }
}

/// Bug 19: no output is empty and every byte is right, 16 at a time.
#[test]
fn no_output_is_lost() {
    let soak = std::env::var_os("RUNNER_SOAK").is_some();
    let (short, long) = if soak { (20_000, 2_000) } else { (800, 64) };
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "16"]);
        let mut left = short;
        while left > 0 {
            let batch = left.min(160);
            for answer in desk.together((0..batch).map(command_echo)) {
                answer.ok();
                let number = answer.0["id"].as_str().expect("ids are strings");
                assert!(answer.text().starts_with("x "), "{number}: {answer:?}");
            }
            left -= batch;
        }
        // A megabyte that is different each time; its own sum is the last line.
        let print = |number: usize| {
            let make = format!("seq {number}000000 {number}999999 | head -c 1000000 | tee /tmp/made-{number}");
            command(&format!("{make}; sha256sum < /tmp/made-{number}; rm /tmp/made-{number}"))
        };
        for batch in 0..long / 16 {
            let answers = desk.together((0..16).map(|number| print(1 + batch * 16 + number)));
            let logs = answers.iter().map(|answer| {
                assert!(answer.ok().ends_with("  -\n"), "{answer:?}");
                answer.details()["kept"].as_str().unwrap_or_else(|| panic!("not kept: {answer:?}"))
            });
            let logs: Vec<&str> = logs.collect();
            let check = format!(
                "for log in {}; do [ \"$(head -c 1000000 $log | sha256sum)\" = \"$(tail -n 1 $log | tail -c 68)\" ] || echo bad $log; done",
                logs.join(" ")
            );
            assert_eq!(desk.bash(&check).ok(), "(no output)");
        }
    }
}

fn command_echo(number: usize) -> (&'static str, Value) {
    command(&format!("echo x {number}"))
}
