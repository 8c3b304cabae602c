//! Language models: a key that nobody else sees, failures that pass and failures that do not, conversations that are too
//! long, and recordings.

mod fallback;
mod faults;
mod keys;
mod providers;
mod recordings;
mod resumed;
mod room;

use std::process::Command;

use serde_json::Value;

use crate::harness::provider::{KEY, Provider};
use crate::harness::{Place, Ran};

/// A place whose only model is this provider.
fn place_with(provider: &Provider) -> Place {
    let place = Place::new();
    place.write("config.toml", provider.config());
    place
}

/// `runner start --agent worker --json` with the key of this provider.
fn start(place: &Place, provider: &Provider) -> Command {
    let mut command = place.start_command(&[]);
    command.env(provider.variable(), KEY);
    command
}

/// Runs a command to its end.
fn run(mut command: Command) -> Ran {
    Ran::from(command.output().expect("the program starts"))
}

/// The events of this kind among the lines of `--json`.
#[track_caller]
fn events(ran: &Ran, kind: &str) -> Vec<Value> {
    ran.json_lines().into_iter().filter(|event| event["event"] == kind).collect()
}

/// The session's id.
#[track_caller]
fn session_of(ran: &Ran) -> String {
    events(ran, "started")[0]["session"].as_str().expect("a session has an id").to_owned()
}

/// Cause and message of the last line.
#[track_caller]
fn end_of(ran: &Ran) -> (String, String) {
    let end = ran.json_lines().pop().expect("events");
    assert_eq!((&end["event"], &end["exit_code"]), (&"ended".into(), &ran.code.into()), "{ran}");
    let text = |name: &str| end[name].as_str().expect("a text").to_owned();
    (text("cause"), text("message"))
}
