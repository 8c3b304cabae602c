//! Waits: S-WAIT.

use serde_json::{Value, json};

use super::{Fleet, Place, accepted, agent, done, failed, scale, seat_of, told, wait, webhook};
use crate::store::{
    CallsAfter, LockAnswer, NewInboxEvent, Seat, SessionState, StoreError, WaitAnswer, WaitRequest, Waited, Woken,
};
use crate::trigger;

fn event(source: &str, name: &str, number: i64) -> NewInboxEvent {
    NewInboxEvent {
        project: "/p".into(),
        source: source.into(),
        event: name.into(),
        fields: json!({"source": source, "event": name, "number": number}),
        raw: json!({"deep": [{"number": number}]}),
    }
}

/// The trigger that [`event`] makes.
fn trigger_of(event: &NewInboxEvent) -> Value {
    trigger::webhook(&event.fields, &event.raw)
}

impl<P: Place> Fleet<P> {
    async fn accept(&self, event: &NewInboxEvent) -> i64 {
        self.store.accept(event.clone()).await.unwrap()
    }

    /// Matches an event with all waits that there are, whatever they are for.
    async fn wake_all(&self, event: i64) -> Vec<String> {
        let waits = self.store.waits(Some("/p".into()), 0).await.unwrap();
        self.store.wake(event, waits.iter().map(|wait| wait.id).collect()).await.unwrap()
    }

    /// Goes on with the session that is next.
    async fn go_on(&self) -> (Seat, Waited) {
        let seat = seat_of(&self.claim(&scale(99)).await.unwrap());
        (seat, self.store.finish_wait(seat, told()).await.unwrap())
    }
}

/// S-WAIT-4, S-WAIT-6
pub(super) async fn a_wait_frees_the_slot_and_a_result_wakes_it(place: impl Place) {
    let fleet = Fleet::new(place);
    let one = scale(1);
    let a = fleet.slotted("a", "a").await;
    fleet.queue("a2", "a").await;
    assert_eq!(fleet.call(a, "b", "c1").await, accepted("b.c1", false));
    let b = seat_of(&fleet.claim(&one).await.unwrap());
    assert_eq!(fleet.claim_id(&one).await, None);
    fleet.suspend(a, agent(Some("b"), &json!({"status": "completed"}))).await;
    assert_eq!(fleet.state("a").await, SessionState::Waiting);
    let a2 = seat_of(&fleet.claim(&one).await.unwrap());
    fleet.pass(5000);
    fleet.store.return_value(b, json!({"n": 1}), told()).await.unwrap();
    assert_eq!(fleet.state("a").await, SessionState::Waiting);
    fleet.end(b, done()).await;
    assert_eq!(fleet.state("a").await, SessionState::Woken);
    assert_eq!(fleet.claim_id(&one).await, None, "the slot is taken");
    let outcome = json!({"status": "completed", "value": {"n": 1}, "ended": "done"});
    let woken = Woken::Trigger(trigger::result("b", "c1", &outcome));
    let found = fleet.store.wait_of(a.key).await.unwrap().unwrap();
    assert_eq!((found.woken, found.since), (Some(woken.clone()), fleet.now() - 5000));
    fleet.pass(7);
    fleet.end(a2, done()).await;
    let claimed = fleet.claim(&one).await.unwrap();
    assert_eq!((claimed.session.id.as_str(), claimed.waited), ("a", 7));
    assert!(claimed.session.generation > a.generation);
    assert!(fleet.store.wait_of(a.key).await.unwrap().is_some(), "the call has no answer yet");
    let waited = fleet.store.finish_wait(seat_of(&claimed), told()).await.unwrap();
    assert_eq!(waited, Waited { woken, waited: 5000, lost_lock: None });
    assert_eq!(fleet.store.wait_of(a.key).await, Ok(None));
}

/// S-WAIT-4
pub(super) async fn a_result_that_is_there_answers_at_once(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    fleet.call(a, "b", "c1").await;
    let b = seat_of(&fleet.claim(&scale(9)).await.unwrap());
    fleet.end(b, failed("oom")).await;
    let answer = fleet.wait(a, agent(Some("b"), &json!({"status": "error"}))).await;
    let outcome = json!({"status": "error", "error": "oom: it went wrong", "ended": "oom"});
    assert_eq!(answer, WaitAnswer::Now(trigger::result("b", "c1", &outcome)));
    assert_eq!(fleet.state("a").await, SessionState::Active);
    fleet.suspend(a, agent(Some("b"), &json!({}))).await;
}

/// S-WAIT-4
pub(super) async fn a_seen_result_wakes_nobody(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    fleet.call(a, "b", "c1").await;
    let b = seat_of(&fleet.claim(&scale(9)).await.unwrap());
    assert_eq!(fleet.answer_of(a, "c1").await, "Running");
    fleet.end(b, done()).await;
    let answer = fleet.answer_of(a, "c1").await;
    assert_eq!(fleet.answer_of(a, "c1").await, answer, "asked again, it is told again");
    fleet.suspend(a, agent(Some("b"), &json!({}))).await;
}

/// S-WAIT-4
pub(super) async fn a_wait_takes_the_oldest_result_that_matches(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    let mut seats = Vec::new();
    for (target, call) in [("b", "c1"), ("b", "c2"), ("c", "c3")] {
        fleet.call(a, target, call).await;
        seats.push(seat_of(&fleet.claim(&scale(9)).await.unwrap()));
    }
    for index in [2, 1, 0] {
        fleet.pass(1);
        fleet.end(seats[index], done()).await;
    }
    let call_of = async |on| match fleet.wait(a, on).await {
        WaitAnswer::Now(trigger) => trigger["call_id"].as_str().unwrap().to_owned(),
        other => panic!("not at once: {other:?}"),
    };
    assert_eq!(call_of(agent(Some("b"), &json!({}))).await, "c2");
    assert_eq!(call_of(agent(None, &json!({"call_id": "c1"}))).await, "c1");
    assert_eq!(call_of(agent(None, &json!({}))).await, "c3");
    fleet.suspend(a, agent(None, &json!({}))).await;
}

/// S-WAIT-9
pub(super) async fn an_event_wakes_everybody_who_matches_once(place: impl Place) {
    let fleet = Fleet::new(place);
    for id in ["a", "b", "c"] {
        let seat = fleet.slotted(id, "a").await;
        fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
    }
    let of_agent = fleet.slotted("d", "a").await;
    fleet.suspend(of_agent, agent(None, &json!({}))).await;
    let event = event("github", "push", 1);
    let id = fleet.accept(&event).await;
    let waits = fleet.store.waits(Some("/p".into()), 0).await.unwrap();
    let [a, _, c, d] = [0, 1, 2, 3].map(|n| waits[n].id);
    assert_eq!(fleet.store.wake(id, vec![a, c, d, c, 999]).await, Ok(vec!["a".into(), "c".into()]));
    assert_eq!(fleet.store.wake(id, vec![a, c]).await, Ok(vec![]), "once");
    let (seat, waited) = fleet.go_on().await;
    assert_eq!((seat.key, waited.woken), (waits[0].key, Woken::Trigger(trigger_of(&event))));
    // Waiting again for the same, also with the event among what it counts, it is not woken by that event again.
    fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
    assert_eq!(fleet.wake_all(id).await, ["b"]);
    let woke = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
    assert_eq!(fleet.store.inbox("/p".into(), 1).await.unwrap()[0].woke, Some(woke));
}

/// S-WAIT-2, S-WAIT-3, S-WAIT-5
pub(super) async fn events_since_the_turn_count_too(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    fleet.accept(&event("github", "push", 1)).await;
    let since = fleet.store.inbox_position("/p".into()).await.unwrap();
    for (source, name, number) in [("gitlab", "push", 2), ("github", "issues", 2), ("github", "push", 3)] {
        fleet.accept(&event(source, name, number)).await;
    }
    let look = async |on| fleet.store.wait(seat, WaitRequest { since, ..wait(on) }, told()).await.unwrap();
    let push = |number| webhook(&["github", "hub"], Some("push"), &json!({"deep.0.number": number}));
    let now = |source, name, number| WaitAnswer::Now(trigger_of(&event(source, name, number)));
    assert_eq!(look(push(3)).await, now("github", "push", 3));
    assert_eq!(look(webhook(&[], None, &json!({}))).await, now("gitlab", "push", 2));
    assert_eq!(look(webhook(&[], Some("issues"), &json!({"number": "2"}))).await, now("github", "issues", 2));
    assert!(matches!(look(push(1)).await, WaitAnswer::Suspended { .. }), "it came before the turn began");
}

pub(super) async fn an_event_of_another_project_wakes_nobody(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    let foreign = NewInboxEvent { project: "/q".into(), ..event("github", "push", 1) };
    fleet.accept(&foreign).await;
    fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
    let id = fleet.accept(&foreign).await;
    assert_eq!(fleet.wake_all(id).await, [""; 0]);
    assert_eq!(fleet.store.inbox_position("/p".into()).await, Ok(0));
    assert_eq!(fleet.store.inbox_position("/q".into()).await, Ok(id));
}

/// S-WAIT-5: what came before the turn does not count, whenever it is matched.
pub(super) async fn an_event_that_came_before_wakes_nobody(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    let before = fleet.accept(&event("github", "push", 1)).await;
    let on = webhook(&[], None, &json!({}));
    fleet.store.wait(seat, WaitRequest { since: before, ..wait(on) }, told()).await.unwrap();
    assert_eq!(fleet.wake_all(before).await, [""; 0]);
    let after = fleet.accept(&event("github", "push", 1)).await;
    assert_eq!(fleet.wake_all(after).await, ["a"]);
}

/// S-WAIT-10
pub(super) async fn a_deadline_wakes_with_nothing(place: impl Place) {
    let fleet = Fleet::new(place);
    let seats = [fleet.slotted("a", "a").await, fleet.slotted("b", "a").await, fleet.slotted("c", "a").await];
    assert_eq!(fleet.store.next_deadline("/p".into()).await, Ok(None));
    for (seat, timeout) in seats.into_iter().zip([3000, 1000, 2000]) {
        let request = WaitRequest { timeout, ..wait(webhook(&[], None, &json!({}))) };
        fleet.store.wait(seat, request, told()).await.unwrap();
    }
    let begin = fleet.now();
    fleet.pass(999);
    assert_eq!(fleet.store.expire_waits("/p".into()).await, Ok(vec![]));
    assert_eq!(fleet.store.next_deadline("/p".into()).await, Ok(Some(begin + 1000)));
    fleet.pass(1001);
    assert_eq!(fleet.store.expire_waits("/q".into()).await, Ok(vec![]));
    assert_eq!(fleet.store.expire_waits("/p".into()).await, Ok(vec!["b".into(), "c".into()]));
    assert_eq!(fleet.store.next_deadline("/p".into()).await, Ok(Some(begin + 3000)));
    let id = fleet.accept(&event("github", "push", 1)).await;
    assert_eq!(fleet.wake_all(id).await, ["a"], "the others are awake");
    let (seat, waited) = fleet.go_on().await;
    assert_eq!(seat.key, seats[1].key);
    assert_eq!(waited, Waited { woken: Woken::Timeout, waited: 2000, lost_lock: None });
}

/// S-WAIT-6: what came after the deadline is too late, also when nobody was there to say so at the deadline.
pub(super) async fn an_event_after_the_deadline_wakes_nobody(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    fleet.store.wait(seat, wait(webhook(&[], None, &json!({}))), told()).await.unwrap();
    fleet.pass(60_000);
    let late = fleet.accept(&event("github", "push", 1)).await;
    assert_eq!(fleet.wake_all(late).await, [""; 0]);
    assert_eq!(fleet.store.expire_waits("/p".into()).await, Ok(vec!["a".into()]));
}

/// S-WAIT-7
pub(super) async fn too_many_are_refused(place: impl Place) {
    let fleet = Fleet::new(place);
    let (a, b) = (fleet.slotted("a", "a").await, fleet.slotted("b", "a").await);
    let on = webhook(&[], None, &json!({}));
    let two = |on| WaitRequest { most: 1, ..wait(on) };
    fleet.store.wait(a, two(on.clone()), told()).await.unwrap();
    assert_eq!(fleet.store.wait(b, two(on.clone()), told()).await, Ok(WaitAnswer::TooMany(1)));
    assert_eq!(fleet.state("b").await, SessionState::Active);
    let push = event("github", "push", 1);
    let id = fleet.accept(&push).await;
    let now = WaitAnswer::Now(trigger_of(&push));
    assert_eq!(fleet.store.wait(b, two(on.clone()), told()).await, Ok(now), "what is there needs no room");
    fleet.wake_all(id).await;
    let since = WaitRequest { since: id, ..two(on) };
    assert!(matches!(fleet.store.wait(b, since, told()).await, Ok(WaitAnswer::Suspended { .. })), "a is awake");
}

/// S-WAIT-6, S-WAIT-9
pub(super) async fn a_lost_lock_is_told(place: impl Place) {
    let fleet = Fleet::new(place);
    for (n, (ttl, lost)) in [(5000, true), (90_000, false)].into_iter().enumerate() {
        let seat = fleet.slotted(&n.to_string(), "a").await;
        let granted = fleet.store.acquire_lock(seat, format!("x://{n}"), ttl, told()).await.unwrap();
        assert!(matches!(granted, LockAnswer::Granted { .. }));
        fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
        fleet.pass(60_000);
        fleet.store.expire_waits("/p".into()).await.unwrap();
        let (seat, waited) = fleet.go_on().await;
        assert_eq!(waited.lost_lock, lost.then(|| format!("x://{n}")));
        fleet.end(seat, done()).await;
    }
}

pub(super) async fn a_wait_is_finished_once(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    let none = StoreError::NotWaiting { session: "a".into() };
    assert_eq!(fleet.store.finish_wait(seat, told()).await, Err(none.clone()));
    fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
    assert_eq!(fleet.store.finish_wait(seat, told()).await, Err(none.clone()), "nothing woke it");
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    assert_eq!(fleet.store.finish_wait(seat, told()).await, Err(none.clone()), "it has no slot");
    let (seat, _) = fleet.go_on().await;
    assert_eq!(fleet.store.finish_wait(seat, told()).await, Err(none));
}

pub(super) async fn the_end_forgets_the_wait(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
    fleet.store.end_session(seat, failed("stopped"), CallsAfter::GoOn, super::line("end")).await.unwrap();
    assert_eq!(fleet.store.wait_of(seat.key).await, Ok(None));
    assert_eq!(fleet.store.waits(None, 0).await, Ok(vec![]));
    let id = fleet.accept(&event("github", "push", 1)).await;
    assert_eq!(fleet.store.wake(id, vec![1, 2]).await, Ok(vec![]));
}

/// S-WAIT-7
pub(super) async fn paused_is_noted_until_it_goes_on(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.slotted("a", "a").await;
    fleet.suspend(seat, webhook(&[], None, &json!({}))).await;
    let paused = async || fleet.store.wait_of(seat.key).await.unwrap().map(|wait| wait.paused);
    assert_eq!(paused().await, Some(true));
    fleet.store.set_paused(seat, false).await.unwrap();
    assert_eq!(paused().await, Some(false));
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    let next = seat_of(&fleet.claim(&scale(9)).await.unwrap());
    fleet.store.set_paused(seat, true).await.unwrap();
    assert_eq!(paused().await, Some(false), "it is another driver's now");
    fleet.store.finish_wait(next, told()).await.unwrap();
    fleet.store.set_paused(seat, true).await.unwrap();
    assert_eq!(paused().await, None);
}

pub(super) async fn waits_are_listed_by_number(place: impl Place) {
    let fleet = Fleet::new(place);
    for id in ["a", "b"] {
        let seat = fleet.slotted(id, "x").await;
        fleet.suspend(seat, webhook(&["github"], Some("push"), &json!({"a\\.b.c": 5, "n": null}))).await;
    }
    let all = fleet.store.waits(Some("/p".into()), 0).await.unwrap();
    let ids: Vec<_> = all.iter().map(|wait| wait.session.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(all[0].on, webhook(&["github"], Some("push"), &json!({"n": null, "a\\.b.c": "5"})));
    assert_eq!((all[0].call.as_str(), all[0].words.as_str(), all[0].agent.as_str()), ("s/1/0", "something", "x"));
    assert_eq!(fleet.store.waits(Some("/p".into()), all[0].id).await, Ok(all[1..].to_vec()));
    assert_eq!(fleet.store.waits(Some("/q".into()), 0).await, Ok(vec![]));
    fleet.pass(60_000);
    fleet.store.expire_waits("/p".into()).await.unwrap();
    assert_eq!(fleet.store.waits(None, 0).await.unwrap().len(), 2, "woken ones too");
    fleet.claim(&scale(9)).await.unwrap();
    assert_eq!(fleet.store.waits(None, 0).await.unwrap().len(), 1, "who has gone on waits no more");
}
