//! No process of a finished call survives, whatever it tried.
//!
//! The attack tests light the same bombs under a stand-in; here the product's PID 1 ends them, and the host looks at what
//! is left: nothing inside can hide from it.

use serde_json::json;

use crate::attack::program;
use crate::harness::{Answer, Block, Desk, Place};

/// Rounds of each bomb; `make soak` plays many more.
fn rounds() -> usize {
    if std::env::var_os("RUNNER_SOAK").is_some() { 100 } else { 12 }
}

/// A sandbox that has `bombs.c` at /tmp/bombs.
fn armed(place: &Place, more: &[&str]) -> (Desk, Block) {
    let bombs = program::build("bombs", &["bombs.c"]);
    let copy = format!("{}:/tmp/bombs", bombs.display());
    let mut args = vec!["--in", &copy];
    args.extend_from_slice(more);
    let mut desk = place.desk_with("worker", &args);
    let block = desk.block();
    (desk, block)
}

/// Asserts that nothing is left and that commands and files work on.
#[track_caller]
fn assert_quiet(desk: &mut Desk, block: Block, after: &Answer) {
    let left = block.commands();
    assert!(left.is_empty(), "{left:?} are left after {after:?}");
    assert_eq!(desk.bash("echo next").ok(), "next\n", "after {after:?}");
    assert_eq!(desk.call("write", &json!({"path": "/tmp/x", "content": "y"})).ok(), "replaced /tmp/x: 1 bytes");
}

/// Lights a bomb again and again: it goes on when its command is over, and must be gone with it.
fn survive(kind: &str) {
    let place = Place::new();
    let (mut desk, block) = armed(&place, &[]);
    desk.call("write", &json!({"path": "/tmp/x", "content": "y"})).ok();
    for round in 0..rounds() {
        let answer = desk.bash(&format!("echo lit; /tmp/bombs {kind}"));
        assert_eq!(answer.ok(), "lit\n", "round {round}");
        assert_quiet(&mut desk, block, &answer);
    }
}

/// Bug 13, T-BASH-4: processes that each start a session of their own and ignore every signal.
#[test]
fn a_bomb_of_sessions_leaves_nothing() {
    survive("sessions");
}

/// Bug 13, T-BASH-4: chains of processes that fork and exit.
#[test]
fn a_bomb_of_chains_leaves_nothing() {
    survive("chains");
}

/// Bug 13, T-BASH-4: vfork and exec.
#[test]
fn a_bomb_of_programs_leaves_nothing() {
    survive("programs");
}

/// Bug 13, T-BASH-4: forty daemons that close all they have.
#[test]
fn daemons_leave_nothing() {
    survive("daemons");
}

/// T-10, T-BASH-3, bugs 3 and 13: a bomb in a command that runs out of time ends with it.
#[test]
fn bombs_end_at_the_time_limit() {
    let place = Place::new();
    // The host gives a sandbox up 4 s after the limit, 2 of which are SIGTERM's; a bomb of 512 processes on a busy
    // machine needs the rest for itself.
    place.agent("worker", "[local]\npids = 128\n");
    let (mut desk, block) = armed(&place, &[]);
    desk.call("write", &json!({"path": "/tmp/x", "content": "y"})).ok();
    for kind in ["sessions", "chains", "programs", "daemons"] {
        let answer =
            desk.bash_for(0.5, &format!("trap '' TERM; echo lit; /tmp/bombs {kind}; while :; do sleep 9; done"));
        assert!(answer.fails("timeout").starts_with("lit\n"), "{answer:?}");
        assert_quiet(&mut desk, block, &answer);
    }
}

/// T-BASH-4, bug 13: a bomb that was lit in the background ends when its job is stopped.
#[test]
fn bombs_end_with_their_job() {
    let place = Place::new();
    let (mut desk, block) = armed(&place, &[]);
    desk.call("write", &json!({"path": "/tmp/x", "content": "y"})).ok();
    for kind in ["sessions", "chains", "programs"] {
        let (job, _) = desk.job(&format!("/tmp/bombs {kind}; sleep 300; true"));
        block.wait_for(3);
        let answer = desk.call("bash", &json!({"stop": job}));
        assert!(answer.ok().starts_with(&format!("job {job} ended: killed by signal ")), "{answer:?}");
        assert_quiet(&mut desk, block, &answer);
    }
}

/// T-BASH-4: a bomb ends with its session; `Place` sees that no container is left.
#[test]
fn bombs_end_with_the_session() {
    for kind in ["sessions", "programs"] {
        let place = Place::new();
        let (mut desk, block) = armed(&place, &[]);
        desk.job(&format!("/tmp/bombs {kind}; sleep 300; true"));
        block.wait_for(3);
        desk.close().exits(0);
        block.assert_empty();
    }
}
