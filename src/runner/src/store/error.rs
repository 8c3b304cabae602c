//! Why the store could not do what it was asked for.

use std::path::PathBuf;

use super::{Blob, BlobId};

/// Why the store could not do it. Cheap to clone: one failure may have several addressees.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else drives the session now.
    #[error("this runner no longer drives session {session}: another one took it over")]
    Fenced {
        /// Its public id.
        session: String,
    },
    /// The session has ended; its journal is closed.
    #[error("session {session} has ended already")]
    Ended {
        /// Its public id.
        session: String,
    },
    /// No session has this id.
    #[error("no session {id:?}; `runner ps --all` lists them")]
    UnknownSession {
        /// As it was asked for.
        id: String,
    },
    /// Several sessions begin or end like this.
    #[error("session {part:?} could be any of {}; give more of it", .matches.join(", "))]
    Ambiguous {
        /// As it was asked for.
        part: String,
        /// At most five of them.
        matches: Vec<String>,
    },
    /// As many sessions as may wait for a slot of this agent.
    #[error(
        "{most} sessions of agent {agent} are queued already (`workQueueSize`); wait for one to start, or raise it"
    )]
    QueueFull {
        /// The agent.
        agent: String,
        /// The limit.
        most: u32,
    },
    /// The session does not go on from a wait.
    #[error("session {session} has no wait to finish")]
    NotWaiting {
        /// Its public id.
        session: String,
    },
    /// The session's id is taken.
    #[error("a session {id} exists already")]
    Exists {
        /// Its public id.
        id: String,
    },
    /// No payload has this hash.
    #[error("no payload {0} in the store")]
    UnknownBlob(BlobId),
    /// The payload is above [`Blob::MAX`].
    #[error("a payload of {bytes} bytes is above the store's limit of {}", Blob::MAX)]
    BlobTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// A newer runner has written the store.
    #[error(
        "{} was written by a newer runner (schema {found}, this runner knows {known}); use that runner, or another state \
         directory through RUNNER_STATE", .path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The file is not a store of ours.
    #[error("{} is not a runner's store; move it away, or set RUNNER_STATE to another state directory", .path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// The state directory cannot be written.
    #[error("cannot write {}: {reason}; make it writable, or set RUNNER_STATE to a directory that is", .path.display())]
    ReadOnly {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// No space left.
    #[error("no space left for {}; make room there, or set RUNNER_STATE to a directory on another disk", .path.display())]
    Full {
        /// The database file.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error(
        "{} is damaged ({reason}); move it away or restore it from a copy, or set RUNNER_STATE to another state directory",
        .path.display()
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Another process held the database for too long.
    #[error("{} is held by another process; end it if it hangs (`fuser` on the file names it)", .path.display())]
    Busy {
        /// The database file.
        path: PathBuf,
    },
    /// Anything else that the database or the system said.
    #[error("cannot use {}: {reason}", .path.display())]
    Io {
        /// The database file.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The store's threads have ended: a bug, or the process is going down.
    #[error("the store has been closed")]
    Closed,
}
