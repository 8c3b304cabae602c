//! What a person and a program see of `runner start`.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Place, Ran};

fn busy_place() -> Place {
    let place = Place::new();
    place.script(&json!([
        {"text": "I look around.", "calls": [
            {"id": "a", "tool": "bash", "args": {"command": "echo one; echo two; echo three"}}
        ]},
        {"calls": [
            {"id": "b", "tool": "bash", "args": {"command": "echo bad >&2; exit 3"}}
        ]},
        {"text": "All done:\n${a.text}"}
    ]));
    place
}

/// The whole of what a person sees.
#[test]
fn plain_lines() {
    let place = busy_place();
    let ran = place.run(["start", "--agent", "worker"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(place.masked(&ran.stdout), @r#"
worker session SESSION, image runner/minimal
sandbox ready in TIME (container ID)
│ I look around.
✓ bash {"command":"echo one; echo two; echo three"} TIME
  one (+2 lines)
✗ bash {"command":"echo bad >&2; exit 3"} TIME exit
  bad [exit code 3]
│ All done:
│ one
│ two
│ three
done: the agent is done
3 turns, 2 tool calls (1 failed), TIME; container ID is gone; exit code 0
"#);
}

/// The whole of what a program sees.
#[test]
fn json_events() {
    let place = busy_place();
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(place.masked(&ran.stdout), @r#"
{"event":"started","session":"SESSION","agent":"worker","image":"runner/minimal"}
{"event":"sandbox_ready","container":"ID","duration_ms":0}
{"event":"thinking","turn":1}
{"event":"text","text":"I look around."}
{"event":"tool_started","key":"SESSION/1/0","name":"bash","args":{"command":"echo one; echo two; echo three"}}
{"event":"tool_finished","key":"SESSION/1/0","name":"bash","is_error":false,"text":"one\ntwo\nthree\n","duration_ms":0}
{"event":"thinking","turn":2}
{"event":"tool_started","key":"SESSION/2/0","name":"bash","args":{"command":"echo bad >&2; exit 3"}}
{"event":"tool_finished","key":"SESSION/2/0","name":"bash","is_error":true,"cause":"exit","text":"bad\n[exit code 3]","duration_ms":0}
{"event":"thinking","turn":3}
{"event":"text","text":"All done:\none\ntwo\nthree\n"}
{"event":"removing"}
{"event":"ended","session":"SESSION","cause":"done","exit_code":0,"message":"the agent is done","text":"All done:\none\ntwo\nthree\n","sandbox_removed":true}
"#);
}

/// A terminal has the same lines, a spinner beside, and colours.
#[test]
fn a_terminal_has_a_spinner_and_colours() {
    let place = busy_place();
    let mut command = std::process::Command::new("script");
    let inner = format!("{} start --agent worker", crate::harness::program().display());
    command.args(["-qfec", &inner, "/dev/null"]).current_dir(place.project());
    command.env("RUNNER_STATE", place.state()).env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    let ran = Ran::from(command.output().expect("script is on every Debian"));
    ran.exits(0);
    let text =
        regex::Regex::new("\x1b\\[[0-9;?]*[A-Za-z]|\r").expect("a pattern").replace_all(&ran.stdout, "").into_owned();
    for line in ["│ I look around.", "done: the agent is done", "exit code 0"] {
        assert!(text.contains(line), "no {line:?} in {ran}");
    }
    assert!(ran.stdout.contains("\x1b[32mdone\x1b[0m: the agent is done"), "{ran}");
}

/// `--task`, `--task-file` and standard input say what is to be done; two of them at once are wrong usage.
#[test]
fn tasks_come_in_three_ways() {
    let place = Place::new();
    place.script(&json!([{"text": "asked: ${task}"}]));
    place.write("task.txt", "from a file");
    let said = |ran: &Ran| -> Value { ran.exits(0).json_lines().pop().expect("events")["text"].clone() };
    let start = ["start", "--agent", "worker", "--json"];
    let run = |more: [&str; 2]| place.run(start.into_iter().chain(more));
    assert_eq!(said(&run(["--task", "from here"])), "asked: from here");
    assert_eq!(said(&run(["--task-file", "task.txt"])), "asked: from a file");
    let mut command = place.command(start.into_iter().chain(["--task-file", "-"]));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("it is piped").write_all(b"from a pipe").expect("it reads");
    assert_eq!(said(&Ran::from(child.wait_with_output().expect("it ends"))), "asked: from a pipe");

    let both = place.run(start.into_iter().chain(["--task", "a", "--task-file", "b"]));
    both.exits(2).complains("'--task <TEXT>' cannot be used with '--task-file <FILE>'");
    let missing = run(["--task-file", "no-such.txt"]);
    missing.exits(2);
    insta::assert_snapshot!(place.masked(&missing.stderr), @"
error: no-such.txt: No such file or directory
hint: name a text file, or - for standard input
");
}
