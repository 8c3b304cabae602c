//! What the commands that look at recorded sessions share: opening the records, and how that can fail.

use std::io;
use std::sync::Arc;

use crate::dispatch::seat::SeatError;
use crate::exit::store_code;
use crate::project::ProjectError;
use crate::sandbox::engine::EngineError;
use crate::session::journal::JournalError;
use crate::session::owner::{self, OwnerError};
use crate::session::recovery::RecoveryError;
use crate::state::{State, StateError};
use crate::store::{Session, SessionFilter, SessionState, SqliteStore, Store, StoreError, Wait};

/// The state directory and the store in it.
pub(crate) struct Records {
    pub(crate) state: State,
    pub(crate) store: Arc<dyn Store>,
}

impl Records {
    /// Opens this user's. Where there is no room left, what is recorded can still be read.
    pub(crate) fn open() -> Result<Records, RecordsError> {
        let state = State::open_to_look()?;
        let store = Arc::new(SqliteStore::open_to_look(state.root())?);
        Ok(Records { state, store })
    }

    /// Opens those of a given state directory.
    #[cfg(test)]
    pub(crate) fn open_in(state: State) -> Result<Records, RecordsError> {
        let store = Arc::new(SqliteStore::open(state.root())?);
        Ok(Records { state, store })
    }

    /// The session that somebody means: by its id, a part of it, or `last` for the newest.
    pub(crate) async fn meant(&self, asked: &str) -> Result<Session, StoreError> {
        if asked != "last" {
            return self.store.session(asked).await;
        }
        let newest = self.store.sessions(SessionFilter { limit: Some(1), ..SessionFilter::default() }).await?;
        newest.into_iter().next().ok_or_else(|| StoreError::UnknownSession { id: asked.to_owned() })
    }

    /// What the session is doing, in a few words; `wait` is what it waits for, or did until it was woken.
    pub(crate) fn condition(&self, session: &Session, wait: Option<&Wait>) -> Result<Condition, RecordsError> {
        let alive = || owner::is_alive(&self.state, &session.owner);
        if let Some((end, _)) = &session.end {
            let remains = match end.sandbox_removed {
                true => Remains::Nothing,
                false if session.keep => Remains::Kept,
                false if alive()? => Remains::BeingRemoved,
                false => Remains::LeftBehind,
            };
            return Ok(Condition::Ended { cause: end.cause.clone(), failed: end.exit_code != 0, remains });
        }
        if session.state == SessionState::Active && !alive()? {
            return Ok(Condition::RunnerDied);
        }
        if session.stop_requested_by.is_some() {
            return Ok(Condition::Stopping);
        }
        let has_container = session.container.as_ref().is_some_and(|container| container.id.is_some());
        Ok(match (session.state, wait) {
            (SessionState::Queued, _) => Condition::Queued,
            (SessionState::Waiting, Some(Wait { woken: None, words, paused, .. })) => {
                Condition::Waiting { words: words.clone(), paused: *paused }
            }
            // It was woken since its row was read.
            (SessionState::Waiting | SessionState::Woken, _) | (SessionState::Active, Some(_)) => Condition::Resuming,
            (SessionState::Active, None) if session.slotted && !has_container => Condition::Starting,
            (SessionState::Active | SessionState::Ended, _) => Condition::Running,
        })
    }
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It waits for its first slot.
    Queued,
    /// It has a slot, and no sandbox yet.
    Starting,
    /// Somebody drives it.
    Running,
    /// It waits for a trigger.
    Waiting { words: String, paused: bool },
    /// What it waited for is there, and it is about to go on.
    Resuming,
    /// It was asked to stop and has not yet.
    Stopping,
    /// Its runner died and nobody goes on with it yet.
    RunnerDied,
    /// It is over.
    Ended { cause: String, failed: bool, remains: Remains },
}

/// What an ended session has left of its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Nothing.
    Nothing,
    /// All of it, because it was asked for.
    Kept,
    /// Its runner is at it.
    BeingRemoved,
    /// What could not be removed: the next runner tries again.
    LeftBehind,
}

impl Remains {
    /// In words, for people; nothing when nothing is left.
    pub(crate) fn words(self) -> Option<&'static str> {
        match self {
            Remains::Nothing => None,
            Remains::Kept => Some("kept"),
            Remains::BeingRemoved => Some("being removed"),
            Remains::LeftBehind => Some("left behind"),
        }
    }
}

impl Condition {
    /// For people: the state, and what is left of the sandbox when it should be gone or was kept.
    pub(crate) fn words(&self) -> String {
        match self {
            Condition::Waiting { words, paused: true } => return format!("waiting for {words}"),
            Condition::Waiting { words, paused: false } => return format!("waiting (not paused) for {words}"),
            Condition::RunnerDied => return "runner died".to_owned(),
            _ => {}
        }
        let remains = match self {
            Condition::Ended { remains, .. } => remains.words(),
            _ => None,
        };
        // These say themselves that it did not end well; `model` or `engine_gone` alone does not.
        let plain = ["failed", "timeout", "stopped", "interrupted"];
        let (state, cause) = match self {
            Condition::Ended { cause, failed: true, .. } if !plain.contains(&cause.as_str()) => {
                ("failed", Some(cause.as_str()))
            }
            _ => (self.as_str(), None),
        };
        let more: Vec<&str> = cause.into_iter().chain(remains).collect();
        if more.is_empty() { state.to_owned() } else { format!("{state} ({})", more.join(", ")) }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Condition::Queued => "queued",
            Condition::Starting => "starting",
            Condition::Running => "running",
            Condition::Waiting { .. } => "waiting",
            Condition::Resuming => "resuming",
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
    /// A project.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// Who serves a project.
    #[error(transparent)]
    Seat(#[from] SeatError),
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
            RecordsError::State(_) | RecordsError::Owner(_) | RecordsError::Seat(_) | RecordsError::Project(_) => 2,
            RecordsError::Store(error) | RecordsError::Journal(JournalError::Store(error)) => store_code(error),
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
