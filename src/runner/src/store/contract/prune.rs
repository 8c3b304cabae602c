//! Retention.

use serde_json::json;

use super::{Fleet, Place, done, failed, line, scale, seat_of, told};
use crate::store::{Blob, End, NewEvent, Pruned, Seat, SessionFilter, StoreError};

impl<P: Place> Fleet<P> {
    /// Prunes all of the project that is older than now.
    async fn prune(&self) -> Pruned {
        let mut all = Pruned::default();
        loop {
            let pruned = self.store.prune("/p".into(), self.now()).await.unwrap();
            if pruned == Pruned::default() {
                return all;
            }
            all.sessions += pruned.sessions;
            all.events += pruned.events;
            all.blobs += pruned.blobs;
        }
    }

    async fn ids(&self) -> Vec<String> {
        let sessions = self.store.sessions(SessionFilter::default()).await.unwrap();
        sessions.into_iter().map(|session| session.id).collect()
    }
}

pub(super) async fn old_sessions_go_with_all_they_had(place: impl Place) {
    let fleet = Fleet::new(place);
    let mut keys = Vec::new();
    for n in 0..300 {
        let seat = fleet.active(&n.to_string(), "a").await;
        for _ in 0..7 {
            fleet.store.append_later(seat.key, seat.generation, line("x")).await;
        }
        fleet.end(seat, done()).await;
        keys.push(seat.key);
    }
    let root = fleet.slotted("root", "a").await;
    fleet.call(root, "b", "c1").await;
    let child = seat_of(&fleet.claim(&scale(9)).await.unwrap());
    fleet.end(root, failed("timeout")).await;
    fleet.pass(10);
    let first = fleet.store.prune("/p".into(), fleet.now()).await.unwrap();
    assert!((1..=200).contains(&first.sessions), "a piece at a time: {first:?}");
    assert_eq!(first.sessions + fleet.prune().await.sessions, 300);
    assert_eq!(fleet.ids().await, ["b.c1", "root"], "the tree is not over");
    for key in keys {
        assert_eq!(fleet.store.events(key, 0, 9).await, Ok(vec![]));
    }
    fleet.end(child, done()).await;
    fleet.pass(1);
    assert_eq!(fleet.prune().await.sessions, 2);
    assert_eq!(fleet.ids().await, [""; 0]);
}

pub(super) async fn what_is_young_live_or_not_cleaned_stays(place: impl Place) {
    let fleet = Fleet::new(place);
    fleet.active("live", "a").await;
    let dirty = fleet.active("dirty", "a").await;
    fleet.end(dirty, End { sandbox_removed: false, ..done() }).await;
    fleet.pass(1);
    let young = fleet.active("young", "a").await;
    fleet.end(young, done()).await;
    assert_eq!(fleet.store.prune("/q".into(), fleet.now() + 1).await, Ok(Pruned::default()));
    assert_eq!(fleet.prune().await, Pruned::default());
    fleet.store.sandbox_removed(dirty.key, dirty.generation).await.unwrap();
    assert_eq!(fleet.prune().await.sessions, 1);
    assert_eq!(fleet.ids().await, ["young", "live"]);
}

pub(super) async fn a_payload_stays_as_long_as_somebody_names_it(place: impl Place) {
    let fleet = Fleet::new(place);
    let blob = |text: &str| Blob::new(text.as_bytes().to_vec());
    let (both, first, nobody) = (blob("both"), blob("first"), blob("nobody"));
    fleet.store.put_blob(nobody.clone()).await.unwrap();
    let naming = async |seat: Seat, blobs: &[&Blob]| {
        let event = NewEvent { blobs: blobs.iter().map(|blob| (*blob).clone()).collect(), ..line("{}") };
        fleet.store.append(seat.key, seat.generation, event).await.unwrap();
    };
    let (one, two) = (fleet.active("one", "a").await, fleet.active("two", "a").await);
    naming(one, &[&both, &first, &both]).await;
    naming(two, &[&both]).await;
    fleet.end(one, done()).await;
    fleet.pass(1);
    assert_eq!(fleet.prune().await, Pruned { sessions: 1, events: 0, blobs: 2 });
    assert_eq!(fleet.store.get_blob(first.id()).await, Err(StoreError::UnknownBlob(first.id())));
    assert_eq!(fleet.store.get_blob(nobody.id()).await, Err(StoreError::UnknownBlob(nobody.id())));
    assert_eq!(fleet.store.get_blob(both.id()).await, Ok(b"both".to_vec()));
    fleet.end(two, done()).await;
    fleet.pass(1);
    assert_eq!(fleet.prune().await.blobs, 1);
}

pub(super) async fn old_events_go(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    fleet.suspend(seat, super::webhook(&[], None, &json!({}))).await;
    let old = fleet.store.accept(super::inbox::event("/p")).await.unwrap();
    let wait = fleet.store.wait_of(seat.key).await.unwrap().unwrap();
    fleet.store.wake(old, vec![wait.id]).await.unwrap();
    fleet.pass(1);
    let young = fleet.store.accept(super::inbox::event("/p")).await.unwrap();
    assert_eq!(fleet.prune().await, Pruned { sessions: 0, events: 1, blobs: 0 });
    let kept: Vec<_> = fleet.store.inbox("/p".into(), 9).await.unwrap().iter().map(|event| event.id).collect();
    assert_eq!(kept, [young]);
    // Who was woken by it still goes on with it.
    let seat = seat_of(&fleet.claim(&scale(9)).await.unwrap());
    let waited = fleet.store.finish_wait(seat, told()).await.unwrap();
    assert!(matches!(waited.woken, crate::store::Woken::Trigger(_)));
}
