//! `kill -9` in the middle of a fleet's verbs: what was acknowledged is there, and what was not is there as a whole or
//! not at all.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::contract::{done, line, new_session, owner};
use super::faults::{integrity, open, spawn};
use super::{
    CallRequest, CallStatus, CallsAfter, Claimed, Lines, LockAnswer, NewInboxEvent, NewSession, Place, Scope, Seat,
    SessionFilter, SessionState, Slots, Store, WaitAnswer, WaitOn, WaitRequest,
};
use crate::trigger::Filter;

fn queued(id: &str, agent: &str) -> NewSession {
    let place = Place { queue: Some(100), max_tokens: None };
    NewSession { agent: agent.into(), container: None, place, ..new_session(id) }
}

async fn claim(store: &dyn Store) -> Option<Claimed> {
    let slots = Slots { others: 9, ..Slots::default() };
    let lines = Lines::new(|_| vec![line("claimed")]);
    store.claim("/p".into(), slots, Scope::Project, owner("o"), "box".into(), lines).await.unwrap()
}

fn say(what: &str) {
    println!("acknowledged {what}");
    std::io::stdout().flush().unwrap();
}

/// The other process: one caller and one called after the other, with a lock, a wait that an event ends, and a call that
/// is answered. Says each thing once the store has acknowledged it.
pub(super) async fn work_until_killed(folder: &Path, id: &str) {
    let store = open(folder);
    for round in 0.. {
        let (root, call_id) = (format!("{id}-{round}"), format!("{id}-{round}-call"));
        store.create_session(queued(&root, "a"), line("{}")).await.unwrap();
        say(&format!("session {root}"));
        let claimed = claim(&*store).await.unwrap();
        let seat = Seat { key: claimed.session.key, generation: claimed.session.generation };
        say(&format!("claim {root}"));
        let locked = Lines::new(|_| vec![line("locked")]);
        let lock = store.acquire_lock(seat, format!("x://{id}"), 1_000_000, locked).await.unwrap();
        let LockAnswer::Granted { fence, .. } = lock else { panic!("{lock:?}") };
        say(&format!("fence {fence}"));
        let call = CallRequest {
            call_id: call_id.clone(),
            target_agent: "b".into(),
            context: json!({}),
            child: queued(&format!("{root}-child"), "b"),
            started: line("started"),
            max_depth: 3,
        };
        store.call_agent(seat, call, Lines::new(|_| vec![line("called")])).await.unwrap();
        say(&format!("call {call_id}"));
        let wait = WaitRequest {
            call: "s/1/0".into(),
            on: WaitOn::Webhook { sources: vec![], event: None, filter: Filter::default() },
            timeout: 1_000_000,
            since: store.inbox_position("/p".into()).await.unwrap(),
            most: 50,
            words: String::new(),
        };
        let suspended = store.wait(seat, wait, Lines::new(|_| vec![line("suspended")])).await.unwrap();
        assert!(matches!(suspended, WaitAnswer::Suspended { .. }));
        say(&format!("wait {root}"));
        let event = NewInboxEvent {
            project: "/p".into(),
            source: "s".into(),
            event: "e".into(),
            fields: json!({}),
            raw: json!({}),
        };
        let event = store.accept(event).await.unwrap();
        say(&format!("event {event}"));
        let waiting = store.wait_of(seat.key).await.unwrap().unwrap();
        store.wake(event, vec![waiting.id]).await.unwrap();
        say(&format!("wake {root}"));
        let claimed = claim(&*store).await.unwrap();
        assert_eq!(claimed.session.id, root, "woken sessions go first");
        let seat = Seat { key: claimed.session.key, generation: claimed.session.generation };
        store.finish_wait(seat, Lines::new(|_| vec![line("resumed")])).await.unwrap();
        let child = claim(&*store).await.unwrap();
        let child = Seat { key: child.session.key, generation: child.session.generation };
        store.return_value(child, json!(round), Lines::new(|_| vec![line("returned")])).await.unwrap();
        store.end_session(child, done(), CallsAfter::GoOn, line("ended")).await.unwrap();
        say(&format!("answer {call_id}"));
        store.end_session(seat, done(), CallsAfter::GoOn, line("ended")).await.unwrap();
        say(&format!("end {root}"));
    }
}

/// S-2, S-LOCK-2, S-UNLOCK-2, S-WAIT-6, bugs 29, 41, 42 and 45, as far as they are the store's.
#[tokio::test]
async fn a_fleet_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut fences = 0;
    for round in 0..16_u64 {
        let id = format!("k{round}");
        let mut child = spawn(&format!("fleet:{id}"), folder.path());
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // At another verb each time, and at another moment within it.
        let mut said: Vec<_> = output
            .by_ref()
            .filter(|line| line.contains("acknowledged "))
            .take(7 + 5 * usize::try_from(round).unwrap())
            .collect();
        std::thread::sleep(Duration::from_micros(round * 131));
        child.kill().unwrap();
        child.wait().unwrap();
        said.extend(output.filter(|line| line.contains("acknowledged ")));
        let acknowledged: Vec<(String, String)> = said
            .iter()
            .filter_map(|line| {
                let mut words = line.rsplit("acknowledged ").next()?.split(' ');
                Some((words.next()?.to_owned(), words.next()?.to_owned()))
            })
            .collect();
        let store = open(folder.path());
        check(&*store, &acknowledged).await;
        fences = fences_grow(&*store, &acknowledged, fences).await;
        recover(&*store).await;
        assert_eq!(integrity(folder.path()), "ok");
    }
}

/// Everything that was acknowledged is there.
async fn check(store: &dyn Store, acknowledged: &[(String, String)]) {
    for (what, which) in acknowledged {
        let state = async || store.session(which).await.unwrap().state;
        // A line after each verb in the same transaction: what it told of is there when the line is.
        let lines = async || {
            let key = store.session(which).await.unwrap().key;
            let rows = store.events(key, 0, usize::MAX).await.unwrap();
            assert!(rows.iter().zip(1..).all(|(row, seq)| row.seq == seq), "there is a hole");
            rows.into_iter().map(|row| row.body).collect::<Vec<_>>()
        };
        match what.as_str() {
            "session" => assert_eq!(lines().await[0], "{}"),
            "claim" => assert_ne!(state().await, SessionState::Queued),
            "wait" => assert!(lines().await.contains(&"suspended".to_owned())),
            "wake" => assert_ne!(state().await, SessionState::Waiting),
            "end" => assert_eq!(state().await, SessionState::Ended),
            "call" => {
                let child = format!("{}-child", which.trim_end_matches("-call"));
                let parent = store.session(&child).await.unwrap().parent;
                assert_eq!(parent.as_deref(), Some(which.trim_end_matches("-call")));
            }
            "answer" => {
                let open = store.calls(None).await.unwrap();
                assert!(open.iter().all(|call| call.call_id != *which && !matches!(call.status, CallStatus::Over(_))));
            }
            "event" => {
                let events = store.inbox("/p".into(), usize::MAX).await.unwrap();
                assert!(events.iter().any(|event| event.id.to_string() == *which));
            }
            // The others are looked at together.
            _ => {}
        }
    }
    // A state and the line that tells of it are one transaction.
    for session in store.sessions(SessionFilter::default()).await.unwrap() {
        let rows = store.events(session.key, 0, usize::MAX).await.unwrap();
        let has = |body: &str| rows.iter().any(|row| row.body == body);
        assert_eq!(session.state == SessionState::Ended, has("ended") || has("lost"), "{session:?}");
        assert_eq!(session.state == SessionState::Queued, !has("claimed") && !has("lost"), "{session:?}");
        let suspended = matches!(session.state, SessionState::Waiting | SessionState::Woken);
        assert!(!suspended || (has("suspended") && !has("resumed")), "{session:?}");
    }
}

/// S-LOCK-2: over all kills, fences only grow, and those who hold locks live.
async fn fences_grow(store: &dyn Store, acknowledged: &[(String, String)], mut last: i64) -> i64 {
    for (_, fence) in acknowledged.iter().filter(|(what, _)| what == "fence") {
        let fence = fence.parse().unwrap();
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    let live: BTreeSet<_> = live(store).await.into_iter().map(|seat| seat.key).collect();
    for lock in store.locks(None).await.unwrap() {
        assert!(live.contains(&lock.key), "{lock:?} of a session that has ended");
        last = last.max(lock.fence);
    }
    last
}

async fn live(store: &dyn Store) -> Vec<Seat> {
    let sessions = store.sessions(SessionFilter::default()).await.unwrap();
    let live = sessions.into_iter().filter(|session| session.state != SessionState::Ended);
    live.map(|session| Seat { key: session.key, generation: session.generation }).collect()
}

/// The next runner ends what the dead one left; nothing of it stays.
async fn recover(store: &dyn Store) {
    for seat in live(store).await {
        let generation = store.take_over(seat.key, seat.generation, owner("next")).await.unwrap();
        let seat = Seat { generation, ..seat };
        store.end_session(seat, done(), CallsAfter::GoOn, line("lost")).await.unwrap();
    }
    assert_eq!(store.locks(None).await, Ok(vec![]));
    assert_eq!(store.calls(None).await, Ok(vec![]));
    assert_eq!(store.waits(None, 0).await, Ok(vec![]));
}
