//! Slots and who takes them.

use std::collections::BTreeMap;

use crate::store::{Session, SessionKey};

/// How many sessions may hold slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    /// Call trees of the project with at least one active session; no limit when absent.
    pub trees: Option<u32>,
    /// Active sessions of each agent.
    pub agents: BTreeMap<String, u32>,
    /// Of agents that are not named.
    pub others: u32,
}

/// Which queued and woken sessions somebody takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of the project.
    Project,
    /// Those of these call trees, by their roots.
    Trees(Vec<SessionKey>),
}

/// A session that was given a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// As it is now: active, with its new owner and generation.
    pub session: Session,
    /// Milliseconds it waited for the slot.
    pub waited: i64,
    /// It was started above `scale`, because those who hold the slots cannot go on without it (S-CALL-3).
    pub overcommit: bool,
}
