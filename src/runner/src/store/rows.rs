//! Sessions as rows of the database.

use rusqlite::Row;

use super::{Container, End, Generation, OwnerId, Session, SessionKey, SessionState};

/// Selects what [`session_of`] reads.
pub(super) const SELECT: &str = "SELECT key, id, project, agent, owner, host, generation, container_name,
    container_id, keep, created_at, stop_requested_by, state, slotted, root, depth, status, tokens, overcommit, ended_at,
    end_cause, exit_code, end_message, sandbox_removed, end_text,
    (SELECT id FROM sessions AS callers WHERE callers.key = sessions.parent) AS parent_id FROM sessions";

/// Reads a row of [`SELECT`].
pub(super) fn session_of(row: &Row<'_>) -> Result<Session, rusqlite::Error> {
    let container: Option<String> = row.get("container_name")?;
    let container_id = row.get("container_id")?;
    let end = match row.get::<_, Option<i64>>("ended_at")? {
        None => None,
        Some(at) => {
            let end = End {
                cause: row.get("end_cause")?,
                exit_code: row.get("exit_code")?,
                message: row.get("end_message")?,
                sandbox_removed: row.get("sandbox_removed")?,
                text: row.get("end_text")?,
            };
            Some((end, at))
        }
    };
    Ok(Session {
        key: SessionKey(row.get("key")?),
        id: row.get("id")?,
        project: row.get("project")?,
        agent: row.get("agent")?,
        owner: OwnerId { id: row.get("owner")?, host: row.get("host")? },
        generation: Generation(row.get("generation")?),
        container: container.map(|name| Container { name, id: container_id }),
        keep: row.get("keep")?,
        created_at: row.get("created_at")?,
        stop_requested_by: row.get("stop_requested_by")?,
        state: state_of(row.get("state")?),
        slotted: row.get("slotted")?,
        parent: row.get("parent_id")?,
        root: SessionKey(row.get("root")?),
        depth: row.get("depth")?,
        status: row.get("status")?,
        tokens: u64::try_from(row.get::<_, i64>("tokens")?).unwrap_or(0),
        overcommit: row.get("overcommit")?,
        end,
    })
}

/// A state as the database has it.
pub(super) fn state_number(state: SessionState) -> i64 {
    match state {
        SessionState::Queued => 0,
        SessionState::Active => 1,
        SessionState::Waiting => 2,
        SessionState::Woken => 3,
        SessionState::Ended => 4,
    }
}

fn state_of(number: i64) -> SessionState {
    match number {
        0 => SessionState::Queued,
        1 => SessionState::Active,
        2 => SessionState::Waiting,
        3 => SessionState::Woken,
        _ => SessionState::Ended,
    }
}
