//! `runner serve`: one a project, leaves without harm, comes back, and does what is due.

use serde_json::{Value, json};

use crate::harness::script::{Gate, bash, call, say, wait};
use crate::harness::{Daemon, Place, Session, until};

/// SIGTERM leaves: what runs goes on in its container under the next daemon, once, and what waits waits on.
#[test]
fn sigterm_leaves_and_the_next_start_goes_on() {
    let gate = Gate::new();
    let works = json!([bash("one", "echo x >>/tmp/n"), gate.turn("hold"), bash("two", "cat /tmp/n"), say("done")]);
    let waits = json!([wait("w", &json!({}), "5m"), say("woken")]);
    let place = Place::fleet("", &[("works", "", works), ("waits", "", waits)]);
    let daemon = place.serve();
    let (working, waiting) = (place.detach("works"), place.detach("waits"));
    gate.reached();
    place.waiting(&waiting);
    daemon.stop().exits(0);
    for session in [&working, &waiting] {
        assert_ne!(place.state_of(session), "ended");
    }
    let daemon = place.serve();
    until("the command is there again", || gate.waiting() > 0);
    gate.open();
    assert_eq!(place.ended(&working), "done");
    assert_eq!(place.answer(&working, "two"), json!("x\n"));
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&waiting), "done");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// `--drain` ends what runs, takes nothing new, and then ends itself.
#[test]
fn a_drain_ends_what_runs_and_takes_nothing_new() {
    let gate = Gate::new();
    let place = Place::fleet("", &[("works", "", json!([gate.turn("hold"), say("done")]))]);
    let daemon = place.serve();
    let (first, second) = (place.detach("works"), place.detach("works"));
    gate.reached();
    let drain = Session::of(place.command(["serve", "--drain"]));
    until("it was asked to finish", || daemon.said().contains("finishing"));
    gate.open();
    drain.end().exits(0);
    daemon.end().exits(0);
    assert_eq!((place.ended(&first), place.state_of(&second)), ("done".to_owned(), "queued".to_owned()));
    let daemon = place.serve();
    gate.reached();
    gate.open();
    assert_eq!(place.ended(&second), "done");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// A project has one daemon; the second is told so and changes nothing.
#[test]
fn a_project_has_one_daemon() {
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    let daemon = place.serve();
    let second = Daemon::of(&place, place.serve_command()).end();
    assert_ne!(second.code, 0);
    assert!(second.stderr.contains("already"), "{second}");
    let session = place.detach("one");
    assert_eq!(place.ended(&session), "done");
    daemon.stop().exits(0);
}

/// With a daemon `runner start` hands the session over, follows it, and prints what it would have printed itself.
#[test]
fn a_start_is_handed_over_and_followed() {
    let place = Place::fleet("", &[("one", "", json!([bash("b", "echo hello"), say("done")]))]);
    let shape = |text: &str| {
        let volatile =
            regex::Regex::new(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{12,64}\b|[0-9.]+ m?s\b")
                .expect("a pattern");
        volatile.replace_all(text, "…").into_owned()
    };
    let own = place.run(["start", "--agent", "one"]);
    let daemon = place.serve();
    let followed = place.run(["start", "--agent", "one"]);
    assert_eq!(shape(&followed.exits(0).stdout), shape(&own.exits(0).stdout));
    daemon.stop().exits(0);
}

/// The exit code of a followed session is its own.
#[test]
fn a_followed_start_has_the_sessions_exit_code() {
    let place = Place::fleet("", &[("fails", "", json!([{"fail": {"kind": "auth", "times": 1000}}]))]);
    let daemon = place.serve();
    place.run(["start", "--agent", "fails"]).exits(4);
    daemon.stop().exits(0);
}

/// A session that was detached without a daemon is queued, and `runner resume` drives it to its end.
#[test]
fn a_detached_session_is_resumed_by_hand() {
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    let session = place.detach("one");
    assert_eq!(place.state_of(&session), "queued");
    place.run(["resume", &session]).exits(0);
    assert_eq!(place.ended(&session), "done");
    place.assert_nothing_left();
}

/// A schedule starts its agent, each tick once; a tick of a busy agent is skipped and told of.
#[test]
fn a_schedule_starts_its_agent() {
    let gate = Gate::new();
    let turns = json!([gate.turn("hold"), say("done")]);
    let place = Place::fleet("", &[("clock", "schedule = \"* * * * * *\"", turns)]);
    let daemon = place.serve();
    gate.reached();
    // A tick passes while it works.
    let first = place.session_of("clock");
    assert_eq!(place.bodies(&first, "started")[0]["trigger"]["type"], "schedule");
    until("a tick was skipped", || {
        place.run(["logs", &first, "--json"]).stdout.contains("skipped") || daemon.said().contains("skipped")
    });
    assert_eq!(place.sessions_of("clock").len(), 1);
    place.run(["pause"]).exits(0);
    gate.open();
    assert_eq!(place.ended(&first), "done");
    daemon.stop().exits(0);
    for session in place.listed("ps") {
        place.run(["stop", session["session"].as_str().expect("an id")]).exits(0);
    }
    place.all_ended();
}

/// The control socket and its folder are the user's alone.
#[test]
fn the_socket_is_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    let daemon = place.serve();
    let folders: Vec<_> = std::fs::read_dir(place.state().join("serve")).expect("a folder").flatten().collect();
    assert_eq!(folders.len(), 1);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let folder = folders[0].path();
    assert_eq!((mode(&folder), mode(&folder.join("control.sock"))), (0o700, 0o600));
    daemon.stop().exits(0);
}

/// bug 10: one stuck call keeps nobody: the lists, a stop and other sessions answer in a second.
#[test]
fn one_stuck_call_keeps_nobody() {
    let gate = Gate::new();
    let many: Vec<Value> = (0..20).map(|n| bash(&format!("b{n}"), "echo short")).chain([say("done")]).collect();
    let agents = [("stuck", "", json!([gate.turn("hold"), say("never")])), ("short", "", Value::Array(many))];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let stuck = place.detach("stuck");
    gate.reached();
    for list in ["ps", "queue", "locks", "waits", "calls"] {
        let begun = std::time::Instant::now();
        place.run([list]).exits(0);
        assert!(begun.elapsed().as_secs_f64() < 1.0, "{list} took {:?}", begun.elapsed());
    }
    let short = place.detach("short");
    assert_eq!(place.ended(&short), "done");
    place.run(["stop", &stuck]).exits(0);
    assert_eq!(place.ended(&stuck), "stopped");
    let after = place.detach("short");
    assert_eq!(place.ended(&after), "done");
    assert_eq!(place.answers(&after).len(), 20);
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// bug 6: a call without a timeout gets `bashTimeout`, in a driven session as by hand.
#[test]
fn the_default_timeout_applies_everywhere() {
    let sleep = crate::harness::long_sleep();
    let turns = json!([call("b", "bash", &json!({"command": sleep})), say("done")]);
    let place = Place::fleet("bashTimeout = 1", &[("one", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("one");
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.failure(&session, "b"), (true, json!("timeout")));
    daemon.stop().exits(0);
    let session = place.alone("one");
    assert_eq!(place.failure(&session, "b"), (true, json!("timeout")));
}
