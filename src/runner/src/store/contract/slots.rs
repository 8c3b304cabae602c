//! Slots and the queue: S-NUM-1, S-CALL-3, S-WAIT-9.

use std::time::Duration;

use serde_json::json;

use super::{Fleet, Place, accepted, agent, done, owner, queued, scale, seat_of, told, webhook};
use crate::store::{Container, Generation, Scope, Seat, SessionState, Slots, StopHow};

fn trees(most: u32) -> Slots {
    Slots { trees: Some(most), ..scale(9) }
}

/// S-NUM-1, bug 42
pub(super) async fn a_queued_session_is_claimed_once(place: impl Place) {
    let fleet = Fleet::new(place);
    let key = fleet.queue("a", "a").await;
    fleet.pass(30);
    let stores: Vec<_> = (0..4).map(|_| fleet.place.open()).collect();
    let claims = stores
        .iter()
        .map(|store| store.claim("/p".into(), scale(9), Scope::Project, owner("o2"), "runner-9".into(), told()));
    let claims: Vec<_> = futures_util::future::join_all(claims).await.into_iter().filter_map(Result::unwrap).collect();
    let [claimed] = claims.as_slice() else { panic!("claimed {} times", claims.len()) };
    let session = &claimed.session;
    assert_eq!((session.key, session.state, session.slotted), (key, SessionState::Active, true));
    assert_eq!((&session.owner, session.generation), (&owner("o2"), Generation(2)));
    assert_eq!(session.container, Some(Container { name: "runner-9".into(), id: None }));
    assert_eq!((claimed.waited, claimed.overcommit), (30, false));
    assert_eq!(*session, fleet.session("a").await);
}

/// S-NUM-1
pub(super) async fn the_queue_is_first_in_first_out_and_fair(place: impl Place) {
    let fleet = Fleet::new(place);
    for id in ["a1", "a2", "a3", "b1", "b2", "c1"] {
        fleet.queue(id, &id[..1]).await;
    }
    let mut order = Vec::new();
    while let Some(id) = fleet.claim_id(&scale(9)).await {
        order.push(id);
    }
    assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
    assert_eq!(fleet.claim_id(&scale(9)).await, None);
}

/// S-WAIT-9, bug 44
pub(super) async fn woken_sessions_go_first_in_their_order(place: impl Place) {
    let fleet = Fleet::new(place);
    let mut seats = Vec::new();
    for id in ["a", "b", "c"] {
        let seat = fleet.slotted(id, "x").await;
        fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
        seats.push(seat);
    }
    fleet.queue("new", "y").await;
    let waits = fleet.store.waits(None, 0).await.unwrap();
    for index in [2, 0, 1] {
        let event = super::inbox::event("/p");
        let event = fleet.store.accept(event).await.unwrap();
        fleet.store.wake(event, vec![waits[index].id]).await.unwrap();
        // Whatever the clock says.
        fleet.pass(-10);
    }
    for id in ["c", "a", "b", "new"] {
        assert_eq!(fleet.claim_id(&scale(3)).await.as_deref(), Some(id));
    }
}

/// S-NUM-1
pub(super) async fn scale_limits_an_agent(place: impl Place) {
    let fleet = Fleet::new(place);
    let mut slots = scale(1);
    slots.agents.insert("b".into(), 2);
    fleet.active("tool", "a").await;
    for id in ["a1", "a2", "b1", "b2", "b3"] {
        fleet.queue(id, &id[..1]).await;
    }
    let mut claimed = Vec::new();
    while let Some(next) = fleet.claim(&slots).await {
        claimed.push(next);
    }
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.session.id.as_str()).collect();
    assert_eq!(ids, ["a1", "b1", "b2"], "a session without a slot takes none");
    fleet.end(seat_of(&claimed[0]), done()).await;
    assert_eq!(fleet.claim_id(&slots).await.as_deref(), Some("a2"));
    fleet.suspend(seat_of(&claimed[1]), webhook(&[], None, &json!({}))).await;
    assert_eq!(fleet.claim_id(&slots).await.as_deref(), Some("b3"));
    assert_eq!(fleet.claim_id(&slots).await, None);
}

/// S-NUM-1
pub(super) async fn project_scale_counts_trees(place: impl Place) {
    let fleet = Fleet::new(place);
    for id in ["a1", "b1"] {
        fleet.queue(id, &id[..1]).await;
    }
    let a = seat_of(&fleet.claim(&trees(1)).await.unwrap());
    assert_eq!(fleet.claim_id(&trees(1)).await, None);
    fleet.suspend(a, webhook(&[], None, &json!({}))).await;
    let b = seat_of(&fleet.claim(&trees(1)).await.expect("a tree that only waits takes no place"));
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    assert_eq!(fleet.claim_id(&trees(1)).await, None);
    fleet.end(b, done()).await;
    assert_eq!(fleet.claim_id(&trees(1)).await.as_deref(), Some("a1"));
}

/// S-CALL-3, bug 44
pub(super) async fn a_child_needs_no_new_tree(place: impl Place) {
    let fleet = Fleet::new(place);
    fleet.queue("a", "a").await;
    let a = seat_of(&fleet.claim(&trees(1)).await.unwrap());
    fleet.queue("b-first", "b").await;
    assert_eq!(fleet.call(a, "b", "c1").await, accepted("b.c1", false));
    let child = fleet.claim(&trees(1)).await.unwrap();
    assert_eq!((child.session.id.as_str(), child.overcommit), ("b.c1", false));
    assert_eq!(fleet.claim_id(&trees(1)).await, None);
}

/// S-CALL-3
pub(super) async fn a_cycle_of_holders_is_overcommitted(place: impl Place) {
    let fleet = Fleet::new(place);
    let (a1, b1) = (fleet.slotted("a1", "a").await, fleet.slotted("b1", "b").await);
    fleet.queue("b-first", "b").await;
    assert_eq!(fleet.call(a1, "b", "c1").await, accepted("b.c1", false));
    assert_eq!(fleet.claim_id(&scale(1)).await, None, "b1 can go on");
    assert_eq!(fleet.call(b1, "a", "c2").await, accepted("a.c2", false));
    let above = fleet.claim(&scale(1)).await.unwrap();
    assert_eq!((above.overcommit, above.session.overcommit), (true, true));
    // One of the two that close the cycle, and then nobody is stuck any more.
    assert!(["a.c2", "b.c1"].contains(&above.session.id.as_str()), "{}", above.session.id);
    assert_eq!(fleet.claim_id(&scale(1)).await, None);
    fleet.end(seat_of(&above), done()).await;
    assert!(!fleet.session(&above.session.id).await.overcommit);
    assert_eq!(fleet.claim_id(&scale(1)).await, None, "its place is given back first");
}

/// S-CALL-3: a woken session too, and by the project's cap.
pub(super) async fn nobody_is_overcommitted_without_need(place: impl Place) {
    let fleet = Fleet::new(place);
    fleet.queue("w", "w").await;
    let w = seat_of(&fleet.claim(&trees(1)).await.unwrap());
    fleet.suspend(w, agent(None, &json!({}))).await;
    fleet.queue("a", "a").await;
    let a = seat_of(&fleet.claim(&trees(1)).await.unwrap());
    fleet.queue("z", "z").await;
    assert_eq!(fleet.claim_id(&trees(1)).await, None, "a can go on");
    assert_eq!(fleet.call(a, "w", "c1").await, accepted("w", true));
    let woken = fleet.claim(&trees(1)).await.unwrap();
    assert_eq!((woken.session.id.as_str(), woken.overcommit), ("w", true));
    assert_eq!(fleet.claim_id(&trees(1)).await, None, "whom nobody waits for has to wait");
}

/// A paused agent's sessions that have begun go on.
pub(super) async fn a_paused_agent_begins_nothing_new(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a1", "a").await;
    fleet.suspend(a, webhook(&[], None, &json!({}))).await;
    fleet.queue("a2", "a").await;
    fleet.queue("b1", "b").await;
    let pause = async |agent: Option<&str>, paused| {
        fleet.store.pause_agent("/p".into(), agent.map(str::to_owned), paused).await.unwrap();
    };
    pause(Some("a"), true).await;
    pause(Some("a"), true).await;
    assert_eq!(fleet.store.paused_agents("/p".into()).await, Ok(vec!["a".into()]));
    assert_eq!(fleet.store.paused_agents("/q".into()).await, Ok(vec![]));
    assert_eq!(fleet.claim_id(&scale(9)).await.as_deref(), Some("b1"));
    assert_eq!(fleet.claim_id(&scale(9)).await, None);
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    assert_eq!(fleet.claim_id(&scale(9)).await.as_deref(), Some("a1"));
    pause(None, true).await;
    pause(Some("a"), false).await;
    assert_eq!(fleet.store.paused_agents("/p".into()).await, Ok(vec![String::new()]));
    assert_eq!(fleet.claim_id(&scale(9)).await, None);
    pause(None, false).await;
    assert_eq!(fleet.claim_id(&scale(9)).await.as_deref(), Some("a2"));
}

/// S-NUM-1: `scale` 0 disables, and what has begun still comes to its end.
pub(super) async fn a_disabled_agent_begins_nothing_new(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a1", "a").await;
    fleet.suspend(a, webhook(&[], None, &json!({}))).await;
    fleet.queue("a2", "a").await;
    assert_eq!(fleet.claim_id(&scale(0)).await, None);
    assert_eq!(fleet.claim_id(&trees(0)).await, None);
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    assert_eq!(fleet.claim_id(&scale(0)).await.as_deref(), Some("a1"));
    assert_eq!(fleet.claim_id(&scale(0)).await, None);
}

pub(super) async fn a_scope_takes_only_its_trees(place: impl Place) {
    let fleet = Fleet::new(place);
    fleet.queue("a", "a").await;
    let root = fleet.queue("b", "b").await;
    let claim = async |project: &str, slots, scope| {
        let claimed =
            fleet.store.claim(project.into(), slots, scope, owner("o2"), "runner-9".into(), told()).await.unwrap();
        claimed.map(|claimed| Seat { key: claimed.session.key, generation: claimed.session.generation })
    };
    let mine = || Scope::Trees(vec![root]);
    assert_eq!(claim("/q", scale(9), Scope::Project).await, None);
    let b = claim("/p", trees(1), mine()).await.unwrap();
    assert_eq!(b.key, root);
    assert_eq!(fleet.call(b, "a", "c1").await, accepted("a.c1", false));
    let child = claim("/p", trees(1), mine()).await.unwrap();
    assert_eq!(child.key, fleet.session("a.c1").await.key, "past the one that came before it and is another's");
    assert_eq!(claim("/p", scale(9), mine()).await, None);
}

pub(super) async fn a_stopped_session_gets_no_slot(place: impl Place) {
    let fleet = Fleet::new(place);
    let key = fleet.queue("a", "a").await;
    fleet.store.request_stop(key, "me".into(), StopHow::Orderly).await.unwrap();
    assert_eq!(fleet.claim_id(&scale(9)).await, None);
    fleet.end(Seat { key, generation: Generation::FIRST }, done()).await;
    assert_eq!(fleet.state("a").await, SessionState::Ended);
}

/// Who looks for work after each change must not be woken by having looked.
pub(super) async fn asking_in_vain_is_no_change(place: impl Place) {
    let fleet = Fleet::new(place);
    fleet.store.create_session(queued("a", "a"), super::line("{}")).await.unwrap();
    let mut changes = fleet.store.watch();
    while tokio::time::timeout(Duration::from_millis(300), changes.changed()).await.is_ok() {}
    assert_eq!(fleet.claim_id(&scale(0)).await, None);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), changes.changed()).await.is_err());
    assert!(fleet.claim(&scale(1)).await.is_some());
    tokio::time::timeout(Duration::from_secs(3), changes.changed()).await.expect("a change is seen").unwrap();
}
