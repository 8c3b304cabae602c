//! Sessions and their journals.

use std::time::Duration;

use super::{FIRST, Place, bodies, create, done, line, new_session, owner};
use crate::store::{
    Blob, CallsAfter, Container, End, EventRow, Generation, NewSession, Seat, Session, SessionFilter, SessionKey,
    SessionState, Status, StopHow, StopRequest, StoreError,
};

pub(super) async fn sessions_are_found_as_they_were_recorded(place: impl Place) {
    let store = place.open();
    let before = store.now().await.unwrap();
    let key = create(&*store, "a-1").await;
    let found = store.session("a-1").await.unwrap();
    let created_at = found.created_at;
    assert!((before..=store.now().await.unwrap()).contains(&created_at));
    let mut expected = Session {
        key,
        id: "a-1".into(),
        project: "/p".into(),
        agent: "hello".into(),
        owner: owner("o1"),
        generation: FIRST,
        container: Some(Container { name: "runner-1".into(), id: None }),
        keep: false,
        created_at,
        stop_requested_by: None,
        state: SessionState::Active,
        slotted: false,
        parent: None,
        root: key,
        depth: 0,
        status: None,
        tokens: 0,
        overcommit: false,
        end: None,
    };
    assert_eq!(found, expected);

    let container = Container { name: "runner-2".into(), id: Some("c0ffee".into()) };
    store.set_container(key, FIRST, container.clone()).await.unwrap();
    store.end_session(Seat { key, generation: FIRST }, done(), CallsAfter::GoOn, line("{}")).await.unwrap();
    let found = store.session("a-1").await.unwrap();
    let ended_at = found.end.as_ref().unwrap().1;
    assert!(ended_at >= created_at);
    expected.container = Some(container);
    expected.end = Some((done(), ended_at));
    expected.state = SessionState::Ended;
    assert_eq!(found, expected);
    assert_eq!(
        store.create_session(new_session("a-1"), line("{}")).await,
        Err(StoreError::Exists { id: "a-1".into() })
    );
}

pub(super) async fn a_journal_keeps_its_order(place: impl Place) {
    let store = place.open();
    let (a, b) = (create(&*store, "a").await, create(&*store, "b").await);
    for n in 2..20_u64 {
        assert_eq!(store.append(a, FIRST, line(&n.to_string())).await, Ok(n));
        assert_eq!(store.append(b, FIRST, line(&n.to_string())).await, Ok(n));
    }
    let rows = store.events(a, 4, 3).await.unwrap();
    let expected: Vec<EventRow> = (5..8)
        .zip(&rows)
        .map(|(seq, row)| EventRow { seq, at: row.at, kind: "status".into(), body: seq.to_string() })
        .collect();
    assert_eq!(rows, expected);
    assert_eq!(store.events(a, 19, 10).await, Ok(vec![]));
    assert_eq!(store.events(a, u64::MAX, 10).await, Ok(vec![]));
}

pub(super) async fn background_lines_keep_their_place(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    let mut expected = vec!["{}".to_owned()];
    for n in 0..2000 {
        let text = n.to_string();
        if n % 7 == 0 {
            store.append(key, FIRST, line(&text)).await.unwrap();
        } else {
            store.append_later(key, FIRST, line(&text)).await;
        }
        expected.push(text);
    }
    // What was asked for in the background a moment ago is read back too.
    assert_eq!(bodies(&*store, key).await, expected);
}

pub(super) async fn a_background_failure_is_told_once_and_leaves_no_hole(place: impl Place) {
    let store = place.open();
    let (key, other) = (create(&*store, "a").await, create(&*store, "b").await);
    store.append_later(key, FIRST, line("1")).await;
    store.append_later(key, Generation(9), line("lost")).await;
    store.append_later(key, FIRST, line("after the hole")).await;
    // Another session's verbs, a reader and somebody who asks for a stop do not take the message away.
    store.append(other, FIRST, line("1")).await.unwrap();
    assert_eq!(bodies(&*store, key).await, ["{}", "1"]);
    store.request_stop(key, "me".into(), StopHow::Orderly).await.unwrap();
    let fenced = StoreError::Fenced { session: "a".into() };
    assert_eq!(store.append(key, FIRST, line("2")).await, Err(fenced.clone()));
    assert_eq!(store.append(key, FIRST, line("2")).await, Ok(3));
    store.append_later(key, Generation(9), line("lost")).await;
    assert_eq!(store.flush(key).await, Err(fenced));
    assert_eq!(store.flush(key).await, Ok(()));
    assert_eq!(bodies(&*store, key).await, ["{}", "1", "2"]);
}

pub(super) async fn a_stale_generation_is_fenced(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    let second = store.take_over(key, FIRST, owner("o2")).await.unwrap();
    assert_eq!(second, Generation(2));
    let fenced = StoreError::Fenced { session: "a".into() };
    let container = Container { name: "x".into(), id: None };
    assert_eq!(store.append(key, FIRST, line("1")).await, Err(fenced.clone()));
    assert_eq!(store.set_container(key, FIRST, container).await, Err(fenced.clone()));
    assert_eq!(
        store.end_session(Seat { key, generation: FIRST }, done(), CallsAfter::GoOn, line("1")).await,
        Err(fenced.clone())
    );
    assert_eq!(store.sandbox_removed(key, FIRST).await, Err(fenced.clone()));
    assert_eq!(store.take_over(key, FIRST, owner("o3")).await, Err(fenced));
    let found = store.session("a").await.unwrap();
    assert_eq!((found.owner, found.generation, found.end), (owner("o2"), second, None));
    assert_eq!(store.append(key, second, line("2")).await, Ok(2));
    assert_eq!(bodies(&*store, key).await, ["{}", "2"]);
}

pub(super) async fn one_of_many_takes_over(place: impl Place) {
    let stores: Vec<_> = (0..4).map(|_| place.open()).collect();
    let key = create(&*stores[0], "a").await;
    for round in 1..20 {
        let tries = (0..16).map(|n| stores[n % 4].take_over(key, Generation(round), owner(&n.to_string())));
        let winners = futures_util::future::join_all(tries).await.into_iter().flatten().count();
        assert_eq!(winners, 1);
    }
}

pub(super) async fn an_ended_session_is_closed(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    let mut end = done();
    end.sandbox_removed = false;
    store.end_session(Seat { key, generation: FIRST }, end.clone(), CallsAfter::GoOn, line("end")).await.unwrap();
    let ended = StoreError::Ended { session: "a".into() };
    assert_eq!(store.append(key, FIRST, line("1")).await, Err(ended.clone()));
    assert_eq!(
        store.end_session(Seat { key, generation: FIRST }, done(), CallsAfter::GoOn, line("1")).await,
        Err(ended.clone())
    );
    assert_eq!(store.take_over(key, FIRST, owner("o2")).await, Err(ended));
    assert_eq!(bodies(&*store, key).await, ["{}", "end"]);
    assert_eq!(store.session("a").await.unwrap().end.unwrap().0, end);
    // Only this is still to be said of it.
    store.sandbox_removed(key, FIRST).await.unwrap();
    end.sandbox_removed = true;
    assert_eq!(store.session("a").await.unwrap().end.unwrap().0, end);
}

pub(super) async fn a_stop_is_asked_for_once(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    assert_eq!(store.stop_requested(key).await, Ok(None));
    store.request_stop(key, "ann".into(), StopHow::Orderly).await.unwrap();
    store.request_stop(key, "bob".into(), StopHow::Orderly).await.unwrap();
    assert_eq!(store.stop_requested(key).await, Ok(Some(StopRequest { by: "ann".into(), how: StopHow::Orderly })));
    assert_eq!(store.session("a").await.unwrap().stop_requested_by, Some("ann".into()));
    let ended = create(&*store, "b").await;
    store.end_session(Seat { key: ended, generation: FIRST }, done(), CallsAfter::GoOn, line("{}")).await.unwrap();
    store.request_stop(ended, "ann".into(), StopHow::Orderly).await.unwrap();
    assert_eq!(store.stop_requested(ended).await, Ok(None));
}

pub(super) async fn payloads_are_kept_once(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    let bytes = vec![7; 3 * 1024 * 1024];
    let id = store.put_blob(Blob::new(bytes.clone())).await.unwrap();
    assert_eq!(store.put_blob(Blob::new(bytes.clone())).await, Ok(id));
    assert_eq!(store.get_blob(id).await, Ok(bytes));
    // Those of a line come with it, and not at all when the line is refused.
    let mut with = line("1");
    with.blobs = vec![Blob::new(b"kept".to_vec())];
    let mut without = line("1");
    without.blobs = vec![Blob::new(b"not kept".to_vec())];
    let (kept, not_kept) = (with.blobs[0].id(), without.blobs[0].id());
    store.append_later(key, FIRST, with).await;
    assert_eq!(store.get_blob(kept).await, Ok(b"kept".to_vec()));
    assert!(store.append(key, Generation(4), without).await.is_err());
    assert_eq!(store.get_blob(not_kept).await, Err(StoreError::UnknownBlob(not_kept)));
}

pub(super) async fn filters_select(place: impl Place) {
    let store = place.open();
    let ids = |sessions: Vec<Session>| sessions.into_iter().map(|s| s.id).collect::<Vec<_>>();
    for (id, project, agent) in [("a", "/p", "x"), ("b", "/p", "y"), ("c", "/q", "x"), ("d", "/q", "y")] {
        let session = NewSession { project: project.into(), agent: agent.into(), ..new_session(id) };
        let key = store.create_session(session, line("{}")).await.unwrap();
        if id == "b" || id == "c" {
            let end = End { sandbox_removed: id == "b", ..done() };
            store.end_session(Seat { key, generation: FIRST }, end, CallsAfter::GoOn, line("{}")).await.unwrap();
        }
    }
    let list = async |filter: SessionFilter| ids(store.sessions(filter).await.unwrap());
    assert_eq!(list(SessionFilter::default()).await, ["d", "c", "b", "a"]);
    assert_eq!(list(SessionFilter { limit: Some(2), ..Default::default() }).await, ["d", "c"]);
    assert_eq!(list(SessionFilter { project: Some("/p".into()), ..Default::default() }).await, ["b", "a"]);
    assert_eq!(list(SessionFilter { agent: Some("x".into()), ..Default::default() }).await, ["c", "a"]);
    let with = |status| SessionFilter { status, ..Default::default() };
    assert_eq!(list(with(Status::Live)).await, ["d", "a"]);
    assert_eq!(list(with(Status::Ended)).await, ["c", "b"]);
    assert_eq!(list(with(Status::Unfinished)).await, ["d", "c", "a"]);
}

pub(super) async fn parts_of_ids_find_one_session(place: impl Place) {
    let store = place.open();
    for id in ["0198-aa", "0198-ab", "0198-ab-2", "%"] {
        create(&*store, id).await;
    }
    let id = async |asked: &str| store.session(asked).await.map(|s| s.id);
    assert_eq!(id("0198-aa").await, Ok("0198-aa".into()));
    assert_eq!(id("0198-ab").await, Ok("0198-ab".into()), "an exact id wins over a longer one");
    assert_eq!(id("0198-ab-").await, Ok("0198-ab-2".into()));
    assert_eq!(id("aa").await, Ok("0198-aa".into()), "the end of an id");
    assert_eq!(id("b-2").await, Ok("0198-ab-2".into()));
    assert_eq!(id("98-a").await, Err(StoreError::UnknownSession { id: "98-a".into() }), "the middle is no name");
    assert_eq!(id("").await, Err(StoreError::UnknownSession { id: String::new() }), "nothing is no part of a name");
    assert_eq!(id("0%").await, Err(StoreError::UnknownSession { id: "0%".into() }));
    let ambiguous = id("0198-a").await.unwrap_err();
    assert_eq!(
        ambiguous.to_string(),
        "session \"0198-a\" could be any of 0198-aa, 0198-ab, 0198-ab-2; give more of it"
    );
    create(&*store, "2-aa").await;
    let ambiguous = id("aa").await.unwrap_err().to_string();
    assert!(ambiguous.contains("any of 0198-aa, 2-aa;"), "{ambiguous}");
    create(&*store, "aab").await;
    let ambiguous = id("aa").await.unwrap_err().to_string();
    assert!(ambiguous.contains("any of 0198-aa, 2-aa, aab;"), "a beginning and ends: {ambiguous}");
}

pub(super) async fn unknown_sessions_are_refused(place: impl Place) {
    let store = place.open();
    let key = SessionKey(77);
    let unknown = |answer: Result<(), StoreError>| {
        assert!(matches!(answer, Err(StoreError::UnknownSession { .. })), "{answer:?}");
    };
    unknown(store.append(key, FIRST, line("1")).await.map(drop));
    unknown(store.end_session(Seat { key, generation: FIRST }, done(), CallsAfter::GoOn, line("1")).await);
    unknown(store.request_stop(key, "me".into(), StopHow::Orderly).await);
    unknown(store.stop_requested(key).await.map(drop));
    unknown(store.take_over(key, FIRST, owner("o")).await.map(drop));
    assert_eq!(store.events(key, 0, 9).await, Ok(vec![]));
}

pub(super) async fn changes_are_seen_elsewhere(place: impl Place) {
    let (one, two) = (place.open(), place.open());
    let key = create(&*one, "a").await;
    for store in [&one, &two] {
        let mut changes = store.watch();
        // What the first look brings may be news as well.
        while tokio::time::timeout(Duration::from_millis(300), changes.changed()).await.is_ok() {}
        one.append_later(key, FIRST, line("1")).await;
        tokio::time::timeout(Duration::from_secs(3), changes.changed()).await.expect("a change is seen").unwrap();
    }
}

pub(super) async fn another_store_on_the_same_data_sees_everything(place: impl Place) {
    let (one, two) = (place.open(), place.open());
    let key = create(&*one, "a").await;
    assert_eq!(two.append(key, FIRST, line("1")).await, Ok(2));
    assert_eq!(one.append(key, FIRST, line("2")).await, Ok(3));
    drop(one);
    assert_eq!(bodies(&*two, key).await, ["{}", "1", "2"]);
}

pub(super) async fn a_full_queue_asks_to_wait(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    let body = "x".repeat(1024 * 1024);
    let mut waited = 0;
    for _ in 0..80 {
        let mut room = store.append_later(key, FIRST, line(&body));
        if futures_util::poll!(&mut room).is_pending() {
            waited += 1;
            room.await;
        }
    }
    assert!(waited > 0, "80 MiB went into the queue at once");
    assert_eq!(bodies(&*store, key).await.len(), 81);
}

pub(super) async fn dropping_writes_the_rest(place: impl Place) {
    let store = place.open();
    let key = create(&*store, "a").await;
    for n in 0..100 {
        store.append_later(key, FIRST, line(&n.to_string())).await;
    }
    drop(store);
    assert_eq!(bodies(&*place.open(), key).await.len(), 101);
}
