//! Sessions: recording and finding them.

use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::journal::append;
use crate::store::operation::Refusal;
use crate::store::rows::{SELECT, session_of, state_number};
use crate::store::{
    Generation, NewEvent, NewSession, Session, SessionFilter, SessionKey, SessionState, Status, StoreError,
};

/// Who called a session into being.
pub(crate) struct Parent {
    pub(crate) key: SessionKey,
    pub(crate) root: SessionKey,
    pub(crate) depth: u32,
}

/// Records a session and its first line.
pub(crate) fn create(
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
pub(crate) fn queued(db: &Connection, project: &str, agent: &str) -> Result<i64, rusqlite::Error> {
    db.prepare_cached("SELECT count(*) FROM sessions WHERE project = ?1 AND state = 0 AND agent = ?2")?
        .query_row([project, agent], |row| row.get(0))
}

/// Finds a session by its id, or by a beginning or an end that no other's has.
pub(crate) fn find(db: &Connection, asked: String) -> Result<Result<Session, StoreError>, rusqlite::Error> {
    // Nearly everybody asks with a whole id: only a part of one is worth a look at all of them.
    let exact = db.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?.query_row([&asked], session_of).optional()?;
    if let Some(session) = exact {
        return Ok(Ok(session));
    }
    // Ids are hexadecimal digits and hyphens, so everything that begins with the part sorts before this.
    let end = format!("{asked}\u{10ffff}");
    let mut found = db
        .prepare_cached(&format!(
            "{SELECT} WHERE ?1 <> '' AND ((id >= ?1 AND id < ?2) OR substr(id, -length(?1)) = ?1) ORDER BY id LIMIT 5"
        ))?
        .query_map(params![asked, end], session_of)?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(match found.len() {
        0 => Err(StoreError::UnknownSession { id: asked }),
        1 => Ok(found.remove(0)),
        _ => Err(StoreError::Ambiguous { part: asked, matches: found.into_iter().map(|s| s.id).collect() }),
    })
}

/// Lists sessions, newest first.
pub(crate) fn list(db: &Connection, filter: &SessionFilter) -> Result<Vec<Session>, rusqlite::Error> {
    let condition = match filter.status {
        Status::Any => "TRUE",
        Status::Live => "ended_at IS NULL",
        Status::Ended => "ended_at IS NOT NULL",
        Status::Unfinished => "(ended_at IS NULL OR sandbox_removed = 0)",
    };
    db.prepare_cached(&format!(
        "{SELECT} WHERE {condition} AND (:project IS NULL OR project = :project)
         AND (:agent IS NULL OR agent = :agent) AND (:tree IS NULL OR root = :tree) ORDER BY key DESC LIMIT :limit"
    ))?
    .query_map(
        named_params! {
            ":project": filter.project,
            ":agent": filter.agent,
            ":tree": filter.tree.map(|root| root.0),
            ":limit": filter.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
        },
        session_of,
    )?
    .collect()
}
