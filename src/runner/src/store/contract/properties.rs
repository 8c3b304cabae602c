//! Random histories of a whole fleet, with a clock that jumps, against the model in memory.

use std::sync::atomic::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::model::{AGENTS, Model, Wake};
use super::{FIRST, Fleet, Place, agent, done, failed, line, queued, request, told, wait, webhook};
use crate::store::{
    CallAnswer, CallStatus, CallsAfter, LockAnswer, ReleaseAnswer, ReturnAnswer, Seat, SessionFilter, SessionKey,
    SessionState, Slots, StoreError, WaitAnswer, WaitRequest, Woken,
};

/// What happens next; who it happens to is picked among those it can happen to.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Create(usize),
    Claim,
    Acquire(Index, usize, i64),
    Release(Index, usize),
    Call(Index, usize),
    Check(Index, Index),
    Return(Index),
    WaitAgent(Index, Option<usize>),
    WaitHook(Index, usize),
    Event,
    Expire,
    End(Index, bool),
    Stale(Index),
    Clock(i64),
    Reopen,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = any::<Index>;
    let agent = 0..AGENTS.len();
    let step = prop_oneof![
        4 => agent.clone().prop_map(Step::Create),
        10 => Just(Step::Claim),
        4 => (who(), 0..2_usize, 1..100_i64).prop_map(|(who, what, ttl)| Step::Acquire(who, what, ttl)),
        2 => (who(), 0..2_usize).prop_map(|(who, what)| Step::Release(who, what)),
        8 => (who(), agent.clone()).prop_map(|(who, target)| Step::Call(who, target)),
        2 => (who(), who()).prop_map(|(who, call)| Step::Check(who, call)),
        3 => who().prop_map(Step::Return),
        6 => (who(), prop::option::weighted(0.7, agent)).prop_map(|(who, source)| Step::WaitAgent(who, source)),
        2 => (who(), 0..3_usize).prop_map(|(who, back)| Step::WaitHook(who, back)),
        2 => Just(Step::Event),
        1 => Just(Step::Expire),
        3 => (who(), any::<bool>()).prop_map(|(who, well)| Step::End(who, well)),
        1 => who().prop_map(Step::Stale),
        3 => (-80..120_i64).prop_map(Step::Clock),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..120)
}

/// The fleet and its model, side by side.
pub(super) struct Pair<P> {
    fleet: Fleet<P>,
    model: Model,
    seats: Vec<Seat>,
    slots: Slots,
    fence: i64,
    events: Vec<i64>,
}

impl<P: Place> Pair<P> {
    pub(super) fn new(place: P, slots: Slots) -> Pair<P> {
        let fleet = Fleet::new(place);
        let model = Model { now: fleet.now(), ..Model::default() };
        Pair { fleet, model, seats: Vec::new(), slots, fence: 0, events: Vec::new() }
    }

    /// A session that is at work.
    fn pick(&self, who: Index) -> Option<usize> {
        let active: Vec<_> =
            (0..self.seats.len()).filter(|n| self.model.sessions[*n].state == SessionState::Active).collect();
        (!active.is_empty()).then(|| active[who.index(active.len())])
    }

    pub(super) async fn step(&mut self, step: Step) {
        let (store, now) = (std::sync::Arc::clone(&self.fleet.store), self.model.now);
        match step {
            Step::Create(agent) => {
                let id = format!("s{}", self.seats.len());
                let key = store.create_session(queued(&id, AGENTS[agent]), line("{}")).await.unwrap();
                self.model.create(agent, None, id);
                self.seats.push(Seat { key, generation: FIRST });
            }
            Step::Claim => self.claim().await,
            Step::Acquire(who, what, ttl) => {
                let Some(n) = self.pick(who) else { return };
                let answer = store.acquire_lock(self.seats[n], format!("x://{what}"), ttl, told()).await.unwrap();
                let expected = self.model.acquire(n, what, ttl);
                let word = match answer {
                    LockAnswer::Granted { renewed, expires_at, fence } => {
                        assert_eq!(expires_at, now + ttl);
                        assert!(renewed || fence > self.fence, "{fence} after {}", self.fence);
                        self.fence = self.fence.max(fence);
                        if renewed { "renewed" } else { "granted" }
                    }
                    LockAnswer::Conflict(lock) => {
                        assert_eq!(Some(lock.key), self.model.holder(what).map(|n| self.seats[n].key));
                        "conflict"
                    }
                    LockAnswer::AlreadyHolding { .. } => "already_holding",
                    LockAnswer::Deadlock { .. } => "deadlock",
                };
                assert_eq!(word, expected);
            }
            Step::Release(who, what) => {
                let Some(n) = self.pick(who) else { return };
                let answer = store.release_lock(self.seats[n], format!("x://{what}"), told()).await.unwrap();
                match (answer, self.model.holder(what)) {
                    (ReleaseAnswer::Released, Some(holder)) if holder == n => drop(self.model.locks.remove(&what)),
                    (ReleaseAnswer::HeldByOther(lock), Some(holder)) => assert_eq!(lock.key, self.seats[holder].key),
                    (ReleaseAnswer::Expired | ReleaseAnswer::NotHeld, None) => {}
                    other => panic!("{other:?} of {n}"),
                }
            }
            Step::Call(who, target) => self.call(who, target).await,
            Step::Check(who, call) => {
                let Some(n) = self.pick(who).filter(|_| !self.model.calls.is_empty()) else { return };
                let call = call.index(self.model.calls.len());
                let answer = store.check_call(self.seats[n], format!("c{call}"), told()).await.unwrap();
                let known = &mut self.model.calls[call];
                assert_eq!(answer.is_some(), known.caller == n);
                if let Some(answer) = answer {
                    let over = matches!(answer.status, CallStatus::Over(_));
                    assert_eq!(over, known.answered.is_some());
                    known.seen |= over;
                }
            }
            Step::Return(who) => {
                let Some(n) = self.pick(who) else { return };
                let answer = store.return_value(self.seats[n], json!(n), told()).await.unwrap();
                let expected = match self.model.return_value(n) {
                    Some(call) => ReturnAnswer::Accepted { call_id: format!("c{call}") },
                    None => ReturnAnswer::NotCalled,
                };
                assert_eq!(answer, expected);
            }
            Step::WaitAgent(who, source) => {
                let Some(n) = self.pick(who) else { return };
                let request = WaitRequest { timeout: 50, ..wait(agent(source.map(|a| AGENTS[a]), &json!({}))) };
                match store.wait(self.seats[n], request, told()).await.unwrap() {
                    WaitAnswer::Now(trigger) => {
                        let call = self.model.take_result(n, source).expect("a result");
                        assert_eq!(trigger["call_id"], format!("c{call}"));
                    }
                    WaitAnswer::Suspended { .. } => {
                        assert_eq!(self.model.take_result(n, source), None);
                        self.model.suspend(n, false, source, 50);
                    }
                    WaitAnswer::TooMany(_) => panic!("few sessions"),
                }
            }
            Step::WaitHook(who, back) => {
                let Some(n) = self.pick(who) else { return };
                let position = self.events.len().saturating_sub(back);
                let since = if position == 0 { 0 } else { self.events[position - 1] };
                let request = WaitRequest { since, timeout: 50, ..wait(webhook(&[], None, &json!({}))) };
                let there = (position..self.events.len()).find(|event| !self.model.events[*event].contains(&n));
                match (store.wait(self.seats[n], request, told()).await.unwrap(), there) {
                    (WaitAnswer::Now(trigger), Some(event)) => {
                        assert_eq!(trigger["number"], event);
                        self.model.events[event].insert(n);
                    }
                    (WaitAnswer::Suspended { .. }, None) => self.model.suspend(n, true, None, 50),
                    other => panic!("{other:?}"),
                }
            }
            Step::Event => self.event().await,
            Step::Expire => {
                let mut late: Vec<_> = (0..self.seats.len())
                    .filter(|n| self.model.sessions[*n].state == SessionState::Waiting)
                    .filter_map(|n| {
                        Some((self.model.sessions[n].wait.as_ref()?.deadline, self.model.sessions[n].woken_at, n))
                    })
                    .filter(|(deadline, ..)| *deadline <= now)
                    .collect();
                late.sort_unstable();
                let ids: Vec<_> = late.iter().map(|(_, _, n)| self.model.sessions[*n].id.clone()).collect();
                assert_eq!(store.expire_waits("/p".into()).await, Ok(ids));
                for (_, _, n) in late {
                    self.model.wake(n, Wake::Timeout);
                }
            }
            Step::End(who, well) => {
                // Any that lives: whoever waits or is queued may be stopped.
                let live: Vec<_> =
                    (0..self.seats.len()).filter(|n| self.model.sessions[*n].state != SessionState::Ended).collect();
                let Some(n) = (!live.is_empty()).then(|| live[who.index(live.len())]) else { return };
                let (end, calls) = if well {
                    (done(), CallsAfter::GoOn)
                } else {
                    let cancel = CallsAfter::Cancel { end: failed("cancelled"), ended: line("never"), detach: true };
                    (failed("stopped"), cancel)
                };
                store.end_session(self.seats[n], end, calls, line("ended")).await.unwrap();
                self.model.end(n, !well);
            }
            Step::Stale(who) => {
                let Some(n) = self.pick(who) else { return };
                let stale = Seat { generation: FIRST, ..self.seats[n] };
                let refused = Err(StoreError::Fenced { session: self.model.sessions[n].id.clone() });
                assert_eq!(store.acquire_lock(stale, "x://0".into(), 9, told()).await, refused);
            }
            Step::Clock(jump) => {
                self.fleet.pass(jump);
                self.model.now = self.fleet.place.clock().load(Ordering::SeqCst);
            }
            Step::Reopen => self.fleet.store = self.fleet.place.open(),
        }
    }

    async fn claim(&mut self) {
        let claimed = self.fleet.claim(&self.slots).await;
        let expected = self.model.claim(&self.slots);
        let got = claimed.as_ref().map(|claimed| (claimed.session.id.as_str(), claimed.overcommit));
        assert_eq!(got, expected.map(|(n, overcommit)| (self.model.sessions[n].id.as_str(), overcommit)));
        let (Some(claimed), Some((n, _))) = (claimed, expected) else { return };
        self.seats[n] = super::seat_of(&claimed);
        let Some(wait) = self.model.sessions[n].wait.take() else { return };
        let waited = self.fleet.store.finish_wait(self.seats[n], told()).await.unwrap();
        let same = match (&waited.woken, wait.woken.expect("it was woken")) {
            (Woken::Timeout, Wake::Timeout) => true,
            (Woken::Trigger(trigger), Wake::Event(event)) => trigger["number"] == event,
            (Woken::Trigger(trigger), Wake::Call(call)) => is_of(trigger, "call", call),
            (Woken::Trigger(trigger), Wake::Result(call)) => is_of(trigger, "result", call),
            _ => false,
        };
        assert!(same, "{} was woken by {waited:?}", self.model.sessions[n].id);
    }

    async fn call(&mut self, who: Index, target: usize) {
        let Some(n) = self.pick(who) else { return };
        let (call_id, child) = (format!("c{}", self.model.calls.len()), format!("s{}", self.seats.len()));
        let mut call = request(AGENTS[target], &call_id, json!({}));
        call.child.id.clone_from(&child);
        let answer = self.fleet.store.call_agent(self.seats[n], call, told()).await.unwrap();
        let expected = self.model.call(n, target, child);
        match (answer, expected) {
            (CallAnswer::Accepted { session, delivered, .. }, Ok((server, to_waiting))) => {
                assert_eq!((session, delivered), (self.model.sessions[server].id.clone(), to_waiting));
                if !delivered {
                    let key = self.fleet.session(&self.model.sessions[server].id).await.key;
                    self.seats.push(Seat { key, generation: FIRST });
                }
            }
            (CallAnswer::SelfCall, Err("self_call"))
            | (CallAnswer::Cycle(_), Err("cycle"))
            | (CallAnswer::MaxDepth(3), Err("max_depth")) => {}
            other => panic!("{other:?}"),
        }
    }

    /// An event comes and is matched with all that wait, twice.
    async fn event(&mut self) {
        let (n, now) = (self.events.len(), self.fleet.now());
        let mut event = super::inbox::event("/p");
        event.fields = json!({"number": n});
        let id = self.fleet.store.accept(event).await.unwrap();
        self.events.push(id);
        let mut woken: Vec<_> = (0..self.seats.len())
            .filter(|n| self.model.sessions[*n].state == SessionState::Waiting)
            .filter(|n| self.model.sessions[*n].wait.as_ref().is_some_and(|wait| wait.hook && now < wait.deadline))
            .collect();
        woken.sort_by_key(|n| self.model.sessions[*n].woken_at);
        let ids: Vec<_> = woken.iter().map(|n| self.model.sessions[*n].id.clone()).collect();
        let waits = self.fleet.store.waits(Some("/p".into()), 0).await.unwrap();
        let waits: Vec<_> = waits.iter().map(|wait| wait.id).collect();
        assert_eq!(self.fleet.store.wake(id, waits.clone()).await, Ok(ids));
        assert_eq!(self.fleet.store.wake(id, waits).await, Ok(vec![]));
        self.model.events.push(woken.iter().copied().collect());
        for n in woken {
            self.model.wake(n, Wake::Event(self.events.len() - 1));
        }
    }

    /// What is true after every step.
    pub(super) async fn compare(&self) {
        let store = &self.fleet.store;
        let mut sessions = store.sessions(SessionFilter::default()).await.unwrap();
        sessions.reverse();
        let got: Vec<_> = sessions.iter().map(|s| (s.id.as_str(), s.state, s.overcommit)).collect();
        let expected: Vec<_> =
            self.model.sessions.iter().map(|entry| (entry.id.as_str(), entry.state, entry.overcommit)).collect();
        assert_eq!(got, expected);
        let locks = store.locks(None).await.unwrap();
        let mut locks: Vec<(String, SessionKey)> = locks.into_iter().map(|lock| (lock.resource, lock.key)).collect();
        locks.sort();
        let held = (0..2).filter_map(|what| Some((format!("x://{what}"), self.seats[self.model.holder(what)?].key)));
        assert_eq!(locks, held.collect::<Vec<_>>());
        let open: Vec<_> = store.calls(None).await.unwrap().into_iter().map(|call| call.call_id).collect();
        let unanswered = self.model.calls.iter().enumerate().filter(|(_, call)| call.answered.is_none());
        assert_eq!(open, unanswered.map(|(n, _)| format!("c{n}")).collect::<Vec<_>>());
    }
}

fn is_of(trigger: &Value, kind: &str, call: usize) -> bool {
    trigger["kind"] == kind && trigger["call_id"] == format!("c{call}")
}

/// How many slots there are, narrow enough that they are fought for.
pub(super) fn slots() -> impl Strategy<Value = Slots> {
    let agents = prop::collection::btree_map(prop::sample::select(&AGENTS[..]).prop_map(str::to_owned), 1..3_u32, 0..2);
    (prop::option::of(1..3_u32), agents, 1..3_u32).prop_map(|(trees, agents, others)| Slots { trees, agents, others })
}

/// S-LOCK-2 to S-LOCK-6, S-UNLOCK-1, S-UNLOCK-2, S-CALL-1 to S-CALL-4, S-WAIT-4, S-WAIT-5, S-WAIT-9, S-WAIT-10
pub(super) fn a_fleet_is_as_its_model<P: Place>() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(48));
    let history = (slots(), steps());
    let result = runner.run(&history, |(slots, steps)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut pair = Pair::new(P::new(), slots);
            for step in steps {
                pair.step(step).await;
                pair.compare().await;
            }
        });
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
