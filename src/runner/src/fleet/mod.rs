//! What sessions of a project share: locks, calls, statuses and waits.
//!
//! The effects are the store's transactions; here is what goes into them: who asks, by which rules, and for whom.

pub mod events;
mod index;
pub mod resource;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::project::{FleetSettings, Project, Settings, WebhookSource};
use crate::store::{NewEvent, NewSession, Seat, Slots, Store};

pub use index::WaitIndex;

/// A session as a member of its project's fleet: what its scheduler tools are made with.
pub struct Member {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The session and its driver's generation (S-1).
    pub seat: Seat,
    /// The session's id.
    pub session: String,
    /// Its agent.
    pub agent: String,
    /// Its project's canonical path.
    pub project: String,
    /// The project's rules, under the agent's own.
    pub rules: Rules,
    /// Makes sessions for `call_agent`.
    pub newcomers: Arc<dyn Newcomers>,
}

/// The numbers that the scheduler tools go by (S-NUM-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Time of a lock that names none.
    pub lock_timeout: Duration,
    /// Time of a wait that names none.
    pub wait_timeout: Duration,
    /// Most waiting sessions of the project.
    pub max_suspended: u32,
    /// Calls below a root.
    pub max_call_depth: u32,
    /// Configured sources of webhooks: name and provider type.
    pub sources: Vec<(String, String)>,
}

impl Rules {
    /// The rules of an agent with these settings, in a project with those.
    pub fn of(project: &FleetSettings, agent: &Settings) -> Rules {
        let source = |source: &WebhookSource| (source.name.clone(), source.provider.as_str().to_owned());
        Rules {
            lock_timeout: project.lock_timeout,
            wait_timeout: agent.wait_timeout,
            max_suspended: project.max_suspended,
            max_call_depth: project.max_call_depth,
            sources: project.sources.iter().map(source).collect(),
        }
    }
}

/// How many sessions of a project may hold slots, as its files say now.
pub fn slots(project: &Project) -> Slots {
    let fleet = project.fleet();
    Slots { trees: fleet.scale, agents: project.agent_scales(), others: fleet.agent_scale }
}

/// Why an agent cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoNewcomer {
    /// The project has no such agent; these are its agents.
    Unknown(BTreeSet<String>),
    /// Its `scale` is 0.
    Disabled,
    /// Its files are wrong; the message says how.
    Invalid(String),
}

/// Makes sessions of the project's agents, to be recorded by a call.
pub trait Newcomers: Send + Sync {
    /// A queued session of `agent` that is started by `trigger`, and its first line.
    fn session(&self, agent: &str, trigger: Value) -> Result<(NewSession, NewEvent), NoNewcomer>;
}
