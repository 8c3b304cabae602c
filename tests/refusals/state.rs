//! State directories that cannot be used, and ids that there are not.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::refused_run;
use crate::harness::{Place, is_root, program};

fn with_state(place: &Place, state: &str) -> Command {
    let mut command = place.command(["start", "--agent", "worker"]);
    command.env("RUNNER_STATE", state);
    command
}

/// A path that cannot be a state directory.
#[test]
fn wrong_paths() {
    let place = Place::new();
    insta::assert_snapshot!(refused_run(&place, with_state(&place, "some/where"), 2), @r#"error: RUNNER_STATE is "some/where"; it must be an absolute path"#);
    let file = place.write("file", "");
    insta::assert_snapshot!(refused_run(&place, with_state(&place, file.to_str().expect("UTF-8")), 2), @"error: the state directory PROJECT/file is not a directory; move it away or set RUNNER_STATE to another path");
    place.write("others/file", "");
    let others = place.project().join("others");
    insta::assert_snapshot!(refused_run(&place, with_state(&place, others.to_str().expect("UTF-8")), 2), @r#"error: the state directory PROJECT/others holds "file", which is not runner's; set RUNNER_STATE to an empty or new directory"#);
    assert_ne!(std::fs::metadata(&others).expect("it is there").permissions().mode() & 0o777, 0o700, "it is as it was");
    let mut homeless = place.command(["ps"]);
    homeless.env_remove("RUNNER_STATE").env_remove("HOME").env_remove("XDG_STATE_HOME");
    if !is_root() {
        insta::assert_snapshot!(refused_run(&place, homeless, 2), @"error: no place for the state directory: neither XDG_STATE_HOME nor HOME is set to an absolute path; set RUNNER_STATE");
    }
}

/// Runs in a mount namespace of its own, where the state directory is on a file system with these options.
#[track_caller]
fn mounted(options: &str, code: i32) -> String {
    let place = Place::new();
    std::fs::create_dir(place.state()).expect("a fresh folder");
    let mut command = Command::new("unshare");
    let script = format!("mount -t tmpfs -o {options} none \"$RUNNER_STATE\" && exec \"$0\" start --agent worker");
    command.args(["-m", "sh", "-c", &script]).arg(program());
    command.current_dir(place.project()).env("RUNNER_STATE", place.state());
    refused_run(&place, command, code)
}

/// CLI-12: read-only, not to be executed from, and full: each with its remedy.
#[test]
fn unfit_file_systems() {
    if !is_root() {
        return;
    }
    insta::assert_snapshot!(mounted("ro", 2), @"error: the state directory STATE is on a read-only file system; set RUNNER_STATE to a writable path");
    insta::assert_snapshot!(mounted("noexec", 2), @"error: the state directory STATE is on a noexec mount, and containers execute a file of it; set RUNNER_STATE to a path on another file system");
    insta::assert_snapshot!(mounted("size=4k", 2), @"error: no space left for the state directory STATE; free some, or set RUNNER_STATE to a path on another file system");
    insta::assert_snapshot!(mounted("nr_inodes=2", 2), @"error: no space left for the state directory STATE/token; free some, or set RUNNER_STATE to a path on another file system");
    // Room for the directory itself and not for the records.
    insta::assert_snapshot!(mounted("size=20k", 2), @"error: no space left for STATE/store.db; make room there, or set RUNNER_STATE to a directory on another disk");
}

/// security.md 1: a user namespace without the ids that sandboxes have.
#[test]
fn too_few_ids() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(program()).args(["start", "--agent", "worker"]);
    command.current_dir(place.project()).env("RUNNER_STATE", place.state());
    insta::assert_snapshot!(super::not_begun(&place, command, 3), @"engine: this user namespace has neither the ids 1900000000 to 1999999999 nor enough of 20000 to 59999 (/proc/self/uid_map, gid_map); run runner where these ids exist");
}

/// What is in the way inside: a damaged token, damaged records, another owner.
#[test]
fn damaged_directories() {
    let place = Place::new();
    place.drive().exits(0);
    let start = || place.command(["start", "--agent", "worker"]);
    let token = std::fs::read(place.state().join("token")).expect("a token");
    std::fs::write(place.state().join("token"), "short\n").expect("it is ours");
    insta::assert_snapshot!(refused_run(&place, start(), 2), @"error: STATE/token does not hold 32 hex digits; restore it, or remove it when no session of this state directory is left");
    std::fs::write(place.state().join("token"), token).expect("it is ours");
    std::fs::write(place.state().join("store.db"), "no database, but long enough to be looked at".repeat(100))
        .expect("it is ours");
    insta::assert_snapshot!(refused_run(&place, start(), 2), @"error: STATE/store.db is damaged (file is not a database); move it away or restore it from a copy, or set RUNNER_STATE to another state directory");
    if is_root() {
        std::os::unix::fs::chown(place.state(), Some(1), None).expect("root may");
        insta::assert_snapshot!(refused_run(&place, start(), 2), @"error: the state directory STATE belongs to uid 1, not to you (uid 0); set RUNNER_STATE to a path of your own");
    }
}
