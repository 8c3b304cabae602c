//! Waits, and what ends them.

use serde_json::Value;

use crate::store::SessionKey;
use crate::trigger::Filter;

/// A wait to be begun.
#[derive(Debug, Clone)]
pub struct WaitRequest {
    /// The call that waits, `session/turn/index`.
    pub call: String,
    /// For what.
    pub on: WaitOn,
    /// Milliseconds from now until it gives up.
    pub timeout: i64,
    /// Events after this one count too: the inbox's position when the model was asked.
    pub since: i64,
    /// Most waiting sessions of the project.
    pub most: u32,
    /// What it waits for, in words.
    pub words: String,
}

/// What a wait is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOn {
    /// An event from outside.
    Webhook {
        /// Names of the sources that count, all configured ones of a provider type or a single one; empty: any.
        sources: Vec<String>,
        /// The provider's event; any when absent.
        event: Option<String>,
        /// Which of them.
        filter: Filter,
    },
    /// A call of another agent, or the result of a call to one.
    Agent {
        /// Which; any when absent.
        source_agent: Option<String>,
        /// Which of them.
        filter: Filter,
    },
}

/// What `wait_for_trigger` is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum WaitAnswer {
    /// The trigger is there already; the session keeps its slot.
    Now(Value),
    /// The session waits and has no slot any more.
    Suspended {
        /// Milliseconds since 1970.
        deadline: i64,
    },
    /// So many of the project wait already.
    TooMany(u32),
}

/// A session that waits, or was woken and has not gone on.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    /// The store's number of it; later ones are larger.
    pub id: i64,
    /// Who waits.
    pub key: SessionKey,
    /// Its id.
    pub session: String,
    /// Its agent.
    pub agent: String,
    /// Its project.
    pub project: String,
    /// The call that waits.
    pub call: String,
    /// For what.
    pub on: WaitOn,
    /// In words.
    pub words: String,
    /// When it began, in milliseconds since 1970.
    pub since: i64,
    /// When it gives up, in milliseconds since 1970.
    pub deadline: i64,
    /// The container is paused; false when the engine could not.
    pub paused: bool,
    /// What woke it.
    pub woken: Option<Woken>,
}

/// What ended a wait.
#[derive(Debug, Clone, PartialEq)]
pub enum Woken {
    /// This trigger.
    Trigger(Value),
    /// Nothing came in time.
    Timeout,
}

/// How a wait went, for the line that answers its call.
#[derive(Debug, Clone, PartialEq)]
pub struct Waited {
    /// What ended it.
    pub woken: Woken,
    /// Milliseconds it took.
    pub waited: i64,
    /// A lock that the session held when it began to wait, if it has expired.
    pub lost_lock: Option<String>,
}
