//! The scene that every crash happens in, and what must be so after it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::script::{bash, call, calls, say, wait};
use crate::harness::{Place, has};

/// What a command is answered that a runner's death interrupted and that PID 1 no longer knows.
const INTERRUPTED: &str = "interrupted by a restart";

/// A project with the agents `root` and `child`. A root takes a lock of its own, appends a line to a file, calls the child,
/// waits for its result and then for an event, and reads the file.
pub(super) fn place(scale: u32) -> Place {
    let root = json!([
        calls(&[
            ("lock", "acquire_lock", json!({"resource_key": "lock://scene/${task}"})),
            ("status", "set_status", json!({"text": "at ${task}"})),
            ("append", "bash", json!({"command": "echo x >>/tmp/n"})),
        ]),
        call("child", "call_agent", &json!({"target_agent": "child", "context": {"task": "${task}"}})),
        call(
            "result",
            "wait_for_trigger",
            &json!({"type": "agent_trigger", "source_agent": "child", "timeout": "10m"})
        ),
        wait("event", &json!({"repo": "acme/${task}"}), "10m"),
        call("checked", "check_call", &json!({"call_id": "${child.call_id}"})),
        call("read", "read", &json!({"path": "/tmp/n"})),
        call("free", "release_lock", &json!({"resource_key": "lock://scene/${task}"})),
        say("done with ${task}"),
    ]);
    let child = json!([
        bash("append", "echo x >>/tmp/n"),
        call("value", "return_value", &json!({"value": {"task": "${trigger.context.task}"}})),
        call("read", "read", &json!({"path": "/tmp/n"})),
        say("served"),
    ]);
    let config = format!("scale = {scale}");
    Place::fleet("maxSuspended = 1000", &[("root", config.as_str(), root), ("child", config.as_str(), child)])
}

/// Leaves a root to whoever serves.
#[track_caller]
pub(super) fn begin(place: &Place, task: &str) {
    place.run(["start", "--agent", "root", "--detach", "--task", task]).exits(0);
}

/// Emits what the root of this task waits for, unless it was emitted before.
#[track_caller]
pub(super) fn send(place: &Place, task: &str) {
    place.emit("issues", &format!("acme/{task}"), &json!({}));
}

/// The roots that wait for their event, and have not got it.
#[track_caller]
pub(super) fn waits_for_event(place: &Place) -> Vec<String> {
    let listed = place.listed("waits");
    listed
        .iter()
        .filter(|wait| wait.to_string().contains("github"))
        .map(|wait| wait["session"].as_str().expect("an id").to_owned())
        .collect()
}

/// Waits for the end of everything and holds it against the model.
#[track_caller]
pub(super) fn came_to_its_end(place: &Place, tasks: &[String]) {
    place.all_ended_within(Duration::from_mins(2));
    let sessions = place.ps_json();
    let mut of_agent: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for session in &sessions {
        of_agent.entry(session["agent"].as_str().expect("a name")).or_default().push(session);
    }
    assert_eq!(of_agent.get("root").map_or(0, Vec::len), tasks.len(), "no root is lost or doubled");
    assert_eq!(of_agent.get("child").map_or(0, Vec::len), tasks.len(), "each called one child: {sessions:#?}");
    let mut fences = Vec::new();
    for session in &sessions {
        let id = session["session"].as_str().expect("an id");
        assert_eq!(session["cause"], "done", "{session}\n{}", place.run(["logs", id]));
        journal_is_whole(place, id);
        appended_once(place, id);
        if session["agent"] == "root" {
            fences.push(root_is_right(place, id));
        }
    }
    let granted = fences.len();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), granted, "each grant has a token of its own");
    place.assert_nothing_left();
}

/// A journal begins and ends once, and answers every call once.
#[track_caller]
fn journal_is_whole(place: &Place, session: &str) {
    let events = place.events(session);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"started"), Some(&"ended")), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "ended").count(), 1, "{kinds:?}");
    let mut asked = Vec::new();
    let mut answered = Vec::new();
    for event in &events {
        let body = &event["body"];
        match event["kind"].as_str() {
            Some("assistant") => {
                let keys = body["calls"].as_array().into_iter().flatten().map(|call| call["key"].to_string());
                asked.extend(keys);
            }
            Some("tool_finished") => answered.push(body["key"].to_string()),
            _ => {}
        }
    }
    asked.sort();
    answered.sort();
    assert_eq!(answered, asked, "every call is answered once");
}

/// The command that appends was run at most once, and once when it was not interrupted.
#[track_caller]
fn appended_once(place: &Place, session: &str) {
    let (append, read) = (place.answer(session, "append"), place.answer(session, "read"));
    // Reading has no effect, so it is done again after a restart and never interrupted.
    let interrupted = append.as_str().is_some_and(|text| text.contains(INTERRUPTED));
    let lines = read.as_str().expect("a text").lines().filter(|line| line.trim() == "x").count();
    assert!(lines == 1 || (lines == 0 && interrupted), "{lines} lines after {append}: {read}");
}

/// What a root was told by the scheduler is right; gives its lock's token.
#[track_caller]
fn root_is_right(place: &Place, session: &str) -> i64 {
    let lock = place.answer(session, "lock");
    has(&lock, &json!({"acquired": true}));
    assert_ne!(lock["renewed"], true, "it was granted once: {lock}");
    let task = place.show(session)["task"].clone();
    let call = place.answer(session, "child");
    has(
        &place.answer(session, "result"),
        &json!({"kind": "result", "call_id": call["call_id"], "status": "completed", "value": {"task": task}}),
    );
    has(
        &place.answer(session, "event"),
        &json!({"type": "webhook", "repo": format!("acme/{}", task.as_str().expect("a text"))}),
    );
    has(&place.answer(session, "checked"), &json!({"status": "completed"}));
    has(&place.answer(session, "free"), &json!({"released": true}));
    assert_eq!(place.kinds(session, "status"), 1, "its status was set once");
    lock["fencing_token"].as_i64().expect("a number")
}
