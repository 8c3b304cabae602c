//! The one thread that writes, and the one that checkpoints.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use tokio::sync::watch;

use super::operation::{Operation, Refusal};
use super::queue::{Answer, Item, Queue};
use super::schema::{connect, translate};
use super::{SessionKey, StoreError};

/// Time between two checkpoints while there is work; without work there are none.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(200);

/// How long a checkpoint that wants to restart the log may keep writers waiting for slow readers.
const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(5);

/// Starts both threads; they end when the queue is closed and empty.
pub(super) fn start(
    path: &Path,
    queue: Arc<Queue>,
    changed: watch::Sender<u64>,
    clock: Clock,
) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let (work, works) = sync_channel(1);
    let (open, closing) = sync_channel(0);
    let checkpointer = connect(path)?;
    checkpointer.busy_timeout(CHECKPOINT_PATIENCE).map_err(|e| translate(path, &e))?;
    let writer = Writer { db: connect(path)?, path: path.to_owned(), clock, full: false, deferred: HashMap::new() };
    let started = |e: std::io::Error| StoreError::Io { path: path.to_owned(), reason: format!("no thread: {e}") };
    let checkpoint = std::thread::Builder::new().name("store-checkpoint".into());
    let write = std::thread::Builder::new().name("store-writer".into());
    Ok(vec![
        checkpoint.spawn(move || checkpoints(&checkpointer, &works, &closing)).map_err(started)?,
        write
            .spawn(move || {
                writer.run(&queue, &changed, &work);
                drop(open);
            })
            .map_err(started)?,
    ])
}

struct Writer {
    db: Connection,
    path: PathBuf,
    clock: Clock,
    /// `synchronous` is FULL at the moment.
    full: bool,
    /// What went wrong in the background and nobody has been told yet.
    deferred: HashMap<SessionKey, StoreError>,
}

impl Writer {
    fn run(mut self, queue: &Arc<Queue>, changed: &watch::Sender<u64>, work: &SyncSender<()>) {
        // Also when this thread panics: nobody may wait for a writer that is gone.
        let abandon = Abandon(Arc::clone(queue));
        let mut group = Vec::new();
        while queue.take(&mut group) {
            let count = group.len();
            // Journal lines are many, and their writer must not be woken by its own: the poller reports them.
            let news =
                group.iter().any(|item| !matches!(item.operation, Operation::Append { .. } | Operation::Barrier));
            let before = self.db.total_changes();
            self.write(&mut group);
            queue.settle(count);
            // Who asks for a slot in vain must not be woken by having asked.
            if news && self.db.total_changes() != before {
                changed.send_modify(|changes| *changes += 1);
            }
            // Full means that the checkpointer knows already.
            let _ = work.try_send(());
        }
        drop(abandon);
    }

    /// Does a group in one transaction; when that fails, each operation in one of its own, so that a large one that
    /// does not fit does not take the others with it.
    fn write(&mut self, group: &mut Vec<Item>) {
        match self.transaction(group) {
            Ok(answers) => {
                for (item, answer) in group.drain(..).zip(answers) {
                    respond(item, answer);
                }
            }
            Err(error) if group.len() == 1 || error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                let error = translate(&self.path, &error);
                for item in group.drain(..) {
                    if let (None, Some(key)) = (&item.reply, item.operation.key()) {
                        self.deferred.entry(key).or_insert_with(|| error.clone());
                    }
                    respond(item, Err(error.clone()));
                }
            }
            Err(_) => {
                for item in group.drain(..) {
                    self.write(&mut vec![item]);
                }
            }
        }
    }

    fn transaction(&mut self, group: &[Item]) -> Result<Vec<Answer>, rusqlite::Error> {
        self.synchronous(group.iter().any(|item| item.operation.is_durable()))?;
        let single = matches!(group, [item] if item.operation.is_single());
        if single {
            crash_points(group, "before");
        } else {
            self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        let done = self.apply(group).and_then(|done| {
            if !single {
                crash_points(group, "before");
                self.db.prepare_cached("COMMIT")?.execute([])?;
            }
            crash_points(group, "after");
            Ok(done)
        });
        if done.is_err() && !self.db.is_autocommit() {
            // The first error is the one that matters; after a failed rollback the next BEGIN fails loudly.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        let (answers, deferred) = done?;
        self.deferred = deferred;
        Ok(answers)
    }

    fn apply(&self, group: &[Item]) -> Result<(Vec<Answer>, HashMap<SessionKey, StoreError>), rusqlite::Error> {
        let mut deferred = self.deferred.clone();
        let mut answers = Vec::with_capacity(group.len());
        let now = (self.clock)();
        for Item { operation, reply } in group {
            let awaited = reply.is_some();
            let key = operation.key();
            let before = key.and_then(|key| if awaited { deferred.remove(&key) } else { deferred.get(&key).cloned() });
            answers.push(match before.map_or_else(|| operation.apply(&self.db, now), |e| Err(Refusal::Rules(e))) {
                Ok(number) => Ok(number),
                Err(Refusal::Database(error)) => return Err(error),
                Err(Refusal::Rules(error)) => {
                    if let (false, Some(key)) = (awaited, key) {
                        deferred.insert(key, error.clone());
                    }
                    Err(error)
                }
            });
        }
        Ok((answers, deferred))
    }

    fn synchronous(&mut self, full: bool) -> Result<(), rusqlite::Error> {
        if self.full != full {
            self.db.execute_batch(if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })?;
            self.full = full;
        }
        Ok(())
    }
}

/// Passes the crash points of a commit, `commit.<verb>.before` and `.after`.
fn crash_points(group: &[Item], moment: &str) {
    if cfg!(feature = "crash") {
        for item in group {
            crate::crash::point(&format!("commit.{}.{moment}", item.operation.name()));
        }
    }
}

/// Answers whoever waits; who gave up waiting is not told.
fn respond(item: Item, answer: Answer) {
    if let Some(reply) = item.reply {
        let _ = reply.send(answer);
    }
}

/// Tells the time, in milliseconds since 1970.
pub(super) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's clock.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

struct Abandon(Arc<Queue>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Copies the log into the database from time to time: first what can be copied beside writers, then, when that was
/// all, the log starts anew. A failure is no harm: the log grows and the next one tries again.
fn checkpoints(db: &Connection, works: &Receiver<()>, closing: &Receiver<()>) {
    while works.recv().is_ok() {
        if closing.recv_timeout(CHECKPOINT_EVERY) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        for mode in ["PASSIVE", "RESTART"] {
            let _ = db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
        }
    }
}
