//! The way to the writer thread: an ordered queue that is cheap to add to.
//!
//! A background operation wakes the writer at most once a [`LINGER`], so a burst of fast calls pays for one wake-up and
//! one commit between them. An awaited one wakes it at once and takes everything before it along.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::StoreError;
use super::operation::Operation;

/// How long background operations may wait for company.
const LINGER: Duration = Duration::from_millis(5);

/// Background operations, or bytes of them, that end the waiting early.
const ENOUGH: usize = 256;
const ENOUGH_BYTES: usize = 1024 * 1024;

/// Operations, or bytes of them, beyond which those who add are asked to wait.
const FULL: usize = 4096;
const FULL_BYTES: usize = 32 * 1024 * 1024;

/// Most operations of one transaction, so that other processes get their turn.
const GROUP: usize = 1024;

/// What the writer answers: a number, whose meaning the operation defines.
pub(super) type Answer = Result<i64, StoreError>;

/// An operation and who waits for it.
pub(super) struct Item {
    pub(super) operation: Operation,
    pub(super) reply: Option<oneshot::Sender<Answer>>,
}

/// The queue. One thread takes, any thread adds.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    unsettled: AtomicUsize,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    awaited: usize,
    writer: Writer,
    closed: bool,
}

/// What the taking thread is doing.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Writer {
    #[default]
    Busy,
    /// Waits for anything.
    Idle,
    /// Waits for company to what is there.
    Lingering,
}

impl Queue {
    /// Adds an operation; true says that the queue is fuller than it should be. On a closed queue it is dropped, which
    /// its reply channel tells.
    pub(super) fn push(&self, item: Item) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        self.unsettled.fetch_add(1, Ordering::Relaxed);
        state.bytes += item.operation.size();
        let awaited = item.reply.is_some();
        state.awaited += usize::from(awaited);
        state.items.push_back(item);
        let enough = awaited || state.items.len() >= ENOUGH || state.bytes >= ENOUGH_BYTES;
        if state.writer == Writer::Idle || (state.writer == Writer::Lingering && enough) {
            // Said here and not by the writer when it gets to run, so that nobody wakes it twice.
            state.writer = Writer::Busy;
            self.wake.notify_one();
        }
        state.items.len() > FULL || state.bytes > FULL_BYTES
    }

    /// Waits for operations and moves the next group of them into `group`; false when the queue is closed and empty.
    pub(super) fn take(&self, group: &mut Vec<Item>) -> bool {
        let mut state = self.lock();
        while state.items.is_empty() {
            if state.closed {
                return false;
            }
            state.writer = Writer::Idle;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let deadline = Instant::now() + LINGER;
        while state.awaited == 0 && state.items.len() < ENOUGH && state.bytes < ENOUGH_BYTES && !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.writer = Writer::Lingering;
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.writer = Writer::Busy;
        let count = state.items.len().min(GROUP);
        for item in state.items.drain(..count) {
            group.push(item);
        }
        state.bytes -= group.iter().map(|item| item.operation.size()).sum::<usize>();
        state.awaited -= group.iter().filter(|item| item.reply.is_some()).count();
        true
    }

    /// Says that a group of this many operations has been dealt with.
    pub(super) fn settle(&self, count: usize) {
        self.unsettled.fetch_sub(count, Ordering::Release);
    }

    /// True when nothing that was added is still on its way.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire) == 0
    }

    /// Takes no more; what is in it is still dealt with.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Takes no more and drops what is in it: the writer is gone.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.items.clear();
        self.unsettled.store(0, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
