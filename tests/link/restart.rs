//! The runner dies in mid-command, and the next one goes on with what it left.

use serde_json::{Value, json};

use crate::harness::script::Gate;
use crate::harness::{Place, Session, long_sleep, processes, processes_with, until};

/// Calls that were under way when the runner died go on in the container, and the next runner takes them up: the journal
/// tells each once, begun by the one runner and ended by the other. What had ended before is whole.
#[test]
fn the_calls_of_a_crash_are_taken_up() {
    let place = Place::new();
    let (one, two) = (Gate::new(), Gate::new());
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": "echo one"}}]},
        {"calls": [
            {"id": "b", "tool": "bash", "args": {"command": format!("{{ {}; }} 2>/dev/null; echo two", one.command()), "timeout": 1000}},
            {"id": "c", "tool": "bash", "args": {"command": format!("{{ {}; }} 2>/dev/null; echo three", two.command()), "timeout": 1000}}
        ]},
        {"text": "${b.text}${c.text}"}
    ]));
    let mut session = place.start(&[]);
    let id = session.id();
    one.reached();
    two.reached();
    session.crash();
    // This one ends while nobody listens.
    one.open();
    let next = Session::of(place.command(["resume", &id, "--json"]));
    until("it is taken up", || place.kinds(&id, "resumed") == 1);
    two.open();
    let ran = next.end();
    let last = ran.exits(0).json_lines().pop().expect("events");
    assert_eq!((&last["cause"], &last["text"]), (&json!("done"), &json!("two\nthree\n")));
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
            ["informed", null],
            ["assistant", null],
            ["tool_started", "1/0"],
            ["tool_finished", "1/0"],
            ["assistant", null],
            ["tool_started", "2/0"],
            ["tool_started", "2/1"],
            ["resumed", null],
            ["tool_finished", "2/0"],
            ["tool_finished", "2/1"],
            ["assistant", null],
            ["ended", null]
        ])
    );
    assert_eq!(place.bodies(&id, "resumed"), [json!({"by": {"type": "runner_died"}})]);
    place.assert_clean();
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
