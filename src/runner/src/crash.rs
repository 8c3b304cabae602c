//! Points at which a test kills this process, as `kill -9` from outside would.
//!
//! `RUNNER_CRASH_AT=name` dies at the first pass of the point `name`, `RUNNER_CRASH_AT=name:3` at the third. Without the
//! cargo feature `crash`, which only the tests' build has, a point is nothing.

#[cfg(all(feature = "crash", not(debug_assertions)))]
compile_error!("crash points are for debug builds: leave the feature `crash` out of a release");

/// Dies here if this is the point that was asked for.
#[cfg(not(feature = "crash"))]
#[inline]
pub fn point(_name: &str) {}

/// Dies here if this is the point that was asked for.
#[cfg(feature = "crash")]
pub fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Asked {
        name: String,
        left: AtomicU64,
    }
    static ASKED: OnceLock<Option<Asked>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let asked = std::env::var("RUNNER_CRASH_AT").ok()?;
        let (name, pass) = match asked.rsplit_once(':') {
            Some((name, pass)) if pass.bytes().all(|b| b.is_ascii_digit()) => (name.to_owned(), pass.parse().ok()?),
            _ => (asked, 1),
        };
        Some(Asked { name, left: AtomicU64::new(pass) })
    });
    if let Some(asked) = asked
        && asked.name == name
        && asked.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        std::process::abort();
    }
}
