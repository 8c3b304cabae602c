//! Calls, statuses and what a tree shares: S-CALL, S-CHECK, S-RETURN, S-STATUS.

use serde_json::json;

use super::{Fleet, Place, accepted, agent, done, failed, line, queued, request, scale, seat_of, told, webhook};
use crate::store::{
    CallAnswer, CallStatus, CallsAfter, End, NewEvent, ReturnAnswer, Seat, SessionFilter, SessionKey, SessionState,
    StopHow, StopRequest, Store, WaitOn,
};

impl<P: Place> Fleet<P> {
    /// Calls an agent and gives the child a slot.
    async fn serve(&self, seat: Seat, target: &str, call_id: &str) -> Seat {
        assert_eq!(self.call(seat, target, call_id).await, accepted(&format!("{target}.{call_id}"), false));
        seat_of(&self.claim(&scale(99)).await.unwrap())
    }

    /// Makes a session wait for a call of anybody, and returns its seat when it goes on.
    async fn deliver(&self, waiting: Seat, caller: Seat, target: &str, call_id: &str) -> Seat {
        self.suspend(waiting, agent(None, &json!({}))).await;
        let answer = self.call(caller, target, call_id).await;
        assert!(matches!(answer, CallAnswer::Accepted { delivered: true, .. }), "{answer:?}");
        let seat = seat_of(&self.claim(&scale(99)).await.unwrap());
        assert_eq!(seat.key, waiting.key);
        self.store.finish_wait(seat, told()).await.unwrap();
        seat
    }
}

async fn stop_of(store: &dyn Store, key: SessionKey) -> Option<StopRequest> {
    store.stop_requested(key).await.unwrap()
}

/// S-CALL-1
pub(super) async fn a_call_starts_a_queued_child(place: impl Place) {
    let fleet = Fleet::new(place);
    let root = fleet.slotted("root", "a").await;
    assert_eq!(fleet.call(root, "b", "c1").await, accepted("b.c1", false));
    let child = fleet.session("b.c1").await;
    assert_eq!(child.state, SessionState::Queued);
    assert_eq!((child.parent.as_deref(), child.root, child.depth, child.slotted), (Some("root"), root.key, 1, true));
    let calls = fleet.store.calls(Some("/p".into())).await.unwrap();
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((call.call_id.as_str(), call.caller, call.caller_session.as_str()), ("c1", root.key, "root"));
    assert_eq!((call.caller_agent.as_str(), call.target_agent.as_str(), call.session.as_str()), ("a", "b", "b.c1"));
    assert_eq!((call.delivered, &call.status, call.created_at), (false, &CallStatus::Pending, fleet.now()));
    fleet.claim(&scale(9)).await.unwrap();
    let record = fleet.store.check_call(root, "c1".into(), told()).await.unwrap().unwrap();
    assert_eq!((record.status, record.waiting_for), (CallStatus::Running, None));
    let tree = SessionFilter { tree: Some(root.key), ..SessionFilter::default() };
    let ids: Vec<_> = fleet.store.sessions(tree).await.unwrap().into_iter().map(|session| session.id).collect();
    assert_eq!(ids, ["b.c1", "root"]);
}

/// S-CALL-1, bug 47: by the whole chain, over another opening of the store too.
pub(super) async fn a_call_is_refused_by_the_rules(place: impl Place) {
    let mut fleet = Fleet::new(place);
    let a = fleet.slotted("root", "a").await;
    assert_eq!(fleet.call(a, "a", "x").await, CallAnswer::SelfCall);
    let b = fleet.serve(a, "b", "c1").await;
    let c = fleet.serve(b, "c", "c2").await;
    fleet.store = fleet.place.open();
    let cycle = |agents: &[&str]| CallAnswer::Cycle(agents.iter().map(ToString::to_string).collect());
    assert_eq!(fleet.call(c, "a", "x").await, cycle(&["a", "b", "c", "a"]));
    assert_eq!(fleet.call(c, "b", "x").await, cycle(&["a", "b", "c", "b"]));
    // What the caller's ancestors do meanwhile changes nothing.
    fleet.end(b, done()).await;
    let d = fleet.serve(c, "d", "c3").await;
    assert_eq!(fleet.call(d, "e", "x").await, CallAnswer::MaxDepth(3));
    assert_eq!(fleet.call(d, "b", "x").await, cycle(&["a", "b", "c", "d", "b"]));
    let mut call = request("e", "x", json!({}));
    call.max_depth = 0;
    assert_eq!(fleet.store.call_agent(a, call, told()).await, Ok(CallAnswer::MaxDepth(0)));
    assert_eq!(fleet.store.calls(None).await.unwrap().len(), 2, "what is refused leaves nothing");
}

/// S-CALL-1
pub(super) async fn a_full_queue_refuses(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("root", "a").await;
    let small = |id: &str| {
        let mut call = request("b", id, json!({}));
        call.child.place.queue = Some(2);
        call
    };
    for id in ["c1", "c2"] {
        assert_eq!(fleet.store.call_agent(a, small(id), told()).await, Ok(accepted(&format!("b.{id}"), false)));
    }
    assert_eq!(fleet.store.call_agent(a, small("c3"), told()).await, Ok(CallAnswer::QueueFull(2)));
    let mut other = queued("more", "b");
    other.place.queue = Some(2);
    let full = crate::store::StoreError::QueueFull { agent: "b".into(), most: 2 };
    assert_eq!(fleet.store.create_session(other, line("{}")).await, Err(full));
    fleet.claim(&scale(9)).await.unwrap();
    assert_eq!(fleet.store.call_agent(a, small("c3"), told()).await, Ok(accepted("b.c3", false)));
}

/// S-CALL-2
pub(super) async fn a_call_goes_to_the_oldest_waiting_session_that_takes_it(place: impl Place) {
    let fleet = Fleet::new(place);
    let caller = fleet.slotted("caller", "a").await;
    let waits: [(&str, WaitOn); 6] = [
        ("hook", webhook(&[], None, &json!({}))),
        ("of-c", agent(Some("c"), &json!({}))),
        ("other", agent(Some("a"), &json!({"context.for": "other"}))),
        ("result", agent(None, &json!({"kind": "result"}))),
        ("first", agent(Some("a"), &json!({"kind": "call", "context.for": "c1"}))),
        ("second", agent(None, &json!({}))),
    ];
    for (id, on) in waits {
        let seat = fleet.slotted(id, "b").await;
        fleet.suspend(seat, on).await;
    }
    assert_eq!(fleet.call(caller, "b", "c1").await, accepted("first", true));
    assert_eq!(fleet.call(caller, "b", "c2").await, accepted("second", true));
    assert_eq!(fleet.call(caller, "b", "c3").await, accepted("b.c3", false), "nobody else takes it");
    let record = fleet.store.check_call(caller, "c1".into(), told()).await.unwrap().unwrap();
    assert_eq!((record.delivered, record.status), (true, CallStatus::Pending));
    let claimed = fleet.claim(&scale(99)).await.unwrap();
    assert_eq!(claimed.session.id, "first");
    let record = fleet.store.check_call(caller, "c1".into(), told()).await.unwrap().unwrap();
    assert_eq!(record.status, CallStatus::Running);
    let waited = fleet.store.finish_wait(seat_of(&claimed), told()).await.unwrap();
    let trigger = crate::trigger::call("a", "c1", &json!({"for": "c1"}));
    assert_eq!(waited.woken, crate::store::Woken::Trigger(trigger));
}

/// S-CALL-2: who serves a delivered call is below its caller as long as it has not answered.
pub(super) async fn a_delivered_call_keeps_the_rules_of_its_chain(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    let x = fleet.serve(a, "x", "c1").await;
    let b = fleet.slotted("b", "b").await;
    let b = fleet.deliver(b, x, "b", "c2").await;
    let cycle = ["a", "x", "b", "a"].map(str::to_owned).to_vec();
    assert_eq!(fleet.call(b, "a", "no").await, CallAnswer::Cycle(cycle));
    let c = fleet.serve(b, "c", "c3").await;
    assert_eq!(fleet.call(c, "d", "no").await, CallAnswer::MaxDepth(3));
    fleet.store.return_value(b, json!(1), told()).await.unwrap();
    assert_eq!(fleet.call(b, "a", "c4").await, accepted("a.c4", false));
    assert_eq!(fleet.call(c, "d", "c5").await, accepted("d.c5", false));
}

/// S-CHECK-1
pub(super) async fn only_the_caller_may_ask(place: impl Place) {
    let fleet = Fleet::new(place);
    let (a, other) = (fleet.slotted("a", "a").await, fleet.slotted("other", "a").await);
    let b = fleet.serve(a, "b", "c1").await;
    for seat in [other, b] {
        assert_eq!(fleet.store.check_call(seat, "c1".into(), told()).await, Ok(None));
    }
    assert_eq!(fleet.store.check_call(a, "c2".into(), told()).await, Ok(None));
    fleet.suspend(b, webhook(&[], None, &json!({}))).await;
    let record = fleet.store.check_call(a, "c1".into(), told()).await.unwrap().unwrap();
    assert_eq!((record.status, record.waiting_for.as_deref()), (CallStatus::Running, Some("something")));
}

/// S-CHECK-1, bug 46
pub(super) async fn the_end_completes_a_call(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    let b = fleet.serve(a, "b", "c1").await;
    assert_eq!(fleet.answer_of(a, "c1").await, "Running");
    fleet.end(b, End { text: Some("that was it".into()), ..done() }).await;
    let answer = json!({"status": "completed", "value": "that was it", "ended": "done", "implicit": true});
    assert_eq!(fleet.answer_of(a, "c1").await, answer);
    for cause in ["oom", "timeout", "killed", "sandbox_lost"] {
        let b = fleet.serve(a, "b", cause).await;
        fleet.end(b, failed(cause)).await;
        let answer = json!({"status": "error", "error": format!("{cause}: it went wrong"), "ended": cause});
        assert_eq!(fleet.answer_of(a, cause).await, answer);
    }
}

/// S-CHECK-1, S-RETURN-1
pub(super) async fn a_returned_value_stands_whatever_the_end(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    let not_called = fleet.store.return_value(a, json!(0), told()).await;
    assert_eq!(not_called, Ok(ReturnAnswer::NotCalled));
    for (call, end) in [("c1", done()), ("c2", failed("timeout"))] {
        let b = fleet.serve(a, "b", call).await;
        for value in [json!({"first": 1}), json!(["last", null])] {
            let accepted = ReturnAnswer::Accepted { call_id: call.into() };
            assert_eq!(fleet.store.return_value(b, value, told()).await, Ok(accepted));
        }
        assert_eq!(fleet.answer_of(a, call).await, "Running");
        let cause = end.cause.clone();
        fleet.end(b, end).await;
        let answer = json!({"status": "completed", "value": ["last", null], "ended": cause});
        assert_eq!(fleet.answer_of(a, call).await, answer);
    }
}

/// S-RETURN-1
pub(super) async fn a_delivered_call_is_answered_first(place: impl Place) {
    let fleet = Fleet::new(place);
    let (a, x) = (fleet.slotted("a", "a").await, fleet.slotted("x", "x").await);
    let b = fleet.serve(a, "b", "born").await;
    let b = fleet.deliver(b, x, "b", "one").await;
    let b = fleet.deliver(b, x, "b", "two").await;
    for (call, value) in [("two", 2), ("one", 1), ("born", 0), ("born", 9)] {
        let accepted = ReturnAnswer::Accepted { call_id: call.into() };
        assert_eq!(fleet.store.return_value(b, json!(value), told()).await, Ok(accepted));
    }
    assert_eq!(fleet.answer_of(x, "two").await, json!({"status": "completed", "value": 2}));
    assert_eq!(fleet.answer_of(x, "one").await, json!({"status": "completed", "value": 1}));
    assert_eq!(fleet.answer_of(a, "born").await, "Running", "its end completes it");
    fleet.end(b, done()).await;
    assert_eq!(fleet.answer_of(a, "born").await, json!({"status": "completed", "value": 9, "ended": "done"}));
}

/// S-CALL-2: also when it never went on.
pub(super) async fn a_delivered_call_without_a_value_is_answered_by_the_end(place: impl Place) {
    let fleet = Fleet::new(place);
    let (a, b) = (fleet.slotted("a", "a").await, fleet.slotted("b", "b").await);
    fleet.suspend(b, agent(None, &json!({}))).await;
    assert_eq!(fleet.call(a, "b", "c1").await, accepted("b", true));
    fleet.end(b, failed("killed")).await;
    let answer = json!({"status": "error", "error": "killed: it went wrong", "ended": "killed"});
    assert_eq!(fleet.answer_of(a, "c1").await, answer);
}

/// S-CALL-4
pub(super) async fn a_bad_end_cancels_what_is_pending_and_stops_what_runs(place: impl Place) {
    let fleet = Fleet::new(place);
    for (n, detach) in [false, true].into_iter().enumerate() {
        let ids = ["pending", "running", "waiting", "delivered"].map(|word| format!("{word}{n}"));
        let a = fleet.slotted(&format!("a{n}"), "a").await;
        let running = fleet.serve(a, "b", &ids[1]).await;
        let waiting = fleet.serve(a, "b", &ids[2]).await;
        let deeper = fleet.serve(running, "c", &format!("deeper{n}")).await;
        fleet.suspend(waiting, webhook(&[], None, &json!({}))).await;
        let stranger = fleet.slotted(&format!("stranger{n}"), "d").await;
        let delivered = fleet.deliver(stranger, a, "d", &ids[3]).await;
        assert_eq!(fleet.call(a, "b", &ids[0]).await, accepted(&format!("b.{}", ids[0]), false));

        let cancelled = End { sandbox_removed: false, ..failed("cancelled") };
        let calls = CallsAfter::Cancel { end: cancelled, ended: line("never began"), detach };
        fleet.store.end_session(a, failed("timeout"), calls, line("ended")).await.unwrap();
        let pending = fleet.session(&format!("b.{}", ids[0])).await;
        let (end, at) = pending.end.unwrap();
        assert_eq!((end.cause.as_str(), end.sandbox_removed, at), ("cancelled", true, fleet.now()));
        assert_eq!(super::bodies(&*fleet.store, pending.key).await, ["started", "never began"]);
        let asked = (!detach).then(|| StopRequest { by: format!("a{n}"), how: StopHow::Orderly });
        assert_eq!(stop_of(&*fleet.store, running.key).await, asked);
        assert_eq!(stop_of(&*fleet.store, waiting.key).await, asked);
        assert_eq!(stop_of(&*fleet.store, delivered.key).await, None, "it is no child");
        assert_eq!(stop_of(&*fleet.store, deeper.key).await, None, "its own caller's end decides");
        for seat in [running, deeper, delivered] {
            fleet.end(seat, done()).await;
        }
    }
}

/// S-CALL-4
pub(super) async fn a_good_end_lets_calls_go_on(place: impl Place) {
    let fleet = Fleet::new(place);
    let a = fleet.slotted("a", "a").await;
    let b = fleet.serve(a, "b", "c1").await;
    fleet.call(a, "b", "c2").await;
    fleet.end(a, done()).await;
    assert_eq!(stop_of(&*fleet.store, b.key).await, None);
    assert_eq!(fleet.claim_id(&scale(9)).await.as_deref(), Some("b.c2"));
    let accepted = ReturnAnswer::Accepted { call_id: "c1".into() };
    assert_eq!(fleet.store.return_value(b, json!(1), told()).await, Ok(accepted));
    fleet.end(b, done()).await;
}

pub(super) async fn a_kill_stops_the_tree(place: impl Place) {
    let fleet = Fleet::new(place);
    let root = fleet.slotted("root", "a").await;
    let b = fleet.serve(root, "b", "c1").await;
    let c = fleet.serve(b, "c", "c2").await;
    let over = fleet.serve(b, "c", "c4").await;
    fleet.end(over, done()).await;
    fleet.call(c, "d", "c3").await;
    let queued = fleet.session("d.c3").await.key;
    fleet.store.request_stop(c.key, "ann".into(), StopHow::Orderly).await.unwrap();
    fleet.store.request_stop(b.key, "bob".into(), StopHow::Kill).await.unwrap();
    fleet.store.request_stop(c.key, "eve".into(), StopHow::Kill).await.unwrap();
    fleet.store.request_stop(c.key, "eve".into(), StopHow::Orderly).await.unwrap();
    let killed = Some(StopRequest { by: "bob".into(), how: StopHow::Kill });
    for key in [b.key, c.key, queued] {
        assert_eq!(stop_of(&*fleet.store, key).await, killed);
    }
    assert_eq!(stop_of(&*fleet.store, root.key).await, None);
    assert_eq!(stop_of(&*fleet.store, over.key).await, None);
}

pub(super) async fn tokens_are_summed_over_the_tree(place: impl Place) {
    let fleet = Fleet::new(place);
    let mut session = queued("root", "a");
    session.place.max_tokens = Some(1000);
    let started = NewEvent { tokens: 1, ..line("{}") };
    let root = fleet.store.create_session(session, started).await.unwrap();
    let root = Seat { key: root, generation: seat_of(&fleet.claim(&scale(1)).await.unwrap()).generation };
    let b = fleet.serve(root, "b", "c1").await;
    let tokens = |n| NewEvent { tokens: n, ..line("tokens") };
    fleet.store.append(root.key, root.generation, tokens(10)).await.unwrap();
    fleet.store.append_later(b.key, b.generation, tokens(200)).await;
    assert_eq!(fleet.store.tree_tokens(b.key).await, Ok((211, Some(1000))));
    assert_eq!(fleet.store.tree_tokens(root.key).await, Ok((211, Some(1000))));
    assert_eq!(fleet.session("root").await.tokens, 11);
    let alone = fleet.active("alone", "a").await;
    assert_eq!(fleet.store.tree_tokens(alone.key).await, Ok((0, None)));
    assert!(fleet.store.tree_tokens(SessionKey(99)).await.is_err());
    // However many a provider says it has used: the count stops, the session does not.
    for _ in 0..2 {
        fleet.store.append(root.key, root.generation, tokens(u64::MAX)).await.unwrap();
        fleet.store.append(b.key, b.generation, tokens(u64::MAX)).await.unwrap();
    }
    let (used, _) = fleet.store.tree_tokens(b.key).await.unwrap();
    assert!(used > 1 << 40, "{used}");
}

/// S-STATUS-1
pub(super) async fn a_status_is_shown(place: impl Place) {
    let fleet = Fleet::new(place);
    let seat = fleet.active("a", "a").await;
    for text in ["reading", "writing"] {
        fleet.store.set_status(seat, text.into(), told()).await.unwrap();
        assert_eq!(fleet.session("a").await.status.as_deref(), Some(text));
    }
    assert_eq!(super::bodies(&*fleet.store, seat.key).await, ["{}", "()", "()"]);
}
