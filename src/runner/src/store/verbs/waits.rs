//! Waits: one row a session from the moment it begins to wait until the waiting call is answered.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::{Asker, Done, calls, inbox, json as parse, locks, not_waiting, tell};
use crate::store::operation::{Refusal, unknown};
use crate::store::{Lines, Seat, SessionKey, Wait, WaitAnswer, WaitOn, WaitRequest, Waited, Woken};
use crate::trigger::Filter;

/// Begins a wait, unless what it is for is there already (S-WAIT-4, S-WAIT-5).
pub(crate) fn begin(
    db: &Connection,
    seat: Seat,
    wait: &WaitRequest,
    lines: &Lines<WaitAnswer>,
    now: i64,
) -> Done<WaitAnswer> {
    let asker = Asker::seated(db, seat)?;
    let there = match &wait.on {
        WaitOn::Webhook { .. } => inbox::take(db, &asker, &wait.on, wait.since)?,
        WaitOn::Agent { .. } => calls::take_result(db, seat.key, &wait.on)?,
    };
    let answer = match there {
        Some(trigger) => WaitAnswer::Now(trigger),
        None if waiting_count(db, &asker.project)? >= i64::from(wait.most) => WaitAnswer::TooMany(wait.most),
        None => suspend(db, seat.key, wait, now)?,
    };
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}

fn waiting_count(db: &Connection, project: &str) -> Result<i64, rusqlite::Error> {
    db.prepare_cached("SELECT count(*) FROM sessions WHERE project = ?1 AND state = 2")?
        .query_row([project], |row| row.get(0))
}

fn suspend(db: &Connection, key: SessionKey, wait: &WaitRequest, now: i64) -> Done<WaitAnswer> {
    let deadline = now.saturating_add(wait.timeout);
    let (webhook, event, sources, source_agent, filter) = match &wait.on {
        WaitOn::Webhook { sources, event, filter } => {
            (true, event.as_ref(), Some(Value::from(sources.clone()).to_string()), None, filter)
        }
        WaitOn::Agent { source_agent, filter } => (false, None, None, source_agent.as_ref(), filter),
    };
    let lock = locks::holds(db, key, now)?;
    let (resource, fence) = lock.unzip();
    db.prepare_cached(
        "REPLACE INTO waits (session, call, webhook, event, sources, source_agent, filter, words, position, since,
         deadline, lock_resource, lock_fence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        key.0,
        wait.call,
        webhook,
        event,
        sources,
        source_agent,
        filter.to_json().to_string(),
        wait.words,
        wait.since,
        now,
        deadline,
        resource,
        fence,
    ])?;
    db.prepare_cached("UPDATE sessions SET state = 2, overcommit = 0 WHERE key = ?1")?.execute([key.0])?;
    Ok(WaitAnswer::Suspended { deadline })
}

/// Wakes a waiting session: by a trigger, or because nothing came in time.
pub(super) fn wake(db: &Connection, key: SessionKey, trigger: Option<&Value>, now: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("UPDATE waits SET trigger = ?2, woken_at = ?3 WHERE session = ?1")?.execute(params![
        key.0,
        trigger.map(Value::to_string),
        now
    ])?;
    db.prepare_cached(
        "UPDATE sessions SET state = 3, since = ?2, turn = (SELECT coalesce(max(turn), 0) + 1 FROM sessions AS others
         WHERE others.project = sessions.project AND others.state = 3) WHERE key = ?1",
    )?
    .execute([key.0, now])?;
    Ok(())
}

/// True when a wait takes a trigger of another agent.
pub(super) fn takes(on: &WaitOn, agent: &str, trigger: &Value) -> bool {
    match on {
        WaitOn::Webhook { .. } => false,
        WaitOn::Agent { source_agent, filter } => {
            source_agent.as_ref().is_none_or(|source| source == agent) && filter.matches(trigger, &Value::Null)
        }
    }
}

/// Notes whether the container is paused, as long as this driver's wait is the one that lasts.
pub(crate) fn set_paused(db: &Connection, seat: Seat, paused: bool) -> Done<()> {
    let changed = db
        .prepare_cached(
            "UPDATE waits SET paused = ?3 WHERE session = ?1
             AND (SELECT generation FROM sessions WHERE key = ?1) = ?2",
        )?
        .execute(params![seat.key.0, seat.generation.0, paused])?;
    let known = changed > 0 || db.prepare_cached("SELECT 1 FROM sessions WHERE key = ?1")?.exists([seat.key.0])?;
    if known { Ok(()) } else { Err(Refusal::Rules(unknown(seat.key))) }
}

/// Answers the call that waited.
pub(crate) fn finish(db: &Connection, seat: Seat, lines: &Lines<Waited>, now: i64) -> Done<Waited> {
    let asker = Asker::seated(db, seat)?;
    let found = db
        .prepare_cached(
            "DELETE FROM waits WHERE session = ?1 AND woken_at IS NOT NULL AND ?2 = 1
             RETURNING trigger, woken_at - since, lock_resource, lock_fence",
        )?
        .query_row([seat.key.0, asker.state], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((trigger, waited, resource, fence)) = found else { return Err(not_waiting(&asker)) };
    let lost_lock = match (resource, fence) {
        (Some(resource), Some(fence)) if !locks::lasts(db, seat.key, fence, now)? => Some(resource),
        _ => None,
    };
    let woken = match trigger {
        Some(trigger) => Woken::Trigger(parse(&trigger)?),
        None => Woken::Timeout,
    };
    let answer = Waited { woken, waited, lost_lock };
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}

/// Wakes the sessions of a project whose waits are past their deadline; those that waited longest first.
pub(crate) fn expire(db: &Connection, project: &str, now: i64) -> Done<Vec<String>> {
    let late = db
        .prepare_cached(&format!(
            "{SELECT} WHERE project = ?1 AND state = 2 AND deadline <= ?2 ORDER BY deadline, w.id"
        ))?
        .query_map(params![project, now], wait_of)?
        .collect::<Result<Vec<_>, _>>()?;
    for wait in &late {
        wake(db, wait.key, None, now)?;
    }
    Ok(late.into_iter().map(|wait| wait.session).collect())
}

/// When the next wait of a project gives up.
pub(crate) fn next_deadline(db: &Connection, project: &str) -> Result<Option<i64>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT min(deadline) FROM sessions JOIN waits ON session = key WHERE project = ?1 AND state = 2",
    )?
    .query_row([project], |row| row.get(0))
}

/// The wait of a session that waits.
pub(super) fn waiting(db: &Connection, key: SessionKey) -> Result<Option<Wait>, rusqlite::Error> {
    db.prepare_cached(&format!("{SELECT} WHERE key = ?1 AND state = 2"))?.query_row([key.0], wait_of).optional()
}

/// The wait of a session, also when it goes on and has not answered the waiting call.
pub(crate) fn of(db: &Connection, key: SessionKey) -> Result<Option<Wait>, rusqlite::Error> {
    db.prepare_cached(&format!("{SELECT} WHERE key = ?1"))?.query_row([key.0], wait_of).optional()
}

/// Waits of sessions of an agent for other agents, oldest first.
pub(super) fn of_agent(db: &Connection, project: &str, agent: &str) -> Result<Vec<Wait>, rusqlite::Error> {
    db.prepare_cached(&format!(
        "{SELECT} WHERE project = ?1 AND state = 2 AND agent = ?2 AND webhook = 0 ORDER BY w.id"
    ))?
    .query_map([project, agent], wait_of)?
    .collect()
}

/// Lists the waits above a number of sessions that have not gone on.
pub(crate) fn list(db: &Connection, project: Option<&str>, after: i64) -> Result<Vec<Wait>, rusqlite::Error> {
    db.prepare_cached(&format!(
        "{SELECT} WHERE w.id > ?1 AND (?2 IS NULL OR project = ?2) AND state IN (2, 3) ORDER BY w.id"
    ))?
    .query_map(params![after, project], wait_of)?
    .collect()
}

const SELECT: &str = "SELECT w.id, key, sessions.id AS session_id, agent, project, call, webhook, event, sources,
    source_agent, filter, words, w.since, deadline, paused, trigger, woken_at FROM waits AS w
    JOIN sessions ON key = w.session";

fn wait_of(row: &Row<'_>) -> Result<Wait, rusqlite::Error> {
    let filter = Filter::parse(&parse(&row.get::<_, String>("filter")?)?).map_err(unreadable)?;
    let on = if row.get("webhook")? {
        let sources = row.get::<_, Option<String>>("sources")?.unwrap_or_else(|| "[]".to_owned());
        let sources = serde_json::from_str(&sources).map_err(unreadable)?;
        WaitOn::Webhook { sources, event: row.get("event")?, filter }
    } else {
        WaitOn::Agent { source_agent: row.get("source_agent")?, filter }
    };
    let trigger = row.get::<_, Option<String>>("trigger")?.as_deref().map(parse).transpose()?;
    let woken_at: Option<i64> = row.get("woken_at")?;
    Ok(Wait {
        id: row.get("id")?,
        key: SessionKey(row.get("key")?),
        session: row.get("session_id")?,
        agent: row.get("agent")?,
        project: row.get("project")?,
        call: row.get("call")?,
        on,
        words: row.get("words")?,
        since: row.get("since")?,
        deadline: row.get("deadline")?,
        paused: row.get("paused")?,
        woken: woken_at.map(|_| trigger.map_or(Woken::Timeout, Woken::Trigger)),
    })
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
}
