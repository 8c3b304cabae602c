//! From nothing to a session, as a newcomer types it; and what `validate` says of mistakes.

use serde_json::{Value, json};

use crate::harness::Place;

/// CLI-6: every command of a first day, with the whole of what it prints.
#[test]
fn from_nothing_to_a_session() {
    let place = Place::new();
    std::fs::remove_dir_all(place.project()).expect("it is there");
    std::fs::create_dir(place.project()).expect("a fresh folder");
    let run = |args: &[&str]| {
        let ran = place.run(args);
        place.masked(&format!("{}{}", ran.exits(0).stdout, ran.stderr))
    };
    insta::assert_snapshot!(run(&["init"]), @"
wrote config.toml
wrote agents/hello/SKILL.md
wrote agents/hello/config.toml
wrote models/hello.json
wrote .gitignore
next: runner start --agent hello
");
    insta::assert_snapshot!(run(&["validate"]), @"PROJECT, 1 agent: all is right");
    insta::assert_snapshot!(run(&["start", "--agent", "hello"]), @r#"
hello session SESSION, image runner/minimal
sandbox ready in TIME (container ID)
│ I write the greeting.
✓ write {"path":"/tmp/greeting.txt","content":"Hello from a box!\n"} TIME
  wrote /tmp/greeting.txt: 18 bytes
│ I count its words.
✓ bash {"command":"wc -w </tmp/greeting.txt"} TIME
  4
│ Who am I here, and can I write outside /tmp?
✓ bash {"command":"id -un; : >/etc/proof || echo 'I cannot, as it should be.'"} TIME
  agent (+2 lines)
│ Done: the greeting has this many words: 4
done: the agent is done
4 turns, 3 tool calls (0 failed), TIME; container ID is gone; exit code 0
"#);
    insta::assert_snapshot!(run(&["ps", "--all"]), @"
SESSION   AGENT  STATE  STARTED              AGE     TOKENS  LOCK  STATUS
SESSION  hello  done   TIME  TIME  0
");
    let listed = place.run(["ps", "--all", "--json"]).exits(0).json();
    let id = listed[0]["session"].as_str().expect("an id");
    insta::assert_snapshot!(run(&["show", id]), @"
session     SESSION
agent       hello
project     PROJECT
state       done (exit code 0): the agent is done
started     TIME
ended       TIME, after TIME
image       runner/minimal
model       hello
turns       4, 3 calls (0 failed)
tokens      0 in (0 cached), 0 out
answer      Done: the greeting has this many words: 4
");
    insta::assert_snapshot!(run(&["logs", id]), @r#"
TIME started    hello
TIME informed   runner
  slot: after TIME
TIME informed   runner
  container: ID
  image_id: DIGEST
  staged: ID
TIME assistant  turn 1 · 0 tokens in, 0 out
  I write the greeting.
  → write {"path":"/tmp/greeting.txt","content":"Hello from a box!\n"}
TIME call       write
TIME result     write ok TIME
  wrote /tmp/greeting.txt: 18 bytes
TIME assistant  turn 2 · 0 tokens in, 0 out
  I count its words.
  → bash {"command":"wc -w </tmp/greeting.txt"}
TIME call       bash
TIME result     bash ok TIME
  4
TIME assistant  turn 3 · 0 tokens in, 0 out
  Who am I here, and can I write outside /tmp?
  → bash {"command":"id -un; : >/etc/proof || echo 'I cannot, as it should be.'"}
TIME call       bash
TIME result     bash ok TIME
  agent
  bash: line 1: /etc/proof: Read-only file system
  I cannot, as it should be.
TIME assistant  turn 4 · 0 tokens in, 0 out
  Done: the greeting has this many words: 4
TIME ended      done the agent is done
"#);
    insta::assert_snapshot!(run(&["new", "tidy-up"]), @"
wrote PROJECT/agents/tidy-up/SKILL.md
wrote PROJECT/agents/tidy-up/config.toml
its mind is models.hello, a script: name another in PROJECT/agents/tidy-up/config.toml
next: write its instructions into SKILL.md, then runner start --agent tidy-up
");
    insta::assert_snapshot!(run(&["validate", "agents/tidy-up"]), @"
warning: PROJECT/agents/tidy-up/SKILL.md: has the instructions that `runner new` wrote
  hint: write what the agent is to do
PROJECT, 1 agent: nothing is wrong, 1 warning
");
    place.write("agents/tidy-up/SKILL.md", "Tidy the notes up.\n");
    assert_eq!(place.run(["validate", "--json"]).exits(0).json(), json!([]));
    // As docs/getting-started.md has it.
    place.write("notes/a.txt", "buy milk\n");
    run(&["start", "--agent", "tidy-up", "--in", "./notes", "--out", "/tmp/notes:out"]);
    assert_eq!(std::fs::read_to_string(place.project().join("out/notes/a.txt")).expect("it came out"), "buy milk\n");
    // It is what git would take: no empty folder, no link, nothing executable.
    let ignored = std::fs::read_to_string(place.project().join(".gitignore")).expect("it was made");
    assert!(ignored.contains("/out/"), "{ignored}");
}

/// CLI-4, CLI-6, CLI-7: what exists is not written over, and names follow their rule.
#[test]
fn nothing_is_written_over() {
    let place = Place::new();
    let config = std::fs::read(place.project().join("config.toml")).expect("it is there");
    let refused = |args: &[&str]| {
        let ran = place.run(args);
        assert_eq!(ran.exits(2).stdout, "");
        place.masked(&ran.stderr)
    };
    insta::assert_snapshot!(refused(&["init"]), @"
error: config.toml exists already
hint: it is left as it is; choose another name or folder, or move it away
");
    insta::assert_snapshot!(refused(&["new", "worker"]), @"
error: PROJECT/agents/worker exists already
hint: it is left as it is; choose another name or folder, or move it away
");
    insta::assert_snapshot!(refused(&["new", "Tidy Up"]), @r#"
error: "Tidy Up" cannot be an agent's name
hint: names are lower-case letters and digits with single hyphens between, at most 64
"#);
    insta::assert_snapshot!(refused(&["new", "../out"]), @r#"
error: "../out" cannot be an agent's name
hint: names are lower-case letters and digits with single hyphens between, at most 64
"#);
    insta::assert_snapshot!(refused(&["new", "x", "--project", "agents"]), @"
error: PROJECT/agents is not a project: it has no config.toml
hint: an empty PROJECT/agents/config.toml makes it one
");
    insta::assert_snapshot!(refused(&["validate", "nowhere"]), @"error: nowhere: No such file or directory");
    assert_eq!(std::fs::read(place.project().join("config.toml")).expect("it is there"), config);
    assert!(!place.project().join("agents/hello").exists() && !place.project().join("models").exists());
}

/// CLI-8: all mistakes at once, for people and for programs; what another machine may have is a warning.
#[test]
fn every_mistake_is_named() {
    let place = Place::new();
    place.write(
        "config.toml",
        "maxTurns = 0\n[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n\
         [models.none]\nprovider = \"script\"\nfile = \"none.json\"\n\
         [models.far]\nprovider = \"mistral\"\nmodel = \"m\"\n",
    );
    place.write("script.json", "{\"turns\": [{\"txt\": 1}]}");
    place.agent("worker", "models = [\"scrip\"]\ncolour = 1\n");
    place.agent("other", "models = [\"far\"]\n[local]\nimage = \"runner-test/none:1\"\n");
    let mut validate = place.command(["validate"]);
    validate.env_remove("MISTRAL_API_KEY").env("XDG_CONFIG_HOME", place.folder());
    let ran = crate::harness::Ran::from(validate.output().expect("it starts"));
    insta::assert_snapshot!(place.masked(&ran.exits(2).stdout), @r#"
error: PROJECT/config.toml:1:12: `maxTurns` must be a whole number from 1 up, not 0
error: PROJECT/agents/worker/config.toml:1:11: `models` names "scrip", which the project does not have
  hint: did you mean `script`?
error: PROJECT/agents/worker/config.toml:2:1: unknown key `colour`
  hint: known here: models, params, local, timeout, bashTimeout, maxTurns, maxTokens, scale, maxWorkQueueSize, waitTimeout, onCallerExit, onSandboxLost, schedule, timezone
warning: PROJECT/config.toml: the model `far` has no key of mistral on this machine
  hint: set MISTRAL_API_KEY, or write it to PLACE/runner/credentials/mistral_key/default/token (mode 0600)
error: PROJECT/none.json: No such file or directory (os error 2)
  hint: `models.none.file` in config.toml names it, relative to that file
error: PROJECT/script.json:1:17: unknown field `txt`, expected one of `text`, `calls`, `expect`, `repeat`, `fail`, `usage`
warning: PROJECT/config.toml: image runner-test/none:1 of other is not on this machine's engine
  hint: fetch it (`docker pull runner-test/none:1`), or set local.image to another
PROJECT, 2 agents: 5 errors, 2 warnings
"#);
    validate.arg("--json");
    let ran = crate::harness::Ran::from(validate.output().expect("it starts"));
    let all = ran.exits(2).json();
    let first: Value = serde_json::from_str(&place.masked(&all[0].to_string())).expect("JSON");
    assert_eq!(
        first,
        json!({
            "level": "error", "file": "PROJECT/config.toml", "line": 1, "column": 12,
            "message": "`maxTurns` must be a whole number from 1 up, not 0", "hint": null,
        })
    );
    let levels: Vec<&str> = all.as_array().expect("a list").iter().filter_map(|one| one["level"].as_str()).collect();
    assert_eq!(levels.iter().filter(|level| **level == "warning").count(), 2, "{all}");
    // The file means its folder; another file is none.
    place.run(["validate", "config.toml"]).exits(2).prints("2 agents: 5 errors");
    place.run(["validate", "agents/worker/SKILL.md"]).exits(2).prints("1 agent: ");
    let ran = place.run(["validate", "script.json"]);
    assert_eq!(
        ran.exits(2).stderr,
        "error: script.json is a file\nhint: name the folder of a project or of an agent\n"
    );
    // One agent alone: the project's mistakes belong to it too, the other agent's do not.
    let ran = place.run(["validate", "agents/worker"]);
    ran.exits(2).prints("did you mean `script`?");
    assert!(!ran.stdout.contains("runner-test/none"), "{ran}");
}

/// CLI-8: what a script says and hardly means, and what is still to be written.
#[test]
fn what_is_hardly_meant_is_named() {
    let place = Place::new();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bahs", "args": {"command": "for i in 1; do echo ${i} $${HOME}; done"}}]},
        {"text": "${a.text} ${task} ${HOME}"},
    ]));
    insta::assert_snapshot!(place.masked(&place.run(["validate"]).exits(2).stdout), @r#"
warning: PROJECT/script.json: turn 1: there is no tool "bahs"
  hint: did you mean `bash`?
error: PROJECT/script.json: turn 1: `${i}` names no call of the script
  hint: write `$${` for a literal `${`
error: PROJECT/script.json: turn 2: `${HOME}` names no call of the script
  hint: write `$${` for a literal `${`
PROJECT, 1 agent: 2 errors, 1 warning
"#);
    place.script(&json!([]));
    std::fs::remove_dir_all(place.project().join("agents")).expect("it is there");
    insta::assert_snapshot!(place.masked(&place.run(["validate"]).exits(0).stdout), @"
warning: PROJECT/agents: there is no agent
  hint: make one: `runner new <name>`
warning: PROJECT/script.json: has no turns: the agent is done before it has begun
  hint: write at least one turn
PROJECT, 0 agents: nothing is wrong, 2 warnings
");
}

/// CLI-9: only warnings: it may run elsewhere, so nothing is wrong.
#[test]
fn warnings_do_not_fail() {
    let place = Place::new();
    place.agent("worker", "[local]\nimage = \"runner-test/none:1\"\n");
    place.run(["validate"]).exits(0).prints("nothing is wrong, 1 warning");
    // Without an engine images are not looked at.
    let mut alone = place.command(["validate"]);
    alone.env("DOCKER_HOST", "unix:///nowhere.sock");
    crate::harness::Ran::from(alone.output().expect("it starts")).exits(0).prints("all is right");
}
