//! The inbox, and what holds for every verb: one transaction with its lines, and only from the right seat (S-2).

use serde_json::json;

use super::{Fleet, Place, agent, bodies, done, failed, line, owner, request, told, wait};
use crate::store::{
    CallsAfter, Generation, InboxEvent, Lines, NewEvent, NewInboxEvent, Seat, Store, StoreError, StoreFuture,
};

pub(super) fn event(project: &str) -> NewInboxEvent {
    NewInboxEvent {
        project: project.into(),
        source: "github".into(),
        event: "push".into(),
        fields: json!({"source": "github"}),
        raw: json!({"big": "x".repeat(100_000)}),
    }
}

/// S-WAIT-5
pub(super) async fn events_are_kept_in_order(place: impl Place) {
    let mut fleet = Fleet::new(place);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(fleet.store.accept(event("/p")).await.unwrap());
        fleet.store.accept(event("/q")).await.unwrap();
    }
    fleet.store = fleet.place.open();
    let kept = |id: &i64, woke| {
        let NewInboxEvent { source, event, fields, raw, .. } = event("/p");
        InboxEvent { id: *id, at: fleet.now(), source, event, fields, raw, woke }
    };
    let unmatched: Vec<_> = ids.iter().map(|id| kept(id, None)).collect();
    assert_eq!(fleet.store.unmatched("/p".into()).await, Ok(unmatched));
    assert_eq!(fleet.store.wake(ids[1], vec![]).await, Ok(vec![]));
    let unmatched = vec![kept(&ids[0], None), kept(&ids[2], None)];
    assert_eq!(fleet.store.unmatched("/p".into()).await, Ok(unmatched));
    let newest = vec![kept(&ids[2], None), kept(&ids[1], Some(vec![]))];
    assert_eq!(fleet.store.inbox("/p".into(), 2).await, Ok(newest));
    assert_eq!(fleet.store.inbox_position("/p".into()).await, Ok(ids[2]));
    assert_eq!(fleet.store.wake(999, vec![1]).await, Ok(vec![]));
}

/// All verbs of a driver, by name.
fn verbs(store: &dyn Store, seat: Seat) -> Vec<(&'static str, StoreFuture<'_, ()>)> {
    fn of<'a, T: 'a>(verb: StoreFuture<'a, T>) -> StoreFuture<'a, ()> {
        Box::pin(async move { verb.await.map(drop) })
    }
    let lines = || told();
    vec![
        ("acquire_lock", of(store.acquire_lock(seat, "x://1".into(), 1000, lines_of()))),
        ("release_lock", of(store.release_lock(seat, "x://1".into(), lines_of()))),
        ("call_agent", of(store.call_agent(seat, request("b", "c1", json!({})), lines_of()))),
        ("check_call", of(store.check_call(seat, "c1".into(), lines_of()))),
        ("return_value", of(store.return_value(seat, json!(1), lines_of()))),
        ("set_status", of(store.set_status(seat, "busy".into(), lines()))),
        ("wait", of(store.wait(seat, wait(agent(None, &json!({}))), lines_of()))),
    ]
}

fn lines_of<A: std::fmt::Debug + 'static>() -> Lines<A> {
    told()
}

/// S-2: also lines with payloads and tokens.
pub(super) async fn every_verb_tells_in_its_journal(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    let mut expected = bodies(&*fleet.store, seat.key).await.len();
    for (name, verb) in verbs(&*fleet.store, seat) {
        verb.await.unwrap_or_else(|error| panic!("{name}: {error}"));
        expected += 1;
    }
    assert_eq!(bodies(&*fleet.store, seat.key).await.len(), expected);
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    let seat = super::seat_of(&fleet.claim(&super::scale(9)).await.unwrap());
    let payload = crate::store::Blob::new(b"payload".to_vec());
    let id = payload.id();
    let two =
        Lines::new(move |_| vec![NewEvent { blobs: vec![payload.clone()], tokens: 5, ..line("one") }, line("two")]);
    fleet.store.finish_wait(seat, two).await.unwrap();
    assert_eq!(fleet.store.get_blob(id).await, Ok(b"payload".to_vec()));
    assert_eq!(fleet.session("a").await.tokens, 5);
    let lines = bodies(&*fleet.store, seat.key).await;
    assert_eq!(lines.len(), expected + 3);
    assert_eq!(lines[lines.len() - 2..], ["one", "two"]);
}

/// S-1, S-2, bug 41: neither a driver that was replaced nor one whose session is over.
pub(super) async fn a_stale_seat_changes_nothing(place: impl Place) {
    let fleet = Fleet::new(place);
    let stale = fleet.active("a", "a").await;
    let generation = fleet.store.take_over(stale.key, stale.generation, owner("o2")).await.unwrap();
    let fresh = Seat { key: stale.key, generation };
    for ended in [false, true] {
        let seats = if ended { vec![stale, fresh] } else { vec![stale] };
        if ended {
            fleet.end(fresh, done()).await;
        }
        for seat in seats {
            let before = bodies(&*fleet.store, stale.key).await;
            let refused = if seat.generation == generation {
                StoreError::Ended { session: "a".into() }
            } else {
                StoreError::Fenced { session: "a".into() }
            };
            for (name, verb) in verbs(&*fleet.store, seat) {
                assert_eq!(verb.await, Err(refused.clone()), "{name}");
            }
            assert_eq!(fleet.store.finish_wait(seat, told()).await, Err(refused.clone()));
            let end = fleet.store.end_session(seat, failed("x"), CallsAfter::GoOn, line("x")).await;
            assert_eq!(end, Err(refused));
            assert_eq!(fleet.store.set_paused(seat, true).await, Ok(()), "whoever has gone on is no error");
            assert_eq!(bodies(&*fleet.store, stale.key).await, before);
        }
    }
    assert_eq!(fleet.store.locks(None).await, Ok(vec![]));
    assert_eq!(fleet.store.calls(None).await, Ok(vec![]));
    assert_eq!(fleet.session("a").await.status, None);
    let nobody = Seat { key: crate::store::SessionKey(99), generation: Generation::FIRST };
    for (name, verb) in verbs(&*fleet.store, nobody) {
        assert!(matches!(verb.await, Err(StoreError::UnknownSession { .. })), "{name}");
    }
    assert!(matches!(fleet.store.set_paused(nobody, true).await, Err(StoreError::UnknownSession { .. })));
}

/// Verbs that come at once share a transaction; one that is refused takes no other with it and leaves nothing.
pub(super) async fn a_rule_that_refuses_leaves_its_company_alone(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.active("a", "a").await;
    let stale = Seat { generation: Generation(9), ..seat };
    let mut child = request("b", "c2", json!({}));
    child.child.id = "a".into();
    let (granted, fenced, taken, status) = tokio::join!(
        fleet.store.acquire_lock(seat, "x://1".into(), 1000, told()),
        fleet.store.set_status(stale, "stale".into(), told()),
        fleet.store.call_agent(seat, child, told()),
        fleet.store.set_status(seat, "busy".into(), told()),
    );
    assert!(granted.is_ok() && status.is_ok());
    assert_eq!(fenced, Err(StoreError::Fenced { session: "a".into() }));
    assert_eq!(taken, Err(StoreError::Exists { id: "a".into() }));
    assert_eq!(fleet.session("a").await.status.as_deref(), Some("busy"));
    assert_eq!(bodies(&*fleet.store, seat.key).await.len(), 3);
}
