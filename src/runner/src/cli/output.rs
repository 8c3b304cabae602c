//! Standard output: lines that are safe to look at, and a reader who may leave.

use std::io::{self, IsTerminal, Write};

use crate::exit::Failure;
use crate::observe::sanitise;

/// Prints a line.
pub(super) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Prints a value as one line of JSON, with JSON's own escapes for what could steer a terminal.
pub(super) fn json(value: &impl serde::Serialize) -> io::Result<()> {
    // Values of ours have string keys and no other way to fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    line(&sanitise::json(&text))
}

/// Prints text from a sandbox: as it is for programs, sanitised for people.
pub(super) fn text(text: &str) -> io::Result<()> {
    let shown = if io::stdout().is_terminal() { sanitise::block(text) } else { text.into() };
    let mut out = io::stdout().lock();
    let end = if shown.ends_with('\n') { "" } else { "\n" };
    write!(out, "{shown}{end}").and_then(|()| out.flush())
}

/// A reader who has left (`| head`) has seen what he wanted.
pub(super) fn unless_closed(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The failure of a program whose whole work is its output.
pub(super) fn check(printed: io::Result<()>) -> Result<(), Failure> {
    let failed = |error| Failure { code: 1, message: format!("cannot write the output: {error}"), hint: None };
    unless_closed(printed).map_err(failed)
}
