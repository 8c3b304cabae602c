use std::cell::Cell;

use futures_util::future::BoxFuture;

use super::super::ps::tests::{Fleet, Place};
use super::*;
use crate::session::journal::{EndCause, Journal};
use crate::session::recovery::{EngineFailure, FoundContainer};

/// An engine without containers.
struct Empty;

impl Containers for Empty {
    fn with_our_token(&self) -> BoxFuture<'_, Result<Vec<FoundContainer>, EngineFailure>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn remove(&self, _id: &str) -> BoxFuture<'_, Result<(), EngineFailure>> {
        Box::pin(async { Ok(()) })
    }
}

fn args(sessions: &[&str], wait: u64) -> Ask {
    asked(sessions, wait, StopHow::Orderly)
}

fn asked(sessions: &[&str], wait: u64, how: StopHow) -> Ask {
    Ask { sessions: sessions.iter().map(|&id| id.to_owned()).collect(), wait, how }
}

/// Runs it and returns its exit code, what it said, and how often it asked for the engine.
async fn stopped(place: &Place, args: Ask) -> (Result<u8, RecordsError>, String, u32) {
    let (mut out, asked) = (Vec::new(), Cell::new(0));
    let engine = async || {
        asked.set(asked.get() + 1);
        Ok(Empty)
    };
    let code = stop(&place.records, &args, engine, &mut out).await;
    (code, String::from_utf8(out).unwrap(), asked.get())
}

/// A driver that ends its session when it is asked to.
async fn drive(journal: Journal) {
    let mut changes = journal.store().watch();
    while journal.store().stop_requested(journal.key()).await.unwrap().is_none() {
        changes.changed().await.unwrap();
    }
    journal.end(EndCause::Stopped, "stopped".into(), true).await.unwrap();
}

/// bug 31: many are stopped beside each other.
#[tokio::test]
async fn the_owners_are_asked_and_waited_for() {
    let place = Place::new();
    let mut drivers = Vec::new();
    for n in 0..20 {
        drivers.push(drive(place.session(&format!("s-{n:02}")).await));
    }
    let ids: Vec<String> = (0..20).map(|n| format!("s-{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (_, (code, said, asked)) = tokio::time::timeout(Duration::from_secs(9), async {
        tokio::join!(join_all(drivers), stopped(&place, args(&ids, 9)))
    })
    .await
    .unwrap();
    assert_eq!((code.unwrap(), asked), (0, 0));
    assert_eq!(said.lines().filter(|line| line.ends_with("  stopped")).count(), 20, "{said}");
    let session = place.records.store.session("s-07").await.unwrap();
    assert_eq!(session.stop_requested_by, Some(who()));
}

#[tokio::test]
async fn a_dead_runners_session_is_ended_here() {
    let place = Place::new();
    place.lost_session("s-1").await;
    place.lost_session("s-2").await;
    let folder = place.records.state.session_folder("s-1");
    std::fs::create_dir(&folder).unwrap();
    let (code, said, asked) = stopped(&place, args(&["s-1", "s-2", "s-1"], 5)).await;
    assert_eq!((code.unwrap(), said.as_str(), asked), (0, "s-1  stopped\ns-2  stopped\n", 1));
    assert!(!folder.exists());
    let (code, said, asked) = stopped(&place, args(&["s-1"], 5)).await;
    assert_eq!((code.unwrap(), said.as_str(), asked), (0, "s-1  had ended already (stopped)\n", 0));
}

#[tokio::test]
async fn a_runner_that_does_not_answer_is_told_of() {
    let place = Place::new();
    place.session("s-1").await;
    let (code, said, _) = stopped(&place, args(&["s-1"], 0)).await;
    assert_eq!((code.unwrap(), said.as_str()), (1, "s-1  has not ended within 0 s; it was asked to stop\n"));
}

#[tokio::test]
async fn a_mistyped_name_stops_nothing() {
    let place = Place::new();
    place.session("s-1").await;
    let (code, said, _) = stopped(&place, args(&["s-1", "x"], 0)).await;
    assert_eq!((code.unwrap_err().exit_code(), said.as_str()), (2, ""));
    assert_eq!(place.records.store.session("s-1").await.unwrap().stop_requested_by, None);
}

/// CLI-26: no runner is needed, and no engine where there was no container.
#[tokio::test]
async fn what_nobody_drives_is_ended_here() {
    for (how, cause) in [(StopHow::Orderly, "stopped"), (StopHow::Kill, "killed")] {
        let fleet = Fleet::new();
        let (root, child) = fleet.waiting_root_and_queued_child().await;
        fleet.place.queued("alone").await;
        let (code, said, engines) = stopped(&fleet.place, asked(&["alone"], 5, how)).await;
        assert_eq!((code.unwrap(), said, engines), (0, format!("alone  {cause}\n"), 0));
        let (code, said, engines) = stopped(&fleet.place, asked(&[&root], 5, how)).await;
        assert_eq!((code.unwrap(), engines), (0, 1), "{said}");
        assert!(said.starts_with(&format!("{root}  {cause}\n")), "{said}");
        let store = &fleet.place.records.store;
        let end = store.session(&child).await.unwrap().end.expect("it ended with its caller").0;
        assert_eq!(end.exit_code, 125);
        assert_eq!(store.locks(None).await.unwrap(), []);
        assert_eq!(store.waits(None, 0).await.unwrap(), []);
        assert_eq!(store.calls(None).await.unwrap(), []);
        let left = store.sessions(SessionFilter { status: Status::Unfinished, ..SessionFilter::default() });
        assert_eq!(left.await.unwrap(), []);
    }
}
