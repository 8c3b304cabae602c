//! Locks: S-LOCK and S-UNLOCK.

use serde_json::json;

use super::{Fleet, Place, accepted, agent, done, failed, told, webhook};
use crate::store::{CallsAfter, Lock, LockAnswer, ReleaseAnswer, Seat};

impl<P: Place> Fleet<P> {
    async fn acquire(&self, seat: Seat, resource: &str, ttl: i64) -> LockAnswer {
        self.store.acquire_lock(seat, resource.into(), ttl, told()).await.unwrap()
    }

    async fn release(&self, seat: Seat, resource: &str) -> ReleaseAnswer {
        self.store.release_lock(seat, resource.into(), told()).await.unwrap()
    }

    /// The fence of a lock that has to be granted.
    async fn fence(&self, seat: Seat, resource: &str, ttl: i64) -> i64 {
        match self.acquire(seat, resource, ttl).await {
            LockAnswer::Granted { fence, renewed: false, .. } => fence,
            other => panic!("no new grant: {other:?}"),
        }
    }
}

/// S-LOCK-2, S-LOCK-4, S-UNLOCK-1
pub(super) async fn a_lock_is_granted_and_released(place: impl Place) {
    let fleet = Fleet::new(place);
    let (one, two) = (fleet.active("one", "a").await, fleet.active("two", "b").await);
    let now = fleet.now();
    let granted = fleet.acquire(one, "x://1", 1000).await;
    assert!(
        matches!(granted, LockAnswer::Granted { fence: 1.., expires_at, renewed: false } if expires_at == now + 1000)
    );
    let LockAnswer::Granted { fence, .. } = granted else { unreachable!() };
    let lock = Lock {
        resource: "x://1".into(),
        key: one.key,
        session: "one".into(),
        agent: "a".into(),
        project: "/p".into(),
        fence,
        held_since: now,
        expires_at: now + 1000,
    };
    assert_eq!(fleet.acquire(two, "x://1", 1000).await, LockAnswer::Conflict(lock.clone()));
    assert_eq!(fleet.release(two, "x://1").await, ReleaseAnswer::HeldByOther(lock));
    assert_eq!(fleet.release(two, "x://2").await, ReleaseAnswer::NotHeld);
    assert_eq!(fleet.release(one, "x://1").await, ReleaseAnswer::Released);
    assert_eq!(fleet.release(one, "x://1").await, ReleaseAnswer::NotHeld);
    assert!(fleet.fence(two, "x://1", 1000).await > fence);
}

/// S-LOCK-2: also when all locks are gone, and over another opening of the store.
pub(super) async fn fences_only_grow(place: impl Place) {
    let mut fleet = Fleet::new(place);
    let mut last = 0;
    for round in 0..6 {
        let seat = fleet.active(&round.to_string(), "a").await;
        let fence = fleet.fence(seat, "x://1", 1000).await;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        if round % 2 == 0 {
            fleet.end(seat, done()).await;
        } else {
            fleet.release(seat, "x://1").await;
        }
        fleet.store = fleet.place.open();
    }
}

/// S-LOCK-3
pub(super) async fn a_holder_renews_and_after_expiry_is_granted_anew(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.active("one", "a").await;
    let fence = fleet.fence(seat, "x://1", 1000).await;
    fleet.pass(999);
    let expires_at = fleet.now() + 1000;
    assert_eq!(fleet.acquire(seat, "x://1", 1000).await, LockAnswer::Granted { fence, expires_at, renewed: true });
    fleet.pass(1000);
    assert!(fleet.fence(seat, "x://1", 1000).await > fence, "nobody took it, and still it is a new grant");
}

/// S-LOCK-3, S-LOCK-4
pub(super) async fn a_session_holds_one_lock(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.active("one", "a").await;
    fleet.fence(seat, "x://1", 1000).await;
    assert_eq!(fleet.acquire(seat, "x://2", 1000).await, LockAnswer::AlreadyHolding { resource: "x://1".into() });
    fleet.release(seat, "x://1").await;
    fleet.fence(seat, "x://2", 1000).await;
    fleet.pass(1000);
    fleet.fence(seat, "x://1", 1000).await;
}

/// S-LOCK-6, bug 40
pub(super) async fn an_expired_holder_has_nothing(place: impl Place) {
    let fleet = Fleet::new(place);
    let (one, two) = (fleet.active("one", "a").await, fleet.active("two", "b").await);
    let fence = fleet.fence(one, "x://1", 1000).await;
    fleet.pass(1000);
    assert_eq!(fleet.release(one, "x://1").await, ReleaseAnswer::Expired);
    assert!(fleet.fence(two, "x://1", 1000).await > fence);
    assert!(matches!(fleet.acquire(one, "x://1", 1000).await, LockAnswer::Conflict(lock) if lock.key == two.key));
    assert!(matches!(fleet.release(one, "x://1").await, ReleaseAnswer::HeldByOther(lock) if lock.key == two.key));
    assert_eq!(fleet.release(two, "x://1").await, ReleaseAnswer::Released);
}

/// S-LOCK-6
pub(super) async fn expiry_is_exact_and_a_clock_set_back_gives_nothing_twice(place: impl Place) {
    let fleet = Fleet::new(place);
    let (one, two) = (fleet.active("one", "a").await, fleet.active("two", "b").await);
    fleet.fence(one, "x://1", 1000).await;
    fleet.pass(999);
    assert!(matches!(fleet.acquire(two, "x://1", 1000).await, LockAnswer::Conflict(_)));
    fleet.pass(1);
    fleet.fence(two, "x://1", 1000).await;
    fleet.pass(1);
    fleet.fence(one, "x://2", 1000).await;
    fleet.pass(-900);
    let held = fleet.store.locks(None).await.unwrap();
    let held: Vec<_> = held.iter().map(|lock| (lock.resource.as_str(), lock.key)).collect();
    assert_eq!(held, [("x://1", two.key), ("x://2", one.key)]);
}

/// S-UNLOCK-2
pub(super) async fn the_end_frees_locks_in_its_transaction(place: impl Place) {
    let fleet = Fleet::new(place);
    let two = fleet.active("two", "b").await;
    for (round, end) in [done(), failed("timeout"), failed("stopped"), failed("sandbox_lost")].into_iter().enumerate() {
        let one = fleet.active(&round.to_string(), "a").await;
        fleet.fence(one, "x://1", 1000).await;
        fleet.end(one, end).await;
        fleet.fence(two, "x://1", 1000).await;
        fleet.release(two, "x://1").await;
    }
    assert_eq!(fleet.store.locks(None).await, Ok(vec![]));
}

pub(super) async fn locks_are_listed_while_they_last(place: impl Place) {
    let fleet = Fleet::new(place);
    let (one, two) = (fleet.active("one", "a").await, fleet.active("two", "b").await);
    fleet.fence(one, "x://1", 1000).await;
    fleet.fence(two, "x://2", 2000).await;
    let list = async |project: Option<&str>| {
        let locks = fleet.store.locks(project.map(str::to_owned)).await.unwrap();
        locks.into_iter().map(|lock| lock.resource).collect::<Vec<_>>()
    };
    assert_eq!(list(None).await, ["x://1", "x://2"]);
    assert_eq!(list(Some("/q")).await, [""; 0]);
    fleet.pass(1000);
    assert_eq!(list(Some("/p")).await, ["x://2"]);
}

/// S-LOCK-4, S-LOCK-5
pub(super) async fn a_holder_that_waits_for_the_asker_is_a_deadlock(place: impl Place) {
    let fleet = Fleet::new(place);
    let one = fleet.slotted("one", "a").await;
    fleet.fence(one, "x://1", 100_000).await;
    assert_eq!(fleet.call(one, "b", "c1").await, accepted("b.c1", false));
    let two = super::seat_of(&fleet.claim(&super::scale(9)).await.unwrap());
    assert_eq!(fleet.call(two, "c", "c2").await, accepted("c.c2", false));
    let three = super::seat_of(&fleet.claim(&super::scale(9)).await.unwrap());
    assert!(matches!(fleet.acquire(three, "x://1", 1).await, LockAnswer::Conflict(_)), "its holder is at work");
    fleet.suspend(one, agent(Some("b"), &json!({}))).await;
    assert!(matches!(fleet.acquire(three, "x://1", 1).await, LockAnswer::Conflict(_)), "who it waits for is at work");
    fleet.suspend(two, agent(Some("c"), &json!({}))).await;
    let answer = fleet.acquire(three, "x://1", 1).await;
    let LockAnswer::Deadlock { lock, cycle } = answer else { panic!("no deadlock: {answer:?}") };
    assert_eq!(lock.key, one.key);
    assert_eq!(cycle, ["c.c2", "one", "b.c1", "c.c2"]);
}

/// S-LOCK-5: without a call of its own to it, a session waits for any live one of the agent.
pub(super) async fn a_cycle_counts_only_if_all_lead_back(place: impl Place) {
    let fleet = Fleet::new(place);
    let (one, two) = (fleet.active("one", "a").await, fleet.active("two", "b").await);
    fleet.fence(one, "x://1", 100_000).await;
    fleet.suspend(one, agent(Some("b"), &json!({}))).await;
    let other = fleet.active("other", "b").await;
    assert!(matches!(fleet.acquire(two, "x://1", 1).await, LockAnswer::Conflict(_)), "the other one may call");
    fleet.end(other, done()).await;
    let answer = fleet.acquire(two, "x://1", 1).await;
    assert!(matches!(&answer, LockAnswer::Deadlock { cycle, .. } if *cycle == ["two", "one", "two"]), "{answer:?}");
}

/// S-LOCK-5
pub(super) async fn only_waits_for_an_agent_are_edges(place: impl Place) {
    let fleet = Fleet::new(place);
    let two = fleet.active("two", "b").await;
    for (n, on) in [webhook(&[], None, &json!({})), agent(None, &json!({})), agent(Some("nobody"), &json!({}))]
        .into_iter()
        .enumerate()
    {
        let (one, resource) = (fleet.active(&n.to_string(), "a").await, format!("x://{n}"));
        fleet.fence(one, &resource, 100_000).await;
        fleet.suspend(one, on).await;
        assert!(matches!(fleet.acquire(two, &resource, 1).await, LockAnswer::Conflict(_)));
    }
}

/// S-LOCK-2, bug 41: of many, in several openings of the store, exactly one holds it at any time.
pub(super) async fn one_of_many_is_granted(place: impl Place) {
    let fleet = Fleet::new(place);
    let stores: Vec<_> = (0..4).map(|_| fleet.place.open()).collect();
    let mut seats = Vec::new();
    for n in 0..16 {
        seats.push(fleet.active(&n.to_string(), "a").await);
    }
    let mut last = 0;
    for round in 0..10 {
        let tries = seats.iter().zip(stores.iter().cycle()).map(|(seat, store)| async move {
            let answer = store.acquire_lock(*seat, "x://1".into(), 1000, told()).await.unwrap();
            if let LockAnswer::Granted { fence, .. } = answer { Some((*seat, fence)) } else { None }
        });
        let granted: Vec<_> = futures_util::future::join_all(tries).await.into_iter().flatten().collect();
        assert_eq!(granted.len(), 1, "{granted:?}");
        let (winner, fence) = granted[0];
        assert!(fence > last);
        last = fence;
        if round % 3 == 0 {
            fleet.pass(1000);
        } else if round % 3 == 1 {
            fleet.release(winner, "x://1").await;
        } else {
            let end = fleet.store.end_session(winner, done(), CallsAfter::GoOn, super::line("ended"));
            end.await.unwrap();
            seats.retain(|seat| *seat != winner);
        }
    }
}
