//! What holds for all seven tools: who calls, once only, and in which order.

use serde_json::{Value, json};

use crate::harness::script::{call, calls, poll, say};
use crate::harness::{Place, has};

/// S-1: no argument says who calls: what looks like one is refused or does nothing, and the lock is the session's own.
#[test]
fn nobody_speaks_for_another() {
    let forged = json!({"resource_key": "lock://a/b", "session": "another", "agent": "another", "holder": "another"});
    let turns = json!([
        call("forged", "acquire_lock", &forged),
        call("own", "acquire_lock", &json!({"resource_key": "lock://a/b"})),
        call("asked", "check_call", &json!({"call_id": "another/1/0"})),
        say("done"),
    ]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let session = place.alone("keeper");
    has(&place.answer(&session, "own"), &json!({"acquired": true}));
    assert!(!place.answer(&session, "forged").to_string().contains("another\""), "nothing of it was taken");
    assert!(place.answer(&session, "asked").to_string().contains("unknown_call"));
}

/// S-1: only the session that made a call may ask for it.
#[test]
fn a_call_is_its_callers_own() {
    let parent = json!([
        call("child", "call_agent", &json!({"target_agent": "child", "context": {}})),
        call("other", "call_agent", &json!({"target_agent": "spy", "context": {"call": "${child.call_id}"}})),
        poll("result", "check_call", &json!({"call_id": "${other.call_id}"}), "status", &json!("completed")),
        say("done"),
    ]);
    let spy = json!([call("asked", "check_call", &json!({"call_id": "${trigger.context.call}"})), say("done")]);
    let agents = [("parent", "", parent), ("child", "", json!([say("done")])), ("spy", "", spy)];
    let place = Place::fleet("", &agents);
    place.alone("parent");
    assert!(place.answer(&place.session_of("spy"), "asked").to_string().contains("unknown_call"));
}

/// S-3: scheduler tools of one turn run one by one in the order asked, and a wait begins when the rest of its turn has
/// ended; the second wait of a turn waits for the first.
#[test]
fn a_turn_has_an_order() {
    let lock = |key: &str| json!({"resource_key": key});
    let waits =
        |number: u64| json!({"type": "webhook", "source": "github", "match": {"number": number}, "timeout": "1m"});
    let turns = json!([
        calls(&[
            ("first-wait", "wait_for_trigger", waits(1)),
            ("lock", "acquire_lock", lock("lock://a/b")),
            ("free", "release_lock", lock("lock://a/b")),
            ("second-wait", "wait_for_trigger", waits(2)),
            ("slow", "bash", json!({"command": "sleep 0.5; echo slept"})),
            ("other-lock", "acquire_lock", lock("lock://c/d")),
        ]),
        say("done"),
    ]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("keeper");
    place.waiting(&session);
    let order = |session: &str| -> Vec<String> { place.answers(session).into_iter().map(|(id, _)| id).collect() };
    let before = order(&session);
    assert_eq!(before.len(), 4, "all but the waits: {before:?}");
    place.emit("issues", "acme/app", &json!({"number": 1, "issue": {"number": 1}}));
    crate::harness::until("it waits again", || place.kinds(&session, "suspended") == 2);
    place.waiting(&session);
    place.emit("issues", "acme/app", &json!({"number": 2, "issue": {"number": 2}}));
    assert_eq!(place.ended(&session), "done");
    let all = order(&session);
    assert_eq!(all[4..], ["first-wait", "second-wait"], "{all:?}");
    let scheduler: Vec<&String> = all[..4].iter().filter(|id| *id != "slow").collect();
    assert_eq!(scheduler, ["lock", "free", "other-lock"]);
    for (id, acquired) in [("lock", true), ("other-lock", true)] {
        has(&place.answer(&session, id), &json!({"acquired": acquired}));
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-2: call keys are the session's, the turn's and the call's, also where the provider's ids repeat; each call is answered
/// once.
#[test]
fn keys_are_ours() {
    let same = |key: &str| call("same", "acquire_lock", &json!({"resource_key": key}));
    let turns =
        json!([same("lock://a/b"), call("free", "release_lock", &json!({"resource_key": "lock://a/b"})), say("done")]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let session = place.alone("keeper");
    let keys: Vec<Value> = place.bodies(&session, "tool_finished").iter().map(|body| body["key"].clone()).collect();
    assert_eq!(keys, [json!(format!("{session}/1/0")), json!(format!("{session}/2/0"))]);
}
