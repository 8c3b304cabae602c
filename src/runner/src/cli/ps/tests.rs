use std::sync::Arc;

use super::super::records::Remains;
use super::*;
use crate::session::journal::{EndCause, Event, Journal, Started};
use crate::session::owner::Owner;
use crate::state::State;
use crate::store::{Generation, NewSession, OwnerId, SessionKey};

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

/// Times differ from run to run.
pub(crate) fn without_times(text: &str) -> String {
    let text = regex::Regex::new(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z)?").unwrap().replace_all(text, "TIME");
    let text = regex::Regex::new(r"\b\d\d:\d\d:\d\d\.\d{3}").unwrap().replace_all(&text, "TIME");
    regex::Regex::new(r"\b\d+(\.\d)? m?s\b").unwrap().replace_all(&text, "TOOK").into_owned()
}

async fn shown(place: &Place, args: PsArgs) -> String {
    let mut out = Vec::new();
    assert_eq!(list(&place.records, args, Style::PLAIN, &mut out).await.unwrap(), 0);
    without_times(&String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn every_condition_is_listed_as_what_it_is() {
    let place = Place::new();
    place.session("s-1").await;
    place.session("s-2").await.end(EndCause::Timeout, "it took too long".into(), true).await.unwrap();
    place.lost_session("s-3").await;
    let stopping = place.session("s-4").await;
    place.records.store.request_stop(stopping.key(), "ann".into(), crate::store::StopHow::Orderly).await.unwrap();
    insta::assert_snapshot!(shown(&place, PsArgs::default()).await, @r"
    SESSION  AGENT  STATE        STARTED              TOOK
    s-4      hello  stopping     TIME  TOOK
    s-3      hello  runner_died  TIME  TOOK
    s-1      hello  running      TIME  TOOK
    ");
    insta::assert_snapshot!(shown(&place, PsArgs { all: true, limit: Some(3), ..PsArgs::default() }).await, @r"
    SESSION  AGENT  STATE        STARTED              TOOK
    s-4      hello  stopping     TIME  TOOK
    s-3      hello  runner_died  TIME  TOOK
    s-2      hello  timeout      TIME  TOOK
    ");
    let json = shown(&place, PsArgs { all: true, json: true, ..PsArgs::default() }).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 4);
    assert_eq!(
        json[2],
        json!({
            "session": "s-2", "agent": "hello", "project": "/p", "state": "ended", "started_at": "TIME",
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
    insta::assert_snapshot!(shown(&place, PsArgs::default()).await, @r"
    SESSION   AGENT  STATE    STARTED              TOOK
    80f3b2a6  hello  running  TIME  TOOK
    5c1e09d7  hello  running  TIME  TOOK
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
