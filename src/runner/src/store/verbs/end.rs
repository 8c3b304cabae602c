//! The end of a session, and asking for it.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use super::journal::append;
use super::{Asker, Done, calls, json as parse};
use crate::store::operation::{Refusal, unknown};
use crate::store::{CallsAfter, End, Generation, NewEvent, Seat, SessionKey, StopHow, StopRequest, StoreError};

/// Ends a session and everything that hangs on its being live.
pub(crate) fn end(db: &Connection, seat: Seat, end: &End, calls: &CallsAfter, ended: &NewEvent, now: i64) -> Done<()> {
    let asker = Asker::seated(db, seat)?;
    finish(db, seat, end, ended, now)?;
    match calls {
        CallsAfter::GoOn => Ok(()),
        CallsAfter::Cancel { end, ended, detach } => cancel(db, &asker, end, ended, *detach, now),
    }
}

/// Row, line, locks, wait, and the answers to whoever called it.
fn finish(db: &Connection, seat: Seat, end: &End, ended: &NewEvent, now: i64) -> Done<()> {
    append(db, seat.key, seat.generation, ended, now)?;
    db.prepare_cached(
        "UPDATE sessions SET ended_at = ?2, end_cause = ?3, exit_code = ?4, end_message = ?5, sandbox_removed = ?6,
         end_text = ?7, state = 4, overcommit = 0 WHERE key = ?1",
    )?
    .execute(params![seat.key.0, now, end.cause, end.exit_code, end.message, end.sandbox_removed, end.text])?;
    db.prepare_cached("DELETE FROM locks WHERE session = ?1")?.execute([seat.key.0])?;
    db.prepare_cached("DELETE FROM waits WHERE session = ?1")?.execute([seat.key.0])?;
    for call in calls::unanswered(db, seat.key)? {
        let value = call.value.as_deref().map(parse).transpose()?;
        calls::answer(db, call.key, &outcome(value, end), now)?;
    }
    Ok(())
}

/// What the end of a session says to whoever called it (S-CHECK-1).
fn outcome(value: Option<Value>, end: &End) -> Value {
    match value {
        Some(value) => json!({"status": "completed", "value": value, "ended": end.cause}),
        None if end.exit_code == 0 => json!({
            "status": "completed", "value": end.text.as_deref().unwrap_or_default(), "ended": end.cause,
            "implicit": true,
        }),
        None => json!({"status": "error", "error": format!("{}: {}", end.cause, end.message), "ended": end.cause}),
    }
}

/// What happens to the sessions that an ended one called into being (S-CALL-4). Those that were delivered to are others'.
fn cancel(db: &Connection, asker: &Asker, end: &End, ended: &NewEvent, detach: bool, now: i64) -> Done<()> {
    let children = db
        .prepare_cached("SELECT key, generation, state, container_name FROM sessions WHERE parent = ?1 AND state < 4")?
        .query_map([asker.seat.key.0], |row| {
            let seat = Seat { key: SessionKey(row.get(0)?), generation: Generation(row.get(1)?) };
            Ok((seat, row.get::<_, i64>(2)?, row.get::<_, Option<String>>(3)?))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    for (seat, state, container) in children {
        if state == 0 {
            // It has called nobody: it has not run.
            let end = End { sandbox_removed: end.sandbox_removed || container.is_none(), ..end.clone() };
            finish(db, seat, &end, ended, now)?;
        } else if !detach {
            stop(db, seat.key, &asker.id, StopHow::Orderly)?;
        }
    }
    Ok(())
}

/// Asks for a session to be stopped, with [`StopHow::Kill`] also for all that it called into being and they did.
pub(crate) fn request_stop(db: &Connection, key: SessionKey, by: &str, how: StopHow) -> Done<()> {
    let found = db.prepare_cached("SELECT 1 FROM sessions WHERE key = ?1")?.exists([key.0])?;
    if !found {
        return Err(Refusal::Rules(unknown(key)));
    }
    let tree = match how {
        StopHow::Orderly => vec![key],
        StopHow::Kill => db
            .prepare_cached(
                "WITH RECURSIVE tree (key) AS
                 (VALUES (?1) UNION SELECT s.key FROM tree JOIN sessions AS s ON s.parent = tree.key)
                 SELECT key FROM tree",
            )?
            .query_map([key.0], |row| row.get(0).map(SessionKey))?
            .collect::<Result<_, _>>()?,
    };
    tree.into_iter().try_for_each(|key| stop(db, key, by, how))
}

/// The first request stands, but a kill overrides a stop.
fn stop(db: &Connection, key: SessionKey, by: &str, how: StopHow) -> Done<()> {
    let kill = how == StopHow::Kill;
    db.prepare_cached(
        "UPDATE sessions SET stop_requested_by = ?2, stop_kill = ?3
         WHERE key = ?1 AND ended_at IS NULL AND (stop_requested_by IS NULL OR stop_kill < ?3)",
    )?
    .execute(params![key.0, by, kill])?;
    Ok(())
}

/// Who asked for a session to be stopped, if somebody did.
pub(crate) fn stop_requested(
    db: &Connection,
    key: SessionKey,
) -> Result<Result<Option<StopRequest>, StoreError>, rusqlite::Error> {
    let found = db
        .prepare_cached("SELECT stop_requested_by, stop_kill FROM sessions WHERE key = ?1")?
        .query_row([key.0], |row| {
            let how = if row.get(1)? { StopHow::Kill } else { StopHow::Orderly };
            Ok(row.get::<_, Option<String>>(0)?.map(|by| StopRequest { by, how }))
        })
        .optional()?;
    Ok(found.ok_or_else(|| unknown(key)))
}
