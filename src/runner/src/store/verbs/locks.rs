//! Locks with fences: one row a resource, of whoever was granted it last.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Asker, Done, snapshot, tell};
use crate::store::graph;
use crate::store::{Lines, Lock, LockAnswer, ReleaseAnswer, Seat, SessionKey};

const SELECT: &str = "SELECT resource, session, id, agent, project, fence, held_since, expires_at
    FROM locks JOIN sessions ON sessions.key = session";

/// Acquires or renews a lock (S-LOCK-2 to S-LOCK-6). A row that has expired counts as none.
pub(crate) fn acquire(
    db: &Connection,
    seat: Seat,
    resource: &str,
    ttl: i64,
    lines: &Lines<LockAnswer>,
    now: i64,
) -> Done<LockAnswer> {
    let asker = Asker::seated(db, seat)?;
    let answer = match held(db, resource, now)? {
        Some(lock) if lock.key != seat.key => refusal(db, &asker, lock)?,
        Some(lock) => {
            let expires_at = now.saturating_add(ttl);
            db.prepare_cached("UPDATE locks SET expires_at = ?2 WHERE fence = ?1")?
                .execute([lock.fence, expires_at])?;
            LockAnswer::Granted { fence: lock.fence, expires_at, renewed: true }
        }
        None => match holds(db, seat.key, now)? {
            Some((resource, _)) => LockAnswer::AlreadyHolding { resource },
            None => grant(db, seat.key, resource, now.saturating_add(ttl), now)?,
        },
    };
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}

fn grant(db: &Connection, key: SessionKey, resource: &str, expires_at: i64, now: i64) -> Done<LockAnswer> {
    // Gone for good, even if the clock is set back: a session holds at most one.
    db.prepare_cached("UPDATE locks SET expires_at = 0 WHERE session = ?1")?.execute([key.0])?;
    let fence = db
        .prepare_cached("REPLACE INTO locks (resource, session, held_since, expires_at) VALUES (?1, ?2, ?3, ?4)")?
        .insert(params![resource, key.0, now, expires_at])?;
    Ok(LockAnswer::Granted { fence, expires_at, renewed: false })
}

/// A conflict, or a deadlock when the holder cannot go on without the asker (S-LOCK-5).
fn refusal(db: &Connection, asker: &Asker, lock: Lock) -> Done<LockAnswer> {
    if lock.project != asker.project || !snapshot::waits_for_agent(db, lock.key)? {
        return Ok(LockAnswer::Conflict(lock));
    }
    let fleet = snapshot::load(db, &lock.project)?;
    Ok(match graph::deadlock(&fleet, asker.seat.key, lock.key) {
        None => LockAnswer::Conflict(lock),
        Some(cycle) => {
            let id = |key: &SessionKey| fleet.members.get(key).map(|member| member.id.clone());
            LockAnswer::Deadlock { lock, cycle: cycle.iter().filter_map(id).collect() }
        }
    })
}

/// Releases a lock (S-UNLOCK-1).
pub(crate) fn release(
    db: &Connection,
    seat: Seat,
    resource: &str,
    lines: &Lines<ReleaseAnswer>,
    now: i64,
) -> Done<ReleaseAnswer> {
    Asker::seated(db, seat)?;
    let answer = match last(db, resource)? {
        Some(lock) if lock.key == seat.key && lock.expires_at > now => {
            db.prepare_cached("DELETE FROM locks WHERE fence = ?1")?.execute([lock.fence])?;
            ReleaseAnswer::Released
        }
        Some(lock) if lock.key == seat.key => ReleaseAnswer::Expired,
        Some(lock) if lock.expires_at > now => ReleaseAnswer::HeldByOther(lock),
        _ => ReleaseAnswer::NotHeld,
    };
    tell(db, seat, lines, &answer, now)?;
    Ok(answer)
}

/// The lock that a session holds now: its resource and fence.
pub(super) fn holds(db: &Connection, key: SessionKey, now: i64) -> Result<Option<(String, i64)>, rusqlite::Error> {
    db.prepare_cached("SELECT resource, fence FROM locks WHERE session = ?1 AND expires_at > ?2")?
        .query_row([key.0, now], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// True when a session still holds the lock that it was granted under this fence.
pub(super) fn lasts(db: &Connection, key: SessionKey, fence: i64, now: i64) -> Result<bool, rusqlite::Error> {
    Ok(holds(db, key, now)?.is_some_and(|(_, held)| held == fence))
}

/// Lists the locks that are held now.
pub(crate) fn list(db: &Connection, project: Option<&str>, now: i64) -> Result<Vec<Lock>, rusqlite::Error> {
    db.prepare_cached(&format!("{SELECT} WHERE expires_at > ?1 AND (?2 IS NULL OR project = ?2) ORDER BY fence"))?
        .query_map(params![now, project], lock_of)?
        .collect()
}

fn held(db: &Connection, resource: &str, now: i64) -> Result<Option<Lock>, rusqlite::Error> {
    Ok(last(db, resource)?.filter(|lock| lock.expires_at > now))
}

/// Who was granted it last, expired or not.
fn last(db: &Connection, resource: &str) -> Result<Option<Lock>, rusqlite::Error> {
    db.prepare_cached(&format!("{SELECT} WHERE resource = ?1"))?.query_row([resource], lock_of).optional()
}

fn lock_of(row: &Row<'_>) -> Result<Lock, rusqlite::Error> {
    Ok(Lock {
        resource: row.get(0)?,
        key: SessionKey(row.get(1)?),
        session: row.get(2)?,
        agent: row.get(3)?,
        project: row.get(4)?,
        fence: row.get(5)?,
        held_since: row.get(6)?,
        expires_at: row.get(7)?,
    })
}
