//! bug 18: hostile text wherever it can come from changes neither a terminal nor a log line.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::{Place, Ran, program};

/// OSC 52 and OSC 0, a cleared screen, C1, a fake prompt, a forged log line, a reversed and a hidden character.
const HOSTILE: &str =
    "\u{1b}]52;c;QQ==\u{7}\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\r$ rm -rf /\n{\"level\":\"error\"}\u{202e}\u{200b}";

/// The same in the words of printf(1).
const PRINTF: &str =
    r#"'\033]52;c;QQ==\007\033]0;owned\007\033[2J\302\2332J\r$ rm -rf /\n{"level":"error"}\342\200\256\342\200\213'"#;

fn hostile_place() -> Place {
    let place = Place::new();
    let name = r"$(printf '\033]0;owned\007\302\2332J')";
    place.script(&json!([
        {"text": HOSTILE, "calls": [
            {"id": "a", "tool": "bash", "args": {"command": format!("printf {PRINTF}; printf {PRINTF} >&2; exit 3")}},
            {"id": "b", "tool": "bash", "args": {"command": format!("mkdir /tmp/d; touch /tmp/d/{name}")}},
            {"id": "c", "tool": HOSTILE, "args": {HOSTILE: HOSTILE}},
            {"id": "d", "tool": "read", "args": {"path": format!("/tmp/{HOSTILE}")}}
        ]},
        {"calls": [{"id": "e", "tool": "ls", "args": {"path": "/tmp/d"}}]},
        {"text": format!("${{e.text}}${{a.text}}{HOSTILE}")}
    ]));
    place
}

/// Asserts that a text holds nothing that could steer a terminal but line ends and tabs.
#[track_caller]
fn harmless(what: &str, text: &str) {
    let bad = |c: &char| (c.is_control() && *c != '\n' && *c != '\t') || matches!(c, '\u{202e}' | '\u{200b}');
    assert_eq!(text.chars().find(bad), None, "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("{\"level\"") || line.starts_with("$ rm")), "{what}: {text}");
}

#[test]
fn neither_terminal_nor_log_is_changed() {
    let place = hostile_place();
    let plain = place.run(["start", "--agent", "worker", "--task", HOSTILE]);
    plain.exits(0);
    harmless("start", &plain.stdout);
    harmless("start", &plain.stderr);
    let json = place.run(["start", "--agent", "worker", "--task", HOSTILE, "--json"]);
    harmless("start --json", &json.exits(0).stdout);
    let events = json.json_lines();
    let ended = events.last().expect("events");
    assert!(ended["text"].as_str().expect("a text").ends_with(HOSTILE), "the text itself is not changed: {ended}");

    let session = ended["session"].as_str().expect("an id");
    let commands: [&[&str]; 8] = [
        &["show", session],
        &["show", session, "--json"],
        &["show", session, "--script"],
        &["logs", session],
        &["logs", session, "--full"],
        &["logs", session, "--json"],
        &["ps", "--all"],
        &["ps", "--all", "--json"],
    ];
    for command in commands {
        let ran = place.run(command);
        harmless(&command.join(" "), &ran.exits(0).stdout);
        harmless(&command.join(" "), &ran.stderr);
    }
    // What people mistype comes back too.
    for command in [["show", HOSTILE, "--json"], ["stop", HOSTILE, "--wait=1"], ["start", "--agent", HOSTILE]] {
        let ran = place.run(command);
        harmless(command[0], &ran.exits(2).stderr);
    }
    let log = fs::read_to_string(place.state().join("runner.log")).expect("there is a log");
    for line in log.lines() {
        harmless("runner.log", line);
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        assert!(line["level"].is_string(), "{line}");
    }
}

/// The same on a terminal, where the spinner's own commands are all there is.
#[test]
fn a_terminal_sees_no_command_of_theirs() {
    let place = hostile_place();
    let inner = format!("{} start --agent worker", program().display());
    let mut command = Command::new("script");
    command.args(["-qfec", &inner, "/dev/null"]).current_dir(place.project());
    command.env("RUNNER_STATE", place.state()).env("TERM", "xterm").stdin(Stdio::null());
    let ran = Ran::from(command.output().expect("script is on every Debian"));
    ran.exits(0);
    let ours = regex::Regex::new("\x1b\\[(\\d*[AK]|[0-9;]*m|1B)|\r").expect("a pattern");
    harmless("a terminal", &ours.replace_all(&ran.stdout, ""));
}
