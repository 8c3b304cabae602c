//! What a session's end does to its lock, its calls and its tree.

use serde_json::{Value, json};

use crate::harness::script::{Gate, call, say};
use crate::harness::{Place, engine, until};

const KEY: &str = "lock://repo/main";

fn lock() -> Value {
    call("mine", "acquire_lock", &json!({"resource_key": KEY}))
}

/// S-UNLOCK-2: however a session ends, its lock is free in the same moment: done, failed, out of time, stopped, killed,
/// container lost.
#[test]
fn every_end_frees_the_lock() {
    let gate = Gate::new();
    let held = json!([lock(), gate.turn("hold"), say("done")]);
    let agents = [
        ("done", "", json!([lock(), say("done")])),
        ("fails", "", json!([lock(), {"fail": {"kind": "auth", "times": 1000}}])),
        ("slow", "timeout = 1", held.clone()),
        ("held", "", held),
    ];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let free = || assert_eq!(place.listed("locks"), Vec::<Value>::new());
    for (agent, cause) in [("done", "done"), ("fails", "model"), ("slow", "timeout")] {
        let session = place.detach(agent);
        assert_eq!(place.ended(&session), cause);
        free();
    }
    let lose = |session: &str| {
        let name = place.show(session)["container"]["name"].as_str().expect("a name").to_owned();
        engine("DELETE", &format!("/containers/{name}?force=1"));
    };
    for (how, cause) in [("stop", "stopped"), ("kill", "killed"), ("lose", "sandbox_lost")] {
        let session = place.detach("held");
        gate.reached();
        assert_eq!(place.listed("locks").len(), 1);
        if how == "lose" {
            lose(&session);
        } else {
            place.run([how, &session]);
        }
        assert_eq!(place.ended(&session), cause);
        free();
    }
    until("no command is left", || gate.waiting() == 0);
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-CALL-4: when a caller ends well, its calls go on; when it does not, those that wait for a slot are cancelled, and
/// `onCallerExit` decides for those at work.
#[test]
fn the_callers_end_decides_for_its_calls() {
    let gate = Gate::new();
    let call_two = |last: Value| {
        json!([
            call("one", "call_agent", &json!({"target_agent": "child", "context": {}})),
            crate::harness::script::poll(
                "runs",
                "check_call",
                &json!({"call_id": "${one.call_id}"}),
                "status",
                &json!("running")
            ),
            call("two", "call_agent", &json!({"target_agent": "child", "context": {}})),
            last,
        ])
    };
    let child = json!([gate.turn("hold"), say("done")]);
    let fails = json!({"fail": {"kind": "auth", "times": 1000}});
    let agents = [
        ("good", "", call_two(say("done"))),
        ("bad", "", call_two(fails.clone())),
        ("detaching", "onCallerExit = \"detach\"", call_two(fails)),
        ("child", "", child),
    ];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    // The causes of the child that had a slot and of the one that had none.
    for (number, (agent, first, second)) in
        [("good", "done", "done"), ("bad", "stopped", "stopped"), ("detaching", "done", "stopped")]
            .into_iter()
            .enumerate()
    {
        let session = place.detach(agent);
        place.ended(&session);
        let children = place.sessions_of("child");
        assert_eq!(children.len(), 2 * number + 2);
        let mut ends = Vec::new();
        for child in &children[2 * number..] {
            until("it ends, or stands before the gate", || {
                if gate.waiting() > 0 && first == "done" {
                    gate.open();
                }
                place.state_of(child) == "ended"
            });
            ends.push(place.ended(child));
        }
        assert_eq!(ends, [first, second], "{agent}");
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// Killing a root kills its tree, waiting and queued sessions too.
#[test]
fn killing_a_root_kills_its_tree() {
    let gate = Gate::new();
    let root = json!([
        call("one", "call_agent", &json!({"target_agent": "works", "context": {}})),
        call("two", "call_agent", &json!({"target_agent": "works", "context": {}})),
        call("three", "call_agent", &json!({"target_agent": "waits", "context": {}})),
        gate.turn("hold"),
        say("never"),
    ]);
    let waits = json!([crate::harness::script::wait("w", &json!({}), "1h"), say("never")]);
    let agents = [("root", "", root), ("works", "", json!([gate.turn("hold"), say("never")])), ("waits", "", waits)];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let session = place.detach("root");
    until("two of the tree work", || gate.waiting() == 2);
    place.waiting(&place.session_of("waits"));
    place.run(["kill", &session]).exits(0);
    place.all_ended();
    for shown in place.ps_json() {
        assert_eq!(shown["cause"], "killed", "{shown}");
    }
    assert_eq!(gate.waiting(), 0);
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// bug 31: twenty agents that are stopped at once end in parallel, in under 3 s each, with the right cause.
#[test]
fn twenty_are_stopped_at_once() {
    let gate = Gate::new();
    let place = Place::fleet("", &[("works", "scale = 20", json!([gate.turn("hold"), say("never")]))]);
    let daemon = place.serve();
    let sessions: Vec<String> = (0..20).map(|_| place.detach("works")).collect();
    until("twenty work", || gate.waiting() == 20);
    let begun = std::time::Instant::now();
    let stops: Vec<_> =
        sessions.iter().map(|session| crate::harness::Session::of(place.command(["stop", session]))).collect();
    for stop in stops {
        stop.end().exits(0);
    }
    for session in &sessions {
        assert_eq!(place.ended(session), "stopped");
    }
    let took = begun.elapsed();
    assert!(took.as_secs() < 60, "twenty of 3 s each, one after the other, would be a minute: {took:?}");
    for session in &sessions {
        let shown = place.show(session);
        assert_eq!((&shown["exit_code"], &shown["sandbox_kept"]), (&json!(125), &json!(false)));
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// bug 31: a session whose container is paused is stopped and killed like any other.
#[test]
fn a_paused_session_is_stopped() {
    let waits = json!([crate::harness::script::wait("w", &json!({}), "1h"), say("never")]);
    let place = Place::fleet("", &[("waits", "scale = 2", waits)]);
    let daemon = place.serve();
    for (how, cause) in [("stop", "stopped"), ("kill", "killed")] {
        let session = place.detach("waits");
        place.waiting(&session);
        place.run([how, &session]).exits(0);
        assert_eq!(place.ended(&session), cause);
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
