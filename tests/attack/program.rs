//! Builds the C programs of this folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The attack program's sources.
pub(super) const SECTIONS: &[&str] = &[
    "attack.c",
    "syscalls.c",
    "arguments.c",
    "features.c",
    "identity.c",
    "processes.c",
    "paths.c",
    "writes.c",
    "network.c",
    "leftovers.c",
];

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|facts| facts.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Compiles `sources` of this folder into one static program in the target folder, unless that is newer than they are.
pub(crate) fn build(name: &str, sources: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attack");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attack");
    fs::create_dir_all(&target).expect("the target folder can be written");
    let program = target.join(name);
    // Tests are processes of their own under nextest; the first builds, the others wait.
    let lock = File::create(target.join(format!("{name}.lock"))).expect("the target folder can be written");
    lock.lock().expect("the lock can be taken");
    let paths: Vec<_> = sources.iter().map(|source| folder.join(source)).collect();
    let headers = ["attack.h", "syscalls.h"].map(|header| folder.join(header));
    if paths.iter().chain(&headers).all(|source| modified(source) < modified(&program)) {
        return program;
    }
    let unfinished = target.join(format!("{name}.new"));
    let output = Command::new("gcc")
        .args(["-static", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-o"])
        .arg(&unfinished)
        .args(&paths)
        .output()
        .expect("gcc runs: install gcc and libc6-dev");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&unfinished, &program).expect("the program can be renamed");
    program
}
