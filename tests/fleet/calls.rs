//! `call_agent`: what is accepted, where it goes, and what is refused.

use serde_json::{Value, json};

use crate::harness::script::{Gate, call, poll, say};
use crate::harness::{Place, has};

fn call_agent(id: &str, target: &str) -> Value {
    call(id, "call_agent", &json!({"target_agent": target, "context": {"from": id}}))
}

/// S-CALL-1, S-CHECK-1, S-RETURN-1: a call is answered at once; the child sees its context; its value comes back, and how
/// it ended.
#[test]
fn a_value_comes_back() {
    let parent = json!([
        call("child", "call_agent", &json!({"target_agent": "child", "context": {"numbers": [20, 22]}})),
        poll("result", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!("completed")),
        say("the answer is ${result.value.sum}"),
    ]);
    let child = json!([
        call("back", "return_value", &json!({"value": {"sum": 42, "of": "${trigger.context.numbers}"}})),
        say("done"),
    ]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let session = place.alone("parent");
    let accepted = place.answer(&session, "child");
    assert!(accepted["status"] == "pending" || accepted["status"] == "running", "{accepted}");
    assert!(accepted["call_id"].as_str().is_some_and(|id| id.starts_with(&session)), "{accepted}");
    let value = json!({"sum": 42, "of": "[20,22]"});
    has(&place.answer(&session, "result"), &json!({"status": "completed", "value": value}));
    let started = &place.bodies(&place.session_of("child"), "started")[0];
    has(
        &started["trigger"],
        &json!({
            "type": "agent_trigger", "kind": "call", "source_agent": "parent",
            "call_id": accepted["call_id"], "context": {"numbers": [20, 22]},
        }),
    );
    assert_eq!(place.show(&session)["answer"], "the answer is 42");
    place.assert_nothing_left();
}

/// S-CALL-1: each refusal has its reason.
#[test]
fn refusals_have_reasons() {
    let parent = json!([
        call_agent("self", "parent"),
        call_agent("unknown", "nobody"),
        call_agent("off", "resting"),
        call_agent("one", "child"),
        say("done"),
    ]);
    let child = json!([call_agent("back", "parent"), say("done")]);
    let agents = [("parent", "", parent), ("child", "", child), ("resting", "scale = 0", json!([say("never")]))];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let session = place.detach("parent");
    assert_eq!(place.ended(&session), "done");
    has(&place.answer(&session, "self"), &json!({"reason": "self_call"}));
    let unknown = place.answer(&session, "unknown");
    has(&unknown, &json!({"reason": "unknown_agent"}));
    for name in ["child", "resting", "parent", "worker"] {
        assert!(unknown.to_string().contains(name), "the known names: {unknown}");
    }
    has(&place.answer(&session, "off"), &json!({"reason": "disabled"}));
    place.all_ended();
    has(&place.answer(&place.session_of("child"), "back"), &json!({"reason": "cycle"}));
    assert_eq!(place.sessions_of("resting"), Vec::<String>::new());
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-CALL-1: more calls than `workQueueSize` wait are refused, and every one that was accepted is served.
#[test]
fn a_full_queue_refuses_and_drops_nothing() {
    let gate = Gate::new();
    let mut turns: Vec<Value> = vec![call_agent("c0", "child"), poll_running("c0")];
    turns.extend((1..5).map(|n| call_agent(&format!("c{n}"), "child")));
    turns.push(say("done"));
    let child = json!([gate.turn("hold"), say("served")]);
    let agents = [("parent", "", Value::Array(turns)), ("child", "maxWorkQueueSize = 2", child)];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let session = place.detach("parent");
    assert_eq!(place.ended(&session), "done");
    for id in ["c3", "c4"] {
        has(&place.answer(&session, id), &json!({"reason": "queue_full"}));
    }
    assert_eq!(place.listed("queue").len(), 2);
    for _ in 0..3 {
        gate.reached();
        gate.open();
    }
    place.all_ended();
    let children = place.sessions_of("child");
    assert_eq!(children.len(), 3);
    for child in children {
        assert_eq!(place.ended(&child), "done");
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// The turn that polls a call until its session has a slot.
fn poll_running(id: &str) -> Value {
    let args = json!({"call_id": format!("${{{id}.call_id}}")});
    poll("slot", "check_call", &args, "status", &json!("running"))
}

/// S-CALL-2: a call to an agent with a session that waits for one goes to that session, the oldest first; the next value
/// it returns answers the call, and it goes on.
#[test]
fn a_waiting_session_takes_the_call() {
    let server = json!([
        call("wait", "wait_for_trigger", &json!({"type": "agent_trigger", "source_agent": "client", "timeout": "1m"})),
        call("value", "return_value", &json!({"value": "for ${wait.context.from}"})),
        call("nothing-asked", "return_value", &json!({"value": "too much"})),
        say("done"),
    ]);
    let client = json!([
        call_agent("asked", "server"),
        poll("result", "check_call", &json!({"call_id": "${asked.call_id}"}), "status", &json!("completed")),
        say("done"),
    ]);
    let place = Place::fleet("", &[("server", "scale = 2", server), ("client", "", client)]);
    let daemon = place.serve();
    let oldest = place.detach("server");
    place.waiting(&oldest);
    let other = place.detach("server");
    place.waiting(&other);
    let client = place.detach("client");
    assert_eq!((place.ended(&client), place.ended(&oldest)), ("done".to_owned(), "done".to_owned()));
    has(&place.answer(&client, "result"), &json!({"status": "completed", "value": "for asked"}));
    has(
        &place.answer(&oldest, "wait"),
        &json!({"type": "agent_trigger", "kind": "call", "source_agent": "client", "context": {"from": "asked"}}),
    );
    has(&place.answer(&oldest, "nothing-asked"), &json!({"accepted": false, "reason": "not_called"}));
    assert_eq!(place.sessions_of("server").len(), 2, "none was started for the call");
    place.run(["stop", &other]).exits(0);
    assert_eq!(place.ended(&other), "stopped");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
