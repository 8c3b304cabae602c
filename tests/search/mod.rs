//! `grep` and `find`.

mod find;
mod grep;
mod hostile;
mod ignored;

use serde_json::{Value, json};

use crate::harness::{Answer, Desk};

/// Searches contents with these arguments.
#[track_caller]
fn grep(desk: &mut Desk, args: &Value) -> Answer {
    desk.call("grep", args)
}

/// Finds names below a folder.
#[track_caller]
fn find(desk: &mut Desk, pattern: &str, path: &str) -> Answer {
    desk.call("find", &json!({"pattern": pattern, "path": path}))
}

/// A result without its last line, and that line.
#[track_caller]
fn parts(answer: &Answer) -> (&str, &str) {
    let text = answer.ok();
    let last = text.rfind("\n[").map_or(0, |at| at + 1);
    text.split_at(last)
}
