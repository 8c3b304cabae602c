//! Locks, and what is answered to whoever asks for one.

use crate::store::SessionKey;

/// What `acquire_lock` is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockAnswer {
    /// The session holds it.
    Granted {
        /// Only grows, over all locks of the store.
        fence: i64,
        /// Milliseconds since 1970.
        expires_at: i64,
        /// It held it before.
        renewed: bool,
    },
    /// Somebody else holds it.
    Conflict(Lock),
    /// The session holds another one; a session has at most one.
    AlreadyHolding {
        /// Which.
        resource: String,
    },
    /// Its holder waits for the asking session.
    Deadlock {
        /// The holder's lock.
        lock: Lock,
        /// Ids of the sessions that wait for each other, from the asking one to the asking one.
        cycle: Vec<String>,
    },
}

/// What `release_lock` is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// It is free.
    Released,
    /// Nobody holds it.
    NotHeld,
    /// Another session holds it.
    HeldByOther(Lock),
    /// The session held it until it expired.
    Expired,
}

/// A lock that is held, or was until it expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The normalised URI.
    pub resource: String,
    /// Who holds it.
    pub key: SessionKey,
    /// Its id.
    pub session: String,
    /// Its agent.
    pub agent: String,
    /// Its project.
    pub project: String,
    /// The fencing token.
    pub fence: i64,
    /// Milliseconds since 1970.
    pub held_since: i64,
    /// Milliseconds since 1970.
    pub expires_at: i64,
}
