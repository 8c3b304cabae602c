//! S-NUM-1: the numbers that a fleet uses, and that each holds for the whole tree.

use serde_json::{Value, json};

use crate::harness::Place;
use crate::harness::script::{call, poll, say, wait};

/// S-NUM-1: a number out of its range is refused when the project is loaded, by its key and the range.
#[test]
fn numbers_have_ranges() {
    let wrong = [
        ("maxCallDepth = 33", "maxCallDepth"),
        ("workQueueSize = 0", "workQueueSize"),
        ("workQueueSize = 100001", "workQueueSize"),
        ("resourceLockTimeout = 0", "resourceLockTimeout"),
        ("resourceLockTimeout = 86401", "resourceLockTimeout"),
        ("maxSuspended = 0", "maxSuspended"),
        ("defaultWaitTimeout = \"31d\"", "defaultWaitTimeout"),
        ("defaultWaitTimeout = \"soon\"", "defaultWaitTimeout"),
        ("historyRetentionDays = 0", "historyRetentionDays"),
        ("scale = -1", "scale"),
        ("onCallerExit = \"sometimes\"", "onCallerExit"),
    ];
    for (line, key) in wrong {
        let place = Place::fleet(line, &[("one", "", json!([say("done")]))]);
        place.run(["validate"]).exits(2).prints(key);
    }
}

/// S-NUM-1: `maxTokens` is what a whole call tree may use.
#[test]
fn a_tree_has_tokens() {
    let usage = json!({"input": 40, "output": 20});
    let with_usage = |mut turn: Value| {
        turn["usage"] = usage.clone();
        turn
    };
    let root = json!([
        with_usage(call("child", "call_agent", &json!({"target_agent": "child", "context": {}}))),
        poll("result", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!("error")),
        say("done"),
    ]);
    let child = json!([
        with_usage(call("a", "bash", &json!({"command": "true"}))),
        with_usage(call("b", "bash", &json!({"command": "true"}))),
        say("never"),
    ]);
    let place = Place::fleet("", &[("root", "maxTokens = 150", root), ("child", "", child)]);
    let ran = place.run(["start", "--agent", "root", "--json"]);
    assert_eq!(place.ended(&place.session_of("child")), "max_tokens", "{ran}");
    place.assert_nothing_left();
}

/// S-NUM-1, S-WAIT-6: `timeout` is active time: a wait that takes longer than it does not end the session.
#[test]
fn time_stands_still_while_a_session_waits() {
    let turns = json!([wait("w", &json!({}), "3s"), call("b", "bash", &json!({"command": "echo on"})), say("done")]);
    let place = Place::fleet("", &[("waits", "timeout = 2", turns)]);
    let session = place.alone("waits");
    assert_eq!((place.ended(&session).as_str(), place.answer(&session, "b")), ("done", json!("on\n")));
}

/// S-NUM-1: `maxSuspended` sessions of a project wait at most; the next one is told and goes on.
#[test]
fn so_many_wait() {
    let waits = json!([wait("w", &json!({}), "1m"), say("done")]);
    let place = Place::fleet("maxSuspended = 1", &[("waits", "scale = 5", waits)]);
    let daemon = place.serve();
    let first = place.detach("waits");
    place.waiting(&first);
    let second = place.detach("waits");
    assert_eq!(place.ended(&second), "done");
    assert!(place.answer(&second, "w").to_string().contains("too_many_waiting"));
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&first), "done");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
