//! Calls that call: depth, caps, and trees that cannot starve.

use serde_json::{Value, json};

use crate::harness::script::{Gate, bash, call, poll, say};
use crate::harness::{Place, has};

/// Calls an agent and polls until it has an answer.
fn call_and_poll(target: &str) -> Vec<Value> {
    vec![
        call("child", "call_agent", &json!({"target_agent": target, "context": {}})),
        poll("result", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!("completed")),
    ]
}

fn chain(target: &str) -> Value {
    let mut turns = call_and_poll(target);
    turns.push(say("${result.value}"));
    Value::Array(turns)
}

/// bug 47: S-CALL-1, S-NUM-1: A→B→C→D is the deepest; D is told so when it calls on, also when the runner was killed and
/// started again in between.
#[test]
fn depth_holds_across_the_tree_and_a_restart() {
    let gate = Gate::new();
    let last = json!([
        gate.turn("hold"),
        call("deeper", "call_agent", &json!({"target_agent": "e", "context": {}})),
        say("as deep as it goes"),
    ]);
    let agents = [
        ("a", "", chain("b")),
        ("b", "", chain("c")),
        ("c", "", chain("d")),
        ("d", "", last),
        ("e", "", json!([say("never")])),
    ];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let session = place.detach("a");
    gate.reached();
    daemon.kill_9();
    let daemon = place.serve();
    gate.open();
    assert_eq!(place.ended(&session), "done");
    has(&place.answer(&place.session_of("d"), "deeper"), &json!({"reason": "max_depth"}));
    assert_eq!(place.sessions_of("e"), Vec::<String>::new());
    // Without a value of its own, what each said last goes up the chain.
    has(
        &place.answer(&session, "result"),
        &json!({"status": "completed", "value": "as deep as it goes", "implicit": true}),
    );
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// bug 44: S-CALL-3: with a project cap of one tree, a parent that polls its child sees it run; another tree waits.
#[test]
fn a_tree_runs_under_a_cap_of_one() {
    let place = Place::fleet("scale = 1", &[("a", "", chain("b")), ("b", "", json!([say("ran")]))]);
    let daemon = place.serve();
    let sessions: Vec<String> = (0..3).map(|_| place.detach("a")).collect();
    for session in &sessions {
        assert_eq!(place.ended(session), "done");
        has(&place.answer(session, "result"), &json!({"status": "completed", "value": "ran", "implicit": true}));
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-CALL-3: A1 polls queued B2 while B1 polls queued A2, with one slot each: a called session starts above the limits,
/// the journal says so, and both trees end.
#[test]
fn trees_that_wait_for_each_other_overcommit() {
    let (first_gate, second_gate) = (Gate::new(), Gate::new());
    // Only roots stand before the gate. The called ones play the same script: their call would be a cycle, so that they have
    // none to ask for, and end with the model's error, which is an answer to the roots.
    let script = |gate: &Gate, target: &str| {
        json!([
            bash("hold", &format!("[ '${{trigger.type}}' != manual ] || {{ {}; true; }}", gate.command())),
            call("child", "call_agent", &json!({"target_agent": target, "context": {}})),
            poll("result", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!("error")),
            say("done"),
        ])
    };
    let agents = [("a", "", script(&first_gate, "b")), ("b", "", script(&second_gate, "a"))];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let roots = [place.detach("a"), place.detach("b")];
    first_gate.reached();
    second_gate.reached();
    first_gate.open();
    second_gate.open();
    for root in &roots {
        assert_eq!(place.ended(root), "done");
        has(&place.answer(root, "result"), &json!({"status": "error"}));
    }
    place.all_ended();
    let called = ["a", "b"].map(|agent| place.sessions_of(agent).swap_remove(1));
    for session in &called {
        assert_eq!(place.ended(session), "model");
        has(&place.answer(session, "child"), &json!({"reason": "cycle"}));
    }
    let above = |session: &String| {
        place.bodies(session, "informed").iter().any(|body| body["content"]["slot"]["overcommit"] == true)
    };
    assert!(called.iter().any(above), "the journal of one says that it was above the limits");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
