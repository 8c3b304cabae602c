//! The writing verbs as data, and each one's statements.
//!
//! An operation either does all it has to or, when the store's rules refuse it, nothing: its first statement is the one
//! that checks. So a group of them can share a transaction although some are refused.

use rusqlite::{Connection, OptionalExtension, params};

use super::verbs::journal::{append, put};
use super::verbs::sessions::create;
use super::{Blob, Container, Generation, NewEvent, NewSession, OwnerId, SessionKey, StoreError};

/// A writing verb.
pub(super) enum Operation {
    Create {
        session: NewSession,
        started: NewEvent,
    },
    Append {
        key: SessionKey,
        generation: Generation,
        event: NewEvent,
    },
    SetContainer {
        key: SessionKey,
        generation: Generation,
        container: Container,
    },
    SandboxRemoved {
        key: SessionKey,
        generation: Generation,
    },
    TakeOver {
        key: SessionKey,
        expected: Generation,
        owner: OwnerId,
    },
    PutBlob(Blob),
    /// A verb with an answer of its own type.
    Verb(Verb),
    /// Reports what went wrong in the background.
    Flush(SessionKey),
    /// Does nothing, in its turn.
    Barrier,
}

/// A verb that hands its answer over by itself.
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// The session whose order it keeps.
    pub(super) key: Option<SessionKey>,
    /// It must survive a power cut.
    pub(super) durable: bool,
    /// Roughly the bytes that it keeps in memory.
    pub(super) size: usize,
    /// Its statements. A transaction that fails is tried again, so it may be called more than once.
    pub(super) apply: Box<Apply>,
}

type Apply = dyn Fn(&Connection, i64) -> Result<(), Refusal> + Send;

/// Why an operation was not done.
pub(super) enum Refusal {
    /// The store's rules forbid it; nothing was changed and the transaction may go on.
    Rules(StoreError),
    /// The database failed; the transaction is lost.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Refusal {
        Refusal::Database(error)
    }
}

impl Operation {
    /// The verb's name, as crash points have it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Operation::Create { .. } => "create_session",
            Operation::Append { .. } => "append",
            Operation::SetContainer { .. } => "set_container",
            Operation::SandboxRemoved { .. } => "sandbox_removed",
            Operation::TakeOver { .. } => "take_over",
            Operation::PutBlob(_) => "put_blob",
            Operation::Verb(verb) => verb.name,
            Operation::Flush(_) => "flush",
            Operation::Barrier => "barrier",
        }
    }

    /// The session whose order it keeps.
    pub(super) fn key(&self) -> Option<SessionKey> {
        match self {
            Operation::Append { key, .. }
            | Operation::SetContainer { key, .. }
            | Operation::SandboxRemoved { key, .. }
            | Operation::Flush(key) => Some(*key),
            Operation::Verb(verb) => verb.key,
            // These come from anybody, and must not swallow what the driver has to hear.
            Operation::TakeOver { .. } | Operation::Create { .. } | Operation::PutBlob(_) | Operation::Barrier => None,
        }
    }

    /// True when it must survive a power cut: who owns what, which container is whose, and ends.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            Operation::Create { .. } | Operation::TakeOver { .. } => true,
            Operation::Verb(verb) => verb.durable,
            Operation::SetContainer { container, .. } => container.id.is_none(),
            _ => false,
        }
    }

    /// True when it is at most one statement, which needs no transaction around it.
    pub(super) fn is_single(&self) -> bool {
        match self {
            Operation::Create { .. } | Operation::Verb(_) => false,
            Operation::Append { event, .. } => event.blobs.is_empty() && event.tokens == 0,
            _ => true,
        }
    }

    /// Roughly the bytes that it keeps in memory.
    pub(super) fn size(&self) -> usize {
        match self {
            Operation::Create { started, .. } => event_size(started),
            Operation::Append { event, .. } => event_size(event),
            Operation::Verb(verb) => verb.size,
            Operation::PutBlob(blob) => blob.bytes().len(),
            _ => 0,
        }
    }

    /// Executes its statements. The number returned is a session's key, a line's number or a generation.
    pub(super) fn apply(&self, db: &Connection, now: i64) -> Result<i64, Refusal> {
        match self {
            Operation::Create { session, started } => create(db, session, started, None, now).map(|key| key.0),
            Operation::Append { key, generation, event } => append(db, *key, *generation, event, now),
            Operation::SetContainer { key, generation, container } => {
                let changed = db
                    .prepare_cached(
                        "UPDATE sessions SET container_name = ?3, container_id = ?4
                         WHERE key = ?1 AND generation = ?2 AND ended_at IS NULL",
                    )?
                    .execute(params![key.0, generation.0, container.name, container.id])?;
                if changed == 0 { Err(refused(db, *key, *generation)?) } else { Ok(0) }
            }
            Operation::SandboxRemoved { key, generation } => {
                let changed = db
                    .prepare_cached("UPDATE sessions SET sandbox_removed = 1 WHERE key = ?1 AND generation = ?2")?
                    .execute(params![key.0, generation.0])?;
                if changed == 0 { Err(refused(db, *key, *generation)?) } else { Ok(0) }
            }
            Operation::TakeOver { key, expected, owner } => {
                let changed = db
                    .prepare_cached(
                        "UPDATE sessions SET owner = ?3, host = ?4, generation = generation + 1
                         WHERE key = ?1 AND generation = ?2 AND ended_at IS NULL",
                    )?
                    .execute(params![key.0, expected.0, owner.id, owner.host])?;
                if changed == 0 { Err(refused(db, *key, *expected)?) } else { Ok(expected.0 + 1) }
            }
            Operation::PutBlob(blob) => put(db, blob, now).map(|()| 0).map_err(Refusal::from),
            Operation::Verb(verb) => (verb.apply)(db, now).map(|()| 0),
            Operation::Flush(_) | Operation::Barrier => Ok(0),
        }
    }
}

/// Roughly the bytes that a line keeps in memory.
pub(super) fn event_size(event: &NewEvent) -> usize {
    event.body.len() + event.blobs.iter().map(|blob| blob.bytes().len()).sum::<usize>()
}

/// Finds out why a statement that carries a generation changed nothing.
pub(super) fn refused(db: &Connection, key: SessionKey, generation: Generation) -> Result<Refusal, rusqlite::Error> {
    let found = db
        .prepare_cached("SELECT id, generation FROM sessions WHERE key = ?1")?
        .query_row([key.0], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))
        .optional()?;
    Ok(Refusal::Rules(match found {
        None => unknown(key),
        Some((session, current)) if current != generation.0 => StoreError::Fenced { session },
        Some((session, _)) => StoreError::Ended { session },
    }))
}

pub(super) fn unknown(key: SessionKey) -> StoreError {
    StoreError::UnknownSession { id: key.0.to_string() }
}
