//! The daemon dies at each of its points in turn, and the next one brings the scene to its end.

use std::cell::Cell;

use super::points::points;
use super::scene;
use crate::harness::until;

/// Passes of a point that are tried: the first in `make test`, more in `make soak`.
fn passes() -> u64 {
    if std::env::var_os("RUNNER_SOAK").is_some() { 12 } else { 1 }
}

/// Plays the scene with a daemon that dies at this point.
#[track_caller]
fn dies_at(point: &str) {
    for pass in 1..=passes() {
        let died = play(&[&format!("{point}:{pass}")]);
        // A point is passed at least once in the scene; how often depends on the machine.
        assert!(died || pass > 1, "the scene never comes to {point}");
        if !died {
            break;
        }
    }
}

/// Plays the scene with a daemon that dies in the middle, and one that dies at this point while it takes up what is left.
#[track_caller]
fn dies_taking_up_at(point: &str) {
    assert!(play(&["model.after:2", point]), "what is taken up never comes to {point}");
}

/// Plays the scene with a daemon for each point in turn, which dies there, and one that lives. False when one lived.
#[track_caller]
fn play(points: &[&str]) -> bool {
    let place = scene::place(2);
    scene::begin(&place, "one");
    let sent = Cell::new(false);
    let emit = || {
        if !sent.get() && !scene::waits_for_event(&place).is_empty() {
            scene::send(&place, "one");
            sent.set(true);
        }
    };
    let died = points.iter().all(|point| {
        place.serve_until(point).dies(|| {
            emit();
            !place.listed("ps").is_empty()
        })
    });
    let daemon = place.serve();
    until("the root has got its event, or is over", || {
        emit();
        sent.get() || place.listed("ps").is_empty()
    });
    scene::came_to_its_end(&place, &["one".to_owned()]);
    daemon.stop().exits(0);
    died
}

/// What a point is died at for is told by its name.
#[track_caller]
fn visit(point: &str) {
    if ["take", "list"].iter().any(|part| point.contains(part)) { dies_taking_up_at(point) } else { dies_at(point) }
}

points! { visit;
    link_send = "link.send",
    link_received = "link.received",
    commit_append_before = "commit.append.before",
    commit_append_after = "commit.append.after",
    commit_set_container_before = "commit.set_container.before",
    commit_set_container_after = "commit.set_container.after",
    commit_end_session_before = "commit.end_session.before",
    commit_end_session_after = "commit.end_session.after",
    commit_sandbox_removed_before = "commit.sandbox_removed.before",
    commit_sandbox_removed_after = "commit.sandbox_removed.after",
    commit_claim_before = "commit.claim.before",
    commit_claim_after = "commit.claim.after",
    commit_acquire_lock_before = "commit.acquire_lock.before",
    commit_acquire_lock_after = "commit.acquire_lock.after",
    commit_release_lock_before = "commit.release_lock.before",
    commit_release_lock_after = "commit.release_lock.after",
    commit_call_agent_before = "commit.call_agent.before",
    commit_call_agent_after = "commit.call_agent.after",
    commit_check_call_before = "commit.check_call.before",
    commit_check_call_after = "commit.check_call.after",
    commit_return_value_before = "commit.return_value.before",
    commit_return_value_after = "commit.return_value.after",
    commit_set_status_before = "commit.set_status.before",
    commit_set_status_after = "commit.set_status.after",
    commit_wait_before = "commit.wait.before",
    commit_wait_after = "commit.wait.after",
    commit_set_paused_before = "commit.set_paused.before",
    commit_set_paused_after = "commit.set_paused.after",
    commit_finish_wait_before = "commit.finish_wait.before",
    commit_finish_wait_after = "commit.finish_wait.after",
    commit_take_over_before = "commit.take_over.before",
    commit_take_over_after = "commit.take_over.after",
    commit_prune_before = "commit.prune.before",
    commit_prune_after = "commit.prune.after",
    engine_list_before = "engine.list.before",
    engine_list_after = "engine.list.after",
    engine_create_before = "engine.create.before",
    engine_create_after = "engine.create.after",
    engine_start_before = "engine.start.before",
    engine_start_after = "engine.start.after",
    engine_inspect_before = "engine.inspect.before",
    engine_inspect_after = "engine.inspect.after",
    engine_pause_before = "engine.pause.before",
    engine_pause_after = "engine.pause.after",
    engine_unpause_before = "engine.unpause.before",
    engine_unpause_after = "engine.unpause.after",
    engine_kill_before = "engine.kill.before",
    engine_kill_after = "engine.kill.after",
    engine_remove_before = "engine.remove.before",
    engine_remove_after = "engine.remove.after",
    handshake_send = "handshake.send",
    handshake_received = "handshake.received",
    model_before = "model.before",
    model_after = "model.after",
    pause_before = "pause.before",
    pause_after = "pause.after",
    dispatch_claimed = "dispatch.claimed",
    dispatch_taken_over = "dispatch.taken_over",
}
