//! What the commands that look at recorded sessions share: opening the records, and how that can fail.

use std::io;
use std::sync::Arc;

use crate::sandbox::engine::EngineError;
use crate::session::journal::JournalError;
use crate::session::owner::{self, OwnerError};
use crate::session::recovery::RecoveryError;
use crate::state::{State, StateError};
use crate::store::{Session, SqliteStore, Store, StoreError};

/// The state directory and the store in it.
pub(crate) struct Records {
    pub(crate) state: State,
    pub(crate) store: Arc<dyn Store>,
}

impl Records {
    /// Opens this user's.
    pub(crate) fn open() -> Result<Records, RecordsError> {
        Records::open_in(State::open()?)
    }

    /// Opens those of a given state directory.
    pub(crate) fn open_in(state: State) -> Result<Records, RecordsError> {
        let store = Arc::new(SqliteStore::open(state.root())?);
        Ok(Records { state, store })
    }

    /// What the session is doing, in a word or two.
    pub(crate) fn condition(&self, session: &Session) -> Result<Condition, RecordsError> {
        Ok(match &session.end {
            Some((end, _)) => Condition::Ended { cause: end.cause.clone(), failed: end.exit_code != 0 },
            None if !owner::is_alive(&self.state, &session.owner)? => Condition::RunnerDied,
            None if session.stop_requested_by.is_some() => Condition::Stopping,
            None => Condition::Running,
        })
    }
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Somebody drives it.
    Running,
    /// It was asked to stop and has not yet.
    Stopping,
    /// Its runner died and nobody has cleaned up yet.
    RunnerDied,
    /// It is over.
    Ended { cause: String, failed: bool },
}

impl Condition {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Condition::Running => "running",
            Condition::Stopping => "stopping",
            Condition::RunnerDied => "runner_died",
            Condition::Ended { cause, .. } => cause,
        }
    }
}

/// Why such a command failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The owners' files.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// Cleaning up after a dead runner.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The container engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Something of a session could not be removed.
    #[error("{0}")]
    LeftBehind(String),
    /// Standard output.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl RecordsError {
    /// The exit code for it: 2 when what was asked for or set up is wrong, 3 for the engine, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            RecordsError::State(_) | RecordsError::Owner(_) => 2,
            RecordsError::Store(error) | RecordsError::Journal(JournalError::Store(error)) => match error {
                StoreError::UnknownSession { .. }
                | StoreError::Ambiguous { .. }
                | StoreError::Newer { .. }
                | StoreError::Foreign { .. }
                | StoreError::ReadOnly { .. } => 2,
                _ => 1,
            },
            RecordsError::Engine(_)
            | RecordsError::LeftBehind(_)
            | RecordsError::Recovery(RecoveryError::Engine(_)) => 3,
            RecordsError::Journal(_) | RecordsError::Recovery(_) | RecordsError::Output(_) => 1,
        }
    }
}

/// Nobody reads on: that is how `runner logs X | head` ends, and no failure.
pub(crate) fn unless_closed(result: Result<u8, RecordsError>) -> Result<u8, RecordsError> {
    match result {
        Err(RecordsError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        other => other,
    }
}
