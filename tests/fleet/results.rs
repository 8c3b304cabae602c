//! `check_call`, `return_value` and `set_status`.

use serde_json::{Value, json};

use crate::harness::script::{Gate, call, poll, say};
use crate::harness::{Place, has, until};

fn call_child() -> Value {
    call("child", "call_agent", &json!({"target_agent": "child", "context": {}}))
}

fn poll_child(status: &str) -> Value {
    poll("result", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!(status))
}

/// S-RETURN-1: the last value wins.
#[test]
fn the_last_value_wins() {
    let child = json!([
        call("one", "return_value", &json!({"value": 1})),
        call("two", "return_value", &json!({"value": {"two": [2, null, "zwei"]}})),
        say("what it says at the end is not its value"),
    ]);
    let parent = json!([call_child(), poll_child("completed"), say("done")]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let session = place.alone("parent");
    let result = place.answer(&session, "result");
    has(&result, &json!({"status": "completed", "value": {"two": [2, null, "zwei"]}}));
    assert_ne!(result["implicit"], true);
    has(&place.answer(&place.session_of("child"), "two"), &json!({"accepted": true}));
}

/// S-RETURN-1: more than 1 MiB is refused and nothing is kept of it; a session that nobody called is told so.
#[test]
fn a_value_has_a_size_and_somebody_to_take_it() {
    let large = "x".repeat(1024 * 1024 + 1);
    let child = json!([call("large", "return_value", &json!({"value": large})), say("small")]);
    let parent = json!([
        call("nobody", "return_value", &json!({"value": 1})),
        call_child(),
        poll_child("completed"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let session = place.alone("parent");
    has(&place.answer(&session, "nobody"), &json!({"accepted": false, "reason": "not_called"}));
    has(&place.answer(&session, "result"), &json!({"status": "completed", "value": "small", "implicit": true}));
    let child = place.session_of("child");
    assert_ne!(place.answer(&child, "large")["accepted"], true);
}

/// bug 46: S-CHECK-1: a child that fails without a value is an error with the cause, one that failed after it had returned a value
/// is completed and says how it ended.
#[test]
fn a_bad_end_is_an_error_with_its_cause() {
    let fails = json!([{"fail": {"kind": "auth", "times": 1000}}]);
    let returns = json!([
        call("value", "return_value", &json!({"value": "kept"})),
        {"fail": {"kind": "auth", "times": 1000}},
    ]);
    let asks = |status: &str| json!([call_child(), poll_child(status), say("done")]);
    for (child, status) in [(fails, "error"), (returns, "completed")] {
        let place = Place::fleet("", &[("parent", "", asks(status)), ("child", "", child)]);
        let session = place.alone("parent");
        let result = place.answer(&session, "result");
        assert!(result.to_string().contains("model"), "how it ended: {result}");
        if status == "completed" {
            has(&result, &json!({"value": "kept"}));
        }
        place.assert_nothing_left();
    }
}

/// What ends the session of this id.
type Way<'a> = &'a dyn Fn(&str);

/// bug 46: S-CHECK-1: killed, out of memory or time, container lost: the caller hears of it at once.
#[test]
fn however_a_child_ends_its_caller_hears_of_it() {
    let gate = Gate::new();
    let parent = json!([call_child(), poll_child("error"), say("done")]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", json!([gate.turn("hold"), say("never")]))]);
    let daemon = place.serve();
    let kill = |child: &str| drop(place.run(["kill", child]));
    let lose = |child: &str| {
        let name = place.show(child)["container"]["name"].as_str().expect("a name").to_owned();
        crate::harness::engine("DELETE", &format!("/containers/{name}?force=1"));
    };
    let crash = |child: &str| {
        let init = place.container_of(child)["State"]["Pid"].as_i64().expect("it runs");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(init).expect("a process id"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("tests of fleets are root's");
    };
    let ways: [(Way<'_>, &str); 3] = [(&kill, "killed"), (&lose, "sandbox_lost"), (&crash, "sandbox_lost")];
    for (number, (way, cause)) in ways.into_iter().enumerate() {
        let session = place.detach("parent");
        gate.reached();
        let child = place.sessions_of("child").swap_remove(number);
        way(&child);
        assert_eq!(place.ended(&child), cause);
        assert_eq!(place.ended(&session), "done");
        let result = place.answer(&session, "result");
        has(&result, &json!({"status": "error"}));
        assert!(result.to_string().contains(cause), "{cause}: {result}");
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-CHECK-1: a child that waits is running, and the caller sees for what.
#[test]
fn a_caller_sees_what_its_child_waits_for() {
    let child = json!([crate::harness::script::wait("w", &json!({"repo": "acme/app"}), "1m"), say("woken")]);
    let parent = json!([
        call_child(),
        poll("seen", "check_call", &json!({"call_id": "${child.call_id}"}), "status", &json!("running")),
        poll_child("completed"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("parent", "", parent), ("child", "", child)]);
    let daemon = place.serve();
    let session = place.detach("parent");
    place.waiting(&place.session_of("child"));
    until("the caller sees it", || {
        place.answers(&session).iter().any(|(_, answer)| answer["waiting_for"].to_string().contains("github"))
    });
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-STATUS-1: a status is shown by `ps` at once and kept in the journal, without what would steer a terminal; an empty or
/// long one is refused.
#[test]
fn a_status_is_shown_and_kept() {
    let gate = Gate::new();
    let turns = json!([
        call("set", "set_status", &json!({"text": "reading\u{1b}[2J the\u{7} mail"})),
        call("empty", "set_status", &json!({"text": ""})),
        call("only-controls", "set_status", &json!({"text": "\u{1b}\u{7}"})),
        call("long", "set_status", &json!({"text": "ü".repeat(501)})),
        gate.turn("hold"),
        call("longest", "set_status", &json!({"text": "ü".repeat(500)})),
        say("done"),
    ]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("keeper");
    gate.reached();
    let shown = place.listed("ps")[0]["status"].as_str().expect("a status").to_owned();
    assert!(
        shown.starts_with("reading") && shown.ends_with("mail") && !shown.chars().any(char::is_control),
        "{shown:?}"
    );
    assert!(place.run(["ps"]).stdout.contains("mail"));
    gate.open();
    assert_eq!(place.ended(&session), "done");
    let kept = place.bodies(&session, "status");
    assert_eq!(kept, [json!({"text": shown}), json!({"text": "ü".repeat(500)})]);
    daemon.stop().exits(0);
}
