//! What an older runner wrote goes on working.

use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde_json::json;

use super::MIGRATIONS;
use crate::store::contract::{line, new_session, owner};
use crate::store::{
    Blob, CallsAfter, Generation, Place, Pruned, Seat, SessionFilter, SessionKey, SessionState, SqliteStore, Status,
    Store, StoreError, WaitOn, WaitRequest,
};
use crate::trigger::Filter;

/// A store of schema 1 with a session that lives and one that has ended, and a payload.
fn first_schema(folder: &std::path::Path, payload: &Blob) {
    let db = Connection::open(folder.join("store.db")).unwrap();
    db.execute_batch(MIGRATIONS[0]).unwrap();
    db.execute_batch("PRAGMA application_id = 0x72756e6e; PRAGMA user_version = 1").unwrap();
    for (id, ended) in [("live", None), ("over", Some(5))] {
        db.execute(
            "INSERT INTO sessions (id, project, agent, owner, host, generation, keep, created_at, ended_at, end_cause,
             exit_code, end_message, sandbox_removed) VALUES (?1, '/p', 'a', 'o', 'here', 1, 0, 1, ?2, 'done', 0, 'ok', 1)",
            params![id, ended],
        )
        .unwrap();
    }
    db.execute("INSERT INTO events VALUES ((1 << 32) | 1, 1, 'started', '{}')", []).unwrap();
    db.execute(
        "INSERT INTO blobs (sha256, at, bytes) VALUES (?1, 1, ?2)",
        params![payload.id().bytes(), payload.bytes()],
    )
    .unwrap();
}

#[tokio::test]
async fn sessions_of_the_first_schema_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let payload = Blob::new(b"payload".to_vec());
    first_schema(folder.path(), &payload);
    let store = SqliteStore::open(folder.path()).unwrap();
    let over = store.session("over").await.unwrap();
    assert_eq!((over.state, over.root, over.slotted), (SessionState::Ended, over.key, false));
    let live = store.session("live").await.unwrap();
    assert_eq!((live.state, live.root, live.depth), (SessionState::Active, live.key, 0));
    assert_eq!(store.append(live.key, live.generation, line("{}")).await, Ok(2));
    let pruned = store.prune("/p".into(), 10).await.unwrap();
    assert_eq!(pruned, Pruned { sessions: 1, events: 0, blobs: 0 });
    // Which of them names the payload is not known, so it stays with the last one.
    assert!(store.get_blob(payload.id()).await.is_ok());
    let seat = Seat { key: live.key, generation: live.generation };
    let end = crate::store::contract::done();
    store.end_session(seat, end, CallsAfter::GoOn, line("{}")).await.unwrap();
    let later = store.now().await.unwrap() + 1;
    assert_eq!(store.prune("/p".into(), later).await, Ok(Pruned { sessions: 1, events: 0, blobs: 1 }));
    assert_eq!(store.get_blob(payload.id()).await, Err(StoreError::UnknownBlob(payload.id())));
}

#[tokio::test]
async fn an_empty_store_of_the_first_schema_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let db = Connection::open(folder.path().join("store.db")).unwrap();
    db.execute_batch(MIGRATIONS[0]).unwrap();
    db.execute_batch("PRAGMA application_id = 0x72756e6e; PRAGMA user_version = 1").unwrap();
    drop(db);
    let store = SqliteStore::open(folder.path()).unwrap();
    assert_eq!(store.create_session(new_session("a"), line("{}")).await, Ok(SessionKey(1)));
}

/// What a start looks at is found without a look at all that has ended.
#[tokio::test]
async fn a_start_beside_many_ended_sessions_is_quick() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path()).unwrap();
    let mut creations = Vec::new();
    for n in 0..1100 {
        let place = Place { queue: None, max_tokens: None };
        let session = crate::store::NewSession { place, ..new_session(&format!("s{n}")) };
        creations.push(store.create_session(session, line("{}")));
    }
    let keys = futures_util::future::try_join_all(creations).await.unwrap();
    let seat = |key: &SessionKey| Seat { key: *key, generation: Generation::FIRST };
    let end = crate::store::contract::done;
    let ends = keys[..1000].iter().map(|key| store.end_session(seat(key), end(), CallsAfter::GoOn, line("{}")));
    futures_util::future::try_join_all(ends).await.unwrap();
    let on = || WaitOn::Webhook { sources: vec![], event: None, filter: Filter::parse(&json!({"n": 1})).unwrap() };
    let request =
        || WaitRequest { call: "s/1/0".into(), on: on(), timeout: 60_000, since: 0, most: 1000, words: String::new() };
    let waits = keys[1000..].iter().map(|key| store.wait(seat(key), request(), crate::store::Lines::none()));
    futures_util::future::try_join_all(waits).await.unwrap();
    drop(store);

    let begin = Instant::now();
    let store = SqliteStore::open(folder.path()).unwrap();
    let filter = SessionFilter { project: Some("/p".into()), status: Status::Unfinished, ..SessionFilter::default() };
    assert_eq!(store.sessions(filter).await.unwrap().len(), 100);
    assert_eq!(store.waits(Some("/p".into()), 0).await.unwrap().len(), 100);
    assert_eq!(store.unmatched("/p".into()).await, Ok(vec![]));
    let slots = crate::store::Slots { others: 9, ..Default::default() };
    let lines = crate::store::Lines::none();
    let claim = store.claim("/p".into(), slots, crate::store::Scope::Project, owner("o"), "box".into(), lines);
    assert_eq!(claim.await, Ok(None));
    // A hundred times what it takes on a quiet machine.
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}
