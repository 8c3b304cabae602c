//! `ps`, `show` and `logs`: what was recorded, while it happens and afterwards.

use serde_json::{Value, json};

use crate::harness::{Place, Session};

fn talk(place: &Place) -> String {
    place.script(&json!([
        {"text": "I look.", "calls": [{"id": "a", "tool": "bash", "args": {"command": "echo hello; exit 3"}}],
         "usage": {"input": 10, "cached": 4, "output": 2}},
        {"text": "Done.", "usage": {"input": 20, "output": 3}}
    ]));
    let ran = place.run(["start", "--agent", "worker", "--json", "--task", "say hello"]);
    ran.exits(0).json_lines()[0]["session"].as_str().expect("an id").to_owned()
}

/// The whole of `show`, `logs` and `ps --all`.
#[test]
fn an_ended_session() {
    let place = Place::new();
    let id = talk(&place);
    insta::assert_snapshot!(place.masked(&place.run(["show", &id]).exits(0).stdout), @"
session     SESSION
agent       worker
project     PROJECT
state       done (exit code 0): the agent is done
started     TIME
ended       TIME, after TIME
image       runner/minimal
model       script
turns       2, 1 call (1 failed)
tokens      30 in (4 cached), 5 out
task        say hello
answer      Done.
");
    insta::assert_snapshot!(place.masked(&place.run(["logs", &id]).exits(0).stdout), @r#"
TIME started    worker
  say hello
TIME informed   runner
  slot: after TIME
TIME informed   runner
  container: ID
  image_id: DIGEST
  staged: ID
TIME assistant  turn 1 · 10 tokens in, 2 out
  I look.
  → bash {"command":"echo hello; exit 3"}
TIME call       bash
TIME result     bash exit TIME
  hello
  [exit code 3]
TIME assistant  turn 2 · 20 tokens in, 3 out
  Done.
TIME ended      done the agent is done
"#);
    insta::assert_snapshot!(place.masked(&place.run(["ps", "--all"]).exits(0).stdout), @"
SESSION   AGENT   STATE  STARTED              AGE     TOKENS  LOCK  STATUS
SESSION  worker  done   TIME  TIME  35
");
    assert_eq!(place.run(["ps"]).exits(0).stdout, "SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS\n");
}

/// CLI-11: a sandbox that was kept is marked as long as it is there.
#[test]
fn a_kept_sandbox_is_marked() {
    let place = Place::new();
    let ran = place.run(["start", "--agent", "worker", "--json", "--keep"]);
    let id = ran.exits(0).json_lines()[0]["session"].as_str().expect("an id").to_owned();
    place.run(["ps", "--all"]).exits(0).prints("done (kept)");
    place.run(["show", &id]).exits(0).prints(&format!("sandbox     kept; `runner stop {id}` removes it\n"));
    assert_eq!(place.show(&id)["sandbox_kept"], true);
    place.run(["stop", &id]).exits(0);
    let listed = place.run(["ps", "--all"]);
    assert!(!listed.exits(0).stdout.contains("kept"), "{listed}");
    assert_eq!(place.show(&id)["sandbox_kept"], false);
}

/// The same for programs; a unique beginning of the id is enough.
#[test]
fn an_ended_session_as_json() {
    let place = Place::new();
    let id = talk(&place);
    insta::assert_snapshot!(place.masked(&place.run(["show", &id[..34], "--json"]).exits(0).stdout), @r#"{"session":"SESSION","agent":"worker","project":"PROJECT","parent":null,"state":"ended","waiting_for":null,"paused":false,"status":null,"lock":null,"tokens":{"input":30,"cached":4,"output":5},"overcommit":false,"started_at":"TIME","ended_at":"TIME","cause":"done","exit_code":0,"message":"the agent is done","stop_requested_by":null,"container":{"name":"NAME","id":"ID"},"sandbox_kept":false,"task":"say hello","model":"script","image":"runner/minimal","turns":2,"calls":1,"failed_calls":1,"answer":"Done.","returned":null,"tree":{"root":"SESSION","sessions":1,"tokens":35,"max_tokens":null},"called":[],"calls_made":[],"calls_served":[],"wait":null}"#);
    let listed = place.run(["ps", "--all", "--json"]).exits(0).json();
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["session"]), (Some(1), &json!(id)));
    let kinds: Vec<Value> = place.events(&id).iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(
        kinds,
        ["started", "informed", "informed", "assistant", "tool_started", "tool_finished", "assistant", "ended"]
    );
}

/// `logs -f` goes on as long as the session does, and ends with it.
#[test]
fn logs_are_followed_until_the_end() {
    let place = Place::new();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": "until [ -e /tmp/never ]; do sleep 0.1; done", "timeout": 1000}}]}
    ]));
    let mut session = place.start(&[]);
    let id = session.id();
    let mut follower = Session::of(place.command(["logs", "--follow", &id]));
    follower.line_with("call       bash");
    assert_eq!(place.show(&id)["state"], "running");
    insta::assert_snapshot!(place.masked(&place.run(["ps"]).exits(0).stdout), @"
SESSION   AGENT   STATE    STARTED              AGE     TOKENS  LOCK  STATUS
SESSION  worker  running  TIME  TIME  0
");
    place.run(["stop", &id]).exits(0);
    session.end().exits(125);
    let ran = follower.end();
    ran.exits(0).prints("ended      stopped");
}

/// bug 18's other half: who is asked for and is not there is named, with the near ones or the remedy.
#[test]
fn unknown_sessions_are_usage() {
    let place = Place::new();
    let (first, second) = (talk(&place), talk(&place));
    for command in ["show", "logs", "stop"] {
        let ran = place.run([command, "ffffffff"]);
        assert_eq!((ran.exits(2).stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran}");
        ran.complains("ffffffff");
        let shared: String = first.chars().zip(second.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
        place.run([command, &shared]).exits(2).complains(&shared);
    }
    place.run(["show", ""]).exits(2);
    for named in [&second[second.len() - 8..], "last"] {
        place.run(["show", named]).exits(0).prints(&second);
    }
    assert!(place.run(["ps", "--all"]).exits(0).stdout.contains(&format!("\n{}  ", &second[second.len() - 8..])));
}

/// `show --script` writes the session as a script that does the same again.
#[test]
fn a_recorded_session_can_be_played_again() {
    let place = Place::new();
    place.script(&json!([
        {"text": "I look at ${task}.", "calls": [
            {"id": "a", "tool": "bash", "args": {"command": "echo '$${task}' ${task}"}},
            {"id": "b", "tool": "ls", "args": {}}
        ]},
        {"text": "${a.text}"}
    ]));
    let play = |task: &str| -> (String, Vec<Value>) {
        let ran = place.run(["start", "--agent", "worker", "--json", "--task", task]);
        let id = ran.exits(0).json_lines()[0]["session"].as_str().expect("an id").to_owned();
        let said = place.bodies(&id, "assistant").into_iter().map(|body| {
            let calls = body["calls"].as_array().cloned().unwrap_or_default();
            let calls: Vec<Value> = calls.iter().map(|call| json!([call["name"], call["args"]])).collect();
            json!([body["text"], calls])
        });
        (id, said.collect())
    };
    let (id, first) = play("this");
    let script = place.run(["show", &id, "--script"]);
    place.write("script.json", &script.exits(0).stdout);
    let (_, second) = play("something else");
    assert_eq!(first, second);
}
