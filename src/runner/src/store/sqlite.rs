//! The store in one SQLite file, for one machine and any number of processes on it.
//!
//! Writes go through one thread per process ([`super::writer`]), reads have connections of their own on tokio's blocking
//! threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::operation::{Operation, event_id, event_seq, unknown};
use super::queue::{Answer, Item, Queue};
use super::schema::{connect, connect_alone, prepare, translate};
use super::writer::{self, Poller};
use super::{
    Blob, BlobId, CallAnswer, CallRecord, CallRequest, CallsAfter, Claimed, Container, End, EventRow, Generation,
    InboxEvent, Lines, Lock, LockAnswer, NewEvent, NewInboxEvent, NewSession, OwnerId, Pruned, ReleaseAnswer,
    ReturnAnswer, Scope, Seat, Session, SessionFilter, SessionKey, SessionState, Slots, Status, StopHow, StopRequest,
    Store, StoreError, StoreFuture, Wait, WaitAnswer, WaitRequest, Waited,
};

/// Sessions, journals and payloads in `store.db` of a state directory.
///
/// Dropping it writes what is still queued.
pub struct SqliteStore {
    path: PathBuf,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    readers: Arc<Mutex<Vec<Connection>>>,
    poller: Poller,
    /// Why nothing can be written, when that is known from the beginning.
    unwritable: Option<StoreError>,
}

impl SqliteStore {
    /// Opens the store of this state directory; creates it, or brings it to the newest schema, when need be.
    pub fn open(folder: &Path) -> Result<SqliteStore, StoreError> {
        let path = prepare(folder)?;
        let queue = Arc::new(Queue::default());
        let changed = watch::Sender::new(0);
        let threads = writer::start(&path, Arc::clone(&queue), changed.clone())?;
        let poller = Poller::new(path.clone(), changed);
        Ok(SqliteStore { path, queue, threads, readers: Arc::default(), poller, unwritable: None })
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
        Ok(SqliteStore { path, queue: Arc::default(), threads: Vec::new(), readers, poller, unwritable: Some(full) })
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

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic of it has been reported already.
            let _ = thread.join();
        }
    }
}

impl Store for SqliteStore {
    fn create_session(&self, session: NewSession, started: NewEvent) -> StoreFuture<'_, SessionKey> {
        self.write(Operation::Create { session, started }).map(|key| key.map(SessionKey)).boxed()
    }

    fn append(&self, key: SessionKey, generation: Generation, event: NewEvent) -> StoreFuture<'_, u64> {
        self.write(Operation::Append { key, generation, event })
            .map(|seq| seq.map(|seq| u64::try_from(seq).expect("line numbers are positive")))
            .boxed()
    }

    fn append_later(&self, key: SessionKey, generation: Generation, event: NewEvent) -> BoxFuture<'_, ()> {
        let operation = Operation::Append { key, generation, event };
        if self.queue.push(Item { operation, reply: None }) {
            self.write(Operation::Barrier).map(drop).boxed()
        } else {
            Box::pin(future::ready(()))
        }
    }

    fn set_container(&self, key: SessionKey, generation: Generation, container: Container) -> StoreFuture<'_, ()> {
        self.done(Operation::SetContainer { key, generation, container })
    }

    fn end_session(&self, seat: Seat, end: End, _calls: CallsAfter, ended: NewEvent) -> StoreFuture<'_, ()> {
        let Seat { key, generation } = seat;
        self.done(Operation::End { key, generation, end, ended })
    }

    fn sandbox_removed(&self, key: SessionKey, generation: Generation) -> StoreFuture<'_, ()> {
        self.done(Operation::SandboxRemoved { key, generation })
    }

    fn request_stop(&self, key: SessionKey, by: String, _how: StopHow) -> StoreFuture<'_, ()> {
        self.done(Operation::RequestStop { key, by })
    }

    fn stop_requested(&self, key: SessionKey) -> StoreFuture<'_, Option<StopRequest>> {
        self.read(move |db| {
            let found = db
                .prepare_cached("SELECT stop_requested_by FROM sessions WHERE key = ?1")?
                .query_row([key.0], |row| row.get(0))
                .optional()?;
            let request = |by: Option<String>| by.map(|by| StopRequest { by, how: StopHow::Orderly });
            Ok(found.map(request).ok_or_else(|| unknown(key)))
        })
    }

    fn take_over(&self, key: SessionKey, expected: Generation, owner: OwnerId) -> StoreFuture<'_, Generation> {
        self.write(Operation::TakeOver { key, expected, owner }).map(|new| new.map(Generation)).boxed()
    }

    fn session(&self, id_or_part: &str) -> StoreFuture<'_, Session> {
        let asked = id_or_part.to_owned();
        self.read(move |db| {
            // Nearly everybody asks with a whole id: only a part of one is worth a look at all of them.
            let exact =
                db.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?.query_row([&asked], session_of).optional()?;
            if let Some(session) = exact {
                return Ok(Ok(session));
            }
            // Ids are hexadecimal digits and hyphens, so everything that begins with the part sorts before this.
            let end = format!("{asked}\u{10ffff}");
            let mut found = db
                .prepare_cached(&format!(
                    "{SELECT} WHERE (id >= ?1 AND id < ?2) OR substr(id, -length(?1)) = ?1 ORDER BY id LIMIT 5"
                ))?
                .query_map(params![asked, end], session_of)?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(match found.len() {
                0 => Err(StoreError::UnknownSession { id: asked }),
                1 => Ok(found.remove(0)),
                _ => Err(StoreError::Ambiguous { part: asked, matches: found.into_iter().map(|s| s.id).collect() }),
            })
        })
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.read(move |db| {
            let condition = match filter.status {
                Status::Any => "TRUE",
                Status::Live => "ended_at IS NULL",
                Status::Ended => "ended_at IS NOT NULL",
                Status::Unfinished => "(ended_at IS NULL OR sandbox_removed = 0)",
            };
            db.prepare_cached(&format!(
                "{SELECT} WHERE {condition} AND (:project IS NULL OR project = :project)
                 AND (:agent IS NULL OR agent = :agent) ORDER BY key DESC LIMIT :limit"
            ))?
            .query_map(
                named_params! {
                    ":project": filter.project,
                    ":agent": filter.agent,
                    ":limit": filter.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
                },
                session_of,
            )?
            .collect::<Result<_, _>>()
            .map(Ok)
        })
    }

    fn events(&self, key: SessionKey, after: u64, limit: usize) -> StoreFuture<'_, Vec<EventRow>> {
        self.read(move |db| {
            let after = after.min(u64::from(u32::MAX));
            db.prepare_cached("SELECT id, at, kind, body FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3")?
                .query_map(
                    params![event_id(key, after), event_id(key, u64::MAX), i64::try_from(limit).unwrap_or(i64::MAX)],
                    |row| {
                        Ok(EventRow {
                            seq: event_seq(row.get(0)?),
                            at: row.get(1)?,
                            kind: row.get(2)?,
                            body: row.get(3)?,
                        })
                    },
                )?
                .collect::<Result<_, _>>()
                .map(Ok)
        })
    }

    fn put_blob(&self, blob: Blob) -> StoreFuture<'_, BlobId> {
        if blob.bytes().len() > Blob::MAX {
            return Box::pin(future::ready(Err(StoreError::BlobTooLarge { bytes: blob.bytes().len() })));
        }
        let id = blob.id();
        self.write(Operation::PutBlob(blob)).map(move |answer| answer.map(|_| id)).boxed()
    }

    fn get_blob(&self, id: BlobId) -> StoreFuture<'_, Vec<u8>> {
        self.read(move |db| {
            let found = db
                .prepare_cached("SELECT bytes FROM blobs WHERE sha256 = ?1")?
                .query_row([id.bytes()], |row| row.get(0))
                .optional()?;
            Ok(found.ok_or(StoreError::UnknownBlob(id)))
        })
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(future::ready(Ok(writer::now())))
    }

    fn flush(&self, key: SessionKey) -> StoreFuture<'_, ()> {
        self.done(Operation::Flush(key))
    }

    fn claim(
        &self,
        project: String,
        slots: Slots,
        scope: Scope,
        owner: OwnerId,
        container: String,
        lines: Lines<Claimed>,
    ) -> StoreFuture<'_, Option<Claimed>> {
        let _ = (project, slots, scope, owner, container, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn acquire_lock(
        &self,
        seat: Seat,
        resource: String,
        ttl: i64,
        lines: Lines<LockAnswer>,
    ) -> StoreFuture<'_, LockAnswer> {
        let _ = (seat, resource, ttl, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn release_lock(
        &self,
        seat: Seat,
        resource: String,
        lines: Lines<ReleaseAnswer>,
    ) -> StoreFuture<'_, ReleaseAnswer> {
        let _ = (seat, resource, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn locks(&self, project: Option<String>) -> StoreFuture<'_, Vec<Lock>> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn call_agent(&self, seat: Seat, call: CallRequest, lines: Lines<CallAnswer>) -> StoreFuture<'_, CallAnswer> {
        let _ = (seat, call, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn check_call(
        &self,
        seat: Seat,
        call_id: String,
        lines: Lines<Option<CallRecord>>,
    ) -> StoreFuture<'_, Option<CallRecord>> {
        let _ = (seat, call_id, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn calls(&self, project: Option<String>) -> StoreFuture<'_, Vec<CallRecord>> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn return_value(&self, seat: Seat, value: Value, lines: Lines<ReturnAnswer>) -> StoreFuture<'_, ReturnAnswer> {
        let _ = (seat, value, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn set_status(&self, seat: Seat, text: String, lines: Lines<()>) -> StoreFuture<'_, ()> {
        let _ = (seat, text, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn wait(&self, seat: Seat, wait: WaitRequest, lines: Lines<WaitAnswer>) -> StoreFuture<'_, WaitAnswer> {
        let _ = (seat, wait, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn set_paused(&self, seat: Seat, paused: bool) -> StoreFuture<'_, ()> {
        let _ = (seat, paused);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn wait_of(&self, key: SessionKey) -> StoreFuture<'_, Option<Wait>> {
        let _ = (key);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn finish_wait(&self, seat: Seat, lines: Lines<Waited>) -> StoreFuture<'_, Waited> {
        let _ = (seat, lines);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn waits(&self, project: Option<String>, after: i64) -> StoreFuture<'_, Vec<Wait>> {
        let _ = (project, after);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn expire_waits(&self, project: String) -> StoreFuture<'_, Vec<String>> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn next_deadline(&self, project: String) -> StoreFuture<'_, Option<i64>> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn accept(&self, event: NewInboxEvent) -> StoreFuture<'_, i64> {
        let _ = (event);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn inbox_position(&self, project: String) -> StoreFuture<'_, i64> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn inbox(&self, project: String, limit: usize) -> StoreFuture<'_, Vec<InboxEvent>> {
        let _ = (project, limit);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn unmatched(&self, project: String) -> StoreFuture<'_, Vec<InboxEvent>> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn wake(&self, event: i64, waits: Vec<i64>) -> StoreFuture<'_, Vec<String>> {
        let _ = (event, waits);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn pause_agent(&self, project: String, agent: Option<String>, paused: bool) -> StoreFuture<'_, ()> {
        let _ = (project, agent, paused);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn paused_agents(&self, project: String) -> StoreFuture<'_, Vec<String>> {
        let _ = (project);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn tree_tokens(&self, key: SessionKey) -> StoreFuture<'_, (u64, Option<u64>)> {
        let _ = (key);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn prune(&self, project: String, before: i64) -> StoreFuture<'_, Pruned> {
        let _ = (project, before);
        Box::pin(future::ready(Err(StoreError::Closed)))
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.poller.subscribe()
    }
}

const SELECT: &str = "SELECT key, id, project, agent, owner, host, generation, container_name, container_id, keep,
    created_at, stop_requested_by, ended_at, end_cause, exit_code, end_message, sandbox_removed FROM sessions";

fn session_of(row: &Row<'_>) -> Result<Session, rusqlite::Error> {
    let container: Option<String> = row.get("container_name")?;
    let container_id = row.get("container_id")?;
    let ended_at: Option<i64> = row.get("ended_at")?;
    let end = match ended_at {
        None => None,
        Some(at) => {
            let end = End {
                cause: row.get("end_cause")?,
                exit_code: row.get("exit_code")?,
                message: row.get("end_message")?,
                sandbox_removed: row.get("sandbox_removed")?,
                text: None,
            };
            Some((end, at))
        }
    };
    Ok(Session {
        key: SessionKey(row.get("key")?),
        id: row.get("id")?,
        project: row.get("project")?,
        agent: row.get("agent")?,
        owner: OwnerId { id: row.get("owner")?, host: row.get("host")? },
        generation: Generation(row.get("generation")?),
        container: container.map(|name| Container { name, id: container_id }),
        keep: row.get("keep")?,
        created_at: row.get("created_at")?,
        stop_requested_by: row.get("stop_requested_by")?,
        state: SessionState::Active,
        slotted: false,
        parent: None,
        root: SessionKey(row.get("key")?),
        depth: 0,
        status: None,
        tokens: 0,
        overcommit: false,
        end,
    })
}
