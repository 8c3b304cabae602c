//! What outlives a process: sessions, their journals and large payloads, behind one trait of domain verbs.
//!
//! ```text
//!            create_session, call_agent
//!                       |
//!                       v      claim              wait
//!                    queued ----------> active ----------> waiting
//!                       |               |  ^   ^              |  wake, expire_waits, call_agent,
//!                       |               |  |   |  claim       v  end_session, return_value
//!                       |               |  |   +----------- woken
//!                       |               |  +-- take_over (of a dead owner; generation + 1)
//!                       v  end_session  v
//!                     ended (from every state; its locks, slot and calls in the same transaction)
//!                       |
//!                       v  sandbox_removed (when its container or folder outlived it), prune
//! ```
//!
//! Rules that every backend keeps (`store/contract` holds them to it):
//!
//! - Every verb is one transaction. What a verb acknowledged is there after `kill -9`; ends and ownership also after a
//!   power cut.
//! - A session belongs to one owner under one generation. Every write of a driver carries its generation, and a stale
//!   one gets [`StoreError::Fenced`] and changes nothing.
//! - [`Store::append_later`] keeps its place in the order of one session's verbs. When it fails, nothing later of that
//!   session is written until an awaited verb has reported the failure; so a journal has no holes in the middle.
//! - A verb sees everything that this process asked for before it.
//! - Time is the store's clock.
//!
//! The store knows nothing of what an event means: a kind, and a body of JSON text.

mod error;
mod fleet;
mod graph;
mod journal;
mod migrations;
mod operation;
mod poller;
mod queue;
mod rows;
mod schema;
mod session;
mod sqlite;
mod verbs;
mod writer;

#[cfg(test)]
mod contract;
#[cfg(test)]
pub(crate) mod faults;
#[cfg(test)]
mod kills;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

pub use error::StoreError;
pub use fleet::{
    CallAnswer, CallRecord, CallRequest, CallStatus, CallsAfter, Claimed, InboxEvent, Lines, Lock, LockAnswer,
    NewInboxEvent, Pruned, ReleaseAnswer, ReturnAnswer, Scope, Seat, Slots, Wait, WaitAnswer, WaitOn, WaitRequest,
    Waited, Woken,
};
pub use journal::{Blob, BlobId, EventRow, NewEvent};
pub use session::{
    Container, End, Generation, NewSession, OwnerId, Place, Session, SessionFilter, SessionKey, SessionState, Status,
    StopHow, StopRequest,
};
pub use sqlite::SqliteStore;

/// What a verb of the store returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Sessions, journals and payloads, durably. Implementations are used through `Arc<dyn Store>`.
pub trait Store: Send + Sync {
    /// Records a session together with its first journal line; its generation is [`Generation::FIRST`].
    fn create_session(&self, session: NewSession, started: NewEvent) -> StoreFuture<'_, SessionKey>;

    /// Appends to a session's journal and returns the line's number once it is durable.
    fn append(&self, key: SessionKey, generation: Generation, event: NewEvent) -> StoreFuture<'_, u64>;

    /// Queues a journal line at once, without waiting for it; a failure is returned by the next awaited verb that writes
    /// under this session's generation, or by [`Store::flush`].
    ///
    /// The future is back-pressure only: it is ready already unless the queue is full.
    fn append_later(&self, key: SessionKey, generation: Generation, event: NewEvent) -> BoxFuture<'_, ()>;

    /// Records which container belongs to the session: its name before it is created, its id after.
    fn set_container(&self, key: SessionKey, generation: Generation, container: Container) -> StoreFuture<'_, ()>;

    /// Ends a session: its row and its last journal line, with full durability. In the same transaction its locks are
    /// free (S-UNLOCK-2), its slot is, the calls that it serves are answered (S-CHECK-1) and whoever waits for them is
    /// woken, and `calls` happens to those that it made (S-CALL-4).
    fn end_session(&self, seat: Seat, end: End, calls: CallsAfter, ended: NewEvent) -> StoreFuture<'_, ()>;

    /// Records that container and folder of an ended session are gone.
    fn sandbox_removed(&self, key: SessionKey, generation: Generation) -> StoreFuture<'_, ()>;

    /// Asks whoever drives a session to stop it, and with [`StopHow::Kill`] its whole call tree. The first request
    /// stands, but a kill overrides a stop; on an ended session nothing happens.
    fn request_stop(&self, key: SessionKey, by: String, how: StopHow) -> StoreFuture<'_, ()>;

    /// Says who asked for the session to be stopped, if somebody did.
    fn stop_requested(&self, key: SessionKey) -> StoreFuture<'_, Option<StopRequest>>;

    /// Gives a slot to the next session of a project: woken ones first, in the order they were woken; then queued ones,
    /// first in first out for each agent, and of several agents the one that got a slot longest ago. A queued or woken
    /// session that closes a cycle of slot holders is given one above the limits (S-CALL-3). Agents that are paused get
    /// none. The session is active then, owned by `owner`; `container` is the name of its container if it has none yet.
    fn claim(
        &self,
        project: String,
        slots: Slots,
        scope: Scope,
        owner: OwnerId,
        container: String,
        lines: Lines<Claimed>,
    ) -> StoreFuture<'_, Option<Claimed>>;

    /// Acquires or renews a lock for `ttl` milliseconds (S-LOCK-2 to S-LOCK-6), with full durability.
    fn acquire_lock(
        &self,
        seat: Seat,
        resource: String,
        ttl: i64,
        lines: Lines<LockAnswer>,
    ) -> StoreFuture<'_, LockAnswer>;

    /// Releases a lock (S-UNLOCK-1).
    fn release_lock(&self, seat: Seat, resource: String, lines: Lines<ReleaseAnswer>)
    -> StoreFuture<'_, ReleaseAnswer>;

    /// Lists the locks that have not expired, of one project or all.
    fn locks(&self, project: Option<String>) -> StoreFuture<'_, Vec<Lock>>;

    /// Calls another agent: delivers to the oldest waiting session that takes it, or queues a new one (S-CALL-1,
    /// S-CALL-2).
    fn call_agent(&self, seat: Seat, call: CallRequest, lines: Lines<CallAnswer>) -> StoreFuture<'_, CallAnswer>;

    /// Says how a call of this session stands, and notes that it has seen the result; none when it made no such call
    /// (S-CHECK-1).
    fn check_call(
        &self,
        seat: Seat,
        call_id: String,
        lines: Lines<Option<CallRecord>>,
    ) -> StoreFuture<'_, Option<CallRecord>>;

    /// Lists calls without an answer, of one project or all, oldest first.
    fn calls(&self, project: Option<String>) -> StoreFuture<'_, Vec<CallRecord>>;

    /// Sets the answer to the latest delivered call that has none yet, which it completes, else to the call that started
    /// the session, which its end completes (S-RETURN-1).
    fn return_value(&self, seat: Seat, value: Value, lines: Lines<ReturnAnswer>) -> StoreFuture<'_, ReturnAnswer>;

    /// Says what the session is doing (S-STATUS-1).
    fn set_status(&self, seat: Seat, text: String, lines: Lines<()>) -> StoreFuture<'_, ()>;

    /// Begins a wait: answers with a trigger that is there already (S-WAIT-4, S-WAIT-5), or makes the session wait and
    /// frees its slot, with full durability.
    fn wait(&self, seat: Seat, wait: WaitRequest, lines: Lines<WaitAnswer>) -> StoreFuture<'_, WaitAnswer>;

    /// Notes whether the container of a waiting session is paused. A session that has gone on meanwhile is no error.
    fn set_paused(&self, seat: Seat, paused: bool) -> StoreFuture<'_, ()>;

    /// Returns the wait of a session that waits, was woken, or goes on and has not answered the waiting call yet.
    fn wait_of(&self, key: SessionKey) -> StoreFuture<'_, Option<Wait>>;

    /// Answers the call that waited, and forgets the wait. The session is active again.
    fn finish_wait(&self, seat: Seat, lines: Lines<Waited>) -> StoreFuture<'_, Waited>;

    /// Lists waits with a number above `after`, of one project or all, oldest first, woken ones included.
    fn waits(&self, project: Option<String>, after: i64) -> StoreFuture<'_, Vec<Wait>>;

    /// Wakes the sessions of a project whose waits are past their deadline; returns their ids.
    fn expire_waits(&self, project: String) -> StoreFuture<'_, Vec<String>>;

    /// When the next wait of a project gives up, in milliseconds since 1970.
    fn next_deadline(&self, project: String) -> StoreFuture<'_, Option<i64>>;

    /// Keeps an event from outside, with full durability; returns its position in the inbox.
    fn accept(&self, event: NewInboxEvent) -> StoreFuture<'_, i64>;

    /// The position of a project's newest event, 0 before the first.
    fn inbox_position(&self, project: String) -> StoreFuture<'_, i64>;

    /// Lists the newest events of a project, newest first.
    fn inbox(&self, project: String, limit: usize) -> StoreFuture<'_, Vec<InboxEvent>>;

    /// Lists the events of a project that were accepted and not matched yet, oldest first.
    fn unmatched(&self, project: String) -> StoreFuture<'_, Vec<InboxEvent>>;

    /// Says which waits an event matches, with full durability: those that still wait, and began before it or with it
    /// among what they count, are woken (S-WAIT-9), unless it came after their deadline. No event wakes a session twice.
    /// Returns the ids of those woken.
    fn wake(&self, event: i64, waits: Vec<i64>) -> StoreFuture<'_, Vec<String>>;

    /// Pauses or unpauses an agent of a project, or all of it: paused ones get no slot for new sessions.
    fn pause_agent(&self, project: String, agent: Option<String>, paused: bool) -> StoreFuture<'_, ()>;

    /// Lists a project's paused agents; an empty name stands for all of it.
    fn paused_agents(&self, project: String) -> StoreFuture<'_, Vec<String>>;

    /// Tokens that a session's call tree has used, and may use.
    fn tree_tokens(&self, key: SessionKey) -> StoreFuture<'_, (u64, Option<u64>)>;

    /// Removes what is older than `before` (milliseconds since 1970) of a project: ended sessions of call trees that are
    /// over, with their journals and calls, events of the inbox, and payloads that nothing names any more. Does at most a
    /// few hundred rows at a time; whoever wants all of it asks until nothing is removed.
    fn prune(&self, project: String, before: i64) -> StoreFuture<'_, Pruned>;

    /// Makes `owner` the owner of a session that is still at `expected`, and returns its new generation. Of several who
    /// try at once exactly one succeeds.
    fn take_over(&self, key: SessionKey, expected: Generation, owner: OwnerId) -> StoreFuture<'_, Generation>;

    /// Finds a session by its id, or by a beginning or an end that no other's has.
    fn session(&self, id_or_part: &str) -> StoreFuture<'_, Session>;

    /// Lists sessions, newest first.
    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>>;

    /// Returns at most `limit` lines of a journal after line `after` (0 is before the first), in order.
    fn events(&self, key: SessionKey, after: u64, limit: usize) -> StoreFuture<'_, Vec<EventRow>>;

    /// Keeps a payload under its content's hash; the same content twice is kept once.
    fn put_blob(&self, blob: Blob) -> StoreFuture<'_, BlobId>;

    /// Returns a payload.
    fn get_blob(&self, id: BlobId) -> StoreFuture<'_, Vec<u8>>;

    /// Milliseconds since 1970 by the store's clock, the only one that leases and rows go by.
    fn now(&self) -> StoreFuture<'_, i64>;

    /// Waits until everything queued for this session is durable, and returns what failed of it.
    fn flush(&self, key: SessionKey) -> StoreFuture<'_, ()>;

    /// Returns a counter that changes soon (a tenth of a second) after anybody, in any process, changed the store. It may
    /// also change without reason.
    fn watch(&self) -> watch::Receiver<u64>;
}
