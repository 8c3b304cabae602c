//! The store in one SQLite file, for one machine and any number of processes on it.
//!
//! Writes go through one thread per process ([`super::writer`]), reads have connections of their own on tokio's blocking
//! threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use rusqlite::{Connection, OptionalExtension, named_params, params};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::operation::{Operation, Refusal, Verb, event_id, event_seq, event_size, unknown};
use super::poller::Poller;
use super::queue::{Answer, Item, Queue};
use super::rows::{SELECT, session_of};
use super::schema::{connect, connect_alone, prepare, translate};
use super::verbs::{self, calls, end, inbox, locks, prune, slots, waits};
use super::writer::{self, Clock};
use super::{
    Blob, BlobId, CallAnswer, CallRecord, CallRequest, CallsAfter, Claimed, Container, End, EventRow, Generation,
    InboxEvent, Lines, Lock, LockAnswer, NewEvent, NewInboxEvent, NewSession, OwnerId, Pruned, ReleaseAnswer,
    ReturnAnswer, Scope, Seat, Session, SessionFilter, SessionKey, Slots, Status, StopHow, StopRequest, Store,
    StoreError, StoreFuture, Wait, WaitAnswer, WaitRequest, Waited,
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

    fn end_session(&self, seat: Seat, end: End, calls: CallsAfter, ended: NewEvent) -> StoreFuture<'_, ()> {
        let kind = Kind::durable("end_session").of(seat).sized(event_size(&ended));
        self.verb(kind, move |db, now| end::end(db, seat, &end, &calls, &ended, now))
    }

    fn sandbox_removed(&self, key: SessionKey, generation: Generation) -> StoreFuture<'_, ()> {
        self.done(Operation::SandboxRemoved { key, generation })
    }

    fn request_stop(&self, key: SessionKey, by: String, how: StopHow) -> StoreFuture<'_, ()> {
        self.verb(Kind::light("request_stop"), move |db, _| end::request_stop(db, key, &by, how))
    }

    fn stop_requested(&self, key: SessionKey) -> StoreFuture<'_, Option<StopRequest>> {
        self.read(move |db| {
            let found = db
                .prepare_cached("SELECT stop_requested_by, stop_kill FROM sessions WHERE key = ?1")?
                .query_row([key.0], |row| {
                    let how = if row.get(1)? { StopHow::Kill } else { StopHow::Orderly };
                    Ok(row.get::<_, Option<String>>(0)?.map(|by| StopRequest { by, how }))
                })
                .optional()?;
            Ok(found.ok_or_else(|| unknown(key)))
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
                 AND (:agent IS NULL OR agent = :agent) AND (:tree IS NULL OR root = :tree) ORDER BY key DESC LIMIT :limit"
            ))?
            .query_map(
                named_params! {
                    ":project": filter.project,
                    ":agent": filter.agent,
                    ":tree": filter.tree.map(|root| root.0),
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
        Box::pin(future::ready(Ok((self.clock)())))
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
        let claim = slots::Claim { project, slots, scope, owner, container };
        self.verb(Kind::durable("claim"), move |db, now| slots::claim(db, &claim, &lines, now))
    }

    fn acquire_lock(
        &self,
        seat: Seat,
        resource: String,
        ttl: i64,
        lines: Lines<LockAnswer>,
    ) -> StoreFuture<'_, LockAnswer> {
        let kind = Kind::durable("acquire_lock").of(seat);
        self.verb(kind, move |db, now| locks::acquire(db, seat, &resource, ttl, &lines, now))
    }

    fn release_lock(
        &self,
        seat: Seat,
        resource: String,
        lines: Lines<ReleaseAnswer>,
    ) -> StoreFuture<'_, ReleaseAnswer> {
        let kind = Kind::durable("release_lock").of(seat);
        self.verb(kind, move |db, now| locks::release(db, seat, &resource, &lines, now))
    }

    fn locks(&self, project: Option<String>) -> StoreFuture<'_, Vec<Lock>> {
        let clock = Arc::clone(&self.clock);
        self.read(move |db| locks::list(db, project.as_deref(), clock()).map(Ok))
    }

    fn call_agent(&self, seat: Seat, call: CallRequest, lines: Lines<CallAnswer>) -> StoreFuture<'_, CallAnswer> {
        let kind = Kind::durable("call_agent").of(seat).sized(event_size(&call.started));
        self.verb(kind, move |db, now| calls::call(db, seat, &call, &lines, now))
    }

    fn check_call(
        &self,
        seat: Seat,
        call_id: String,
        lines: Lines<Option<CallRecord>>,
    ) -> StoreFuture<'_, Option<CallRecord>> {
        let kind = Kind::light("check_call").of(seat);
        self.verb(kind, move |db, now| calls::check(db, seat, &call_id, &lines, now))
    }

    fn calls(&self, project: Option<String>) -> StoreFuture<'_, Vec<CallRecord>> {
        self.read(move |db| calls::list(db, project.as_deref()).map(Ok))
    }

    fn return_value(&self, seat: Seat, value: Value, lines: Lines<ReturnAnswer>) -> StoreFuture<'_, ReturnAnswer> {
        let kind = Kind::durable("return_value").of(seat);
        self.verb(kind, move |db, now| calls::return_value(db, seat, &value, &lines, now))
    }

    fn set_status(&self, seat: Seat, text: String, lines: Lines<()>) -> StoreFuture<'_, ()> {
        let kind = Kind::light("set_status").of(seat);
        self.verb(kind, move |db, now| verbs::set_status(db, seat, &text, &lines, now))
    }

    fn wait(&self, seat: Seat, wait: WaitRequest, lines: Lines<WaitAnswer>) -> StoreFuture<'_, WaitAnswer> {
        let kind = Kind::durable("wait").of(seat);
        self.verb(kind, move |db, now| waits::begin(db, seat, &wait, &lines, now))
    }

    fn set_paused(&self, seat: Seat, paused: bool) -> StoreFuture<'_, ()> {
        self.verb(Kind::light("set_paused").of(seat), move |db, _| waits::set_paused(db, seat, paused))
    }

    fn wait_of(&self, key: SessionKey) -> StoreFuture<'_, Option<Wait>> {
        self.read(move |db| waits::of(db, key).map(Ok))
    }

    fn finish_wait(&self, seat: Seat, lines: Lines<Waited>) -> StoreFuture<'_, Waited> {
        let kind = Kind::durable("finish_wait").of(seat);
        self.verb(kind, move |db, now| waits::finish(db, seat, &lines, now))
    }

    fn waits(&self, project: Option<String>, after: i64) -> StoreFuture<'_, Vec<Wait>> {
        self.read(move |db| waits::list(db, project.as_deref(), after).map(Ok))
    }

    fn expire_waits(&self, project: String) -> StoreFuture<'_, Vec<String>> {
        self.verb(Kind::durable("expire_waits"), move |db, now| waits::expire(db, &project, now))
    }

    fn next_deadline(&self, project: String) -> StoreFuture<'_, Option<i64>> {
        self.read(move |db| waits::next_deadline(db, &project).map(Ok))
    }

    fn accept(&self, event: NewInboxEvent) -> StoreFuture<'_, i64> {
        self.verb(Kind::durable("accept"), move |db, now| inbox::accept(db, &event, now))
    }

    fn inbox_position(&self, project: String) -> StoreFuture<'_, i64> {
        self.read(move |db| inbox::position(db, &project).map(Ok))
    }

    fn inbox(&self, project: String, limit: usize) -> StoreFuture<'_, Vec<InboxEvent>> {
        self.read(move |db| inbox::list(db, &project, limit).map(Ok))
    }

    fn unmatched(&self, project: String) -> StoreFuture<'_, Vec<InboxEvent>> {
        self.read(move |db| inbox::unmatched(db, &project).map(Ok))
    }

    fn wake(&self, event: i64, waits: Vec<i64>) -> StoreFuture<'_, Vec<String>> {
        self.verb(Kind::durable("wake"), move |db, now| inbox::wake(db, event, &waits, now))
    }

    fn pause_agent(&self, project: String, agent: Option<String>, paused: bool) -> StoreFuture<'_, ()> {
        let kind = Kind::durable("pause_agent");
        self.verb(kind, move |db, _| slots::pause(db, &project, agent.as_deref(), paused))
    }

    fn paused_agents(&self, project: String) -> StoreFuture<'_, Vec<String>> {
        self.read(move |db| slots::paused(db, &project).map(Ok))
    }

    fn tree_tokens(&self, key: SessionKey) -> StoreFuture<'_, (u64, Option<u64>)> {
        self.read(move |db| slots::tree_tokens(db, key).map(|found| found.ok_or_else(|| unknown(key))))
    }

    fn prune(&self, project: String, before: i64) -> StoreFuture<'_, Pruned> {
        self.verb(Kind::light("prune"), move |db, _| prune::prune(db, &project, before))
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.poller.subscribe()
    }
}
