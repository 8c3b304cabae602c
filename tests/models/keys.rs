//! Keys of providers: where they come from, and that they go nowhere else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{place_with, run, session_of, start};
use crate::harness::provider::{Answer, KEY, Provider, Turn, Wire};
use crate::harness::{Place, Ran};

/// Writes the file with Anthropic's key.
fn key_file(place: &Place, mode: u32) -> PathBuf {
    let file = place.folder().join("config/runner/credentials/anthropic_key/default/token");
    fs::create_dir_all(file.parent().expect("a file has a folder")).expect("a fresh folder");
    fs::write(&file, format!("{KEY}\n")).expect("a fresh folder");
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
    file
}

/// Asserts that nothing was begun: no state, no container.
#[track_caller]
fn assert_nothing_begun(place: &Place, ran: &Ran) {
    assert_eq!(ran.stdout, "", "{ran}");
    assert_eq!(place.owners(), 0);
    place.assert_clean();
    assert!(!place.state().exists(), "not even the state directory was made");
}

/// M-KEY-1: without a key nothing is begun, and both places where it could be are named.
#[test]
fn a_missing_key_is_an_error_before_anything_is_made() {
    let place = Place::new();
    place.write("config.toml", "[models.claude]\nprovider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n");
    let mut command = place.command(["start", "--agent", "worker"]);
    command.env("ANTHROPIC_API_KEY", "");
    let ran = run(command);
    assert_nothing_begun(&place, ran.exits(2));
    insta::assert_snapshot!(ran.stderr.replace(place.folder().to_str().expect("UTF-8"), "FOLDER"), @"
    error: the model `claude` cannot be asked: there is no key for anthropic
    hint: set ANTHROPIC_API_KEY, or write the key to FOLDER/config/runner/credentials/anthropic_key/default/token with mode 0600
    ");
    // It would be too late to say so once the first model has failed.
    place.write("config.toml", "[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n[models.claude]\nprovider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n");
    place.agent("worker", "models = [\"script\", \"claude\"]\n");
    let ran = place.run(["start", "--agent", "worker"]);
    assert_nothing_begun(&place, ran.exits(2).complains("the model `claude` cannot be asked"));
    place.run(["start", "--agent", "worker", "--model", "script"]).exits(0);
}

/// M-KEY-2, M-KEY-3: a key that others may read, or that is none, is refused and not shown.
#[test]
fn a_key_that_others_may_read_is_refused() {
    let place = Place::new();
    place.write("config.toml", "[models.claude]\nprovider = \"anthropic\"\nmodel = \"claude-sonnet-4-5\"\n");
    let file = key_file(&place, 0o644);
    let ran = place.run(["start", "--agent", "worker"]);
    assert_nothing_begun(&place, ran.exits(2));
    insta::assert_snapshot!(ran.stderr.replace(place.folder().to_str().expect("UTF-8"), "FOLDER"), @"error: the model `claude` cannot be asked: the key in FOLDER/config/runner/credentials/anthropic_key/default/token may be read by others: its mode is 0644; run `chmod 600 FOLDER/config/runner/credentials/anthropic_key/default/token`");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::write(&file, format!("{KEY} and more\n")).expect("it is ours");
    let ran = place.run(["start", "--agent", "worker"]);
    assert_nothing_begun(&place, ran.exits(2).complains("a space, a line end, a control character"));
    assert!(!ran.stderr.contains("SENTINEL"), "{ran}");
}

/// M-KEY-1: the file's key is sent when the environment has none, the variable's when it has.
#[test]
fn the_key_that_is_found_is_sent() {
    let provider = Provider::start(Wire::Anthropic);
    provider.always(Turn::new().say("Done."));
    let place = place_with(&provider);
    key_file(&place, 0o600);
    place.run(["start", "--agent", "worker"]).exits(0);
    assert_eq!(provider.last().headers["x-api-key"], KEY);
    let mut command = place.command(["start", "--agent", "worker"]);
    command.env("ANTHROPIC_API_KEY", "sk-another");
    run(command).exits(4);
    assert_eq!(provider.last().headers["x-api-key"], "sk-another");
}

/// Every file below this folder.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let entry = entry.expect("a readable folder");
        if entry.file_type().expect("it is there").is_dir() {
            files(&entry.path(), all);
        } else {
            all.push(entry.path());
        }
    }
}

/// M-KEY-4: the key is in no journal, no log, no output and no file, also when the provider repeats it and everything is
/// logged.
#[test]
fn the_key_is_nowhere() {
    for wire in Wire::ALL {
        let provider = Provider::start(wire);
        provider.push(Turn::new().say("I look.").call("one", "bash", &json!({"command": "env; cat /proc/*/environ"})));
        provider.push(Answer::status(503).body(&format!("the key {KEY} is busy")));
        provider.push(Turn::new().say("I look again.").call("two", "ls", &json!({"path": "/tmp"})));
        provider.push(Answer::status(400).body(&format!("{{\"error\": \"wrong: {KEY}\"}}")));
        let place = place_with(&provider);
        let mut command = start(&place, &provider);
        command.env("RUNNER_LOG", "trace");
        let ran = run(command);
        ran.exits(4);
        assert_eq!(provider.requests().len(), 4, "{ran}");
        let session = session_of(&ran);
        let mut texts = vec![ran.to_string()];
        for args in [&["logs", &session, "--json"][..], &["logs", &session, "--full"], &["show", &session]] {
            texts.push(place.run(args).exits(0).to_string());
        }
        for text in &texts {
            assert!(!text.contains("SENTINEL"), "{wire:?}: {text}");
        }
        let mut all = Vec::new();
        files(&place.state(), &mut all);
        assert!(all.len() > 2, "{all:?}");
        for file in all {
            let bytes = fs::read(&file).unwrap_or_default();
            let found = bytes.windows(8).any(|window| window == b"SENTINEL");
            assert!(!found, "{wire:?}: the key is in {}", file.display());
        }
    }
}
