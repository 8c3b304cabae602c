//! An engine that fails while sessions are paused and resumed.

use serde_json::{Value, json};

use crate::harness::script::{bash, say, wait};
use crate::harness::{Daemon, Place, Relay, Rule, until};

fn turns() -> Value {
    json!([bash("a", "echo before >/tmp/f"), wait("w", &json!({}), "5m"), bash("b", "cat /tmp/f"), say("done")])
}

/// A daemon behind a relay that does this to matching requests.
fn serve_behind(place: &Place, relay: &Relay) -> Daemon {
    let mut command = place.serve_command();
    command.env("DOCKER_HOST", relay.address());
    let mut daemon = Daemon::of(place, command);
    daemon.ready();
    daemon
}

/// bug 33: S-WAIT-7: the engine answers an error although it froze the container: its state is read back, and the wait
/// counts as paused.
#[test]
fn an_error_after_the_freeze_is_seen_through() {
    for rule in [Rule::Fail, Rule::FailAfter] {
        let place = Place::fleet("", &[("waits", "", turns())]);
        let relay = Relay::new();
        relay.rule("/pause", rule.clone());
        let daemon = serve_behind(&place, &relay);
        let session = place.detach("waits");
        relay.met("/pause");
        if matches!(rule, Rule::FailAfter) {
            place.waiting(&session);
            until("it is shown as paused", || place.listed("waits")[0]["paused"] == true);
        } else {
            // Three tries, and then the wait goes on unpaused and is shown so.
            until("it is shown as not paused", || place.listed("waits")[0]["paused"] == false);
            assert!(place.run(["ps"]).stdout.contains("not paused"));
            assert!(!place.is_paused(&session));
        }
        relay.heal();
        place.emit("issues", "acme/app", &json!({}));
        assert_eq!(place.ended(&session), "done");
        assert_eq!(place.answer(&session, "b"), json!("before\n"));
        place.assert_nothing_left();
        daemon.stop().exits(0);
    }
}

/// Engine faults at unpause and inspect: a slow answer, an error after the thaw, and a closed connection each leave the
/// session going on once the engine does its work.
#[test]
fn faults_of_the_unpause_are_seen_through() {
    for (part, rule) in [("/unpause", Rule::Dribble), ("/unpause", Rule::FailAfter), ("/unpause", Rule::Swallow)] {
        let place = Place::fleet("", &[("waits", "", turns())]);
        let relay = Relay::new();
        let daemon = serve_behind(&place, &relay);
        let session = place.detach("waits");
        place.waiting(&session);
        relay.rule(part, rule.clone());
        place.emit("issues", "acme/app", &json!({}));
        relay.met(part);
        assert_eq!(place.ended(&session), "done", "{part} {rule:?}");
        assert_eq!(place.answer(&session, "b"), json!("before\n"));
        relay.heal();
        place.assert_nothing_left();
        daemon.stop().exits(0);
    }
}

/// An engine that hangs up on every unpause loses no session: it is tried again until the engine does its work.
#[test]
fn an_engine_that_does_not_unpause_loses_no_session() {
    let place = Place::fleet("", &[("waits", "", turns())]);
    let relay = Relay::new();
    let daemon = serve_behind(&place, &relay);
    let session = place.detach("waits");
    place.waiting(&session);
    relay.rule("/unpause", Rule::HangUp);
    place.emit("issues", "acme/app", &json!({}));
    until("a driver gave up", || daemon.said().contains("its driver failed"));
    assert_eq!(place.state_of(&session), "active");
    assert!(place.is_paused(&session));
    relay.heal();
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.answer(&session, "b"), json!("before\n"));
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// Engine faults at the look that begins a resumption are seen through: one that is slow, and one that is for a while out.
#[test]
fn faults_of_the_look_are_seen_through() {
    for rule in [Rule::Dribble, Rule::Fail, Rule::HangUp] {
        let place = Place::fleet("", &[("waits", "", turns())]);
        let relay = Relay::new();
        let daemon = serve_behind(&place, &relay);
        let session = place.detach("waits");
        place.waiting(&session);
        let name = place.show(&session)["container"]["name"].as_str().expect("a name").to_owned();
        relay.rule(&format!("/{name}/json"), rule.clone());
        place.emit("issues", "acme/app", &json!({}));
        relay.met("/json");
        relay.heal();
        assert_eq!(place.ended(&session), "done", "{rule:?}");
        assert_eq!(place.answer(&session, "b"), json!("before\n"), "{rule:?}");
        place.assert_nothing_left();
        daemon.stop().exits(0);
    }
}

/// PID 1 is killed, or everything in the box, while its session waits: the session ends with that cause.
#[test]
fn pid_1_is_killed_while_it_waits() {
    let place = Place::fleet("", &[("waits", "", turns())]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    let init = place.container_of(&session)["State"]["Pid"].as_i64().expect("it runs");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(init).expect("a process id"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("tests of fleets are root's");
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "sandbox_lost");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
