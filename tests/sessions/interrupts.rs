//! Ctrl-C, signals and `runner stop`.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Place, Ran, Relay, Rule, Session, engine, long_sleep, processes, processes_with, until};

/// A place whose session prints `before` and then sleeps until somebody ends it, and what it sleeps.
fn sleepy() -> (Place, String) {
    let place = Place::new();
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": format!("echo before; {sleep}"), "timeout": 1000}}]},
        {"text": "never said"}
    ]));
    (place, sleep)
}

/// Waits until the sleep is under way.
fn asleep(sleep: &str) {
    until("the command runs", || !processes(sleep).is_empty());
}

/// How the session ended and what its one call said.
fn outcome(place: &Place, ran: &Ran) -> (Value, Value) {
    let ended = ran.json_lines().pop().expect("events");
    let results = place.bodies(ended["session"].as_str().expect("an id"), "tool_finished");
    let results: Vec<Value> = results.iter().map(|result| json!([result["cause"], result["text"]])).collect();
    (json!([ended["cause"], ended["exit_code"], ended["message"], ended["sandbox_removed"]]), json!(results))
}

/// bug 5: the first Ctrl-C cancels the command, which says so, and cleans up. SIGTERM does the same.
#[test]
fn the_first_one_cancels_and_cleans_up() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let (place, sleep) = sleepy();
        let mut session = place.start(&[]);
        session.event("tool_started");
        asleep(&sleep);
        session.signal(signal);
        let ran = session.end();
        assert_eq!(processes_with(&sleep), Vec::<u32>::new());
        ran.exits(130);
        let (end, results) = outcome(&place, &ran);
        assert_eq!(end, json!(["interrupted", 130, "Ctrl-C or a signal ended it", true]), "{signal}");
        assert_eq!(results, json!([["cancelled", "before\n[cancelled]"]]), "{signal}");
        place.assert_clean();
    }
}

/// Ctrl-C before there is a sandbox: what is half made is removed.
#[test]
fn it_is_heard_while_the_sandbox_is_made() {
    let (place, _) = sleepy();
    let mut session = place.start(&[]);
    session.id();
    session.signal(Signal::SIGINT);
    let ran = session.end();
    ran.exits(130);
    let ended = ran.json_lines().pop().expect("events");
    assert_eq!((&ended["cause"], &ended["sandbox_removed"]), (&json!("interrupted"), &json!(true)));
    place.assert_clean();
}

/// bug 11: the second Ctrl-C ends the program at once, also when the engine has stopped answering; the next runner
/// removes what is left.
#[test]
fn the_second_one_ends_it_at_once() {
    let (place, sleep) = sleepy();
    let relay = Relay::new();
    let mut command = place.start_command(&[]);
    command.env("DOCKER_HOST", relay.address());
    let mut session = Session::of(command);
    let id = session.id();
    session.event("tool_started");
    asleep(&sleep);
    relay.rule("/kill", Rule::Mute);
    session.signal(Signal::SIGINT);
    session.event("removing");
    relay.met("/kill");
    assert_eq!(place.containers().len(), 1);
    session.signal(Signal::SIGINT);
    let ran = session.end();
    ran.exits(130);
    assert_eq!(
        ran.stderr,
        "killed: what is left of the session is removed by the next runner command that drives sessions\n"
    );
    let shown = place.show(&id);
    assert_eq!((&shown["cause"], &shown["sandbox_kept"]), (&json!("interrupted"), &json!(true)));
    let next = place.drive();
    assert_eq!((next.exits(0).stdout.as_str(), next.stderr.as_str()), ("next\n", ""));
    assert_eq!(place.show(&id)["sandbox_kept"], false);
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}

/// `runner stop` ends a session from another process: the command is cancelled, the record says who asked.
#[test]
fn a_session_is_stopped_from_elsewhere() {
    let (place, sleep) = sleepy();
    let mut session = place.start(&[]);
    let id = session.id();
    session.event("tool_started");
    asleep(&sleep);
    let stopped = place.run(["stop", &id[..30]]);
    assert_eq!((stopped.exits(0).stdout.as_str(), stopped.stderr.as_str()), (format!("{id}  stopped\n").as_str(), ""));
    let ran = session.end();
    ran.exits(125);
    let who = place.show(&id)["stop_requested_by"].as_str().expect("somebody").to_owned();
    let (end, results) = outcome(&place, &ran);
    assert_eq!(end, json!(["stopped", 125, format!("stopped by {who}"), true]));
    assert_eq!(results, json!([["cancelled", "before\n[cancelled]"]]));
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
    let again = place.run(["stop", &id]);
    assert_eq!(again.exits(0).stdout, format!("{id}  had ended already (stopped)\n"));
}

/// bug 31: many at once, one of them paused behind our back, in one command; a name that is nobody's stops none.
#[test]
fn several_are_stopped_at_once() {
    let (place, _) = sleepy();
    place.agent("worker", "scale = 4\n");
    let mut sessions: Vec<Session> = (0..4).map(|_| place.start(&[])).collect();
    let ids: Vec<String> = sessions.iter_mut().map(Session::id).collect();
    let containers: Vec<String> = sessions.iter_mut().map(Session::container).collect();
    assert_eq!(engine("POST", &format!("/containers/{}/pause", containers[0])).0, 204);

    let mistyped = place.run(["stop", &ids[0], "no-such"]);
    mistyped.exits(2).complains("no-such");
    assert!(ids.iter().all(|id| place.show(id)["state"] == "running"));

    let stopped = place.run(["stop"].into_iter().chain(ids.iter().map(String::as_str)));
    let expected = format!("{}  stopped\n", ids.join("  stopped\n"));
    assert_eq!((stopped.exits(0).stdout.as_str(), stopped.stderr.as_str()), (expected.as_str(), ""));
    for session in sessions {
        session.end().exits(125);
    }
}
