//! Bad input is named, with the place and the remedy.

mod agents;
mod engines;
mod images;
mod limits;
mod scripts;
mod state;

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Place, Ran};

/// Runs a command that must be refused: the exit code, one line with at most one hint behind it, soon, and nothing half
/// done. Gives the complaint without what differs from run to run.
#[track_caller]
fn refused_run(place: &Place, mut command: Command, code: i32) -> String {
    let begun = Instant::now();
    let ran = Ran::from(command.output().expect("the program starts"));
    let took = begun.elapsed();
    ran.exits(code);
    assert_eq!(ran.stdout, "", "{ran}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let form = matches!(lines[..], [error] if error.starts_with("error: "))
        || matches!(lines[..], [error, hint] if error.starts_with("error: ") && hint.starts_with("hint: "));
    assert!(form, "not one line and its hint: {ran}");
    // Two seconds at three times their value.
    assert!(took < Duration::from_secs(6), "it took {took:?}");
    place.assert_clean();
    assert_eq!(place.owners(), 0);
    place.masked(ran.stderr.trim_end())
}

/// The same for `runner start --agent worker`.
#[track_caller]
fn refused(place: &Place, code: i32) -> String {
    refused_run(place, place.command(["start", "--agent", "worker"]), code)
}

/// Runs a session that is recorded and cannot be begun: its last line says why, and nothing is left of it.
#[track_caller]
fn not_begun(place: &Place, mut command: Command, code: i32) -> String {
    let ran = Ran::from(command.output().expect("the program starts"));
    ran.exits(code);
    assert_eq!(ran.stderr, "", "{ran}");
    place.assert_clean();
    assert_eq!(place.owners(), 0);
    let listed = place.run(["ps", "--all", "--json"]).exits(0).json();
    assert_eq!((&listed[0]["state"], &listed[0]["exit_code"]), (&"ended".into(), &code.into()), "{listed}");
    let why = ran.stdout.lines().rev().nth(1).expect("two lines at the end");
    place.masked(why)
}
