//! Two runners at once, and sessions that were another's.

use serde_json::{Value, json};

use super::scene;
use crate::harness::script::{Gate, bash, call, say};
use crate::harness::{Place, Session, until};

/// Two runners of one state directory, a daemon of one project and starts of another, do not touch each other's sessions.
#[test]
fn two_projects_share_a_state_directory() {
    let (place, other) =
        (scene::place(2), Place::fleet("", &[("alone", "", json!([bash("b", "echo on"), say("done")]))]));
    scene::begin(&place, "one");
    let daemon = place.serve();
    let mut starts: Vec<Session> = Vec::new();
    for _ in 0..3 {
        let mut command = place.command(["start", "--agent", "alone", "--json", "--project"]);
        command.arg(other.project());
        starts.push(Session::of(command));
    }
    for start in starts {
        start.end().exits(0);
    }
    until("the root waits for its event", || !scene::waits_for_event(&place).is_empty());
    scene::send(&place, "one");
    let live = || place.listed("ps");
    until("all is over", || live().is_empty());
    for session in place.ps_json() {
        assert_eq!(session["cause"], "done", "{session}");
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// Without a daemon a dead start's session is taken up by the next start of the project.
#[test]
fn the_next_start_takes_up_what_a_dead_one_left() {
    let gate = Gate::new();
    let turns = json!([
        bash("one", "echo x >>/tmp/n"),
        gate.turn("hold"),
        call("two", "read", &json!({"path": "/tmp/n"})),
        say("done")
    ]);
    let place = Place::fleet("", &[("works", "", turns), ("next", "", json!([gate.turn("hold"), say("done")]))]);
    let dead = Session::of(place.command(["start", "--agent", "works", "--json"]));
    gate.reached();
    let session = place.session_of("works");
    dead.crash();
    let next = Session::of(place.command(["start", "--agent", "next", "--json"]));
    until("both stand before the gate", || gate.waiting() == 2);
    gate.open();
    next.end();
    // It was left again with the end of the other, or has ended before.
    if place.state_of(&session) != "ended" {
        place.run(["resume", &session]).exits(0);
    }
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.answer(&session, "two").as_str().map(str::trim), Some("x"));
    place.assert_nothing_left();
}

/// bug 42: a crash between the grant of a slot and the start leaves the slot free, or its session at work: never neither.
#[test]
fn a_slot_is_not_lost_in_a_crash() {
    for point in ["commit.claim.before", "commit.claim.after", "dispatch.claimed"] {
        let place = Place::fleet("scale = 1", &[("one", "", json!([say("done")]))]);
        let sessions: Vec<String> = (0..3).map(|_| place.detach("one")).collect();
        assert!(place.serve_until(point).dies(|| !place.listed("ps").is_empty()), "{point}");
        let daemon = place.serve();
        for session in &sessions {
            assert_eq!(place.ended(session), "done", "{point}");
        }
        place.assert_nothing_left();
        daemon.stop().exits(0);
    }
}

/// bug 45: a wake was recorded, and the runner died before the session had a slot: it goes on after the restart, once.
#[test]
fn a_wake_is_not_lost_in_a_crash() {
    let turns = json!([
        crate::harness::script::wait("w", &json!({}), "5m"),
        call("status", "set_status", &json!({"text": "woken"})),
        say("done"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    daemon.kill_9();
    place.emit("issues", "acme/app", &json!({}));
    assert!(place.serve_until("commit.claim.before").dies(|| !place.listed("ps").is_empty()));
    let daemon = place.serve();
    assert_eq!(place.ended(&session), "done");
    let statuses: Vec<Value> = place.bodies(&session, "status");
    assert_eq!(statuses, [json!({"text": "woken"})]);
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// A deadline fires although the runner died at it.
#[test]
fn a_deadline_is_not_lost_in_a_crash() {
    for point in ["commit.expire_waits.before", "commit.expire_waits.after"] {
        let turns = json!([crate::harness::script::wait("w", &json!({}), "1s"), say("done")]);
        let place = Place::fleet("", &[("waits", "", turns)]);
        let session = place.detach("waits");
        assert!(place.serve_until(point).dies(|| !place.listed("ps").is_empty()), "{point}");
        let daemon = place.serve();
        assert_eq!(place.ended(&session), "done", "{point}");
        assert!(place.failure(&session, "w").0);
        assert_eq!(place.answers(&session).len(), 1);
        place.assert_nothing_left();
        daemon.stop().exits(0);
    }
}

/// bug 41: a session that has ended is over: nobody resumes it, and a start with its id is a new one.
#[test]
fn an_ended_session_stays_ended() {
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    let session = place.alone("one");
    let before = place.events(&session);
    let ran = place.run(["resume", &session]);
    assert_ne!(ran.code, 0, "{ran}");
    ran.complains("ended");
    place.run(["stop", &session]);
    assert_eq!(place.events(&session), before);
}
