//! Calls of one agent by another: who may call, who serves, and the way of the answer back.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

use super::sessions::{create, queued};
use super::{Asker, Done, json as parse, tell, waits};
use crate::store::{CallAnswer, CallRecord, CallRequest, CallStatus, Lines, ReturnAnswer, Seat, SessionKey, WaitOn};
use crate::trigger;

/// Calls another agent (S-CALL-1, S-CALL-2).
pub(crate) fn call(
    db: &Connection,
    seat: Seat,
    call: &CallRequest,
    lines: &Lines<CallAnswer>,
    now: i64,
) -> Done<CallAnswer> {
    let asker = Asker::seated(db, seat)?;
    let answer = match refusal(db, &asker, call)? {
        Some(refusal) => refusal,
        None => serve(db, &asker, call, now)?,
    };
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}

fn refusal(db: &Connection, asker: &Asker, call: &CallRequest) -> Result<Option<CallAnswer>, rusqlite::Error> {
    if call.target_agent == asker.agent {
        return Ok(Some(CallAnswer::SelfCall));
    }
    let chains = chains(db, asker)?;
    let cycle = chains.iter().find(|chain| chain.contains(&call.target_agent));
    if let Some(chain) = cycle {
        let again = std::iter::once(call.target_agent.clone());
        return Ok(Some(CallAnswer::Cycle(chain.iter().rev().cloned().chain(again).collect())));
    }
    let depth = chains.iter().map(Vec::len).max().unwrap_or(1);
    let most = usize::try_from(call.max_depth).unwrap_or(usize::MAX);
    Ok((depth > most).then_some(CallAnswer::MaxDepth(call.max_depth)))
}

/// The agents above a session, from its own up to a root: by its birth, and by each delivered call that it serves now.
fn chains(db: &Connection, asker: &Asker) -> Result<Vec<Vec<String>>, rusqlite::Error> {
    let mut done = Vec::new();
    let mut open = vec![(asker.seat.key, asker.parent, vec![asker.agent.clone()], BTreeSet::from([asker.seat.key]))];
    while let Some((key, parent, agents, seen)) = open.pop() {
        let mut callers: BTreeSet<SessionKey> = db
            .prepare_cached("SELECT caller FROM calls WHERE session = ?1 AND answer IS NULL AND delivered IS NOT NULL")?
            .query_map([key.0], |row| row.get(0).map(SessionKey))?
            .collect::<Result<_, _>>()?;
        callers.extend(parent);
        // Also when only callers that are there already are above: then the chain ends here.
        let mut top = true;
        for caller in callers.difference(&seen) {
            let found = db
                .prepare_cached("SELECT parent, agent FROM sessions WHERE key = ?1")?
                .query_row([caller.0], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, String>(1)?)))
                .optional()?;
            if let Some((parent, agent)) = found {
                top = false;
                let agents = agents.iter().cloned().chain([agent]).collect();
                let seen = seen.iter().copied().chain([*caller]).collect();
                open.push((*caller, parent.map(SessionKey), agents, seen));
            }
        }
        if top {
            done.push(agents);
        }
    }
    Ok(done)
}

/// Gives the call to the oldest waiting session that takes it, or queues a new one.
fn serve(db: &Connection, asker: &Asker, call: &CallRequest, now: i64) -> Done<CallAnswer> {
    let trigger = trigger::call(&asker.agent, &call.call_id, &call.context);
    let mut taker = None;
    for wait in waits::of_agent(db, &asker.project, &call.target_agent)? {
        if waits::takes(&wait.on, &asker.agent, &trigger) {
            taker = Some(wait);
            break;
        }
    }
    let (key, session, delivered) = if let Some(wait) = taker {
        waits::wake(db, wait.key, Some(&trigger), now)?;
        (wait.key, wait.session, Some(wait.id))
    } else {
        if let Some(most) = call.child.place.queue
            && queued(db, &call.child.project, &call.child.agent)? >= i64::from(most)
        {
            return Ok(CallAnswer::QueueFull(most));
        }
        (create(db, &call.child, &call.started, Some(&asker.as_parent()), now)?, call.child.id.clone(), None)
    };
    db.prepare_cached(
        "INSERT INTO calls (id, project, caller, target, session, session_id, delivered, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        call.call_id,
        asker.project,
        asker.seat.key.0,
        call.target_agent,
        key.0,
        session,
        delivered,
        now
    ])?;
    let pending = delivered.is_some() || call.child.place.queue.is_some();
    Ok(CallAnswer::Accepted { session, delivered: delivered.is_some(), pending })
}

/// A call that has no answer yet, as it is answered.
pub(super) struct Unanswered {
    pub(super) key: i64,
    pub(super) value: Option<String>,
}

/// The calls that a session serves and has not answered.
pub(super) fn unanswered(db: &Connection, session: SessionKey) -> Result<Vec<Unanswered>, rusqlite::Error> {
    db.prepare_cached("SELECT key, value FROM calls WHERE session = ?1 AND answer IS NULL ORDER BY key")?
        .query_map([session.0], |row| Ok(Unanswered { key: row.get(0)?, value: row.get(1)? }))?
        .collect()
}

/// Answers a call, and wakes its caller if that is what it waits for (S-WAIT-4).
pub(super) fn answer(db: &Connection, key: i64, outcome: &Value, now: i64) -> Result<(), rusqlite::Error> {
    let (id, target, caller) = db
        .prepare_cached("UPDATE calls SET answer = ?2, answered_at = ?3 WHERE key = ?1 RETURNING id, target, caller")?
        .query_row(params![key, outcome.to_string(), now], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, SessionKey(row.get(2)?)))
        })?;
    let trigger = trigger::result(&target, &id, outcome);
    if let Some(wait) = waits::waiting(db, caller)?
        && waits::takes(&wait.on, &target, &trigger)
    {
        see(db, key)?;
        waits::wake(db, caller, Some(&trigger), now)?;
    }
    Ok(())
}

/// The oldest result that a session has not seen and that its wait takes, as a trigger; it has seen it then.
pub(super) fn take_result(db: &Connection, caller: SessionKey, on: &WaitOn) -> Result<Option<Value>, rusqlite::Error> {
    let mut results = db.prepare_cached(
        "SELECT key, id, target, answer FROM calls WHERE caller = ?1 AND answer IS NOT NULL AND seen = 0
         ORDER BY answered_at, key",
    )?;
    let mut rows = results.query([caller.0])?;
    while let Some(row) = rows.next()? {
        let (target, answer) = (row.get::<_, String>(2)?, row.get::<_, String>(3)?);
        let trigger = trigger::result(&target, &row.get::<_, String>(1)?, &parse(&answer)?);
        if waits::takes(on, &target, &trigger) {
            see(db, row.get(0)?)?;
            return Ok(Some(trigger));
        }
    }
    Ok(None)
}

fn see(db: &Connection, key: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("UPDATE calls SET seen = 1 WHERE key = ?1")?.execute([key]).map(drop)
}

/// Says how a call of this session stands (S-CHECK-1).
pub(crate) fn check(
    db: &Connection,
    seat: Seat,
    call_id: &str,
    lines: &Lines<Option<CallRecord>>,
    now: i64,
) -> Done<Option<CallRecord>> {
    Asker::seated(db, seat)?;
    let found = db
        .prepare_cached(&format!("{SELECT} WHERE c.id = ?1 AND c.caller = ?2"))?
        .query_row(params![call_id, seat.key.0], |row| Ok((row.get::<_, i64>("key")?, record_of(row)?)))
        .optional()?;
    if let Some((key, CallRecord { status: CallStatus::Over(_), .. })) = &found {
        see(db, *key)?;
    }
    let answer = found.map(|(_, record)| record);
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}

/// Lists calls without an answer.
pub(crate) fn list(db: &Connection, project: Option<&str>) -> Result<Vec<CallRecord>, rusqlite::Error> {
    db.prepare_cached(&format!("{SELECT} WHERE c.answer IS NULL AND (?1 IS NULL OR c.project = ?1) ORDER BY c.key"))?
        .query_map([project], record_of)?
        .collect()
}

/// A delivered call is pending until the wait that it ended has found a slot.
const SELECT: &str = "SELECT c.key, c.id, c.caller, caller.id AS caller_id, caller.agent AS caller_agent, c.target,
    c.session_id, c.delivered, c.created_at, c.answer, server.state = 2 AS waiting, w.words,
    server.state = 0 OR (server.state = 3 AND w.id = c.delivered) AS pending
    FROM calls AS c JOIN sessions AS caller ON caller.key = c.caller LEFT JOIN sessions AS server ON server.key = c.session
    LEFT JOIN waits AS w ON w.session = c.session";

fn record_of(row: &Row<'_>) -> Result<CallRecord, rusqlite::Error> {
    let answer: Option<String> = row.get("answer")?;
    let status = match answer {
        Some(answer) => CallStatus::Over(parse(&answer)?),
        None if row.get::<_, Option<bool>>("pending")? == Some(true) => CallStatus::Pending,
        None => CallStatus::Running,
    };
    let waiting = status == CallStatus::Running && row.get("waiting")?;
    Ok(CallRecord {
        call_id: row.get("id")?,
        caller: SessionKey(row.get("caller")?),
        caller_session: row.get("caller_id")?,
        caller_agent: row.get("caller_agent")?,
        target_agent: row.get("target")?,
        session: row.get("session_id")?,
        delivered: row.get::<_, Option<i64>>("delivered")?.is_some(),
        status,
        created_at: row.get("created_at")?,
        waiting_for: if waiting { row.get("words")? } else { None },
    })
}

/// Sets the answer to the call that a session serves (S-RETURN-1).
pub(crate) fn return_value(
    db: &Connection,
    seat: Seat,
    value: &Value,
    lines: &Lines<ReturnAnswer>,
    now: i64,
) -> Done<ReturnAnswer> {
    Asker::seated(db, seat)?;
    let served = db
        .prepare_cached(
            "SELECT key, id, delivered IS NOT NULL FROM calls WHERE session = ?1 AND answer IS NULL
             ORDER BY delivered IS NOT NULL DESC, key DESC LIMIT 1",
        )?
        .query_row([seat.key.0], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?)))
        .optional()?;
    let answer = match served {
        None => ReturnAnswer::NotCalled,
        Some((key, call_id, true)) => {
            self::answer(db, key, &json!({"status": "completed", "value": value}), now)?;
            ReturnAnswer::Accepted { call_id }
        }
        Some((key, call_id, false)) => {
            db.prepare_cached("UPDATE calls SET value = ?2 WHERE key = ?1")?
                .execute(params![key, value.to_string()])?;
            ReturnAnswer::Accepted { call_id }
        }
    };
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}
