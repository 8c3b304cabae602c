//! Standard output: lines that are safe to look at, and a reader who may leave.

use std::io::{self, IsTerminal, Write};

use crate::observe::sanitise;

/// Prints a line. A reader who has left (`| head`) is no reason to fail: the session goes on.
pub(super) fn line(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a value as one line of JSON, with JSON's own escapes for what could steer a terminal.
pub(super) fn json(value: &impl serde::Serialize) {
    // Values of ours have string keys and no other way to fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    line(&sanitise::json(&text));
}

/// Prints text from a sandbox: as it is for programs, sanitised for people.
pub(super) fn text(text: &str) {
    let shown = if io::stdout().is_terminal() { sanitise::block(text) } else { text.into() };
    let mut out = io::stdout().lock();
    let end = if shown.ends_with('\n') { "" } else { "\n" };
    let _ = write!(out, "{shown}{end}").and_then(|()| out.flush());
}
