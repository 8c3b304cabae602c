//! What sessions share, as the store keeps it: slots and the queue, locks, calls, waits, events from outside.
//!
//! Every verb here is one transaction together with the journal lines that tell of it. What a line says depends on the
//! answer, so its maker goes into the transaction ([`Lines`]).

mod calls;
mod inbox;
mod locks;
mod slots;
mod waits;

use std::fmt;

use super::{Generation, NewEvent, SessionKey};

pub use calls::{CallAnswer, CallRecord, CallRequest, CallStatus, CallsAfter, ReturnAnswer};
pub use inbox::{InboxEvent, NewInboxEvent};
pub use locks::{Lock, LockAnswer, ReleaseAnswer};
pub use slots::{Claimed, Scope, Slots};
pub use waits::{Wait, WaitAnswer, WaitOn, WaitRequest, Waited, Woken};

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
