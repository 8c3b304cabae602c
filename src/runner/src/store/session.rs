//! Sessions, as the store keeps them.

/// The store's own number of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub i64);

/// How many owners a session has had; larger is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub i64);

impl Generation {
    /// The generation of a session that was never taken over.
    pub const FIRST: Generation = Generation(1);
}

/// A process that drives sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerId {
    /// Its name in `owners/` of its state directory.
    pub id: String,
    /// Which state directory that is: the install's token.
    pub host: String,
}

/// A session to be recorded.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its public id, a UUID (version 7) in text form.
    pub id: String,
    /// The project's identity: its canonical path.
    pub project: String,
    /// The agent's name.
    pub agent: String,
    /// Who drives it.
    pub owner: OwnerId,
    /// Name of its container, recorded before the container is created.
    pub container: Option<String>,
    /// Leave the sandbox when the session ends.
    pub keep: bool,
    /// Its place in the fleet.
    pub place: Place,
}

/// A new session's place in the fleet; the default is one that is driven at once, without a slot (`runner tool`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// It waits for a slot, behind at most this many of its agent. None: it is active at once and holds no slot.
    pub queue: Option<u32>,
    /// Tokens that its whole call tree may use; of a root.
    pub max_tokens: Option<u64>,
}

/// A session's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its random name.
    pub name: String,
    /// The engine's id, once it is known.
    pub id: Option<String>,
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

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Machine-readable, such as `done` or `timeout`.
    pub cause: String,
    /// Exit code of `runner start`.
    pub exit_code: u8,
    /// One sentence.
    pub message: String,
    /// Its container and folder are gone.
    pub sandbox_removed: bool,
    /// What the agent said last: the answer to whoever called it, when it ended well and returned no value.
    pub text: Option<String>,
}

/// A session as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The store's number of it.
    pub key: SessionKey,
    /// Its public id.
    pub id: String,
    /// The project's canonical path.
    pub project: String,
    /// The agent's name.
    pub agent: String,
    /// Who drives it, or did last.
    pub owner: OwnerId,
    /// How many owners it has had.
    pub generation: Generation,
    /// Its container, if it ever had one.
    pub container: Option<Container>,
    /// The sandbox stays when the session ends.
    pub keep: bool,
    /// When it was created, in milliseconds since 1970.
    pub created_at: i64,
    /// Who asked for it to be stopped.
    pub stop_requested_by: Option<String>,
    /// Where it stands.
    pub state: SessionState,
    /// It takes part in the fleet: it was queued, and holds a slot while it is active.
    pub slotted: bool,
    /// Id of the session that called it.
    pub parent: Option<String>,
    /// The root of its call tree; its own key when nobody called it.
    pub root: SessionKey,
    /// Calls between the root and it.
    pub depth: u32,
    /// What it says that it is doing.
    pub status: Option<String>,
    /// Tokens it has used.
    pub tokens: u64,
    /// It holds a slot above `scale`.
    pub overcommit: bool,
    /// How and when (milliseconds since 1970) it ended; nothing while it is live.
    pub end: Option<(End, i64)>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only of this project.
    pub project: Option<String>,
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only those in this condition.
    pub status: Status,
    /// Only of this call tree, by its root.
    pub tree: Option<SessionKey>,
    /// Most sessions; all when absent.
    pub limit: Option<usize>,
}

/// The condition a session is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Status {
    /// Any.
    #[default]
    Any,
    /// Not ended.
    Live,
    /// Ended.
    Ended,
    /// Not ended, or ended while its sandbox was still there: what recovery looks at.
    Unfinished,
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
