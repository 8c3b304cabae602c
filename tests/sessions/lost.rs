//! The sandbox is taken away while a session works.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{Place, engine, is_root, long_sleep, processes, until};

/// Starts a session that sleeps, does something to its container, and gives the end: cause, code, message, removed.
fn lose(take: impl FnOnce(&str)) -> Value {
    let place = Place::new();
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": format!("echo before; {sleep}"), "timeout": 1000}}]},
        {"text": "never said"}
    ]));
    let mut session = place.start(&[]);
    let container = session.container();
    until("the command runs", || !processes(&sleep).is_empty());
    take(&container);
    let begun = Instant::now();
    let ran = session.end();
    // Ten seconds at three times their value.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    ran.exits(5);
    let events = ran.json_lines();
    let ended = events.last().expect("events");
    assert_eq!(place.show(ended["session"].as_str().expect("an id"))["cause"], ended["cause"]);
    let call = place.bodies(ended["session"].as_str().expect("an id"), "tool_finished").remove(0);
    assert_eq!((&call["is_error"], &call["cause"]), (&json!(true), &json!("sandbox_gone")), "{call}");
    place.assert_clean();
    json!([ended["cause"], ended["message"], ended["sandbox_removed"]])
}

/// bug 12: `docker rm -f` behind our back.
#[test]
fn the_container_is_removed_behind_our_back() {
    let ended = lose(|id| assert_eq!(engine("DELETE", &format!("/containers/{id}?force=1")).0, 204));
    // The engine kills before it removes, and may be asked in between.
    let words = ["its PID 1 ended with exit code 137", "its container was removed by somebody else"];
    let possible = words.map(|why| json!(["sandbox_lost", format!("the sandbox is gone: {why}"), true]));
    assert!(possible.contains(&ended), "{ended}");
}

/// `docker stop`, `docker kill`: the same, with the engine's word on it.
#[test]
fn the_container_is_killed_behind_our_back() {
    let ended = lose(|id| assert_eq!(engine("POST", &format!("/containers/{id}/kill")).0, 204));
    insta::assert_snapshot!(ended, @r#"["sandbox_lost","the sandbox is gone: its PID 1 ended with exit code 137",true]"#);
}

/// bug 34: PID 1 itself is killed, as the kernel would for want of memory: the session ends with that cause, and is
/// never a silent empty box.
#[test]
fn pid_1_is_killed() {
    if !is_root() {
        return;
    }
    let ended = lose(|id| {
        let pid = engine("GET", &format!("/containers/{id}/json")).1["State"]["Pid"].as_i64().expect("a pid");
        kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), Signal::SIGKILL).expect("it is there");
    });
    insta::assert_snapshot!(ended, @r#"["sandbox_lost","the sandbox is gone: its PID 1 ended with exit code 137",true]"#);
}

/// CLI-13, bug 12: what was asked for when the sandbox went is answered line by line, and then the program ends.
#[test]
fn every_line_is_answered_when_the_sandbox_is_lost() {
    let place = Place::new();
    let mut desk = place.desk();
    desk.bash("true").ok();
    let sleep = long_sleep();
    desk.send("bash", &json!({"command": sleep, "timeout": 1000}));
    until("the command runs", || !processes(&sleep).is_empty());
    for n in 0..200 {
        desk.send("bash", &json!({"command": format!("echo {n}")}));
        desk.send("read", &json!({"path": "SKILL.md"}));
    }
    desk.send("nosuch", &json!({}));
    let container = place.containers().remove(0);
    assert_eq!(engine("DELETE", &format!("/containers/{container}?force=1")).0, 204);
    for _ in 0..401 {
        desk.answer().fails("sandbox_gone");
    }
    // A line that is wrong by itself is told so.
    desk.answer().fails("not_found");
    let ran = desk.wait();
    ran.exits(5);
    assert_eq!(ran.stdout, "", "{ran}");
}

/// bug 12: the call that is under way is an error at once, and the program ends with the code for it.
#[test]
fn a_call_loses_its_sandbox() {
    let place = Place::new();
    let mut desk = place.desk();
    desk.bash("true").ok();
    let sleep = long_sleep();
    desk.send("bash", &json!({"command": sleep, "timeout": 1000}));
    until("the command runs", || !processes(&sleep).is_empty());
    let container = place.containers().remove(0);
    assert_eq!(engine("DELETE", &format!("/containers/{container}?force=1")).0, 204);
    desk.answer().fails("sandbox_gone");
    let ran = desk.close();
    ran.exits(5);
    assert!(ran.stderr.starts_with("error: the sandbox is gone: ") && ran.stderr.lines().count() == 1, "{ran}");
}
