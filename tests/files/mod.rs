//! `read`, `write`, `edit`, `ls`, and copies in and out.

mod copies;
mod edit;
mod image;
mod ls;
mod read;
mod special;
mod write;

use serde_json::{Value, json};

use crate::harness::{Answer, Desk};

/// Reads a whole file.
#[track_caller]
fn read(desk: &mut Desk, path: &str) -> Answer {
    desk.call("read", &json!({"path": path}))
}

/// Writes a file.
#[track_caller]
fn write(desk: &mut Desk, path: &str, content: &str) -> Answer {
    desk.call("write", &json!({"path": path, "content": content}))
}

/// Lists a folder.
#[track_caller]
fn ls(desk: &mut Desk, path: &str) -> Answer {
    desk.call("ls", &json!({"path": path}))
}

/// Arguments of a write.
fn writing(path: &str, content: &str) -> (&'static str, Value) {
    ("write", json!({"path": path, "content": content}))
}
