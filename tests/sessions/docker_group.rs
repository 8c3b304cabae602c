//! What must also work for a user who is only in the group of the engine's socket: `make test` runs this module again as
//! such a user.

use serde_json::json;

use crate::harness::{Place, Session, engine_with, long_sleep, processes, processes_with, until};

/// A session from start to end, with calls, a copy in and a copy out.
#[test]
fn a_session_from_start_to_end() {
    let place = Place::new();
    place.write("note.txt", "from outside");
    place.script(&json!([
        {"calls": [
            {"id": "a", "tool": "bash", "args": {"command": "id -u; cat /tmp/note.txt; cp /tmp/note.txt /tmp/copy"}},
            {"id": "b", "tool": "write", "args": {"path": "/tmp/written", "content": "by the agent"}},
            {"id": "c", "tool": "ls", "args": {"path": "/app/static"}}
        ], "expect": {"a": {"contains": "from outside"}, "b": {"is_error": false}, "c": {"contains": "SKILL.md"}}},
        {"calls": [{"id": "d", "tool": "read", "args": {"path": "/tmp/written"}}],
         "expect": {"d": {"contains": "by the agent"}}},
        {"text": "done"}
    ]));
    let args = ["start", "--agent", "worker", "--in", "note.txt", "--out", "/tmp/copy:.", "--out", "/tmp/written:."];
    place.run(args).exits(0);
    for (name, content) in [("copy", "from outside"), ("written", "by the agent")] {
        assert_eq!(std::fs::read_to_string(place.project().join(name)).expect("it came out"), content);
    }
}

/// Commands in one sandbox, whatever they do to each other's output and processes.
#[test]
fn tool_calls() {
    let place = Place::new();
    let mut desk = place.desk();
    assert_eq!(desk.bash("echo out; echo err >&2").ok(), "out\nerr\n");
    desk.call("bash", &json!({"command": "echo before; sleep 60", "timeout": 0.5})).fails("timeout");
    desk.bash("(setsid sleep 100 &) ; exit 3").fails("exit");
    assert_eq!(desk.bash("ps | grep -c '[s]leep 100'; true").ok(), "0\n");
    desk.call("write", &json!({"path": "/etc/x", "content": ""})).fails("denied");
    desk.call("read", &json!({"path": "/app/static/SKILL.md"})).ok();
    desk.close().exits(0);
}

/// Stopping from another process.
#[test]
fn stopping() {
    let place = Place::new();
    let sleep = long_sleep();
    place.script(&json!([{"calls": [{"id": "a", "tool": "bash", "args": {"command": sleep, "timeout": 1000}}]}]));
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || !processes(&sleep).is_empty());
    place.run(["stop", &id]).exits(0);
    session.end().exits(125);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
}

/// Recovery after a runner was killed: what has a mind goes on, what has none is cleaned up.
#[test]
fn recovery() {
    let place = Place::new();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": "until [ -e /tmp/go ]; do sleep 0.05; done; echo went"}}]},
        {"text": "${a.text}"}
    ]));
    let mut session = place.start(&[]);
    let (id, container) = (session.id(), session.container());
    until("it works", || place.kinds(&id, "tool_started") == 1);
    let sleep = long_sleep();
    let mut desk = place.desk();
    desk.send("bash", &json!({"command": sleep, "timeout": 1000}));
    until("the other works", || !processes(&sleep).is_empty());
    let listed = place.run(["ps", "--json"]).exits(0).json();
    let ids = listed.as_array().expect("a list").iter().map(|one| one["session"].as_str().expect("an id"));
    let other = ids.filter(|other| *other != id).collect::<String>();
    session.crash();
    desk.kill();
    let next = place.drive();
    assert_eq!(next.exits(0).stdout, "next\n");
    assert_eq!(next.stderr, format!("note: session {other} was ended and cleaned up: its runner had died\n"));
    assert_eq!(place.show(&other)["cause"], "runner_died");
    let go = json!({"AttachStdout": true, "Cmd": ["/bin/bash", "-c", ": > /tmp/go"], "User": "0"});
    let (status, exec) = engine_with("POST", &format!("/containers/{container}/exec"), &go);
    assert_eq!(status, 201, "{exec}");
    let exec = exec["Id"].as_str().expect("an id");
    let resumed = Session::of(place.command(["resume", &id, "--json"]));
    until("it goes on", || place.kinds(&id, "resumed") == 1);
    assert_eq!(engine_with("POST", &format!("/exec/{exec}/start"), &json!({"Detach": true})).0, 200);
    let last = resumed.end().exits(0).json_lines().pop().expect("events");
    assert_eq!((&last["cause"], &last["text"]), (&json!("done"), &json!("went\n")));
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}
