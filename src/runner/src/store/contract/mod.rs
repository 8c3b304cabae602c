//! What every backend of the store must do. A new backend adds one `contract!` line.

mod calls;
mod inbox;
mod locks;
mod model;
mod properties;
mod prune;
mod sessions;
mod slots;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::{
    CallAnswer, CallRequest, CallsAfter, Claimed, End, Generation, Lines, NewEvent, NewSession, OwnerId,
    Place as FleetPlace, Scope, Seat, Session, SessionKey, SessionState, Slots, SqliteStore, Store, WaitAnswer, WaitOn,
    WaitRequest,
};
use crate::trigger::Filter;

/// A place where stores can be opened, several on the same data too. Its clock stands still until it is moved.
pub(crate) trait Place {
    fn new() -> Self;
    fn open(&self) -> Arc<dyn Store>;
    fn clock(&self) -> &AtomicI64;
}

pub(crate) struct Sqlite {
    folder: tempfile::TempDir,
    clock: Arc<AtomicI64>,
}

impl Place for Sqlite {
    fn new() -> Sqlite {
        Sqlite { folder: tempfile::tempdir().unwrap(), clock: Arc::new(AtomicI64::new(1_000_000)) }
    }

    fn open(&self) -> Arc<dyn Store> {
        let clock = Arc::clone(&self.clock);
        let now = move || clock.load(Ordering::SeqCst);
        Arc::new(SqliteStore::open_with_clock(self.folder.path(), Arc::new(now)).unwrap())
    }

    fn clock(&self) -> &AtomicI64 {
        &self.clock
    }
}

macro_rules! contract {
    ($module:ident $place:ident: $($topic:ident { $($case:ident)* })*) => {
        mod $module {
            $(mod $topic {
                use super::super::{$place, Place, $topic};

                $(#[tokio::test]
                async fn $case() {
                    $topic::$case($place::new()).await;
                })*
            })*

            #[test]
            fn a_fleet_is_as_its_model() {
                super::properties::a_fleet_is_as_its_model::<super::$place>();
            }
        }
    };
}

contract! { sqlite Sqlite:
    sessions {
        sessions_are_found_as_they_were_recorded
        a_journal_keeps_its_order
        background_lines_keep_their_place
        a_background_failure_is_told_once_and_leaves_no_hole
        a_stale_generation_is_fenced
        one_of_many_takes_over
        an_ended_session_is_closed
        a_stop_is_asked_for_once
        payloads_are_kept_once
        filters_select
        parts_of_ids_find_one_session
        unknown_sessions_are_refused
        changes_are_seen_elsewhere
        another_store_on_the_same_data_sees_everything
        a_full_queue_asks_to_wait
        dropping_writes_the_rest
    }
    locks {
        a_lock_is_granted_and_released
        fences_only_grow
        a_holder_renews_and_after_expiry_is_granted_anew
        a_session_holds_one_lock
        an_expired_holder_has_nothing
        expiry_is_exact_and_a_clock_set_back_gives_nothing_twice
        the_end_frees_locks_in_its_transaction
        locks_are_listed_while_they_last
        a_holder_that_waits_for_the_asker_is_a_deadlock
        a_cycle_counts_only_if_all_lead_back
        only_waits_for_an_agent_are_edges
        one_of_many_is_granted
    }
    calls {
        a_call_starts_a_queued_child
        a_call_is_refused_by_the_rules
        a_full_queue_refuses
        a_call_goes_to_the_oldest_waiting_session_that_takes_it
        a_delivered_call_keeps_the_rules_of_its_chain
        only_the_caller_may_ask
        the_end_completes_a_call
        a_returned_value_stands_whatever_the_end
        a_delivered_call_is_answered_first
        a_delivered_call_without_a_value_is_answered_by_the_end
        a_bad_end_cancels_what_is_pending_and_stops_what_runs
        a_good_end_lets_calls_go_on
        a_kill_stops_the_tree
        tokens_are_summed_over_the_tree
        a_status_is_shown
    }
    waits {
        a_wait_frees_the_slot_and_a_result_wakes_it
        a_result_that_is_there_answers_at_once
        a_seen_result_wakes_nobody
        a_wait_takes_the_oldest_result_that_matches
        an_event_wakes_everybody_who_matches_once
        events_since_the_turn_count_too
        an_event_of_another_project_wakes_nobody
        an_event_that_came_before_wakes_nobody
        a_deadline_wakes_with_nothing
        an_event_after_the_deadline_wakes_nobody
        too_many_are_refused
        a_lost_lock_is_told
        a_wait_is_finished_once
        the_end_forgets_the_wait
        paused_is_noted_until_it_goes_on
        waits_are_listed_by_number
    }
    slots {
        a_queued_session_is_claimed_once
        the_queue_is_first_in_first_out_and_fair
        woken_sessions_go_first_in_their_order
        scale_limits_an_agent
        project_scale_counts_trees
        a_child_needs_no_new_tree
        a_cycle_of_holders_is_overcommitted
        nobody_is_overcommitted_without_need
        a_paused_agent_begins_nothing_new
        a_disabled_agent_begins_nothing_new
        a_scope_takes_only_its_trees
        a_stopped_session_gets_no_slot
        asking_in_vain_is_no_change
    }
    inbox {
        events_are_kept_in_order
        every_verb_tells_in_its_journal
        a_stale_seat_changes_nothing
        a_rule_that_refuses_leaves_its_company_alone
    }
    prune {
        old_sessions_go_with_all_they_had
        what_is_young_live_or_not_cleaned_stays
        a_payload_stays_as_long_as_somebody_names_it
        old_events_go
    }
}

pub(crate) fn owner(id: &str) -> OwnerId {
    OwnerId { id: id.into(), host: "here".into() }
}

pub(crate) fn new_session(id: &str) -> NewSession {
    NewSession {
        id: id.into(),
        project: "/p".into(),
        agent: "hello".into(),
        owner: owner("o1"),
        container: Some("runner-1".into()),
        keep: false,
        place: FleetPlace::default(),
    }
}

pub(crate) fn line(body: &str) -> NewEvent {
    NewEvent { kind: "status".into(), body: body.into(), ..NewEvent::default() }
}

pub(crate) fn done() -> End {
    End { cause: "done".into(), exit_code: 0, message: "it is done".into(), sandbox_removed: true, text: None }
}

const FIRST: Generation = Generation::FIRST;

async fn create(store: &dyn Store, id: &str) -> SessionKey {
    store.create_session(new_session(id), line("{}")).await.unwrap()
}

async fn bodies(store: &dyn Store, key: SessionKey) -> Vec<String> {
    let rows = store.events(key, 0, usize::MAX).await.unwrap();
    assert!(rows.iter().zip(1..).all(|(row, seq)| row.seq == seq), "numbers have gaps: {rows:?}");
    rows.into_iter().map(|row| row.body).collect()
}

/// Lines that say the answer.
fn told<A: std::fmt::Debug + 'static>() -> Lines<A> {
    Lines::new(|answer| vec![line(&format!("{answer:?}"))])
}

/// A project's fleet under test.
struct Fleet<P> {
    place: P,
    store: Arc<dyn Store>,
}

impl<P: Place> Fleet<P> {
    fn new(place: P) -> Fleet<P> {
        let store = place.open();
        Fleet { place, store }
    }

    fn now(&self) -> i64 {
        self.place.clock().load(Ordering::SeqCst)
    }

    fn pass(&self, milliseconds: i64) {
        self.place.clock().fetch_add(milliseconds, Ordering::SeqCst);
    }

    /// A session that is driven at once and holds no slot.
    async fn active(&self, id: &str, agent: &str) -> Seat {
        let session = NewSession { agent: agent.into(), ..new_session(id) };
        Seat { key: self.store.create_session(session, line("{}")).await.unwrap(), generation: FIRST }
    }

    async fn queue(&self, id: &str, agent: &str) -> SessionKey {
        self.store.create_session(queued(id, agent), line("{}")).await.unwrap()
    }

    /// A session that was queued and has a slot.
    async fn slotted(&self, id: &str, agent: &str) -> Seat {
        let key = self.queue(id, agent).await;
        let claimed = self.claim(&scale(u32::MAX)).await.unwrap();
        assert_eq!(claimed.session.key, key);
        seat_of(&claimed)
    }

    async fn claim(&self, slots: &Slots) -> Option<Claimed> {
        let (slots, scope) = (slots.clone(), Scope::Project);
        self.store.claim("/p".into(), slots, scope, owner("o2"), "runner-9".into(), told()).await.unwrap()
    }

    async fn claim_id(&self, slots: &Slots) -> Option<String> {
        self.claim(slots).await.map(|claimed| claimed.session.id)
    }

    /// Calls an agent; a child is named after it and the call, `b.c1`.
    async fn call(&self, seat: Seat, target: &str, call_id: &str) -> CallAnswer {
        let call = request(target, call_id, json!({"for": call_id}));
        self.store.call_agent(seat, call, told()).await.unwrap()
    }

    async fn answer_of(&self, seat: Seat, call_id: &str) -> Value {
        let record = self.store.check_call(seat, call_id.into(), told()).await.unwrap().expect("a call of its own");
        match record.status {
            super::CallStatus::Over(answer) => answer,
            other => json!(format!("{other:?}")),
        }
    }

    async fn wait(&self, seat: Seat, on: WaitOn) -> WaitAnswer {
        self.store.wait(seat, wait(on), told()).await.unwrap()
    }

    /// Begins a wait that is not over at once.
    async fn suspend(&self, seat: Seat, on: WaitOn) {
        assert_eq!(self.wait(seat, on).await, WaitAnswer::Suspended { deadline: self.now() + 60_000 });
    }

    async fn end(&self, seat: Seat, end: End) {
        self.store.end_session(seat, end, CallsAfter::GoOn, line("ended")).await.unwrap();
    }

    async fn session(&self, id: &str) -> Session {
        self.store.session(id).await.unwrap()
    }

    async fn state(&self, id: &str) -> SessionState {
        self.session(id).await.state
    }
}

fn seat_of(claimed: &Claimed) -> Seat {
    Seat { key: claimed.session.key, generation: claimed.session.generation }
}

fn queued(id: &str, agent: &str) -> NewSession {
    let place = FleetPlace { queue: Some(100), max_tokens: None };
    NewSession { agent: agent.into(), container: None, place, ..new_session(id) }
}

fn request(target: &str, call_id: &str, context: Value) -> CallRequest {
    CallRequest {
        call_id: call_id.into(),
        target_agent: target.into(),
        context,
        child: queued(&format!("{target}.{call_id}"), target),
        started: line("started"),
        max_depth: 3,
    }
}

fn accepted(session: &str, delivered: bool) -> CallAnswer {
    CallAnswer::Accepted { session: session.into(), delivered, pending: true }
}

/// So many slots of every agent.
fn scale(others: u32) -> Slots {
    Slots { others, ..Slots::default() }
}

fn wait(on: WaitOn) -> WaitRequest {
    let words = "something".to_owned();
    WaitRequest { call: "s/1/0".into(), on, timeout: 60_000, since: 0, most: 50, words }
}

fn agent(source: Option<&str>, filter: &Value) -> WaitOn {
    WaitOn::Agent { source_agent: source.map(str::to_owned), filter: Filter::parse(filter).unwrap() }
}

fn webhook(sources: &[&str], event: Option<&str>, filter: &Value) -> WaitOn {
    WaitOn::Webhook {
        sources: sources.iter().map(ToString::to_string).collect(),
        event: event.map(str::to_owned),
        filter: Filter::parse(filter).unwrap(),
    }
}

fn failed(cause: &str) -> End {
    End { cause: cause.into(), exit_code: 1, message: "it went wrong".into(), ..done() }
}
