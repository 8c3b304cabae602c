//! Lines of journals, and the payloads that they name.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::operation::{Refusal, refused};
use crate::store::{Blob, BlobId, EventRow, Generation, NewEvent, SessionKey};

/// Most tokens that are counted of a session: the sums over a tree of a million such sessions still fit.
const MOST_TOKENS: i64 = i64::MAX >> 20;

/// Rowid of line `seq` of a journal.
pub(crate) fn event_id(key: SessionKey, seq: u64) -> i64 {
    (key.0 << 32) | i64::try_from(seq & 0xffff_ffff).expect("32 bits")
}

/// Number of the line with this rowid.
pub(crate) fn event_seq(id: i64) -> u64 {
    u64::try_from(id & 0xffff_ffff).expect("32 bits")
}

/// Adds a line to a journal; its first statement is the one that checks the generation.
pub(crate) fn append(
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

/// Keeps a payload under its hash.
pub(crate) fn put(db: &Connection, blob: &Blob, now: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("INSERT INTO blobs (sha256, at, bytes) VALUES (?1, ?2, ?3) ON CONFLICT (sha256) DO NOTHING")?
        .execute(params![blob.id().bytes(), now, blob.bytes()])
        .map(drop)
}

/// At most `limit` lines of a journal after line `after`, in order.
pub(crate) fn lines(
    db: &Connection,
    key: SessionKey,
    after: u64,
    limit: usize,
) -> Result<Vec<EventRow>, rusqlite::Error> {
    let after = after.min(u64::from(u32::MAX));
    db.prepare_cached("SELECT id, at, kind, body FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3")?
        .query_map(
            params![event_id(key, after), event_id(key, u64::MAX), i64::try_from(limit).unwrap_or(i64::MAX)],
            |row| Ok(EventRow { seq: event_seq(row.get(0)?), at: row.get(1)?, kind: row.get(2)?, body: row.get(3)? }),
        )?
        .collect()
}

/// A payload, by its hash.
pub(crate) fn payload(db: &Connection, id: BlobId) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    db.prepare_cached("SELECT bytes FROM blobs WHERE sha256 = ?1")?.query_row([id.bytes()], |row| row.get(0)).optional()
}
