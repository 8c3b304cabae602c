//! The schema, as the steps that lead to it.

/// One entry a schema version; what is here is never changed, only added to. Sessions and events are rowid tables with
/// integer keys: an event's is its session's key in the upper half and its number in the lower one, so that a journal is
/// one range and an append touches one b-tree.
///
/// A session's `state` is in the order of [`super::SessionState`]; `turn` orders the woken ones, `since` says when it was
/// queued or woken. A lock's key is its fence. Nobody knows which session of schema 1 names a payload: `blob_uses` has
/// minus the key of the newest one for it.
pub(super) const MIGRATIONS: [&str; 2] = [
    "
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY AUTOINCREMENT CHECK (key < 0x7fffffff),
        id TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL,
        agent TEXT NOT NULL,
        owner TEXT NOT NULL,
        host TEXT NOT NULL,
        generation INTEGER NOT NULL,
        container_name TEXT,
        container_id TEXT,
        keep INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        stop_requested_by TEXT,
        ended_at INTEGER,
        end_cause TEXT,
        exit_code INTEGER,
        end_message TEXT,
        sandbox_removed INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX sessions_unfinished ON sessions (key) WHERE ended_at IS NULL OR sandbox_removed = 0;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE TABLE blobs (
        key INTEGER PRIMARY KEY,
        sha256 BLOB NOT NULL UNIQUE,
        at INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT;
",
    "
    ALTER TABLE sessions ADD COLUMN state INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE sessions ADD COLUMN slotted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN overcommit INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN turn INTEGER;
    ALTER TABLE sessions ADD COLUMN parent INTEGER;
    ALTER TABLE sessions ADD COLUMN root INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN status TEXT;
    ALTER TABLE sessions ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN max_tokens INTEGER;
    ALTER TABLE sessions ADD COLUMN stop_kill INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN end_text TEXT;
    UPDATE sessions SET root = key, state = iif(ended_at IS NULL, 1, 4);
    CREATE INDEX sessions_state ON sessions (project, state, agent);
    CREATE INDEX sessions_root ON sessions (root);
    CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
    CREATE TABLE locks (
        fence INTEGER PRIMARY KEY AUTOINCREMENT,
        resource TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL,
        held_since INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX locks_session ON locks (session);
    CREATE TABLE calls (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL,
        caller INTEGER NOT NULL,
        target TEXT NOT NULL,
        session INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        delivered INTEGER,
        created_at INTEGER NOT NULL,
        value TEXT,
        answer TEXT,
        answered_at INTEGER,
        seen INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX calls_caller ON calls (caller);
    CREATE INDEX calls_session ON calls (session);
    CREATE INDEX calls_open ON calls (project) WHERE answer IS NULL;
    CREATE TABLE waits (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL UNIQUE,
        call TEXT NOT NULL,
        webhook INTEGER NOT NULL,
        event TEXT,
        sources TEXT,
        source_agent TEXT,
        filter TEXT NOT NULL,
        words TEXT NOT NULL,
        position INTEGER NOT NULL,
        since INTEGER NOT NULL,
        deadline INTEGER NOT NULL,
        paused INTEGER NOT NULL DEFAULT 1,
        lock_resource TEXT,
        lock_fence INTEGER,
        trigger TEXT,
        woken_at INTEGER
    ) STRICT;
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        project TEXT NOT NULL,
        at INTEGER NOT NULL,
        source TEXT NOT NULL,
        event TEXT NOT NULL,
        fields TEXT NOT NULL,
        matched INTEGER NOT NULL DEFAULT 0,
        raw TEXT NOT NULL
    ) STRICT;
    CREATE INDEX inbox_project ON inbox (project);
    CREATE INDEX inbox_unmatched ON inbox (project) WHERE matched = 0;
    CREATE TABLE wakes (
        event INTEGER NOT NULL,
        session INTEGER NOT NULL,
        PRIMARY KEY (event, session)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE paused_agents (
        project TEXT NOT NULL,
        agent TEXT NOT NULL,
        PRIMARY KEY (project, agent)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE turns (
        project TEXT NOT NULL,
        agent TEXT NOT NULL,
        turn INTEGER NOT NULL,
        PRIMARY KEY (project, agent)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE blob_uses (
        session INTEGER NOT NULL,
        blob INTEGER NOT NULL,
        PRIMARY KEY (session, blob)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX blobs_at ON blobs (at);
    CREATE INDEX blob_uses_blob ON blob_uses (blob);
    INSERT INTO blob_uses SELECT -newest, blobs.key FROM blobs, (SELECT max(key) AS newest FROM sessions)
    WHERE newest IS NOT NULL;
",
];

#[cfg(test)]
mod tests;
