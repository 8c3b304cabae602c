//! `acquire_lock` and `release_lock`: what is granted, what is refused, and why.

use serde_json::{Value, json};

use crate::harness::script::{Gate, bash, call, calls, poll, say};
use crate::harness::{Place, has};

fn acquire(id: &str, key: &str) -> Value {
    call(id, "acquire_lock", &json!({"resource_key": key}))
}

fn release(id: &str, key: &str) -> Value {
    call(id, "release_lock", &json!({"resource_key": key}))
}

/// S-LOCK-2, S-LOCK-3, S-UNLOCK-1: granted, renewed under the same token, released, and a new token for a new grant. The
/// default time is the project's.
#[test]
fn a_lock_is_granted_renewed_and_released() {
    let key = "github://acme/app/issues/42";
    let turns = json!([
        acquire("first", key),
        call("again", "acquire_lock", &json!({"resource_key": key, "ttl_seconds": 86400})),
        release("free", key),
        release("free-again", key),
        acquire("new", key),
        say("done"),
    ]);
    let place = Place::fleet("resourceLockTimeout = 100", &[("keeper", "", turns)]);
    let session = place.alone("keeper");
    let answers = place.answers(&session);
    let told: Vec<(String, Value)> = answers.iter().map(|(id, answer)| (id.clone(), place.tidy(answer))).collect();
    let granted = json!({"acquired": true, "resource_key": key, "fencing_token": "…", "expires_at": "…"});
    let renewed =
        json!({"acquired": true, "resource_key": key, "fencing_token": "…", "expires_at": "…", "renewed": true});
    has(&told[0].1, &granted);
    assert_ne!(told[0].1["renewed"], true);
    has(&told[1].1, &renewed);
    has(&told[2].1, &json!({"released": true}));
    has(&told[3].1, &json!({"released": false, "reason": "not_held"}));
    has(&told[4].1, &granted);
    let fence = |at: usize| answers[at].1["fencing_token"].as_i64().expect("a number");
    assert_eq!(fence(0), fence(1));
    assert!(fence(4) > fence(1), "{answers:#?}");
    place.assert_nothing_left();
}

/// S-LOCK-1: a key is a URI with a scheme, compared after normalisation; a time is within its bounds.
#[test]
fn keys_are_uris_and_times_have_bounds() {
    let with =
        |id: &str, key: &str, ttl: Value| call(id, "acquire_lock", &json!({"resource_key": key, "ttl_seconds": ttl}));
    let turns = json!([
        acquire("plain", "issue 42"),
        acquire("empty", ""),
        with("zero", "lock://repo/branch", json!(0)),
        with("negative", "lock://repo/branch", json!(-1)),
        with("long", "lock://repo/branch", json!(86401)),
        acquire("upper", "LOCK://repo/a/../branch"),
        acquire("lower", "lock://repo/branch"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let session = place.alone("keeper");
    for id in ["plain", "empty"] {
        has(&place.answer(&session, id), &json!({"acquired": false, "reason": "invalid_key"}));
    }
    for id in ["zero", "negative", "long"] {
        has(&place.answer(&session, id), &json!({"acquired": false, "reason": "invalid_ttl"}));
    }
    has(&place.answer(&session, "upper"), &json!({"acquired": true, "resource_key": "lock://repo/branch"}));
    has(&place.answer(&session, "lower"), &json!({"acquired": true, "renewed": true}));
}

/// S-LOCK-3, S-LOCK-4: a session holds at most one lock, and is told which.
#[test]
fn a_session_holds_at_most_one() {
    let turns = json!([acquire("one", "file:///a"), acquire("two", "file:///b"), say("done")]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let session = place.alone("keeper");
    let told = place.answer(&session, "two");
    has(&told, &json!({"acquired": false, "reason": "already_holding", "holding": "file:///a"}));
    place.assert_nothing_left();
}

/// S-LOCK-4, S-UNLOCK-1, S-UNLOCK-2: who holds it is told by agent, session and times; another's lock is not released;
/// and the end of its holder frees it.
#[test]
fn a_conflict_names_the_holder() {
    let (key, gate) = ("lock://repo/main", Gate::new());
    let holder = json!([acquire("mine", key), gate.turn("hold"), say("done")]);
    let asker = json!([
        acquire("asked", key),
        release("others", key),
        poll("until-mine", "acquire_lock", &json!({"resource_key": key}), "acquired", &json!(true)),
        say("done"),
    ]);
    let place = Place::fleet("", &[("holder", "", holder), ("asker", "", asker)]);
    let daemon = place.serve();
    let first = place.detach("holder");
    gate.reached();
    let second = place.detach("asker");
    let refused = place.tidy(&place.answered(&second, "asked"));
    let of_holder = json!({"agent": "holder", "session": "holder", "held_since": "…", "expires_at": "…"});
    has(&refused, &json!({"acquired": false, "reason": "conflict", "holder": of_holder}));
    has(&place.answered(&second, "others"), &json!({"released": false, "reason": "held_by_other"}));
    let held = place.listed("locks");
    assert_eq!(held.len(), 1, "{held:#?}");
    gate.open();
    assert_eq!((place.ended(&first), place.ended(&second)), ("done".to_owned(), "done".to_owned()));
    let fence = |session: &str, id: &str| place.answer(session, id)["fencing_token"].as_i64().expect("a number");
    assert!(fence(&second, "until-mine") > fence(&first, "mine"));
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-LOCK-2: the tokens go on growing when the runner has been killed and started again.
#[test]
fn tokens_grow_over_restarts() {
    let turns = json!([acquire("mine", "lock://a/b"), say("done")]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let mut last = 0;
    for _ in 0..3 {
        let daemon = place.serve();
        let session = place.detach("keeper");
        assert_eq!(place.ended(&session), "done");
        let fence = place.answer(&session, "mine")["fencing_token"].as_i64().expect("a number");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        daemon.kill_9();
    }
    place.serve().stop().exits(0);
    place.assert_nothing_left();
}

/// S-LOCK-4, S-LOCK-5: who asks for a lock whose holder waits for the result of a call to it is told of the deadlock, and
/// the cycle is listed; polling is no edge.
#[test]
fn a_deadlock_is_seen() {
    let key = "lock://repo/main";
    let parent = json!([
        acquire("mine", key),
        call("child", "call_agent", &json!({"target_agent": "child", "context": {}})),
        call("result", "wait_for_trigger", &json!({"type": "agent_trigger", "source_agent": "child", "timeout": "1m"})),
        say("done"),
    ]);
    let child = json!([
        poll("asked", "acquire_lock", &json!({"resource_key": key}), "reason", &json!("deadlock")),
        call("answer", "return_value", &json!({"value": "gave up"})),
        say("done"),
    ]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let session = place.alone("parent");
    let told = place.tidy(&place.answer(&place.session_of("child"), "asked"));
    has(&told, &json!({"acquired": false, "reason": "deadlock"}));
    assert!(told["cycle"].to_string().contains("parent"), "{told}");
    has(&place.answer(&session, "result"), &json!({"kind": "result", "value": "gave up"}));
    place.assert_nothing_left();
}

/// S-LOCK-5: a holder that polls and one that waits for a webhook are waited for by nobody in vain: that is a conflict.
#[test]
fn polls_and_webhook_waits_are_no_edges() {
    let key = "lock://repo/main";
    let parent = json!([
        acquire("mine", key),
        call("child", "call_agent", &json!({"target_agent": "child", "context": {}})),
        poll("result", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!("completed")),
        say("done"),
    ]);
    let child = json!([acquire("asked", key), call("answer", "return_value", &json!({"value": 1})), say("done"),]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    place.alone("parent");
    let told = place.answer(&place.session_of("child"), "asked");
    has(&told, &json!({"acquired": false, "reason": "conflict"}));
}

/// S-3, S-LOCK-3: of many locks that one turn asks for, the first is granted, in the order asked.
#[test]
fn one_of_many_in_a_turn_gets_it() {
    let many: Vec<(String, Value)> =
        (0..16).map(|n| (format!("c{n}"), json!({"resource_key": format!("lock://repo/{n}")}))).collect();
    let many: Vec<(&str, &str, Value)> =
        many.iter().map(|(id, args)| (id.as_str(), "acquire_lock", args.clone())).collect();
    let place = Place::fleet("", &[("keeper", "", json!([calls(&many), bash("b", "true"), say("done")]))]);
    let session = place.alone("keeper");
    let granted: Vec<String> = place
        .answers(&session)
        .into_iter()
        .filter_map(|(id, answer)| (answer["acquired"] == true).then_some(id))
        .collect();
    assert_eq!(granted, ["c0"], "the first asked");
}
