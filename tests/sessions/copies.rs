//! `--in`, `--out` and `--keep` of `runner start`.

use std::fs;

use serde_json::json;

use crate::harness::{Place, engine};

/// What goes in can be changed and comes out.
#[test]
fn files_go_in_and_come_out() {
    let place = Place::new();
    place.write("in/a.txt", "a");
    place.write("in/deep/b.txt", "b");
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {
            "command": "cat /tmp/in/a.txt /tmp/in/deep/b.txt > /tmp/report; echo more >> /tmp/other/a.txt"
        }}], "expect": {"a": {"is_error": false}}},
        {"text": "done"}
    ]));
    let args = ["--in", "in", "--in", "in:/tmp/other", "--out", "/tmp/report:out", "--out", "/tmp/other:out"];
    let ran = place.run(["start", "--agent", "worker"].into_iter().chain(args));
    ran.exits(0);
    insta::assert_snapshot!(place.masked(&ran.stdout), @r#"
worker session SESSION, image runner/minimal
sandbox ready in TIME (container ID)
copied PROJECT/in to /tmp/in: 2 files, 2 bytes
copied PROJECT/in to /tmp/other: 2 files, 2 bytes
✓ bash {"command":"cat /tmp/in/a.txt /tmp/in/deep/b.txt > /tmp/report; echo more >> /tmp/other/a.txt"} TIME
  (no output)
│ done
copied /tmp/report to PROJECT/out: 1 file, 2 bytes
copied /tmp/other to PROJECT/out: 2 files, 7 bytes
done: the agent is done
2 turns, 1 tool call (0 failed), TIME; container ID is gone; exit code 0
"#);
    let out = |name: &str| fs::read_to_string(place.project().join("out").join(name)).expect("it came out");
    assert_eq!(
        (out("report"), out("other/a.txt"), out("other/deep/b.txt")),
        ("ab".into(), "amore\n".into(), "b".into())
    );
    assert_eq!(fs::read_to_string(place.project().join("in/a.txt")).expect("it is there"), "a");
}

/// `--out` also runs after a failed session, whose own cause and exit code stay.
#[test]
fn files_come_out_of_a_failed_session() {
    let place = Place::new();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": "echo half > /tmp/report"}}],
         "expect": {"a": {"contains": "something else"}}}
    ]));
    let ran = place.run(["start", "--agent", "worker", "--out", "/tmp/report:."]);
    ran.exits(4).prints(&format!("copied /tmp/report to {}: 1 file, 5 bytes", place.project().display()));
    assert_eq!(fs::read_to_string(place.project().join("report")).expect("it came out"), "half\n");
}

/// CLI-4: what cannot be copied out makes a good session a failed one, with exit code 1.
#[test]
fn a_missing_result_is_a_failure() {
    let place = Place::new();
    let ran = place.run(["start", "--agent", "worker", "--out", "/tmp/no-such:out"]);
    ran.exits(1);
    insta::assert_snapshot!(place.masked(&ran.stdout), @"
worker session SESSION, image runner/minimal
sandbox ready in TIME (container ID)
│ done
failed: cannot copy /tmp/no-such to PROJECT/out: /tmp/no-such does not exist
1 turn, 0 tool calls (0 failed), TIME; container ID is gone; exit code 1
");
}

/// What is not there cannot be copied in, and nothing is begun.
#[test]
fn a_missing_source_begins_nothing() {
    let place = Place::new();
    let ran = place.run(["start", "--agent", "worker", "--in", "no-such"]);
    ran.exits(2);
    insta::assert_snapshot!(place.masked(&ran.stderr), @"
error: --in no-such: No such file or directory
hint: name a file or folder of this machine: --in PATH[:/tmp/…]
");
    assert_eq!(ran.stdout, "");
    assert!(!place.state().exists(), "not even a state directory");
}

/// `--keep` leaves the sandbox until it is asked for by name.
#[test]
fn a_kept_sandbox_stays_until_it_is_stopped() {
    let place = Place::new();
    let ran = place.run(["start", "--agent", "worker", "--json", "--keep"]);
    let events = ran.exits(0).json_lines();
    let ended = events.last().expect("events");
    assert_eq!((&ended["event"], &ended["sandbox_removed"]), (&json!("ended"), &json!(false)));
    let session = ended["session"].as_str().expect("an id");
    let container = events.iter().find(|event| event["event"] == "sandbox_ready").expect("it was ready")["container"]
        .as_str()
        .expect("an id");
    place.drive().exits(0);
    let (status, found) = engine("GET", &format!("/containers/{container}/json"));
    assert_eq!((status, &found["State"]["Running"]), (200, &json!(true)), "a recovery leaves it");
    assert_eq!(place.show(session)["sandbox_kept"], true);
    let stopped = place.run(["stop", session]);
    assert_eq!(
        (stopped.exits(0).stdout.as_str(), stopped.stderr.as_str()),
        (format!("{session}  had ended already (done); what it had left is removed\n").as_str(), "")
    );
    assert_eq!(place.show(session)["sandbox_kept"], false);
}
