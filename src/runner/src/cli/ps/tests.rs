use std::sync::Arc;

use super::super::records::Remains;
use super::*;
use crate::session::journal::{EndCause, Event, Journal, Started};
use crate::session::owner::Owner;
use crate::state::State;
use crate::store::{
    CallRequest, Container, Generation, Lines, NewSession, OwnerId, Scope, Seat, SessionKey, Slots, WaitOn, WaitRequest,
};
use crate::trigger::Filter;

/// Records in a folder of their own, with sessions `s-1`, `s-2`, … of a living owner.
pub(crate) struct Place {
    _folder: tempfile::TempDir,
    pub(crate) records: Records,
    pub(crate) owner: Owner,
}

impl Place {
    pub(crate) fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        let owner = Owner::claim(&state).unwrap();
        Place { _folder: folder, records: Records::open_in(state).unwrap(), owner }
    }

    pub(crate) async fn session(&self, id: &str) -> Journal {
        self.session_of(id, self.owner.id().clone()).await
    }

    /// Of an owner that does not live.
    pub(crate) async fn lost_session(&self, id: &str) -> Journal {
        let host = self.records.state.token().to_owned();
        self.session_of(id, OwnerId { id: "dead".into(), host }).await
    }

    async fn session_of(&self, id: &str, owner: OwnerId) -> Journal {
        let session = NewSession {
            id: id.into(),
            project: "/p".into(),
            agent: "hello".into(),
            owner,
            container: Some(format!("c-{id}")),
            keep: false,
            place: crate::store::Place::default(),
        };
        let started = Started { agent: "hello".into(), task: Some("say hello".into()), ..Started::default() };
        let key: SessionKey =
            self.records.store.create_session(session, Event::Started(started).to_row()).await.unwrap();
        Journal::new(Arc::clone(&self.records.store), key, Generation::FIRST)
    }
}

impl Place {
    /// One that waits for its first slot.
    pub(crate) async fn queued(&self, id: &str) -> SessionKey {
        self.queued_of(id, "hello", None).await
    }

    async fn queued_of(&self, id: &str, agent: &str, max_tokens: Option<u64>) -> SessionKey {
        let place = crate::store::Place { queue: Some(9), max_tokens };
        let started = Event::Started(Started { agent: agent.into(), ..Started::default() }).to_row();
        self.records.store.create_session(self.new_session(id, agent, place), started).await.unwrap()
    }

    fn new_session(&self, id: &str, agent: &str, place: crate::store::Place) -> NewSession {
        NewSession {
            id: id.into(),
            project: "/p".into(),
            agent: agent.into(),
            owner: self.owner.id().clone(),
            container: None,
            keep: false,
            place,
        }
    }

    /// One of another project, with a slot.
    pub(crate) async fn active_in(&self, project: &str, id: &str) -> Seat {
        let new =
            NewSession { project: project.into(), ..self.new_session(id, "hello", crate::store::Place::default()) };
        let key = self.records.store.create_session(new, Event::Started(Started::default()).to_row()).await.unwrap();
        Seat { key, generation: Generation::FIRST }
    }

    /// One that takes part in a fleet, of an owner that does not live.
    pub(crate) async fn orphan(&self, id: &str) -> Journal {
        self.queued(id).await;
        let host = self.records.state.token().to_owned();
        let seat = self.claim_as(OwnerId { id: "dead".into(), host }).await;
        Journal::new(Arc::clone(&self.records.store), seat.key, seat.generation)
    }

    /// Gives the next session a slot.
    pub(crate) async fn claim(&self) -> Seat {
        self.claim_as(self.owner.id().clone()).await
    }

    async fn claim_as(&self, owner: OwnerId) -> Seat {
        let slots = Slots { others: 9, ..Slots::default() };
        let claim =
            self.records.store.claim("/p".into(), slots, Scope::Project, owner, "box".into(), Lines::none()).await;
        let session = claim.unwrap().unwrap().session;
        Seat { key: session.key, generation: session.generation }
    }
}

/// A project with a root that has called a child and waits, holding a lock.
pub(crate) struct Fleet {
    pub(crate) place: Place,
}

impl Fleet {
    pub(crate) fn new() -> Fleet {
        Fleet { place: Place::new() }
    }

    /// The root `root-1` of agent `root` waits, paused, for GitHub; its child `child-1` of agent `child` is queued.
    pub(crate) async fn waiting_root_and_queued_child(&self) -> (String, String) {
        let store = &self.place.records.store;
        self.place.queued_of("root-1", "root", Some(5000)).await;
        let seat = self.place.claim().await;
        let container = Container { name: "box".into(), id: Some("c0ffee".into()) };
        store.set_container(seat.key, seat.generation, container).await.unwrap();
        store.set_status(seat, "reading mail".into(), Lines::none()).await.unwrap();
        store.acquire_lock(seat, "lock://repo/main".into(), 600_900, Lines::none()).await.unwrap();
        let child =
            self.place.new_session("child-1", "child", crate::store::Place { queue: Some(9), max_tokens: None });
        let call = CallRequest {
            call_id: "root-1/1/0".into(),
            target_agent: "child".into(),
            context: json!({}),
            child,
            started: Event::Started(Started::default()).to_row(),
            max_depth: 3,
        };
        store.call_agent(seat, call, Lines::none()).await.unwrap();
        let wait = WaitRequest {
            call: "root-1/2/0".into(),
            on: WaitOn::Webhook { sources: vec!["github".into()], event: None, filter: Filter::default() },
            timeout: 1_800_900,
            since: 0,
            most: 50,
            words: "any event from github".into(),
        };
        store.wait(seat, wait, Lines::none()).await.unwrap();
        store.set_paused(seat, true).await.unwrap();
        ("root-1".into(), "child-1".into())
    }
}

/// Times differ from run to run.
pub(crate) fn without_times(text: &str) -> String {
    let text = regex::Regex::new(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z)?").unwrap().replace_all(text, "TIME");
    let text = regex::Regex::new(r"\b\d\d:\d\d:\d\d\.\d{3}").unwrap().replace_all(&text, "TIME");
    regex::Regex::new(r"\b\d+(\.\d)? m?s\b").unwrap().replace_all(&text, "TOOK").into_owned()
}

/// As [`without_times`], and columns are as wide as these are.
pub(crate) fn without_widths(text: &str) -> String {
    regex::Regex::new(r" {2,}").unwrap().replace_all(&without_times(text), "  ").into_owned()
}

async fn shown(place: &Place, args: PsArgs) -> String {
    let mut out = Vec::new();
    assert_eq!(list(&place.records, &args, Style::PLAIN, &mut out).await.unwrap(), 0);
    without_widths(&String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn every_condition_is_listed_as_what_it_is() {
    let place = Place::new();
    place.session("s-1").await;
    place.session("s-2").await.end(EndCause::Timeout, "it took too long".into(), true).await.unwrap();
    place.lost_session("s-3").await;
    let stopping = place.session("s-4").await;
    place.records.store.request_stop(stopping.key(), "ann".into(), crate::store::StopHow::Orderly).await.unwrap();
    insta::assert_snapshot!(shown(&place, PsArgs::default()).await, @"
    SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS
    s-4  hello  stopping  TIME  TOOK  0
    s-3  hello  runner died  TIME  TOOK  0
    s-1  hello  running  TIME  TOOK  0
    ");
    insta::assert_snapshot!(shown(&place, PsArgs { all: true, limit: Some(3), ..PsArgs::default() }).await, @"
    SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS
    s-4  hello  stopping  TIME  TOOK  0
    s-3  hello  runner died  TIME  TOOK  0
    s-2  hello  timeout  TIME  TOOK  0
    ");
    let json = shown(&place, PsArgs { all: true, json: true, ..PsArgs::default() }).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 4);
    assert_eq!(
        json[2],
        json!({
            "session": "s-2", "agent": "hello", "project": "/p", "parent": null, "state": "ended", "waiting_for": null,
            "paused": false, "status": null, "lock": null, "tokens": 0, "overcommit": false, "started_at": "TIME",
            "ended_at": "TIME", "cause": "timeout", "exit_code": 124, "message": "it took too long",
            "stop_requested_by": null, "container": {"name": "c-s-2", "id": null}, "sandbox_kept": false,
        })
    );
    assert_eq!(json[0]["state"], "stopping");
    let none = shown(&place, PsArgs { agent: Some("other".into()), json: true, ..PsArgs::default() }).await;
    assert_eq!(none, "[]\n");
}

/// UUIDv7 begins with the time: sessions of one hour differ in their ends.
#[tokio::test]
async fn a_long_id_is_shown_by_its_end_which_names_the_session() {
    let place = Place::new();
    place.session("019a2b3c-4d5e-7000-8000-aaaa5c1e09d7").await;
    place.session("019a2b3c-4d5e-7000-8000-bbbb80f3b2a6").await;
    insta::assert_snapshot!(shown(&place, PsArgs::default()).await, @"
    SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS
    80f3b2a6  hello  running  TIME  TOOK  0
    5c1e09d7  hello  running  TIME  TOOK  0
    ");
    let json = shown(&place, PsArgs { json: true, ..PsArgs::default() }).await;
    assert!(json.contains("019a2b3c-4d5e-7000-8000-aaaa5c1e09d7"), "{json}");
    assert_eq!(place.records.meant("5c1e09d7").await.unwrap().id, "019a2b3c-4d5e-7000-8000-aaaa5c1e09d7");
    assert_eq!(place.records.meant("last").await.unwrap().id, "019a2b3c-4d5e-7000-8000-bbbb80f3b2a6");
    assert!(Place::new().records.meant("last").await.is_err());
}

#[test]
fn a_failure_is_called_one() {
    let ended = |cause: &str, failed, remains| Condition::Ended { cause: cause.to_owned(), failed, remains }.words();
    assert_eq!(ended("model", true, Remains::Nothing), "failed (model)");
    assert_eq!(ended("model", true, Remains::Kept), "failed (model, kept)");
    assert_eq!(ended("timeout", true, Remains::Nothing), "timeout");
    assert_eq!(ended("done", false, Remains::Kept), "done (kept)");
}

/// CLI-22, CLI-28: what a fleet is at, whoever drives it.
#[tokio::test]
async fn a_fleet_is_listed() {
    let fleet = Fleet::new();
    fleet.waiting_root_and_queued_child().await;
    let place = &fleet.place;
    place.queued("other").await;
    place.records.store.pause_agent("/p".into(), Some("notes".into()), true).await.unwrap();
    let of_project = || PsArgs { project: Some("/p".into()), ..PsArgs::default() };
    insta::assert_snapshot!(shown(place, of_project()).await, @"
    SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS
    other  hello  queued  TIME  TOOK  0
    child-1  child  queued  TIME  TOOK  0
    root-1  root  waiting for any event from github  TIME  TOOK  0  lock://repo/main  reading mail
    paused: notes of /p; `runner unpause AGENT` lets one go on
    ");
    insta::assert_snapshot!(shown(place, PsArgs { tree: true, ..of_project() }).await, @"
    SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS
    other  hello  queued  TIME  TOOK  0
    root-1  root  waiting for any event from github  TIME  TOOK  0  lock://repo/main  reading mail
    child-1  └ child  queued  TIME  TOOK  0
    paused: notes of /p; `runner unpause AGENT` lets one go on
    ");
    let json = shown(place, PsArgs { json: true, ..of_project() }).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let root = &json[2];
    assert_eq!(
        (&root["state"], &root["waiting_for"], &root["paused"], &root["status"], &root["lock"], &json[1]["parent"]),
        (
            &json!("waiting"),
            &json!("any event from github"),
            &json!(true),
            &json!("reading mail"),
            &json!("lock://repo/main"),
            &json!("root-1")
        )
    );
}

/// CLI-22: a session's words at each step of its way.
#[tokio::test]
async fn a_session_is_called_what_it_is() {
    let fleet = Fleet::new();
    let place = &fleet.place;
    let store = &place.records.store;
    let words = async |id: &str| {
        let session = store.session(id).await.unwrap();
        let wait = store.wait_of(session.key).await.unwrap();
        place.records.condition(&session, wait.as_ref()).unwrap().words()
    };
    place.queued("s-1").await;
    assert_eq!(words("s-1").await, "queued");
    let seat = place.claim().await;
    assert_eq!(words("s-1").await, "starting");
    let container = Container { name: "box".into(), id: Some("c0ffee".into()) };
    store.set_container(seat.key, seat.generation, container).await.unwrap();
    assert_eq!(words("s-1").await, "running");
    fleet.waiting_root_and_queued_child().await;
    assert_eq!(words("root-1").await, "waiting for any event from github");
    let root = store.session("root-1").await.unwrap();
    let seat = Seat { key: root.key, generation: root.generation };
    store.set_paused(seat, false).await.unwrap();
    assert_eq!(words("root-1").await, "waiting (not paused) for any event from github");
    let event = crate::store::NewInboxEvent {
        project: "/p".into(),
        source: "github".into(),
        event: "push".into(),
        fields: json!({}),
        raw: json!({}),
    };
    store.accept(event).await.unwrap();
    crate::fleet::events::deliver(&**store, "/p", &mut crate::fleet::WaitIndex::default()).await.unwrap();
    assert_eq!(words("root-1").await, "resuming");
    let seat = place.claim().await;
    assert_eq!((seat.key, words("root-1").await.as_str()), (root.key, "resuming"));
    store.finish_wait(seat, Lines::none()).await.unwrap();
    assert_eq!(words("root-1").await, "running");
    store.request_stop(seat.key, "ann".into(), crate::store::StopHow::Orderly).await.unwrap();
    assert_eq!(words("root-1").await, "stopping");
}

/// CLI-23: without a terminal a list is printed when it differs from the one before, and not for its ages.
#[tokio::test]
async fn what_changes_is_watched() {
    let place = Place::new();
    let journal = place.session("s-1").await;
    let interrupt = CancellationToken::new();
    let args = PsArgs { watch: true, all: true, json: true, project: Some("/p".into()), ..PsArgs::default() };
    let mut out = Vec::new();
    let watching = watch(&place.records, &args, Style::PLAIN, false, &interrupt, &mut out);
    let acting = async {
        // Longer than a look, so that it looks in vain.
        tokio::time::sleep(REDRAW + REDRAW / 2).await;
        journal.end(EndCause::Done, "done".into(), true).await.unwrap();
        tokio::time::sleep(REDRAW).await;
        interrupt.cancel();
    };
    let (code, ()) = tokio::join!(watching, acting);
    assert_eq!(code.unwrap(), 0);
    let states: Vec<serde_json::Value> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()[0]["state"].clone())
        .collect();
    assert_eq!(states, ["running", "ended"]);
}
