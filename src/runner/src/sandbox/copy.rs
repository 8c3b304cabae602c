//! Copies between the host and a sandbox: what both directions share.
//!
//! Neither side trusts the other's names. Only regular files, folders and links that stay inside the copy pass; contents
//! stream through a bounded channel between the link and a thread that works on the host's file system.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::{Cause, MAX_PATH};

use super::call::{CallError, Gone};

/// Most bytes of one copy.
pub(super) const MAX_BYTES: u64 = 4 << 30;

/// Most files, folders and links of one copy.
pub(super) const MAX_ENTRIES: u64 = 100_000;

/// Most folders inside one another.
pub(super) const MAX_DEPTH: usize = 100;

/// Most notes on what was left out.
pub(super) const MAX_SKIPPED: usize = 20;

/// A copy that does not move for so long is given up.
pub(super) const IDLE: Duration = Duration::from_mins(1);

/// The limit that the sandbox is told; the host's own limit is [`IDLE`].
pub(super) const LONGEST: Duration = Duration::from_hours(24);

/// Bytes of a file read or written at once.
pub(super) const PIECE: usize = 64 * 1024;

/// Pieces between the link and the thread that works on files.
pub(super) const PIECES: usize = 8;

/// What a copy moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// What was left out and why, one line each, at most 20.
    pub skipped: Vec<String>,
}

/// Why a copy failed. Files that were copied before stay.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The host's file system.
    #[error("{}: {source}", path.display())]
    Host {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file, link or name that may not be copied.
    #[error("{}: {reason}", path.escape_debug())]
    Refused {
        /// Where, below the copied path.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The sandbox could not do it.
    #[error("{message}")]
    Sandbox {
        /// Machine-readable.
        cause: Cause,
        /// In its own words.
        message: String,
    },
    /// The call itself failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl CopyError {
    /// The cause as the journal sees it.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Host { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Cause::NotFound,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Cause::Denied,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Cause::NoSpace,
                _ => Cause::Invalid,
            },
            Self::Refused { .. } => Cause::Denied,
            Self::Sandbox { cause, .. } => *cause,
            Self::Call(error) => error.cause(),
        }
    }

    pub(super) fn host(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Host { path: path.to_owned(), source: source.into() }
    }

    pub(super) fn refused(path: &str, reason: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), reason: reason.into() }
    }

    pub(super) fn stalled() -> Self {
        let message = format!("the copy did not move for {} s and was given up", IDLE.as_secs());
        Self::Sandbox { cause: Cause::Timeout, message }
    }
}

impl From<Gone> for CopyError {
    fn from(gone: Gone) -> Self {
        Self::Call(gone.into())
    }
}

/// Checks the form of a path below the copied root: parts that name something, `/` between them; empty is the root.
pub(super) fn is_inside(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() <= 255;
    path.is_empty() || (path.len() <= MAX_PATH && !path.contains('\0') && path.split('/').all(part))
}

/// Checks that a link of this path below the root stays below it, whatever the links on its way are: first as many `..`
/// as it has parents, then names only. (`a/../..` may leave when `a` is a link itself.)
pub(super) fn stays_inside(path: &str, target: &str) -> bool {
    if target.is_empty() || target.starts_with('/') || target.contains('\0') || target.len() > MAX_PATH {
        return false;
    }
    let parents = path.matches('/').count();
    let parts: Vec<&str> = target.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let ups = parts.iter().take_while(|part| **part == "..").count();
    !path.is_empty() && ups <= parents && parts[ups..].iter().all(|part| *part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        for good in ["", "a", "a/b", "日本語/ö", ".hidden", "a/...", "a b"] {
            assert!(is_inside(good), "{good}");
        }
        for bad in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "a/./b", "a\0b", &"x".repeat(256), &"a/".repeat(3000)] {
            assert!(!is_inside(bad), "{bad}");
        }
    }

    #[test]
    fn links_stay_below_the_root() {
        for (path, target) in
            [("l", "a"), ("l", "a/b"), ("d/l", "../a"), ("d/e/l", "../../a/b"), ("l", "./a"), ("d/l", "..")]
        {
            assert!(stays_inside(path, target), "{path} -> {target}");
        }
        for (path, target) in
            [("l", ".."), ("l", "/a"), ("d/l", "../../a"), ("l", "a/../.."), ("d/l", "a/../b"), ("l", ""), ("", "a")]
        {
            assert!(!stays_inside(path, target), "{path} -> {target}");
        }
    }
}
