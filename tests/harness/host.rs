//! What this host shows of the processes in sandboxes, and waiting for it.

use std::fs;
use std::time::{Duration, Instant};

/// Waits until it is so. What does not come about in a minute never does.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "a minute has passed without this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Process ids of those whose command line is exactly this.
pub(crate) fn processes(line: &str) -> Vec<u32> {
    processes_that(|words| words == line)
}

/// Process ids of those whose command line contains this, shells that are about to run it among them.
pub(crate) fn processes_with(part: &str) -> Vec<u32> {
    processes_that(|words| words.contains(part))
}

fn processes_that(fit: impl Fn(&str) -> bool) -> Vec<u32> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").expect("a /proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended by now has none.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
        if fit(&line) {
            pids.push(pid);
        }
    }
    pids
}

/// Seconds for a `sleep` that no other test has: it makes the process known to the host.
pub(crate) fn long_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("sleep 3{:08}{:02}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// True when this user may do everything.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
