//! The verbs of a fleet as statements, one file a topic. Each checks who asks before it changes anything.

pub(super) mod calls;
pub(super) mod end;
pub(super) mod inbox;
pub(super) mod journal;
pub(super) mod locks;
pub(super) mod prune;
pub(super) mod sessions;
pub(super) mod slots;
pub(super) mod snapshot;
pub(super) mod waits;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use self::journal::append;
use self::sessions::Parent;
use super::operation::{Refusal, refused};
use super::{Lines, Seat, SessionKey, StoreError};

/// What a verb's statements return.
pub(super) type Done<T> = Result<T, Refusal>;

/// The session that a verb is asked by.
pub(super) struct Asker {
    pub(super) seat: Seat,
    pub(super) id: String,
    pub(super) project: String,
    pub(super) agent: String,
    pub(super) state: i64,
    pub(super) root: SessionKey,
    pub(super) parent: Option<SessionKey>,
    pub(super) depth: u32,
}

impl Asker {
    /// Finds who sits there, unless somebody else does by now or the session is over.
    pub(super) fn seated(db: &Connection, seat: Seat) -> Done<Asker> {
        let found = db
            .prepare_cached(
                "SELECT id, project, agent, state, root, parent, depth FROM sessions
                 WHERE key = ?1 AND generation = ?2 AND ended_at IS NULL",
            )?
            .query_row(params![seat.key.0, seat.generation.0], |row| {
                Ok(Asker {
                    seat,
                    id: row.get(0)?,
                    project: row.get(1)?,
                    agent: row.get(2)?,
                    state: row.get(3)?,
                    root: SessionKey(row.get(4)?),
                    parent: row.get::<_, Option<i64>>(5)?.map(SessionKey),
                    depth: row.get(6)?,
                })
            })
            .optional()?;
        match found {
            Some(asker) => Ok(asker),
            None => Err(refused(db, seat.key, seat.generation)?),
        }
    }

    /// It as the parent of the sessions that it calls.
    pub(super) fn as_parent(&self) -> Parent {
        Parent { key: self.seat.key, root: self.root, depth: self.depth }
    }
}

/// Adds the lines that tell of an answer.
pub(super) fn tell<A>(db: &Connection, seat: Seat, lines: &Lines<A>, answer: &A, now: i64) -> Done<()> {
    for line in lines.of(answer) {
        append(db, seat.key, seat.generation, &line, now)?;
    }
    Ok(())
}

/// Says what a session is doing (S-STATUS-1).
pub(super) fn set_status(db: &Connection, seat: Seat, text: &str, lines: &Lines<()>, now: i64) -> Done<()> {
    Asker::seated(db, seat)?;
    db.prepare_cached("UPDATE sessions SET status = ?2 WHERE key = ?1")?.execute(params![seat.key.0, text])?;
    tell(db, seat, lines, &(), now)
}

/// Reads a JSON column.
pub(super) fn json(text: &str) -> Result<Value, rusqlite::Error> {
    serde_json::from_str(text).map_err(|e| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(e)))
}

/// Says that a session waits for nothing that could be finished.
pub(super) fn not_waiting(asker: &Asker) -> Refusal {
    Refusal::Rules(StoreError::NotWaiting { session: asker.id.clone() })
}
