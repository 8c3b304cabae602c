//! The disk of the records fills up while a session works.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{Place, is_root, long_sleep, processes, processes_with, until};

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
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {
            "command": format!("{sleep} & until [ -e /tmp/go ]; do sleep 0.05; done"), "timeout": 1000
        }}, {"id": "b", "tool": "bash", "args": {"command": "until [ -e /tmp/full ]; do sleep 0.05; done"}}]},
        {"text": "never said"}
    ]));
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || processes(&sleep).len() == 1);
    let mut filler = File::create(place.state().join("filler")).expect("there is room");
    while filler.write_all(&[0; 4096]).is_ok() {}
    // A request to stop cannot be recorded either.
    let stop = place.run(["stop", &id]);
    stop.exits(2).complains("no space left");
    session.signal(nix::sys::signal::Signal::SIGINT);
    let ran = session.end();
    insta::assert_snapshot!(place.masked(&ran.stderr), @"error: no space left for STATE/store.db; make room there, or set RUNNER_STATE to a directory on another disk");
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
    place.assert_clean();

    drop(filler);
    fs::remove_file(place.state().join("filler")).expect("it is there");
    place.drive().exits(0);
    let shown = place.show(&id);
    assert_eq!(json!([shown["state"], shown["cause"]]), json!(["ended", "runner_died"]), "{ran}");
    drop(mount);
}
