//! Slots: who gets the next one.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension, params};

use super::{Done, snapshot, tell};
use crate::store::graph::{self, Limits};
use crate::store::rows::{self, session_of};
use crate::store::{Claimed, Lines, OwnerId, Scope, Seat, SessionKey, Slots};

/// What `claim` is asked for.
pub(crate) struct Claim {
    pub(crate) project: String,
    pub(crate) slots: Slots,
    pub(crate) scope: Scope,
    pub(crate) owner: OwnerId,
    pub(crate) container: String,
}

/// A session that waits for a slot.
struct Candidate {
    key: SessionKey,
    agent: String,
    root: SessionKey,
    new: bool,
}

/// Gives a slot to the next session, if there is one for it.
pub(crate) fn claim(db: &Connection, claim: &Claim, lines: &Lines<Claimed>, now: i64) -> Done<Option<Claimed>> {
    let waiting = candidates(db, claim)?;
    if waiting.is_empty() {
        return Ok(None);
    }
    let paused = paused(db, &claim.project)?.into_iter().collect();
    let limits = Limits { slots: &claim.slots, paused: &paused };
    let room = Room::of(db, &claim.project)?;
    let within = waiting.iter().find(|candidate| room.takes(candidate, &limits));
    let (next, overcommit) = match within {
        Some(next) => (Some(next), false),
        None if is_called(db, &claim.project)? => {
            let starving = graph::starving(&snapshot::load(db, &claim.project)?, &limits);
            (waiting.iter().find(|candidate| starving.contains(&candidate.key)), true)
        }
        None => (None, false),
    };
    let Some(next) = next else { return Ok(None) };
    let claimed = give(db, claim, next, overcommit, now)?;
    let seat = Seat { key: claimed.session.key, generation: claimed.session.generation };
    tell(db, seat, lines, &claimed, now)?;
    Ok(Some(claimed))
}

/// Those who wait for a slot, in the order in which they are to get one: woken ones, then of each agent the queue, the
/// agent first that got a slot longest ago.
fn candidates(db: &Connection, claim: &Claim) -> Result<Vec<Candidate>, rusqlite::Error> {
    let candidates = db
        .prepare_cached(
            "SELECT key, sessions.agent, root, state = 0 FROM sessions
             LEFT JOIN turns ON turns.project = sessions.project AND turns.agent = sessions.agent
             WHERE sessions.project = ?1 AND state IN (0, 3) AND stop_requested_by IS NULL
             ORDER BY state DESC, iif(state = 3, sessions.turn, 0), iif(state = 0, coalesce(turns.turn, 0), 0), key",
        )?
        .query_map([&claim.project], |row| {
            Ok(Candidate {
                key: SessionKey(row.get(0)?),
                agent: row.get(1)?,
                root: SessionKey(row.get(2)?),
                new: row.get(3)?,
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(match &claim.scope {
        Scope::Project => candidates,
        Scope::Trees(roots) => candidates.into_iter().filter(|candidate| roots.contains(&candidate.root)).collect(),
    })
}

/// The slots that are held.
struct Room {
    agents: BTreeMap<String, usize>,
    trees: BTreeSet<SessionKey>,
}

impl Room {
    fn of(db: &Connection, project: &str) -> Result<Room, rusqlite::Error> {
        let mut room = Room { agents: BTreeMap::new(), trees: BTreeSet::new() };
        let mut held =
            db.prepare_cached("SELECT agent, root FROM sessions WHERE project = ?1 AND state = 1 AND slotted = 1")?;
        let mut rows = held.query([project])?;
        while let Some(row) = rows.next()? {
            *room.agents.entry(row.get(0)?).or_default() += 1;
            room.trees.insert(SessionKey(row.get(1)?));
        }
        Ok(room)
    }

    fn takes(&self, candidate: &Candidate, limits: &Limits<'_>) -> bool {
        let held = self.agents.get(&candidate.agent).copied().unwrap_or(0);
        !(candidate.new && limits.closed_to(&candidate.agent))
            && held < limits.of_agent(&candidate.agent, candidate.new)
            && (self.trees.contains(&candidate.root) || self.trees.len() < limits.trees(candidate.new))
    }
}

/// True when somebody has called a session that waits for a slot: else nobody can be stuck for want of one.
fn is_called(db: &Connection, project: &str) -> Result<bool, rusqlite::Error> {
    db.prepare_cached(
        "SELECT 1 FROM calls JOIN sessions ON sessions.key = calls.session
         WHERE calls.project = ?1 AND answer IS NULL AND state IN (0, 3)",
    )?
    .exists([project])
}

fn give(db: &Connection, claim: &Claim, next: &Candidate, overcommit: bool, now: i64) -> Done<Claimed> {
    let waited = db
        .prepare_cached("SELECT ?2 - since FROM sessions WHERE key = ?1")?
        .query_row([next.key.0, now], |row| row.get(0))?;
    db.prepare_cached(
        "UPDATE sessions SET state = 1, turn = NULL, owner = ?2, host = ?3, generation = generation + 1,
         container_name = coalesce(container_name, ?4), overcommit = ?5 WHERE key = ?1",
    )?
    .execute(params![next.key.0, claim.owner.id, claim.owner.host, claim.container, overcommit])?;
    db.prepare_cached(
        "REPLACE INTO turns (project, agent, turn)
         VALUES (?1, ?2, (SELECT coalesce(max(turn), 0) + 1 FROM turns WHERE project = ?1))",
    )?
    .execute([&claim.project, &next.agent])?;
    let session =
        db.prepare_cached(&format!("{} WHERE key = ?1", rows::SELECT))?.query_row([next.key.0], session_of)?;
    Ok(Claimed { session, waited, overcommit })
}

/// Pauses or unpauses an agent, or with none all of the project.
pub(crate) fn pause(db: &Connection, project: &str, agent: Option<&str>, paused: bool) -> Done<()> {
    let statement = if paused {
        "INSERT OR IGNORE INTO paused_agents (project, agent) VALUES (?1, ?2)"
    } else {
        "DELETE FROM paused_agents WHERE project = ?1 AND agent = ?2"
    };
    db.prepare_cached(statement)?.execute([project, agent.unwrap_or_default()])?;
    Ok(())
}

/// Lists the paused agents of a project; an empty name stands for all of it.
pub(crate) fn paused(db: &Connection, project: &str) -> Result<Vec<String>, rusqlite::Error> {
    db.prepare_cached("SELECT agent FROM paused_agents WHERE project = ?1 ORDER BY agent")?
        .query_map([project], |row| row.get(0))?
        .collect()
}

/// Tokens that a session's call tree has used, and may use.
pub(crate) fn tree_tokens(db: &Connection, key: SessionKey) -> Result<Option<(u64, Option<u64>)>, rusqlite::Error> {
    let number = |tokens: i64| u64::try_from(tokens).unwrap_or(0);
    db.prepare_cached(
        "SELECT (SELECT sum(tokens) FROM sessions WHERE root = s.root),
         (SELECT max_tokens FROM sessions WHERE key = s.root) FROM sessions AS s WHERE key = ?1",
    )?
    .query_row([key.0], |row| Ok((number(row.get(0)?), row.get::<_, Option<i64>>(1)?.map(number))))
    .optional()
}
