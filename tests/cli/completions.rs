//! Shell completions, tried in a real shell.

use std::process::{Command, Stdio};

use crate::harness::Place;

/// CLI-21: sources the script in bash and asks what it would offer, as readline does.
#[test]
fn bash_completes_the_command_line() {
    let place = Place::bare();
    let script = place.run(["completions", "bash"]).exits(0).stdout.clone();
    let file = place.write("runner.bash", script);
    let offered = |words: &str| -> Vec<String> {
        let program = format!(
            "set -eu; . \"$1\"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9; \
             complete -p runner >/dev/null; COMPREPLY=(); \
             _runner runner \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &program, "bash"]).arg(&file).stdin(Stdio::null());
        let ran = crate::harness::Ran::from(bash.output().expect("bash is on every Debian"));
        ran.exits(0).stdout.lines().map(str::to_owned).collect()
    };
    assert_eq!(offered("runner do"), ["doctor"]);
    assert_eq!(offered("runner doctor --f"), ["--fix"]);
    assert_eq!(offered("runner st"), ["start", "stop"]);
    assert!(offered("runner completions ''").contains(&"zsh".to_owned()));
}

/// CLI-21: and a shell that we do not know is named.
#[test]
fn every_shell_has_a_script() {
    let place = Place::bare();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        place.run(["completions", shell]).exits(0).prints("runner");
    }
    place.run(["completions", "sh"]).exits(2).complains("possible values: bash");
    // A reader who leaves is no failure.
    let mut head = place.command(["completions", "zsh"]);
    let mut child = head.stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}
