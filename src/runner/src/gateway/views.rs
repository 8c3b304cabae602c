//! What of the store is shown, and how: times are RFC 3339, absent members are null.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::store::{CallRecord, CallStatus, EventRow, InboxEvent, Lock, Session, SessionState, Wait};

/// Who serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// The process.
    pub pid: u32,
    /// The project's canonical path.
    pub project: String,
    /// The runner's version.
    pub version: String,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionView {
    session: String,
    agent: String,
    project: String,
    /// `queued`, `active`, `waiting`, `woken` or `ended`.
    state: &'static str,
    /// What it says that it is doing.
    status: Option<String>,
    /// Id of the session that called it.
    parent: Option<String>,
    /// Calls between the root of its tree and it.
    depth: u32,
    tokens: u64,
    /// It was given a slot above the limits, because those who hold them cannot go on without it.
    overcommit: bool,
    keep: bool,
    stop_requested_by: Option<String>,
    started_at: String,
    ended_at: Option<String>,
    cause: Option<String>,
    exit_code: Option<u8>,
    message: Option<String>,
}

impl From<Session> for SessionView {
    fn from(session: Session) -> Self {
        let (end, ended_at) = session.end.unzip();
        let (cause, exit_code, message) = match end {
            Some(end) => (Some(end.cause), Some(end.exit_code), Some(end.message)),
            None => (None, None, None),
        };
        Self {
            session: session.id,
            agent: session.agent,
            project: session.project,
            state: state(session.state),
            status: session.status,
            parent: session.parent,
            depth: session.depth,
            tokens: session.tokens,
            overcommit: session.overcommit,
            keep: session.keep,
            stop_requested_by: session.stop_requested_by,
            started_at: time(session.created_at),
            ended_at: ended_at.map(time),
            cause,
            exit_code,
            message,
        }
    }
}

fn state(state: SessionState) -> &'static str {
    match state {
        SessionState::Queued => "queued",
        SessionState::Active => "active",
        SessionState::Waiting => "waiting",
        SessionState::Woken => "woken",
        SessionState::Ended => "ended",
    }
}

/// Some sessions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Sessions {
    pub(super) sessions: Vec<SessionView>,
}

/// A line of a session's journal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Line {
    seq: u64,
    at: String,
    kind: String,
    #[schema(value_type = Object)]
    body: Value,
}

impl From<EventRow> for Line {
    fn from(row: EventRow) -> Self {
        let body = serde_json::from_str(&row.body).unwrap_or(Value::String(row.body));
        Self { seq: row.seq, at: time(row.at), kind: row.kind, body }
    }
}

/// A piece of a journal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Journal {
    pub(super) events: Vec<Line>,
}

/// What waits for a slot.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Queue {
    /// Woken ones first, then the oldest.
    pub(super) sessions: Vec<SessionView>,
    /// The whole project is paused.
    pub(super) paused: bool,
    pub(super) paused_agents: Vec<String>,
}

/// A lock.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LockView {
    resource: String,
    session: String,
    agent: String,
    fence: i64,
    held_since: String,
    expires_at: String,
}

impl From<Lock> for LockView {
    fn from(lock: Lock) -> Self {
        Self {
            resource: lock.resource,
            session: lock.session,
            agent: lock.agent,
            fence: lock.fence,
            held_since: time(lock.held_since),
            expires_at: time(lock.expires_at),
        }
    }
}

/// Locks that have not expired.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Locks {
    pub(super) locks: Vec<LockView>,
}

/// A wait.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WaitView {
    session: String,
    agent: String,
    /// In words.
    waiting_for: String,
    since: String,
    deadline: String,
    /// The container is paused.
    paused: bool,
    /// It has been woken, and waits for a slot or goes on.
    woken: bool,
}

impl From<Wait> for WaitView {
    fn from(wait: Wait) -> Self {
        Self {
            session: wait.session,
            agent: wait.agent,
            waiting_for: wait.words,
            since: time(wait.since),
            deadline: time(wait.deadline),
            paused: wait.paused,
            woken: wait.woken.is_some(),
        }
    }
}

/// Waits, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Waits {
    pub(super) waits: Vec<WaitView>,
}

/// A call of one agent by another.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallView {
    call_id: String,
    caller_session: String,
    caller_agent: String,
    target_agent: String,
    /// The session that serves it.
    session: String,
    /// It was delivered to a session that waited.
    delivered: bool,
    /// `pending`, `running` or `over`.
    status: &'static str,
    created_at: String,
    /// What the session that serves it waits for.
    waiting_for: Option<String>,
}

impl From<CallRecord> for CallView {
    fn from(call: CallRecord) -> Self {
        let status = match call.status {
            CallStatus::Pending => "pending",
            CallStatus::Running => "running",
            CallStatus::Over(_) => "over",
        };
        Self {
            call_id: call.call_id,
            caller_session: call.caller_session,
            caller_agent: call.caller_agent,
            target_agent: call.target_agent,
            session: call.session,
            delivered: call.delivered,
            status,
            created_at: time(call.created_at),
            waiting_for: call.waiting_for,
        }
    }
}

/// Calls without an answer, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Calls {
    pub(super) calls: Vec<CallView>,
}

/// An event from outside, without its payload.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InboxView {
    id: i64,
    at: String,
    source: String,
    event: String,
    #[schema(value_type = Object)]
    fields: Value,
    /// Ids of the sessions that it woke; null until it was matched.
    woke: Option<Vec<String>>,
}

impl From<InboxEvent> for InboxView {
    fn from(event: InboxEvent) -> Self {
        Self {
            id: event.id,
            at: time(event.at),
            source: event.source,
            event: event.event,
            fields: event.fields,
            woke: event.woke,
        }
    }
}

/// Events from outside, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Inbox {
    pub(super) events: Vec<InboxView>,
}

fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| format!("{at:.3}"))
}
