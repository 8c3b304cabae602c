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

/// What both do at a point is told by its name.
#[track_caller]
fn dies_at(point: &str) {
    if point.contains("create_session") { start_dies_at(point) } else { emit_dies_at(point) }
}

points! { dies_at;
    create_session_before = "commit.create_session.before",
    create_session_after = "commit.create_session.after",
    accept_before = "commit.accept.before",
    accept_after = "commit.accept.after",
    wake_before = "commit.wake.before",
    wake_after = "commit.wake.after",
    events_matched = "events.matched",
}
