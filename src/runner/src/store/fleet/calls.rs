//! Calls of one agent by another.

use serde_json::Value;

use crate::store::{End, NewEvent, NewSession, SessionKey};

/// A call of another agent.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The call's id: the caller's call key.
    pub call_id: String,
    /// Who is called.
    pub target_agent: String,
    /// What it is told.
    pub context: Value,
    /// The session to start when no waiting one takes the call, queued.
    pub child: NewSession,
    /// Its first line.
    pub started: NewEvent,
    /// Calls below a root: with 3, A→B→C→D is the deepest.
    pub max_depth: u32,
}

/// What `call_agent` is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAnswer {
    /// It was accepted.
    Accepted {
        /// The session that serves it.
        session: String,
        /// It waited for a trigger and takes the call.
        delivered: bool,
        /// It has no slot yet.
        pending: bool,
    },
    /// An agent cannot call itself.
    SelfCall,
    /// The target is an ancestor: their agents, from the root to the target again.
    Cycle(Vec<String>),
    /// The tree is as deep as it may be.
    MaxDepth(u32),
    /// So many wait for the target already.
    QueueFull(u32),
}

/// A call as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    /// Its id.
    pub call_id: String,
    /// The caller.
    pub caller: SessionKey,
    /// Its id.
    pub caller_session: String,
    /// Its agent.
    pub caller_agent: String,
    /// Who is called.
    pub target_agent: String,
    /// The session that serves it.
    pub session: String,
    /// It was delivered to a session that waited.
    pub delivered: bool,
    /// How it stands.
    pub status: CallStatus,
    /// When it was made, in milliseconds since 1970.
    pub created_at: i64,
    /// What the session that serves it waits for, when it does.
    pub waiting_for: Option<String>,
}

/// How a call stands.
#[derive(Debug, Clone, PartialEq)]
pub enum CallStatus {
    /// Its session has no slot yet.
    Pending,
    /// Its session is at work, or waits.
    Running,
    /// It has an answer: `{status, value?, error?, ended?, implicit?}` in JSON, as `check_call` and triggers show it.
    Over(Value),
}

/// What `return_value` is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReturnAnswer {
    /// It answers this call.
    Accepted {
        /// Which.
        call_id: String,
    },
    /// Nobody called this session.
    NotCalled,
}

/// What happens to the calls of a session that ends.
#[derive(Debug, Clone)]
pub enum CallsAfter {
    /// They go on: it ended well.
    GoOn,
    /// Those without a slot are ended like this, and those at work are asked to stop unless they are detached.
    Cancel {
        /// How.
        end: End,
        /// The last line of those that are ended here.
        ended: NewEvent,
        /// Those at work go on (`onCallerExit = "detach"`).
        detach: bool,
    },
}
