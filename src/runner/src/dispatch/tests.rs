//! Dispatchers with a real store and scripted drivers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

use super::*;
use crate::session::journal::{EndCause, Event, Started};
use crate::session::life::Ended;
use crate::session::recovery::{self, EngineFailure, FoundContainer};
use crate::store::{
    CallsAfter, Container, End, InboxEvent, Lines, NewInboxEvent, Place, Seat, SessionState, SqliteStore, StopHow,
    WaitAnswer, WaitOn, WaitRequest,
};
use crate::trigger::Filter;

const PROJECT: &str = "/projects/one";

/// A driver that was started, in the hands of a test.
struct Driven {
    session: Session,
    signals: Signals,
    how: oneshot::Sender<How>,
}

/// How a scripted driver comes out.
enum How {
    Done,
    Outcome(Outcome),
    Fail,
    Panic,
}

struct Scripted {
    store: Arc<dyn Store>,
    started: UnboundedSender<Driven>,
}

impl Drive for Scripted {
    fn drive(&self, session: Session, signals: Signals) -> LocalBoxFuture<'static, Result<Outcome, Failure>> {
        let (store, started) = (Arc::clone(&self.store), self.started.clone());
        Box::pin(async move {
            let (how, told) = oneshot::channel();
            let seat = Seat { key: session.key, generation: session.generation };
            let _ = started.send(Driven { session, signals, how });
            match told.await {
                Ok(How::Done) => {
                    let ended = NewEvent { kind: "ended".into(), body: "{}".to_owned(), ..NewEvent::default() };
                    store.end_session(seat, end(), CallsAfter::GoOn, ended).await?;
                    Ok(Outcome::Ended(Ended { cause: EndCause::Done, message: String::new() }))
                }
                Ok(How::Outcome(outcome)) => Ok(outcome),
                Ok(How::Fail) => Err(Failure { code: 1, message: "the disk is full".to_owned(), hint: None }),
                Ok(How::Panic) => panic!("as the test wants it"),
                Err(_) => std::future::pending().await,
            }
        })
    }
}

fn end() -> End {
    End { cause: "done".to_owned(), exit_code: 0, message: String::new(), sandbox_removed: true, text: None }
}

/// An engine with these containers.
#[derive(Default)]
struct Containers(Mutex<Vec<FoundContainer>>);

impl recovery::Containers for Containers {
    fn with_our_token(&self) -> BoxFuture<'_, Result<Vec<FoundContainer>, EngineFailure>> {
        let found = self.0.lock().unwrap().clone();
        Box::pin(async { Ok(found) })
    }

    fn remove(&self, id: &str) -> BoxFuture<'_, Result<(), EngineFailure>> {
        self.0.lock().unwrap().retain(|container| container.id != id);
        Box::pin(async { Ok(()) })
    }
}

struct Stage {
    _folder: tempfile::TempDir,
    state: State,
    store: Arc<dyn Store>,
    containers: Rc<Containers>,
}

/// A dispatcher at work.
struct Working {
    dispatch: Rc<Dispatch<Scripted>>,
    driven: UnboundedReceiver<Driven>,
    run: JoinHandle<()>,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        let store = Arc::new(SqliteStore::open(state.root()).unwrap());
        Stage { _folder: folder, state, store, containers: Rc::default() }
    }

    async fn dispatch(&self, schedules: &[(&str, &str)]) -> Working {
        let (started, driven) = unbounded_channel();
        let owner = Arc::new(Owner::claim(&self.state).unwrap());
        let parse = |pattern: &str| Schedule::parse(pattern, jiff::tz::TimeZone::UTC).unwrap();
        let orders = Orders {
            project: PROJECT.to_owned(),
            slots: Slots { trees: None, agents: BTreeMap::from([("two".to_owned(), 2)]), others: 1 },
            scope: Scope::Project,
            history: Duration::from_hours(24),
            schedules: schedules.iter().map(|(agent, text)| ((*agent).to_owned(), parse(text))).collect(),
            begin: {
                let owner = Arc::clone(&owner);
                Box::new(move |agent, trigger| Ok(new_session(&owner, agent, trigger)))
            },
            restarting: Vec::new(),
            detaching: Vec::new(),
        };
        let ground = Ground {
            store: Arc::clone(&self.store),
            state: self.state.clone(),
            owner,
            containers: Rc::clone(&self.containers) as Rc<dyn recovery::Containers>,
        };
        let dispatch = Dispatch::new(ground, orders, Scripted { store: Arc::clone(&self.store), started });
        dispatch.take_up().await.unwrap();
        let run = spawn_local({
            let dispatch = Rc::clone(&dispatch);
            async move { dispatch.run().await }
        });
        Working { dispatch, driven, run }
    }

    async fn queue(&self, agent: &str) -> Session {
        let owner = Owner::claim(&self.state).unwrap();
        let (session, started) = new_session(&owner, agent, json!({"type": "manual"}));
        let id = session.id.clone();
        self.store.create_session(session, started).await.unwrap();
        self.store.session(&id).await.unwrap()
    }

    async fn now(&self, session: &Session) -> Session {
        self.store.session(&session.id).await.unwrap()
    }

    /// Waits until a session is as it should be.
    async fn until(&self, session: &Session, is: impl Fn(&Session) -> bool) -> Session {
        let mut changes = self.store.watch();
        let found = async {
            loop {
                changes.mark_unchanged();
                let now = self.now(session).await;
                if is(&now) {
                    return now;
                }
                changes.changed().await.unwrap();
            }
        };
        timeout(Duration::from_secs(20), found).await.expect("it comes to that in 20 s")
    }

    async fn wait(&self, driven: &Driven, timeout: i64) {
        let wait = WaitRequest {
            call: format!("{}/1/0", driven.session.id),
            on: WaitOn::Webhook { sources: vec!["github".to_owned()], event: None, filter: Filter::default() },
            timeout,
            since: self.store.inbox_position(PROJECT.to_owned()).await.unwrap(),
            most: 10,
            words: "github".to_owned(),
        };
        let answer = self.store.wait(driven.seat(), wait, Lines::none()).await.unwrap();
        assert!(matches!(answer, WaitAnswer::Suspended { .. }), "{answer:?}");
    }

    async fn emit(&self, source: &str) -> i64 {
        let event = NewInboxEvent {
            project: PROJECT.to_owned(),
            source: source.to_owned(),
            event: "push".to_owned(),
            fields: json!({}),
            raw: json!({}),
        };
        self.store.accept(event).await.unwrap()
    }

    async fn inbox(&self) -> Vec<InboxEvent> {
        self.store.inbox(PROJECT.to_owned(), 100).await.unwrap()
    }
}

fn new_session(owner: &Owner, agent: &str, trigger: Value) -> (NewSession, NewEvent) {
    let session = NewSession {
        id: uuid::Uuid::now_v7().to_string(),
        project: PROJECT.to_owned(),
        agent: agent.to_owned(),
        owner: owner.id().clone(),
        container: None,
        keep: false,
        place: Place { queue: Some(100), max_tokens: None },
    };
    let started = Started { agent: agent.to_owned(), trigger, ..Started::default() };
    (session, Event::Started(started).to_row())
}

impl Working {
    async fn next(&mut self) -> Driven {
        timeout(Duration::from_secs(20), self.driven.recv()).await.expect("a driver starts in 20 s").unwrap()
    }

    fn nothing_more(&mut self) {
        assert!(self.driven.try_recv().is_err());
    }
}

impl Driven {
    fn seat(&self) -> Seat {
        Seat { key: self.session.key, generation: self.session.generation }
    }

    fn ends(self, how: How) {
        assert!(self.how.send(how).is_ok());
    }
}

/// Runs a test on a runtime like the program's.
fn on_stage(test: impl AsyncFnOnce(Stage)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test(Stage::new()));
}

/// S-NUM-1: as many as may run, in the order in which they came.
#[test]
fn slots_are_given_in_order() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        let mut queued = Vec::new();
        for _ in 0..4 {
            queued.push(stage.queue("two").await.id);
        }
        let (first, second) = (working.next().await, working.next().await);
        assert_eq!([first.session.id.clone(), second.session.id.clone()], queued[..2]);
        assert_eq!(first.session.state, SessionState::Active);
        stage.queue("other").await;
        assert_eq!(working.next().await.session.agent, "other");
        working.nothing_more();
        second.ends(How::Done);
        assert_eq!(working.next().await.session.id, queued[2]);
        first.ends(How::Done);
        assert_eq!(working.next().await.session.id, queued[3]);
        working.run.abort();
    });
}

/// bug 42: a slot that was granted to a process that died is free again by itself, because its session goes on.
#[test]
fn what_a_dead_process_drove_is_taken_over() {
    on_stage(async |stage| {
        let mut other = stage.dispatch(&[]).await;
        let session = stage.queue("one").await;
        let theirs = other.next().await;
        let mut working = stage.dispatch(&[]).await;
        working.nothing_more();
        // Its process is gone without ending the session, and its flock with it.
        other.dispatch.leave();
        theirs.ends(How::Outcome(Outcome::Left));
        other.run.await.unwrap();
        drop((other.dispatch, other.driven));
        let ours = working.next().await;
        assert_eq!(ours.session.id, session.id);
        assert!(ours.session.generation > session.generation);
        ours.ends(How::Done);
        stage.until(&session, |now| now.state == SessionState::Ended).await;
        working.run.abort();
    });
}

#[test]
fn a_driver_that_fails_is_replaced_under_a_new_generation() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        stage.queue("one").await;
        let first = working.next().await;
        let seat = first.seat();
        first.ends(How::Fail);
        let second = working.next().await;
        assert_eq!((second.session.key, second.session.state), (seat.key, SessionState::Active));
        assert!(second.session.generation > seat.generation);
        second.ends(How::Panic);
        let third = working.next().await;
        third.ends(How::Done);
        working.dispatch.drain();
        working.run.await.unwrap();
    });
}

#[test]
fn a_driver_that_panics_again_ends_its_session_and_nothing_else() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        let session = stage.queue("one").await;
        working.next().await.ends(How::Panic);
        working.next().await.ends(How::Panic);
        let ended = stage.until(&session, |now| now.state == SessionState::Ended).await;
        assert_eq!(ended.end.unwrap().0.cause, "bug");
        stage.queue("one").await;
        working.next().await.ends(How::Done);
        working.dispatch.drain();
        working.run.await.unwrap();
    });
}

/// S-WAIT-6, S-WAIT-9: an event wakes whoever waits for it, once, and the resumed session gets the slot before new work.
#[test]
fn an_event_wakes_a_session() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        let session = stage.queue("one").await;
        let driven = working.next().await;
        stage.wait(&driven, 60_000).await;
        driven.ends(How::Outcome(Outcome::Suspended));
        // The slot is free meanwhile.
        let other = stage.queue("one").await;
        let beside = working.next().await;
        assert_eq!(beside.session.id, other.id);
        let newer = stage.queue("one").await;
        stage.emit("gitlab").await;
        let event = stage.emit("github").await;
        stage.until(&session, |now| now.state == SessionState::Woken).await;
        beside.ends(How::Done);
        let resumed = working.next().await;
        assert_eq!(resumed.session.id, session.id);
        resumed.ends(How::Done);
        assert_eq!(working.next().await.session.id, newer.id);
        let inbox = stage.inbox().await;
        let woke = |id: i64| inbox.iter().find(|event| event.id == id).unwrap().woke.clone();
        assert_eq!((woke(event), woke(event - 1)), (Some(vec![session.id]), Some(Vec::new())));
        working.run.abort();
    });
}

/// S-WAIT-10: a deadline wakes it too.
#[test]
fn a_deadline_wakes_a_session() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        stage.queue("one").await;
        let driven = working.next().await;
        stage.wait(&driven, 300).await;
        driven.ends(How::Outcome(Outcome::Suspended));
        let resumed = working.next().await;
        let wait = stage.store.wait_of(resumed.session.key).await.unwrap().unwrap();
        assert_eq!(wait.woken, Some(crate::store::Woken::Timeout));
        working.run.abort();
    });
}

/// bug 45: a trigger that comes before the container is paused resumes the session, when its former driver has let go.
#[test]
fn a_session_has_one_driver() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        let session = stage.queue("one").await;
        let pausing = working.next().await;
        stage.wait(&pausing, 60_000).await;
        stage.emit("github").await;
        stage.until(&session, |now| now.state == SessionState::Active).await;
        working.nothing_more();
        pausing.ends(How::Outcome(Outcome::Suspended));
        let resumed = working.next().await;
        assert_eq!(resumed.session.id, session.id);
        resumed.ends(How::Done);
        working.dispatch.drain();
        working.run.await.unwrap();
    });
}

/// bug 31: a stop reaches sessions that nobody drives, and removes what they have.
#[test]
fn a_session_that_nobody_drives_can_be_stopped() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        let waiting = stage.queue("one").await;
        let driven = working.next().await;
        let name = driven.session.container.clone().unwrap().name;
        let made = Container { name: name.clone(), id: Some("id".to_owned()) };
        stage.store.set_container(driven.session.key, driven.session.generation, made).await.unwrap();
        let found = FoundContainer { id: "id".to_owned(), name, running: true, session: Some(waiting.id.clone()) };
        stage.containers.0.lock().unwrap().push(found);
        stage.wait(&driven, 60_000).await;
        driven.ends(How::Outcome(Outcome::Suspended));
        let busy = stage.queue("one").await;
        let at_work = working.next().await;
        let queued = stage.queue("one").await;
        for session in [&waiting, &queued] {
            stage.store.request_stop(session.key, "ann".to_owned(), StopHow::Orderly).await.unwrap();
            let ended = stage.until(session, |now| now.end.as_ref().is_some_and(|(end, _)| end.sandbox_removed)).await;
            let (end, _) = ended.end.unwrap();
            assert_eq!((end.cause.as_str(), end.message.as_str()), ("stopped", "stopped by ann"));
        }
        assert!(stage.containers.0.lock().unwrap().is_empty());
        assert_eq!(stage.now(&busy).await.state, SessionState::Active);
        at_work.ends(How::Done);
        working.dispatch.drain();
        working.nothing_more();
        working.run.await.unwrap();
    });
}

/// bugs 12, 46: a session whose container is gone while it waits ends with that cause.
#[test]
fn a_session_whose_container_is_gone_ends() {
    on_stage(async |stage| {
        let mut first = stage.dispatch(&[]).await;
        let session = stage.queue("one").await;
        let driven = first.next().await;
        let name = driven.session.container.clone().unwrap().name;
        let made = Container { name, id: Some("id".to_owned()) };
        stage.store.set_container(driven.session.key, driven.session.generation, made).await.unwrap();
        stage.wait(&driven, 60_000).await;
        driven.ends(How::Outcome(Outcome::Suspended));
        first.run.abort();
        // The lists are compared when a dispatcher begins.
        let working = stage.dispatch(&[]).await;
        let ended = stage.until(&session, |now| now.state == SessionState::Ended).await;
        assert_eq!(ended.end.unwrap().0.cause, "sandbox_lost");
        working.run.abort();
    });
}

#[test]
fn leaving_asks_every_driver_and_waits_for_it() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[]).await;
        let session = stage.queue("one").await;
        let queued = stage.queue("one").await;
        let driven = working.next().await;
        working.dispatch.leave();
        driven.signals.leave.cancelled().await;
        assert!(!working.run.is_finished());
        driven.ends(How::Outcome(Outcome::Left));
        working.run.await.unwrap();
        assert_eq!(stage.now(&session).await.state, SessionState::Active);
        assert_eq!(stage.now(&queued).await.state, SessionState::Queued);
    });
}

/// A tick starts a session; one that finds its agent busy is skipped, and the inbox tells of it.
#[test]
fn a_schedule_starts_and_skips() {
    on_stage(async |stage| {
        let mut working = stage.dispatch(&[("one", "* * * * * *")]).await;
        let driven = working.next().await;
        assert_eq!(driven.session.agent, "one");
        let row = stage.store.events(driven.session.key, 0, 1).await.unwrap().remove(0);
        let body: Value = serde_json::from_str(&row.body).unwrap();
        assert_eq!(body["trigger"]["type"], "schedule");
        let mut changes = stage.store.watch();
        // It is there before it has been matched.
        while stage.inbox().await.last().is_none_or(|event| event.woke.is_none()) {
            timeout(Duration::from_secs(10), changes.changed()).await.unwrap().unwrap();
        }
        let skipped = stage.inbox().await.pop().unwrap();
        assert_eq!((skipped.source.as_str(), skipped.event.as_str()), ("schedule", "skipped"));
        assert_eq!((&skipped.fields["agent"], &skipped.fields["reason"]), (&json!("one"), &json!("busy")));
        assert_eq!(skipped.woke, Some(Vec::new()));
        working.run.abort();
    });
}
