//! What sessions share, as the store keeps it: slots and the queue, locks, calls, waits, events from outside.
//!
//! Every verb here is one transaction together with the journal lines that tell of it. What a line says depends on the
//! answer, so its maker goes into the transaction ([`Lines`]).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{End, Generation, NewEvent, NewSession, Session, SessionKey};
use crate::trigger::Filter;

/// A session, under the generation of the driver that speaks for it. Who is asked for is never an argument (S-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The session.
    pub key: SessionKey,
    /// Its driver's generation.
    pub generation: Generation,
}

/// Makes the journal lines of a verb from its answer; called inside the transaction, perhaps more than once.
pub struct Lines<A>(Box<LinesOf<A>>);

type LinesOf<A> = dyn Fn(&A) -> Vec<NewEvent> + Send + Sync;

impl<A> Lines<A> {
    /// These lines.
    pub fn new(make: impl Fn(&A) -> Vec<NewEvent> + Send + Sync + 'static) -> Self {
        Self(Box::new(make))
    }

    /// No line.
    pub fn none() -> Self {
        Self::new(|_| Vec::new())
    }

    /// The lines for this answer.
    pub fn of(&self, answer: &A) -> Vec<NewEvent> {
        (self.0)(answer)
    }
}

impl<A> fmt::Debug for Lines<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// It waits for its first slot.
    Queued,
    /// Somebody drives it: it holds a slot unless it was begun without one.
    #[default]
    Active,
    /// It waits for a trigger, without a slot and without a driver.
    Waiting,
    /// What it waited for is there; it waits for a slot.
    Woken,
    /// It is over.
    Ended,
}

/// A new session's place in the fleet; the default is one that is driven at once, without a slot (`runner tool`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// It waits for a slot, behind at most this many of its agent. None: it is active at once and holds no slot.
    pub queue: Option<u32>,
    /// Tokens that its whole call tree may use; of a root.
    pub max_tokens: Option<u64>,
}

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
    /// Milliseconds of active time that the session has used.
    pub active_ms: i64,
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

/// An event from outside, to be kept.
#[derive(Debug, Clone)]
pub struct NewInboxEvent {
    /// The project it is for.
    pub project: String,
    /// Name of the source.
    pub source: String,
    /// The provider's event.
    pub event: String,
    /// The normalised fields, an object.
    pub fields: Value,
    /// The payload as it came.
    pub raw: Value,
}

/// An event in the inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxEvent {
    /// Its position; later ones are larger.
    pub id: i64,
    /// When it was accepted, in milliseconds since 1970.
    pub at: i64,
    /// Name of the source.
    pub source: String,
    /// The provider's event.
    pub event: String,
    /// The normalised fields.
    pub fields: Value,
    /// The payload as it came.
    pub raw: Value,
    /// Ids of the sessions that it woke; none until it was matched.
    pub woke: Option<Vec<String>>,
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

/// How a session is asked to stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StopHow {
    /// Cancel its calls, copy out, end.
    #[default]
    Orderly,
    /// At once, with its whole call tree.
    Kill,
}

/// Somebody wants a session to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRequest {
    /// Who.
    pub by: String,
    /// How.
    pub how: StopHow,
}

/// What pruning removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Sessions with their journals and calls.
    pub sessions: u64,
    /// Events of the inbox.
    pub events: u64,
    /// Payloads that nothing names any more.
    pub blobs: u64,
}
