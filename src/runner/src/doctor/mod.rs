//! Is this machine fit to run sandboxes, and is a project right? What `runner doctor` and `runner validate` find out.
//!
//! A check is one line: what was looked at, how it is, what was seen, and what to do about it. Checks that need what an
//! earlier one did not find are skipped and say so; nothing here waits without a deadline. The groups run in this order:
//! `engine`, `ids`, `images`, `machine`, `state` (with `leftovers`), `keys`, `probe`. Only `fix` changes anything.

mod engine;
mod fix;
mod ids;
mod images;
mod keys;
mod leftovers;
mod machine;
mod probe;
pub mod project;
mod state;

use crate::sandbox::engine::Engine;

/// The names of all checks, in their order. docs/troubleshooting.md has a section for each.
pub const CHECKS: [&str; 25] = [
    "engine",
    "engine-api",
    "cgroups",
    "seccomp",
    "user-namespaces",
    "storage-driver",
    "live-restore",
    "uid-range",
    "uid-lock",
    "image-minimal",
    "image-base",
    "state",
    "store",
    "leftovers",
    "disk-state",
    "disk-engine",
    "clock",
    "model-keys",
    "sandbox",
    "memory-limit",
    "pids-limit",
    "tmp-size",
    "network",
    "syscall-filter",
    "pid-1",
];

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Fine,
    /// It works, and could be better or safer.
    Warning,
    /// It does not work.
    Error,
    /// It could not be looked at, because something else is missing.
    Skipped,
}

impl Level {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Fine => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
            Level::Skipped => "skipped",
        }
    }
}

/// What one check found. Texts may hold what an engine or a file said: whoever shows them sanitises them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check's name, one of [`CHECKS`].
    pub check: &'static str,
    /// How it is.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    fn fine(check: &'static str, seen: impl Into<String>) -> Finding {
        Finding { check, level: Level::Fine, seen: seen.into(), remedy: None }
    }

    fn warning(check: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { check, level: Level::Warning, seen: seen.into(), remedy: Some(remedy.into()) }
    }

    fn error(check: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { check, level: Level::Error, seen: seen.into(), remedy: Some(remedy.into()) }
    }

    fn skipped(check: &'static str, why: impl Into<String>) -> Finding {
        Finding { check, level: Level::Skipped, seen: why.into(), remedy: None }
    }

    /// From an error of ours, whose text has the remedy behind its first semicolon.
    fn from_error(check: &'static str, error: &(dyn std::error::Error + 'static)) -> Finding {
        let text = crate::exit::chain(error);
        let (seen, remedy) = text.split_once("; ").unwrap_or((&text, "see docs/troubleshooting.md"));
        Finding::error(check, seen, remedy)
    }
}

/// Examines this machine and gives each finding to `see` as it is found. With `fix`, what earlier sessions left is
/// removed first; the sentences that say so are returned.
pub async fn examine(fix: bool, mut see: impl FnMut(Finding)) -> Vec<String> {
    let (found, engine) = engine::examine().await;
    found.into_iter().for_each(&mut see);
    ids::examine(engine.as_ref()).await.into_iter().for_each(&mut see);
    let (found, image) = images::examine(engine.as_ref()).await;
    found.into_iter().for_each(&mut see);

    let seen = state::examine().await;
    let mut fixed = Vec::new();
    if fix && let Some(state) = &seen.state {
        fixed = fix::fix(state, seen.store.as_ref(), engine.as_ref()).await;
    }
    see(seen.finding);
    see(seen.store_finding);
    see(leftovers::examine(seen.state.as_ref(), seen.store.as_ref(), engine.as_ref()).await);
    machine::examine(seen.state.as_ref(), engine.as_ref()).await.into_iter().for_each(&mut see);
    see(keys::examine());
    probe::examine(engine.as_ref(), seen.state.as_ref(), seen.store.as_ref(), image.as_deref(), &mut see).await;
    fixed
}

/// The words of a check that needs an engine.
const NO_ENGINE: &str = "not looked at: no engine can be used";

/// An engine that was surveyed and accepted, and where it keeps everything.
pub(crate) struct Usable {
    engine: Engine,
    root: std::path::PathBuf,
}
