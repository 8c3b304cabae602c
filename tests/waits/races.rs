//! Triggers that come too early, too late, twice, or while nobody is there.

use serde_json::{Value, json};

use crate::harness::script::{Gate, bash, call, calls, say, wait};
use crate::harness::{Place, Relay, Rule, Session, until};

/// S-WAIT-5: an event that was received since the turn of the call began counts, and one from before does not.
#[test]
fn events_of_the_turn_count() {
    let gate = Gate::new();
    let turns = json!([
        gate.turn("first"),
        calls(&[
            ("hold", "bash", json!({"command": format!("{}; true", gate.command()), "timeout": 600})),
            (
                "w",
                "wait_for_trigger",
                json!({"type": "webhook", "source": "github", "match": {"repo": "acme/app"}, "timeout": "5m"}),
            ),
        ]),
        say("done"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    gate.reached();
    place.emit("too_early", "acme/app", &json!({}));
    gate.open();
    gate.reached();
    until("the turn is in the journal", || place.kinds(&session, "assistant") == 2);
    place.emit("in_time", "acme/app", &json!({}));
    gate.open();
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.answer(&session, "w")["event"], "in_time");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-5: one event wakes a session once: a second wait with the same filter waits for the next one.
#[test]
fn no_event_wakes_twice() {
    let turns = json!([wait("w1", &json!({}), "5m"), wait("w2", &json!({}), "5m"), say("done")]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    place.emit("issues", "acme/one", &json!({}));
    until("it waits again", || place.kinds(&session, "suspended") == 2);
    place.waiting(&session);
    assert_eq!(place.kinds(&session, "resumed"), 1);
    place.emit("issues", "acme/two", &json!({}));
    assert_eq!(place.ended(&session), "done");
    assert_eq!(
        (&place.answer(&session, "w1")["repo"], &place.answer(&session, "w2")["repo"]),
        (&json!("acme/one"), &json!("acme/two"))
    );
    daemon.stop().exits(0);
}

/// bug 45: S-WAIT-7: a trigger that comes before the pause has finished resumes the session all the same.
#[test]
fn a_trigger_before_the_pause_is_over() {
    let place =
        Place::fleet("", &[("waits", "", json!([wait("w", &json!({}), "5m"), bash("b", "echo on"), say("done")]))]);
    let relay = Relay::new();
    relay.rule("/pause", Rule::Dribble);
    let mut command = place.serve_command();
    command.env("DOCKER_HOST", relay.address());
    let mut daemon = crate::harness::Daemon::of(&place, command);
    daemon.ready();
    let session = place.detach("waits");
    relay.met("/pause");
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.answer(&session, "b"), json!("on\n"));
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-6: an event while no runner is there wakes the session when one comes back, and a deadline that passed meanwhile
/// fires then. Nothing of a session that waits is in the runner's memory.
#[test]
fn nobody_was_there() {
    let waits = |timeout: &str| json!([wait("w", &json!({"repo": "acme/app"}), timeout), say("done")]);
    let place = Place::fleet("", &[("long", "", waits("5m")), ("short", "", waits("2s"))]);
    let daemon = place.serve();
    let (long, short) = (place.detach("long"), place.detach("short"));
    place.waiting(&long);
    place.waiting(&short);
    daemon.kill_9();
    until("the short one's time is over", || {
        let wait = place.listed("waits").into_iter().find(|wait| wait["session"] == short);
        let deadline = wait.and_then(|wait| wait["deadline"].as_str()?.parse::<jiff::Timestamp>().ok());
        deadline.is_none_or(|deadline| deadline < jiff::Timestamp::now())
    });
    place.emit("issues", "acme/app", &json!({}));
    let daemon = place.serve();
    assert_eq!((place.ended(&long), place.ended(&short)), ("done".to_owned(), "done".to_owned()));
    assert_eq!(place.answer(&long, "w")["repo"], "acme/app");
    assert!(place.failure(&short, "w").0);
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// `runner start` without a daemon stays and waits through a wait, and an event from another process wakes it.
#[test]
fn a_start_waits_through_a_wait() {
    let place = Place::fleet("", &[("waits", "", json!([wait("w", &json!({}), "5m"), say("done")]))]);
    let start = Session::of(place.command(["start", "--agent", "waits", "--json"]));
    let session = place.session_of("waits");
    place.waiting(&session);
    place.emit("issues", "acme/app", &json!({}));
    start.end().exits(0);
    place.assert_nothing_left();
}

/// S-LOCK-5 has no edge from a wait for a webhook; a lock that is held through one keeps its time (S-WAIT-6).
#[test]
fn a_lock_is_kept_through_a_wait() {
    let key = json!({"resource_key": "lock://repo/main"});
    let turns = json!([
        call("lock", "acquire_lock", &key),
        wait("w", &json!({}), "5m"),
        call("again", "acquire_lock", &key),
        say("done"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    assert_eq!(place.listed("locks").len(), 1);
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    let again = place.answer(&session, "again");
    assert_eq!(
        (&again["renewed"], &again["fencing_token"]),
        (&Value::Bool(true), &place.answer(&session, "lock")["fencing_token"])
    );
    daemon.stop().exits(0);
}
