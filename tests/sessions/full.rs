//! The disk of the records fills up while a session works.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::harness::{Place, is_root, long_sleep, processes, until};

/// A small file system, until it is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(path: &Path, options: &str) -> Self {
        fs::create_dir(path).expect("a fresh folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(path).status();
        assert!(mounted.expect("mount is on every Debian").success());
        Self(path.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// CLI-10, CLI-12: what is recorded can be read where there is no room left: with a runner at work, and with none.
#[test]
fn a_full_disk_can_be_looked_at() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let _mount = Mount::new(&place.state(), "size=24m,mode=700");
    let look = |id: &str, state: &str| {
        let filler = fill(&place.state());
        place.run(["ps", "--all"]).exits(0).prints(&id[id.len() - 8..]);
        assert_eq!(place.show(id)["state"], state);
        place.run(["logs", id]).exits(0).prints("started    worker");
        fs::remove_file(filler).expect("it is there");
    };
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": sleep, "timeout": 1000}}]}
    ]));
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || !processes(&sleep).is_empty());
    look(&id, "running");
    place.run(["stop", &id]).exits(0);
    session.end().exits(125);
    look(&id, "ended");
    // With nobody at work, nothing but the records is there, and asking an ended session to stop changes nothing.
    let filler = fill(&place.state());
    place.run(["stop", &id]).exits(0).prints("had ended already (stopped)");
    place.run(["start", "--agent", "worker"]).exits(2).complains("no space left");
    fs::remove_file(filler).expect("it is there");
    place.drive().exits(0);
}

/// Takes all the room that there is.
fn fill(state: &Path) -> PathBuf {
    let path = state.join("filler");
    let mut filler = File::create(&path).expect("there is room for a name");
    while filler.write_all(&[0; 4096]).is_ok() {}
    path
}

/// What can no longer be recorded is not done: the session ends and says why, its sandbox is removed, and with some room
/// the next runner brings the records in order.
#[test]
fn a_full_disk_ends_the_session() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mount = Mount::new(&place.state(), "size=24m,mode=700");
    let sleep = long_sleep();
    // More than the records have room for in what they hold already.
    let command = format!("{sleep}; head -c 40000 /dev/zero | tr '\\0' x | fold -w 100");
    place.script(&json!([
        {"calls": [
            {"id": "a", "tool": "bash", "args": {"command": command, "timeout": 1000}},
            {"id": "b", "tool": "bash", "args": {"command": command, "timeout": 1000}}
        ]},
        {"calls": [{"id": "c", "tool": "bash", "args": {"command": "true"}}]},
        {"text": "never said"}
    ]));
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || processes(&sleep).len() == 2);
    let filler = fill(&place.state());
    for pid in processes(&sleep) {
        kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), Signal::SIGKILL).expect("it sleeps");
    }
    let ran = session.end();
    ran.exits(1);
    let ended = ran.json_lines().pop().expect("events");
    let full = "no space left for STATE/store.db; make room there, or set RUNNER_STATE to a directory on another disk";
    let end =
        json!([ended["cause"], place.masked(ended["message"].as_str().expect("a text")), ended["sandbox_removed"]]);
    assert_eq!(end, json!(["store", full, true]));
    place.assert_clean();

    fs::remove_file(filler).expect("it is there");
    place.drive().exits(0);
    // The end itself may still have found its place.
    let shown = place.show(&id);
    assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("ended"), &json!(1)), "{shown}");
    drop(mount);
}
