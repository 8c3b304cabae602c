//! The one place where the attacks meet a sandbox of the product.

use std::path::Path;

use crate::harness::Place;

/// How a command ended.
#[derive(Debug)]
pub(super) struct Run {
    /// It exited with 0.
    pub(super) ok: bool,
    /// What it printed.
    pub(super) output: String,
}

/// Runs commands one after the other in one new sandbox, which is gone afterwards. `files` are copied in first: a file
/// of the host, and where it goes below /tmp.
pub(super) fn run_in_sandbox(files: &[(&Path, &str)], commands: &[&str]) -> Vec<Run> {
    let place = Place::new();
    let copies: Vec<String> = files.iter().map(|(from, to)| format!("{}:{to}", from.display())).collect();
    let more: Vec<&str> = copies.iter().flat_map(|copy| ["--in", copy]).collect();
    let mut desk = place.desk_with("worker", &more);
    let run = |command: &&str| {
        let answer = desk.bash(command);
        Run { ok: !answer.is_error(), output: answer.text().to_owned() }
    };
    let runs = commands.iter().map(run).collect();
    desk.close().exits(0);
    runs
}
