//! The store in one SQLite file, for one machine and any number of processes on it.
//!
//! Writes go through one thread per process ([`super::writer`]), reads have connections of their own on tokio's blocking
//! threads.

mod verbs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_util::FutureExt;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::operation::{Operation, Refusal, Verb};
use super::poller::Poller;
use super::queue::{Answer, Item, Queue};
use super::schema::{connect, connect_alone, prepare, translate};
use super::writer::{self, Clock};
use super::{Seat, StoreError, StoreFuture};

/// Sessions, journals and payloads in `store.db` of a state directory.
///
/// Dropping it writes what is still queued.
pub struct SqliteStore {
    path: PathBuf,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    readers: Arc<Mutex<Vec<Connection>>>,
    poller: Poller,
    clock: Clock,
    /// Why nothing can be written, when that is known from the beginning.
    unwritable: Option<StoreError>,
}

impl SqliteStore {
    /// Opens the store of this state directory; creates it, or brings it to the newest schema, when need be.
    pub fn open(folder: &Path) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with_clock(folder, Arc::new(writer::now))
    }

    /// The same with another clock than the system's.
    pub(super) fn open_with_clock(folder: &Path, clock: Clock) -> Result<SqliteStore, StoreError> {
        let path = prepare(folder)?;
        let queue = Arc::new(Queue::default());
        let changed = watch::Sender::new(0);
        let threads = writer::start(&path, Arc::clone(&queue), changed.clone(), Arc::clone(&clock))?;
        let poller = Poller::new(path.clone(), changed);
        Ok(SqliteStore { path, queue, threads, readers: Arc::default(), poller, clock, unwritable: None })
    }

    /// Opens the store to read it, also where there is no room for what SQLite keeps beside the file. Every write then
    /// fails with the reason.
    pub fn open_to_look(folder: &Path) -> Result<SqliteStore, StoreError> {
        let full = match SqliteStore::open(folder) {
            Err(full @ StoreError::Full { .. }) => full,
            other => return other,
        };
        let path = folder.join("store.db");
        // The only connection there is. Somebody who came in between holds the file, and then it says so.
        let Ok(reader) = connect_alone(&path) else { return Err(full) };
        let poller = Poller::new(path.clone(), watch::Sender::new(0));
        let readers = Arc::new(Mutex::new(vec![reader]));
        let clock: Clock = Arc::new(writer::now);
        let queue = Arc::default();
        Ok(SqliteStore { path, queue, threads: Vec::new(), readers, poller, clock, unwritable: Some(full) })
    }

    /// The version of the schema that this program knows.
    pub fn schema() -> usize {
        super::schema::VERSION
    }

    /// Puts an operation into the queue now; the future is its answer.
    fn write(&self, operation: Operation) -> impl Future<Output = Answer> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        match self.unwritable.clone() {
            Some(why) => drop(reply.send(Err(why))),
            None => drop(self.queue.push(Item { operation, reply: Some(reply) })),
        }
        async move { answer.await.unwrap_or(Err(StoreError::Closed)) }
    }

    fn done(&self, operation: Operation) -> StoreFuture<'_, ()> {
        self.write(operation).map(|answer| answer.map(drop)).boxed()
    }

    /// Puts a verb with an answer of its own type into the queue now.
    fn verb<A: Send + 'static>(
        &self,
        kind: Kind,
        apply: impl Fn(&Connection, i64) -> Result<A, Refusal> + Send + 'static,
    ) -> StoreFuture<'_, A> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let apply = Box::new(move |db: &Connection, now| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(apply(db, now)?);
            Ok(())
        });
        let Kind { name, seat, durable, size } = kind;
        let key = seat.map(|seat| seat.key);
        let done = self.write(Operation::Verb(Verb { name, key, durable, size, apply }));
        async move {
            done.await?;
            answer.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
        }
        .boxed()
    }

    /// Reads on a thread that may block, after everything that was asked for before.
    fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<Result<T, StoreError>, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let before = (!self.queue.is_settled()).then(|| self.write(Operation::Barrier));
        let (readers, path) = (Arc::clone(&self.readers), self.path.clone());
        async move {
            if let Some(before) = before {
                before.await?;
            }
            let reading = tokio::task::spawn_blocking(move || {
                let idle = readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let db = idle.map_or_else(|| connect(&path), Ok)?;
                let result = query(&db).map_err(|e| translate(&path, &e))?;
                readers.lock().unwrap_or_else(PoisonError::into_inner).push(db);
                result
            });
            reading.await.unwrap_or(Err(StoreError::Closed))
        }
        .boxed()
    }
}

/// What the writer has to know of a verb.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    seat: Option<Seat>,
    durable: bool,
    size: usize,
}

impl Kind {
    /// One that must survive a power cut.
    fn durable(name: &'static str) -> Kind {
        Kind { name, seat: None, durable: true, size: 0 }
    }

    /// One whose loss by a power cut does no harm.
    fn light(name: &'static str) -> Kind {
        Kind { durable: false, ..Kind::durable(name) }
    }

    /// Of the driver in this seat.
    fn of(self, seat: Seat) -> Kind {
        Kind { seat: Some(seat), ..self }
    }

    /// With about this many bytes to keep.
    fn sized(self, size: usize) -> Kind {
        Kind { size, ..self }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic of it has been reported already.
            let _ = thread.join();
        }
    }
}
