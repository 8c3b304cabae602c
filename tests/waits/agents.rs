//! Waits for calls and for results.

use serde_json::{Value, json};

use crate::harness::script::{Gate, call, say};
use crate::harness::{Place, has};

fn call_agent(id: &str, target: &str, context: &Value) -> Value {
    call(id, "call_agent", &json!({"target_agent": target, "context": context}))
}

fn wait_for(id: &str, more: &Value) -> Value {
    let mut args = json!({"type": "agent_trigger", "timeout": "5m"});
    if let (Value::Object(args), Value::Object(more)) = (&mut args, more) {
        args.extend(more.clone());
    }
    call(id, "wait_for_trigger", &args)
}

/// S-WAIT-4: a wait takes the oldest result that neither `check_call` nor a wait has seen; one that is there already
/// answers at once, and errors count as results.
#[test]
fn results_are_taken_in_order() {
    let parent = json!([
        call_agent("one", "good", &json!(1)),
        call_agent("two", "bad", &json!(2)),
        wait_for("good-result", &json!({"source_agent": "good"})),
        wait_for("bad-result", &json!({"source_agent": "bad"})),
        call_agent("three", "good", &json!(3)),
        wait_for("any-result", &json!({})),
        say("done"),
    ]);
    let good = json!([call("v", "return_value", &json!({"value": "${trigger.context}"})), say("done")]);
    let bad = json!([{"fail": {"kind": "auth", "times": 1000}}]);
    let place = Place::fleet("", &[("parent", "", parent), ("good", "", good), ("bad", "", bad)]);
    let session = place.alone("parent");
    let call_id = |id: &str| place.answer(&session, id)["call_id"].clone();
    has(
        &place.answer(&session, "good-result"),
        &json!({
            "type": "agent_trigger", "kind": "result", "source_agent": "good", "call_id": call_id("one"),
            "status": "completed", "value": "1",
        }),
    );
    let error = place.answer(&session, "bad-result");
    has(&error, &json!({"kind": "result", "source_agent": "bad", "call_id": call_id("two"), "status": "error"}));
    assert!(!error["error"].is_null(), "{error}");
    has(&place.answer(&session, "any-result"), &json!({"call_id": call_id("three"), "value": "3"}));
    place.assert_nothing_left();
}

/// S-WAIT-4, S-WAIT-3: `match` reads the trigger itself: its context for a call, its value for a result.
#[test]
fn filters_read_the_trigger() {
    let parent = json!([
        call_agent("one", "child", &json!({"n": 1})),
        call_agent("two", "child", &json!({"n": 2})),
        wait_for("second", &json!({"match": {"value.n": 2}})),
        wait_for("first", &json!({"match": {"kind": "result", "value.n": 1}})),
        say("done"),
    ]);
    let child = json!([call("v", "return_value", &json!({"value": {"n": "${trigger.context.n}"}})), say("done")]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let session = place.alone("parent");
    let call_id = |id: &str| place.answer(&session, id)["call_id"].clone();
    assert_eq!(place.answer(&session, "second")["call_id"], call_id("two"));
    assert_eq!(place.answer(&session, "first")["call_id"], call_id("one"));
}

/// S-WAIT-11: a wait inside a called session is fine; its caller, which waits for it, wakes after it.
#[test]
fn a_called_session_waits_too() {
    let parent = json!([call_agent("c", "child", &json!({})), wait_for("r", &json!({})), say("done")]);
    let child = json!([
        crate::harness::script::wait("w", &json!({"repo": "acme/app"}), "5m"),
        call("v", "return_value", &json!({"value": "${w.repo}"})),
        say("done"),
    ]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let daemon = place.serve();
    let session = place.detach("parent");
    place.waiting(&session);
    place.waiting(&place.session_of("child"));
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    has(&place.answer(&session, "r"), &json!({"value": "acme/app"}));
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-4: who waits for calls of one agent is not woken by another's; without `source_agent` any will do.
#[test]
fn callers_are_told_apart() {
    let gate = Gate::new();
    let server = json!([wait_for("w1", &json!({"source_agent": "second"})), wait_for("w2", &json!({})), say("done"),]);
    let client = json!([call_agent("c", "server", &json!({})), say("done")]);
    // A call that no waiting session takes starts one of its own, behind the gate of a scale of one.
    let agents = [
        ("server", "scale = 1", server),
        ("first", "", client.clone()),
        ("second", "", client.clone()),
        ("third", "", client),
        ("other", "", json!([gate.turn("hold"), say("done")])),
    ];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let server = place.detach("server");
    place.waiting(&server);
    let first = place.detach("first");
    assert_eq!(place.ended(&first), "done");
    assert_eq!(place.kinds(&server, "resumed"), 0);
    let second = place.detach("second");
    assert_eq!(place.ended(&second), "done");
    crate::harness::until("it waits again", || place.kinds(&server, "suspended") == 2);
    let third = place.detach("third");
    assert_eq!((place.ended(&third), place.ended(&server)), ("done".to_owned(), "done".to_owned()));
    has(&place.answer(&server, "w1"), &json!({"kind": "call", "source_agent": "second"}));
    has(&place.answer(&server, "w2"), &json!({"kind": "call", "source_agent": "third"}));
    for session in place.listed("ps") {
        place.run(["kill", session["session"].as_str().expect("an id")]).exits(0);
    }
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
