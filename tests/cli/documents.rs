//! The documents and the program say the same.

use std::path::Path;
use std::process::Command;

use runner::doctor::CHECKS;
use serde_json::json;

use crate::harness::{Place, Ran, program};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// CLI-14: docs/troubleshooting.md has a section for each check, in the order of the checks, and for nothing else.
#[test]
fn every_check_is_explained() {
    let page = document("troubleshooting.md");
    let sections: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("### `")).filter_map(|line| line.strip_suffix('`')).collect();
    assert_eq!(sections, CHECKS);
}

/// docs/exit-codes.md has every code that the program's help names, and no other.
#[test]
fn every_exit_code_is_explained() {
    let page = document("exit-codes.md");
    let first = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse::<u8>().ok();
    let codes: Vec<u8> = page.lines().filter_map(first).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 70, 124, 125, 130]);
    let help = Place::bare().run(["--help"]).stdout;
    let listed = help.split("Exit codes:").nth(1).and_then(|rest| rest.split("Environment:").next()).expect("a list");
    let listed: Vec<u8> =
        listed.split(['·', '\n']).filter_map(|part| part.trim().split(' ').next()?.parse().ok()).collect();
    assert_eq!(listed, codes);
}

/// The blocks of a page that are marked as this.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.strip_prefix("```") == Some(kind) {
            all.push(
                lines.by_ref().take_while(|line| *line != "```").fold(String::new(), |all, line| all + line + "\n"),
            );
        }
    }
    all
}

/// docs/getting-started.md: what it tells people to type, from the project on, works in that order, and prints what it
/// shows.
#[test]
fn getting_started_can_be_typed() {
    let place = Place::new();
    let page = document("getting-started.md");
    let (_, page) = page.split_once("## A project\n").expect("the chapter");
    let (mut typed, mut shown) = (String::new(), String::new());
    for line in blocks(page, "console").iter().flat_map(|block| block.lines()) {
        match line.strip_prefix("$ ") {
            Some(command) => typed.extend([command, "\n"]),
            None => shown.extend([line, "\n"]),
        }
    }
    assert!(typed.contains("runner validate\n") && typed.contains("runner logs last --full\n"), "{typed}");
    let before = "set -euo pipefail\n\
        editor() { [ -f \"$1\" ]; }\nEDITOR=editor\n";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &format!("{before}{typed}")]).current_dir(place.folder());
    let path = std::env::var("PATH").expect("there is one");
    let folder = program().parent().expect("it has a folder").display().to_string();
    bash.env("PATH", format!("{folder}:{path}")).env("RUNNER_STATE", place.state());
    let ran = Ran::from(bash.output().expect("bash is on every Debian"));
    ran.exits(0).prints(&shown).prints("done: the agent is done");
    let out = place.folder().join("mine/out/notes/a.txt");
    assert_eq!(std::fs::read_to_string(out).expect("it came out"), "buy milk\n");
}

/// The examples of config.toml in the documents are right: the keys, where they stand, and their values.
#[test]
fn examples_of_settings_are_right() {
    let mut examples = 0;
    for name in ["../README.md", "agents.md", "images.md", "limits.md", "models.md", "contracts/configuration.md"] {
        for block in blocks(&document(name), "toml") {
            examples += 1;
            let place = Place::new();
            // Two files in one block are divided by comments that name them.
            let agent = block.find("# agents/<name>/config.toml").or_else(|| block.find("# config.toml of an agent"));
            let agent = agent.or_else(|| block.starts_with("models = ").then_some(0));
            let (project, agent) = block.split_at(agent.unwrap_or(block.len()));
            let others = ["main", "small", "claude", "here"].into_iter();
            let others = others.filter(|model| !project.contains(&format!("[models.{model}]")));
            let others = others.fold(String::new(), |all, model| {
                format!("{all}[models.{model}]\nprovider = \"script\"\nfile = \"script.json\"\n")
            });
            place.write("config.toml", format!("{project}\n{others}"));
            let chosen = if agent.contains("models = ") { "" } else { "models = [\"main\"]\n" };
            place.agent("worker", &format!("{chosen}{agent}"));
            let found = place.run(["validate", "--json"]).json();
            let errors: Vec<_> =
                found.as_array().expect("a list").iter().filter(|one| one["level"] == "error").collect();
            assert_eq!(json!(errors), json!([]), "{name}:\n{block}");
        }
        for block in blocks(&document(name), "json") {
            examples += 1;
            let place = Place::new();
            place.write("script.json", block);
            place.run(["start", "--agent", "worker", "--task", "look"]).exits(0);
        }
    }
    assert!(examples >= 8, "{examples}");
}
