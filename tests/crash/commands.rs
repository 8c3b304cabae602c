//! The commands that write die too: what they had not acknowledged may be there or not, and is there once.

use super::points::points;
use super::scene;
use crate::harness::{Place, Ran, until};

/// Runs a command that dies at this point.
#[track_caller]
fn killed(place: &Place, point: &str, arguments: &[&str]) {
    let mut command = place.command(arguments);
    command.env("RUNNER_CRASH_AT", point);
    let ran = Ran::from(command.output().expect("the program starts"));
    assert_eq!(ran.code, 128 + 9, "it dies at {point}: {ran}");
}

/// `runner emit` dies and is typed again, as whoever got no answer does: the session wakes once, and goes on.
#[track_caller]
fn emit_dies_at(point: &str) {
    let place = scene::place(2);
    scene::begin(&place, "one");
    let daemon = place.serve();
    until("the root waits for its event", || !scene::waits_for_event(&place).is_empty());
    let path = place.write("dying.json", serde_json::json!({"repository": {"full_name": "acme/one"}}).to_string());
    let path = path.to_str().expect("UTF-8");
    killed(&place, point, &["emit", "webhook", "--source", "github", "--event", "issues", path]);
    scene::send(&place, "one");
    scene::came_to_its_end(&place, &["one".to_owned()]);
    daemon.stop().exits(0);
}

/// `runner start --detach` dies: the session is queued or it is not; typed again there is one more.
#[track_caller]
fn start_dies_at(point: &str) {
    let place = scene::place(2);
    killed(&place, point, &["start", "--agent", "root", "--detach", "--task", "one"]);
    let queued = place.listed("queue").len();
    assert_eq!(queued, usize::from(point.ends_with("after")), "{point}");
    scene::begin(&place, "one");
    let daemon = place.serve();
    let roots = queued + 1;
    // Both have the same lock; the second of two is refused and goes on without it, so only one is looked at.
    if roots == 2 {
        let first = place.sessions_of("root").swap_remove(0);
        place.run(["stop", &first]).exits(0);
        place.ended(&first);
    }
    until("a root waits for its event", || !scene::waits_for_event(&place).is_empty());
    scene::send(&place, "one");
    place.all_ended();
    assert_eq!(place.sessions_of("root").len(), roots);
    let last = place.sessions_of("root").pop().expect("it is there");
    assert_eq!(place.ended(&last), "done");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// `runner stop` dies and is typed again: the session, which nobody drives, has ended once, also when only one was heard.
#[track_caller]
fn stop_dies_at(point: &str) {
    let place = scene::place(2);
    let session = place.detach("root");
    killed(&place, point, &["stop", &session]);
    place.run(["stop", &session]).exits(0);
    assert_eq!(place.ended(&session), "stopped", "{point}");
    assert_eq!(place.kinds(&session, "ended"), 1, "{point}");
    place.assert_nothing_left();
}

/// `runner pause` dies: the agent is paused or it is not; once it is unpaused its session begins.
#[track_caller]
fn pause_dies_at(point: &str) {
    let place = Place::fleet("", &[("one", "", serde_json::json!([crate::harness::script::say("done")]))]);
    killed(&place, point, &["pause", "one"]);
    let daemon = place.serve();
    let session = place.detach("one");
    if point.ends_with("after") {
        let other = place.detach("worker");
        assert_eq!(place.ended(&other), "done");
        assert_eq!(place.state_of(&session), "queued", "{point}");
        place.run(["unpause", "one"]).exits(0);
    }
    assert_eq!(place.ended(&session), "done", "{point}");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// What is done at a point is told by its name.
#[track_caller]
fn dies_at(point: &str) {
    let dies =
        [("create_session", start_dies_at as fn(&str)), ("request_stop", stop_dies_at), ("pause_agent", pause_dies_at)];
    let (_, dies) = dies.into_iter().find(|(verb, _)| point.contains(verb)).unwrap_or(("", emit_dies_at));
    dies(point);
}

points! { dies_at;
    create_session_before = "commit.create_session.before",
    create_session_after = "commit.create_session.after",
    request_stop_before = "commit.request_stop.before",
    request_stop_after = "commit.request_stop.after",
    pause_agent_before = "commit.pause_agent.before",
    pause_agent_after = "commit.pause_agent.after",
    accept_before = "commit.accept.before",
    accept_after = "commit.accept.after",
    wake_before = "commit.wake.before",
    wake_after = "commit.wake.after",
    events_matched = "events.matched",
}
