//! The verbs of the trait, each as what its topic's statements do and how durable that is.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::Value;
use tokio::sync::watch;

use super::{Kind, SqliteStore};
use crate::store::operation::{Operation, event_size, unknown};
use crate::store::queue::Item;
use crate::store::verbs::{self, calls, end, inbox, journal, locks, prune, sessions, slots, waits};
use crate::store::{
    Blob, BlobId, CallAnswer, CallRecord, CallRequest, CallsAfter, Claimed, Container, End, EventRow, Generation,
    InboxEvent, Lines, Lock, LockAnswer, NewEvent, NewInboxEvent, NewSession, OwnerId, Pruned, ReleaseAnswer,
    ReturnAnswer, Scope, Seat, Session, SessionFilter, SessionKey, Slots, StopHow, StopRequest, Store, StoreError,
    StoreFuture, Wait, WaitAnswer, WaitRequest, Waited,
};

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
        self.read(move |db| end::stop_requested(db, key))
    }

    fn take_over(&self, key: SessionKey, expected: Generation, owner: OwnerId) -> StoreFuture<'_, Generation> {
        self.write(Operation::TakeOver { key, expected, owner }).map(|new| new.map(Generation)).boxed()
    }

    fn session(&self, id_or_part: &str) -> StoreFuture<'_, Session> {
        let asked = id_or_part.to_owned();
        self.read(move |db| sessions::find(db, asked))
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.read(move |db| sessions::list(db, &filter).map(Ok))
    }

    fn events(&self, key: SessionKey, after: u64, limit: usize) -> StoreFuture<'_, Vec<EventRow>> {
        self.read(move |db| journal::lines(db, key, after, limit).map(Ok))
    }

    fn put_blob(&self, blob: Blob) -> StoreFuture<'_, BlobId> {
        if blob.bytes().len() > Blob::MAX {
            return Box::pin(future::ready(Err(StoreError::BlobTooLarge { bytes: blob.bytes().len() })));
        }
        let id = blob.id();
        self.write(Operation::PutBlob(blob)).map(move |answer| answer.map(|_| id)).boxed()
    }

    fn get_blob(&self, id: BlobId) -> StoreFuture<'_, Vec<u8>> {
        self.read(move |db| journal::payload(db, id).map(|found| found.ok_or(StoreError::UnknownBlob(id))))
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
