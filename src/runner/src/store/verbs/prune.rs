//! Forgetting what is old, a bounded piece at a time.

use rusqlite::{Connection, params};

use super::Done;
use super::journal::event_id;
use crate::store::{Pruned, SessionKey};

/// Most sessions, events or payloads at a time.
const MOST: i64 = 200;

/// Journal lines after which no further session is begun.
const LINES: usize = 500;

/// Removes what is older than `before` of a project, and payloads that nothing names any more.
pub(crate) fn prune(db: &Connection, project: &str, before: i64) -> Done<Pruned> {
    let mut pruned = Pruned::default();
    let mut lines = 0;
    for key in over(db, project, before)? {
        lines += forget(db, key)?;
        pruned.sessions += 1;
        if lines >= LINES {
            break;
        }
    }
    pruned.events = events(db, project, before)?;
    pruned.blobs = blobs(db, before)?;
    Ok(pruned)
}

/// Sessions of call trees that were over before then, and whose containers and folders are gone.
fn over(db: &Connection, project: &str, before: i64) -> Result<Vec<SessionKey>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT key FROM sessions WHERE project = ?1 AND state = 4 AND ended_at < ?2 AND NOT EXISTS
         (SELECT 1 FROM sessions AS others WHERE others.root = sessions.root
          AND (others.ended_at IS NULL OR others.ended_at >= ?2 OR others.sandbox_removed = 0))
         ORDER BY key LIMIT ?3",
    )?
    .query_map(params![project, before, MOST], |row| row.get(0).map(SessionKey))?
    .collect()
}

/// Removes a session with its journal and the calls that it made; returns how many lines that were.
fn forget(db: &Connection, key: SessionKey) -> Result<usize, rusqlite::Error> {
    let lines = db
        .prepare_cached("DELETE FROM events WHERE id BETWEEN ?1 AND ?2")?
        .execute([event_id(key, 0), event_id(key, u64::MAX)])?;
    db.prepare_cached("DELETE FROM calls WHERE caller = ?1")?.execute([key.0])?;
    db.prepare_cached("DELETE FROM blob_uses WHERE session = ?1")?.execute([key.0])?;
    db.prepare_cached("DELETE FROM sessions WHERE key = ?1")?.execute([key.0])?;
    Ok(lines)
}

fn events(db: &Connection, project: &str, before: i64) -> Result<u64, rusqlite::Error> {
    let removed = db
        .prepare_cached(
            "DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE project = ?1 AND at < ?2 LIMIT ?3) RETURNING id",
        )?
        .query_map(params![project, before, MOST], |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    for event in &removed {
        db.prepare_cached("DELETE FROM wakes WHERE event = ?1")?.execute([event])?;
    }
    Ok(removed.len() as u64)
}

fn blobs(db: &Connection, before: i64) -> Result<u64, rusqlite::Error> {
    // Which session of schema 1 names a payload is not known: it stays until the last of them is gone.
    db.prepare_cached(
        "DELETE FROM blob_uses WHERE session < 0
         AND NOT EXISTS (SELECT 1 FROM sessions WHERE key <= -blob_uses.session)",
    )?
    .execute([])?;
    let removed = db
        .prepare_cached(
            "DELETE FROM blobs WHERE key IN (SELECT key FROM blobs WHERE at < ?1
             AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = blobs.key) ORDER BY at LIMIT ?2)",
        )?
        .execute(params![before, MOST])?;
    Ok(removed as u64)
}
