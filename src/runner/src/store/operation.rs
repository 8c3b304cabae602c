//! The writing verbs as data, and each one's statements.
//!
//! An operation either does all it has to or, when the store's rules refuse it, nothing: its first statement is the one
//! that checks. So a group of them can share a transaction although some are refused.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Blob, Container, Generation, NewEvent, NewSession, OwnerId, SessionKey, SessionState, StoreError};

/// Most tokens that are counted of a session: the sums over a tree of a million such sessions still fit.
const MOST_TOKENS: i64 = i64::MAX >> 20;

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

/// Rowid of line `seq` of a journal.
pub(super) fn event_id(key: SessionKey, seq: u64) -> i64 {
    (key.0 << 32) | i64::try_from(seq & 0xffff_ffff).expect("32 bits")
}

/// Number of the line with this rowid.
pub(super) fn event_seq(id: i64) -> u64 {
    u64::try_from(id & 0xffff_ffff).expect("32 bits")
}

/// Roughly the bytes that a line keeps in memory.
pub(super) fn event_size(event: &NewEvent) -> usize {
    event.body.len() + event.blobs.iter().map(|blob| blob.bytes().len()).sum::<usize>()
}

/// Who called a session into being.
pub(super) struct Parent {
    pub(super) key: SessionKey,
    pub(super) root: SessionKey,
    pub(super) depth: u32,
}

/// Records a session and its first line.
pub(super) fn create(
    db: &Connection,
    session: &NewSession,
    started: &NewEvent,
    parent: Option<&Parent>,
    now: i64,
) -> Result<SessionKey, Refusal> {
    if let Some(most) = session.place.queue
        && queued(db, &session.project, &session.agent)? >= i64::from(most)
    {
        return Err(Refusal::Rules(StoreError::QueueFull { agent: session.agent.clone(), most }));
    }
    let slotted = session.place.queue.is_some();
    let inserted = db
        .prepare_cached(
            "INSERT INTO sessions (id, project, agent, owner, host, generation, container_name, keep, created_at,
             state, slotted, since, parent, depth, max_tokens)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?9, ?12, ?13, ?14) ON CONFLICT (id) DO NOTHING",
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
            state_number(if slotted { SessionState::Queued } else { SessionState::Active }),
            slotted,
            parent.map(|parent| parent.key.0),
            parent.map_or(0, |parent| parent.depth + 1),
            session.place.max_tokens.map(|most| i64::try_from(most).unwrap_or(i64::MAX)),
        ])?;
    if inserted == 0 {
        return Err(Refusal::Rules(StoreError::Exists { id: session.id.clone() }));
    }
    let key = SessionKey(db.last_insert_rowid());
    db.prepare_cached("UPDATE sessions SET root = ?2 WHERE key = ?1")?
        .execute([key.0, parent.map_or(key, |parent| parent.root).0])?;
    append(db, key, Generation::FIRST, started, now)?;
    Ok(key)
}

/// How many sessions of an agent wait for their first slot.
pub(super) fn queued(db: &Connection, project: &str, agent: &str) -> Result<i64, rusqlite::Error> {
    db.prepare_cached("SELECT count(*) FROM sessions WHERE project = ?1 AND state = 0 AND agent = ?2")?
        .query_row([project, agent], |row| row.get(0))
}

/// A state as the database has it.
pub(super) fn state_number(state: SessionState) -> i64 {
    match state {
        SessionState::Queued => 0,
        SessionState::Active => 1,
        SessionState::Waiting => 2,
        SessionState::Woken => 3,
        SessionState::Ended => 4,
    }
}

/// Adds a line to a journal; its first statement is the one that checks the generation.
pub(super) fn append(
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
        db.prepare_cached("INSERT OR IGNORE INTO blob_uses SELECT ?1, key FROM blobs WHERE sha256 = ?2")?
            .execute(params![key.0, blob.id().bytes()])?;
    }
    if event.tokens > 0 {
        let tokens = i64::try_from(event.tokens).unwrap_or(MOST_TOKENS).min(MOST_TOKENS);
        db.prepare_cached("UPDATE sessions SET tokens = min(tokens + ?2, ?3) WHERE key = ?1")?.execute(params![
            key.0,
            tokens,
            MOST_TOKENS
        ])?;
    }
    Ok(i64::try_from(seq).expect("32 bits"))
}

fn put(db: &Connection, blob: &Blob, now: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("INSERT INTO blobs (sha256, at, bytes) VALUES (?1, ?2, ?3) ON CONFLICT (sha256) DO NOTHING")?
        .execute(params![blob.id().bytes(), now, blob.bytes()])
        .map(drop)
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
