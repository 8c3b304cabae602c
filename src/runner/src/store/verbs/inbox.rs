//! Events from outside: kept first, matched after, so that none is lost in between.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::{Asker, Done, json as parse, waits};
use crate::store::{InboxEvent, NewInboxEvent, SessionKey, WaitOn};
use crate::trigger;

/// Keeps an event; returns its position.
pub(crate) fn accept(db: &Connection, event: &NewInboxEvent, now: i64) -> Done<i64> {
    let id = db
        .prepare_cached("INSERT INTO inbox (project, at, source, event, fields, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .insert(params![
            event.project,
            now,
            event.source,
            event.event,
            event.fields.to_string(),
            event.raw.to_string()
        ])?;
    Ok(id)
}

/// The oldest event after `since` that a wait takes and that has not woken its session, as a trigger; it has then.
pub(super) fn take(db: &Connection, asker: &Asker, on: &WaitOn, since: i64) -> Result<Option<Value>, rusqlite::Error> {
    let WaitOn::Webhook { sources, event, filter } = on else { return Ok(None) };
    let mut events = db.prepare_cached(
        "SELECT id, source, event, fields, raw FROM inbox WHERE project = ?1 AND id > ?2
         AND NOT EXISTS (SELECT 1 FROM wakes WHERE wakes.event = inbox.id AND session = ?3) ORDER BY id",
    )?;
    let mut rows = events.query(params![asker.project, since, asker.seat.key.0])?;
    while let Some(row) = rows.next()? {
        let (source, name): (String, String) = (row.get(1)?, row.get(2)?);
        if !(sources.is_empty() || sources.contains(&source)) || event.as_ref().is_some_and(|event| *event != name) {
            continue;
        }
        let fields = parse(&row.get::<_, String>(3)?)?;
        let raw = parse(&row.get::<_, String>(4)?)?;
        if filter.matches(&fields, &raw) {
            woke(db, row.get(0)?, asker.seat.key)?;
            return Ok(Some(trigger::webhook(&fields, &raw)));
        }
    }
    Ok(None)
}

fn woke(db: &Connection, event: i64, key: SessionKey) -> Result<(), rusqlite::Error> {
    db.prepare_cached("INSERT INTO wakes (event, session) VALUES (?1, ?2)")?.execute([event, key.0]).map(drop)
}

/// Wakes those of the waits that still wait and began before the event, or with it among what they count (S-WAIT-9).
pub(crate) fn wake(db: &Connection, event: i64, ids: &[i64], now: i64) -> Done<Vec<String>> {
    let found = db
        .prepare_cached("UPDATE inbox SET matched = 1 WHERE id = ?1 RETURNING fields, raw")?
        .query_row([event], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    let Some((fields, raw)) = found else { return Ok(Vec::new()) };
    let trigger = trigger::webhook(&parse(&fields)?, &parse(&raw)?);
    let mut sessions = Vec::new();
    for id in ids {
        let waits = db
            .prepare_cached(
                "SELECT s.key, s.id FROM waits AS w JOIN sessions AS s ON s.key = w.session
                 WHERE w.id = ?1 AND s.state = 2 AND w.webhook = 1 AND w.position < ?2
                 AND (s.project, 1) = (SELECT project, at < w.deadline FROM inbox WHERE id = ?2)
                 AND NOT EXISTS (SELECT 1 FROM wakes WHERE event = ?2 AND session = s.key)",
            )?
            .query_row([*id, event], |row| Ok((SessionKey(row.get(0)?), row.get(1)?)))
            .optional()?;
        if let Some((key, session)) = waits {
            woke(db, event, key)?;
            waits::wake(db, key, Some(&trigger), now)?;
            sessions.push(session);
        }
    }
    Ok(sessions)
}

/// The position of a project's newest event.
pub(crate) fn position(db: &Connection, project: &str) -> Result<i64, rusqlite::Error> {
    db.prepare_cached("SELECT coalesce(max(id), 0) FROM inbox WHERE project = ?1")?
        .query_row([project], |row| row.get(0))
}

/// Lists the newest events of a project, newest first.
pub(crate) fn list(db: &Connection, project: &str, limit: usize) -> Result<Vec<InboxEvent>, rusqlite::Error> {
    let mut events = db
        .prepare_cached(&format!("{SELECT} WHERE project = ?1 ORDER BY id DESC LIMIT ?2"))?
        .query_map(params![project, i64::try_from(limit).unwrap_or(i64::MAX)], event_of)?
        .collect::<Result<Vec<_>, _>>()?;
    for event in events.iter_mut().filter(|event| event.woke.is_some()) {
        let woken = db
            .prepare_cached("SELECT id FROM wakes JOIN sessions ON key = session WHERE event = ?1 ORDER BY key")?
            .query_map([event.id], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        event.woke = Some(woken);
    }
    Ok(events)
}

/// Lists the events of a project that were not matched yet, oldest first.
pub(crate) fn unmatched(db: &Connection, project: &str) -> Result<Vec<InboxEvent>, rusqlite::Error> {
    db.prepare_cached(&format!("{SELECT} WHERE project = ?1 AND matched = 0 ORDER BY id"))?
        .query_map([project], event_of)?
        .collect()
}

const SELECT: &str = "SELECT id, at, source, event, fields, raw, matched FROM inbox";

fn event_of(row: &Row<'_>) -> Result<InboxEvent, rusqlite::Error> {
    Ok(InboxEvent {
        id: row.get("id")?,
        at: row.get("at")?,
        source: row.get("source")?,
        event: row.get("event")?,
        fields: parse(&row.get::<_, String>("fields")?)?,
        raw: parse(&row.get::<_, String>("raw")?)?,
        woke: row.get::<_, bool>("matched")?.then(Vec::new),
    })
}
