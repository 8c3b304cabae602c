//! The live part of a project's fleet, as the rules about who waits for whom see it.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::store::SessionKey;
use crate::store::graph::{Fleet, Member, Standing};

/// True when a session waits for something of a certain agent: only then its snapshot can show a deadlock.
pub(super) fn waits_for_agent(db: &Connection, key: SessionKey) -> Result<bool, rusqlite::Error> {
    db.prepare_cached(
        "SELECT 1 FROM waits JOIN sessions ON key = session WHERE key = ?1 AND state = 2 AND source_agent IS NOT NULL",
    )?
    .exists([key.0])
}

/// Loads the sessions of a project that have not ended, and their unfinished calls.
pub(super) fn load(db: &Connection, project: &str) -> Result<Fleet, rusqlite::Error> {
    let mut members = db
        .prepare_cached(
            "SELECT key, sessions.id, agent, root, state, slotted, stop_requested_by IS NOT NULL, webhook, source_agent
             FROM sessions LEFT JOIN waits ON session = key WHERE project = ?1 AND state < 4",
        )?
        .query_map([project], |row| {
            let standing = match row.get(4)? {
                0 => Standing::Queued,
                1 => Standing::Active { slotted: row.get(5)? },
                2 if row.get(7)? => Standing::WaitsOutside,
                2 => Standing::WaitsForAgent(row.get(8)?),
                _ => Standing::Woken,
            };
            let member = Member {
                id: row.get(1)?,
                agent: row.get(2)?,
                root: SessionKey(row.get(3)?),
                standing,
                stopping: row.get(6)?,
                calls: Vec::new(),
            };
            Ok((SessionKey(row.get(0)?), member))
        })?
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let mut calls =
        db.prepare_cached("SELECT caller, target, session FROM calls WHERE project = ?1 AND answer IS NULL")?;
    let mut rows = calls.query([project])?;
    while let Some(row) = rows.next()? {
        if let Some(caller) = members.get_mut(&SessionKey(row.get(0)?)) {
            caller.calls.push((row.get(1)?, SessionKey(row.get(2)?)));
        }
    }
    Ok(Fleet { members })
}
