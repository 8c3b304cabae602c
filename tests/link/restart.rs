//! The runner dies in mid-command, and the next one ends what it left.

use serde_json::{Value, json};

use crate::harness::{Place, long_sleep, processes, processes_with, until};

/// Calls that were under way when the runner died are in the journal as begun and never as ended: what they did is
/// unknown. What had ended before is whole.
#[test]
fn the_journal_of_a_crash_says_what_is_unknown() {
    let place = Place::new();
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": "echo one"}}]},
        {"calls": [
            {"id": "b", "tool": "bash", "args": {"command": sleep, "timeout": 1000}},
            {"id": "c", "tool": "bash", "args": {"command": format!("{sleep}; echo never"), "timeout": 1000}}
        ]}
    ]));
    let mut session = place.start(&[]);
    let id = session.id();
    until("both run", || processes(&sleep).len() == 2);
    session.crash();
    place.drive().exits(0);
    let events: Vec<Value> = place
        .events(&id)
        .iter()
        .map(|event| {
            let key = event["body"]["key"].as_str().and_then(|key| key.split_once('/')).map(|(_, rest)| rest);
            json!([event["kind"], key])
        })
        .collect();
    assert_eq!(
        Value::from(events),
        json!([
            ["started", null],
            ["informed", null],
            ["assistant", null],
            ["tool_started", "1/0"],
            ["tool_finished", "1/0"],
            ["assistant", null],
            ["tool_started", "2/0"],
            ["tool_started", "2/1"],
            ["ended", null]
        ])
    );
    until("the commands are gone", || processes_with(&sleep).is_empty());
}

/// A sandbox that is paused for a while, as by a busy host, goes on where it was.
#[test]
fn a_pause_behind_our_back_costs_only_time() {
    let place = Place::new();
    let mut desk = place.desk();
    desk.bash("echo kept > /tmp/file").ok();
    let name = place.containers().remove(0);
    for _ in 0..3 {
        desk.send("bash", &json!({"command": "sleep 0.3; cat /tmp/file"}));
        assert_eq!(crate::harness::engine("POST", &format!("/containers/{name}/pause")).0, 204);
        assert_eq!(crate::harness::engine("POST", &format!("/containers/{name}/unpause")).0, 204);
        assert_eq!(desk.answer().ok(), "kept\n");
    }
    desk.close().exits(0);
}

/// A runner that serves calls and is killed leaves a session like any other.
#[test]
fn a_killed_desk_is_recovered() {
    let place = Place::new();
    let mut desk = place.desk();
    let sleep = long_sleep();
    desk.send("bash", &json!({"command": sleep, "timeout": 1000}));
    until("it runs", || processes(&sleep).len() == 1);
    let id = place.run(["ps", "--json"]).exits(0).json()[0]["session"].as_str().expect("an id").to_owned();
    desk.kill();
    let next = place.drive();
    assert_eq!(next.exits(0).stderr, format!("note: session {id} was ended and cleaned up: its runner had died\n"));
    place.assert_clean();
    until("the command is gone", || processes_with(&sleep).is_empty());
}
