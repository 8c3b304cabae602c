//! `bash` does what its contract says.

mod arguments;
mod docker_group;
mod endings;
mod jobs;
mod limits;
mod output;
mod parallel;
mod surroundings;
mod times;

use serde_json::{Value, json};

/// Arguments of a command.
fn command(text: &str) -> (&'static str, Value) {
    ("bash", json!({"command": text}))
}

/// Arguments of a command with a timeout in seconds.
fn command_for(timeout: f64, text: &str) -> (&'static str, Value) {
    ("bash", json!({"command": text, "timeout": timeout}))
}
