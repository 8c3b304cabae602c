//! Projects and agents with mistakes.

use super::{refused, refused_run};
use crate::harness::Place;

const MODEL: &str = "[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n";

/// The complaint about a project's config.toml.
#[track_caller]
fn project(text: &str) -> String {
    let place = Place::new();
    place.write("config.toml", text);
    refused(&place, 2)
}

/// The complaint about an agent's config.toml.
#[track_caller]
fn agent(text: &str) -> String {
    let place = Place::new();
    place.agent("worker", text);
    refused(&place, 2)
}

/// The complaint about a SKILL.md.
#[track_caller]
fn skill(text: &str) -> String {
    let place = Place::new();
    place.write("agents/worker/SKILL.md", text);
    refused(&place, 2)
}

/// Unknown agents with the near names; folders that are none; no project at all.
#[test]
fn unknown_agents() {
    let place = Place::new();
    place.agent("review", "");
    let start = |name: &str| refused_run(&place, place.command(["start", "--agent", name]), 2);
    insta::assert_snapshot!(start("wroker"), @"
error: PROJECT has no agent `wroker`
hint: did you mean worker?
");
    insta::assert_snapshot!(start("zzz"), @"
error: PROJECT has no agent `zzz`
hint: did you mean review, worker?
");
    insta::assert_snapshot!(start("../worker"), @"
error: ../worker: No such file or directory
hint: name an agent of agents/, or the path of an agent's folder
");
    place.write("agents/empty/notes", "");
    insta::assert_snapshot!(start("empty"), @"
error: PROJECT/agents/empty: is not an agent: it has no SKILL.md
hint: write its instructions into SKILL.md
");
    place.write("agents/manifest/agent.yaml", "name: manifest\n");
    insta::assert_snapshot!(start("manifest"), @"
error: PROJECT/agents/manifest/agent.yaml: manifests are not supported yet
hint: write a SKILL.md and a config.toml beside it
");
    let bare = Place::bare();
    insta::assert_snapshot!(refused(&bare, 2), @"
error: no project: neither PROJECT nor a folder above it has a config.toml
hint: go to a project's folder, name one with --project, or make one: `runner init`
");
    let named = bare.command(["start", "--agent", "worker", "--project", "."]);
    insta::assert_snapshot!(refused_run(&bare, named, 2), @"
error: PROJECT is not a project: it has no config.toml
hint: an empty PROJECT/config.toml makes it one
");
}

/// Broken TOML: file, line and column.
#[test]
fn broken_toml() {
    insta::assert_snapshot!(project("[models.script\n"), @"error: PROJECT/config.toml:1:15: unclosed table, expected `]`");
    insta::assert_snapshot!(project(&format!("{MODEL}[local]\nimage = runner/minimal\n")), @"error: PROJECT/config.toml:5:9: string values must be quoted, expected literal string");
    insta::assert_snapshot!(agent("[local]\npids = 20\npids = 30\n"), @"error: PROJECT/agents/worker/config.toml:3:1: duplicate key");
    insta::assert_snapshot!(agent("timeout = \"soon\"\n"), @r#"error: PROJECT/agents/worker/config.toml:1:11: `timeout` must be a whole number of seconds in 1–604800, not "soon""#);
    insta::assert_snapshot!(agent("timeout = \u{7}\n"), @"error: PROJECT/agents/worker/config.toml:1:11: string values must be quoted, expected literal string");
    let place = Place::new();
    place.write("agents/worker/config.toml", b"a = \"\xff\"\n");
    insta::assert_snapshot!(refused(&place, 2), @"error: PROJECT/agents/worker/config.toml: is not UTF-8 (byte 5 is wrong)");
}

/// Broken front matter: file, line and column.
#[test]
fn broken_front_matter() {
    insta::assert_snapshot!(skill("---\nname: worker\ndescription: 'open\n---\nDo.\n"), @"error: PROJECT/agents/worker/SKILL.md:3:14: front matter: unclosed quote");
    insta::assert_snapshot!(skill("---\nname: worker\ndescripton: x\n---\nDo.\n"), @"
error: PROJECT/agents/worker/SKILL.md:3:1: unknown front matter key `descripton`
hint: did you mean `description`?
");
    insta::assert_snapshot!(skill("---\nname: [1]\n---\nDo.\n"), @"error: PROJECT/agents/worker/SKILL.md:2:7: `name` must be a string");
    insta::assert_snapshot!(skill("---\nname: worker\nDo.\n"), @"
error: PROJECT/agents/worker/SKILL.md:1:1: the front matter has no end
hint: close it with a line that is only `---`
");
    insta::assert_snapshot!(skill("---\nname: other\n---\nDo.\n"), @r#"
error: PROJECT/agents/worker/SKILL.md: `name` is "other", but the folder is "worker"
hint: make them equal, or drop `name`
"#);
    insta::assert_snapshot!(skill("---\nname: worker\n---\n"), @"
error: PROJECT/agents/worker/SKILL.md: has no instructions
hint: write below the front matter what the agent is to do
");
}

/// A key that is mistyped, and keys whose feature is not built yet, are refused by name and never ignored.
#[test]
fn unsupported_keys() {
    insta::assert_snapshot!(project(&format!("bashtimeout = 3\n{MODEL}")), @"
error: PROJECT/config.toml:1:1: unknown key `bashtimeout`
hint: did you mean `bashTimeout`?
");
    insta::assert_snapshot!(agent("[local]\nmemroy = \"1g\"\n"), @"
error: PROJECT/agents/worker/config.toml:2:1: unknown key `local.memroy`
hint: did you mean `local.memory`?
");
    let later = |key: &str| format!("`{key}` is not supported yet");
    for key in ["unattended", "notify", "limits", "gateway", "telemetry"] {
        let complaint = project(&format!("{key} = 1\n{MODEL}"));
        assert!(complaint.contains(&format!("PROJECT/config.toml:1:1: {}", later(key))), "{complaint}");
    }
    for key in ["limits", "credentials", "webhooks", "hooks", "skills", "tools", "runtime", "source"] {
        let complaint = agent(&format!("{key} = 1\n"));
        assert!(complaint.contains(&format!("worker/config.toml:1:1: {}", later(key))), "{complaint}");
    }
    insta::assert_snapshot!(project("[models.main]\nprovider = \"anthropic\"\nauthType = \"pi_auth\"\n"), @r#"
error: PROJECT/config.toml:3:12: `models.main.authType` "pi_auth" is not supported
hint: use authType = "api_key" with a key in ANTHROPIC_API_KEY
"#);
    insta::assert_snapshot!(project(""), @r#"
error: PROJECT/config.toml: no model: there is no [models.<name>]
hint: add one with a `provider` and its `model`, or `provider = "script"` and a `file`
"#);
}

/// Files of an agent that cannot be given to a sandbox: nothing is begun with half of them.
#[test]
fn files_that_cannot_be_staged() {
    let place = Place::new();
    std::os::unix::fs::symlink("/etc/shadow", place.project().join("agents/worker/secrets")).expect("a fresh name");
    let start = || place.command(["start", "--agent", "worker"]);
    insta::assert_snapshot!(super::not_begun(&place, start(), 2), @r#"config: PROJECT/agents/worker cannot be given to a sandbox: "secrets": it is a link out of the folder"#);
    std::fs::remove_file(place.project().join("agents/worker/secrets")).expect("it is there");
    nix::unistd::mkfifo(&place.project().join("agents/worker/pipe"), nix::sys::stat::Mode::S_IRUSR).expect("a FIFO");
    insta::assert_snapshot!(super::not_begun(&place, start(), 2), @r#"config: PROJECT/agents/worker cannot be given to a sandbox: "pipe": it is not a regular file, folder or link"#);
}
