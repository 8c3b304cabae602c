//! The writing verbs as data, and each one's statements.
//!
//! An operation either does all it has to or, when the store's rules refuse it, nothing: its first statement is the one
//! that checks. So a group of them can share a transaction although some are refused.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Blob, Container, End, Generation, NewEvent, NewSession, OwnerId, SessionKey, StoreError};

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
    End {
        key: SessionKey,
        generation: Generation,
        end: End,
        ended: NewEvent,
    },
    SandboxRemoved {
        key: SessionKey,
        generation: Generation,
    },
    RequestStop {
        key: SessionKey,
        by: String,
    },
    TakeOver {
        key: SessionKey,
        expected: Generation,
        owner: OwnerId,
    },
    PutBlob(Blob),
    /// Reports what went wrong in the background.
    Flush(SessionKey),
    /// Does nothing, in its turn.
    Barrier,
}

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
    /// The session whose order it keeps.
    pub(super) fn key(&self) -> Option<SessionKey> {
        match self {
            Operation::Append { key, .. }
            | Operation::SetContainer { key, .. }
            | Operation::End { key, .. }
            | Operation::SandboxRemoved { key, .. }
            | Operation::Flush(key) => Some(*key),
            // These come from anybody, and must not swallow what the driver has to hear.
            Operation::RequestStop { .. }
            | Operation::TakeOver { .. }
            | Operation::Create { .. }
            | Operation::PutBlob(_)
            | Operation::Barrier => None,
        }
    }

    /// True when it must survive a power cut: who owns what, which container is whose, and ends.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            Operation::Create { .. } | Operation::End { .. } | Operation::TakeOver { .. } => true,
            Operation::SetContainer { container, .. } => container.id.is_none(),
            _ => false,
        }
    }

    /// True when it is at most one statement, which needs no transaction around it.
    pub(super) fn is_single(&self) -> bool {
        match self {
            Operation::Create { .. } | Operation::End { .. } => false,
            Operation::Append { event, .. } => event.blobs.is_empty(),
            _ => true,
        }
    }

    /// Roughly the bytes that it keeps in memory.
    pub(super) fn size(&self) -> usize {
        let event = |event: &NewEvent| event.body.len() + event.blobs.iter().map(|b| b.bytes().len()).sum::<usize>();
        match self {
            Operation::Create { started, .. } => event(started),
            Operation::Append { event: appended, .. } => event(appended),
            Operation::End { ended, .. } => event(ended),
            Operation::PutBlob(blob) => blob.bytes().len(),
            _ => 0,
        }
    }

    /// Executes its statements. The number returned is a session's key, a line's number or a generation.
    pub(super) fn apply(&self, db: &Connection, now: i64) -> Result<i64, Refusal> {
        match self {
            Operation::Create { session, started } => create(db, session, started, now),
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
            Operation::End { key, generation, end, ended } => {
                append(db, *key, *generation, ended, now)?;
                db.prepare_cached(
                    "UPDATE sessions SET ended_at = ?2, end_cause = ?3, exit_code = ?4, end_message = ?5,
                     sandbox_removed = ?6 WHERE key = ?1",
                )?
                .execute(params![
                    key.0,
                    now,
                    end.cause,
                    end.exit_code,
                    end.message,
                    end.sandbox_removed
                ])?;
                Ok(0)
            }
            Operation::SandboxRemoved { key, generation } => {
                let changed = db
                    .prepare_cached("UPDATE sessions SET sandbox_removed = 1 WHERE key = ?1 AND generation = ?2")?
                    .execute(params![key.0, generation.0])?;
                if changed == 0 { Err(refused(db, *key, *generation)?) } else { Ok(0) }
            }
            Operation::RequestStop { key, by } => {
                let changed = db
                    .prepare_cached(
                        "UPDATE sessions
                         SET stop_requested_by = CASE WHEN ended_at IS NULL THEN coalesce(stop_requested_by, ?2)
                         ELSE stop_requested_by END WHERE key = ?1",
                    )?
                    .execute(params![key.0, by])?;
                if changed == 0 { Err(Refusal::Rules(unknown(*key))) } else { Ok(0) }
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
            Operation::Flush(_) | Operation::Barrier => Ok(0),
        }
    }
}

/// Rowid of line `seq` of a journal.
pub(super) fn event_id(key: SessionKey, seq: u64) -> i64 {
    (key.0 << 32) | i64::try_from(seq & 0xffff_ffff).expect("32 bits")
}

/// Number of the line with this rowid.
pub(super) fn event_seq(id: i64) -> u64 {
    u64::try_from(id & 0xffff_ffff).expect("32 bits")
}

fn create(db: &Connection, session: &NewSession, started: &NewEvent, now: i64) -> Result<i64, Refusal> {
    let inserted = db
        .prepare_cached(
            "INSERT INTO sessions (id, project, agent, owner, host, generation, container_name, keep, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            session.id,
            session.project,
            session.agent,
            session.owner.id,
            session.owner.host,
            Generation::FIRST.0,
            session.container,
            session.keep,
            now,
        ])?;
    if inserted == 0 {
        return Err(Refusal::Rules(StoreError::Exists { id: session.id.clone() }));
    }
    let key = SessionKey(db.last_insert_rowid());
    append(db, key, Generation::FIRST, started, now)?;
    Ok(key.0)
}

fn append(
    db: &Connection,
    key: SessionKey,
    generation: Generation,
    event: &NewEvent,
    now: i64,
) -> Result<i64, Refusal> {
    let inserted = db
        .prepare_cached(
            "INSERT INTO events (id, at, kind, body)
             SELECT coalesce((SELECT max(id) FROM events WHERE id BETWEEN ?3 AND ?4), ?3) + 1, ?5, ?6, ?7
             FROM sessions WHERE key = ?1 AND generation = ?2 AND ended_at IS NULL",
        )?
        .execute(params![
            key.0,
            generation.0,
            event_id(key, 0),
            event_id(key, u64::MAX),
            now,
            event.kind,
            event.body
        ])?;
    if inserted == 0 {
        return Err(refused(db, key, generation)?);
    }
    let seq = event_seq(db.last_insert_rowid());
    for blob in &event.blobs {
        put(db, blob, now)?;
    }
    Ok(i64::try_from(seq).expect("32 bits"))
}

fn put(db: &Connection, blob: &Blob, now: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("INSERT INTO blobs (sha256, at, bytes) VALUES (?1, ?2, ?3) ON CONFLICT (sha256) DO NOTHING")?
        .execute(params![blob.id().bytes(), now, blob.bytes()])
        .map(drop)
}

/// Finds out why a statement that carries a generation changed nothing.
fn refused(db: &Connection, key: SessionKey, generation: Generation) -> Result<Refusal, rusqlite::Error> {
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
