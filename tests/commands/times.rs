//! Time limits and cancelling.

use std::time::{Duration, Instant};

use super::command_for;
use crate::harness::Place;

/// T-BASH-3, T-10, bugs 2, 3, 7 and 9: at its limit a command gets SIGTERM, then SIGKILL, and keeps what it printed.
#[test]
fn commands_end_at_their_limits_with_what_they_printed() {
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "8"]);
        let block = desk.block();
        let answers = desk.together([
            command_for(1.0, "echo before; sleep 9"),
            command_for(2.0, "sleep 5"),
            command_for(1.0, "(while :; do date >> /tmp/t; sleep .1; done) & wait"),
            command_for(1.0, "bash -c 'trap \"\" TERM; echo deaf; sleep 99' & exit 0"),
            command_for(1.0, "trap '' TERM; echo deaf; sleep 99; sleep 99"),
            command_for(1.0, "trap 'echo bye; exit 0' TERM; echo hello; sleep 99 & wait"),
            command_for(1.5, "(trap 'echo child too; exit' TERM; sleep 99 & wait) & sleep 99"),
            command_for(0.25, "printf 'no line end'; sleep 99"),
        ]);
        let out = |answer: usize| answers[answer].fails("timeout");
        assert_eq!(out(0), "before\n[timed out after 1 s]");
        assert_eq!(out(1), "(no output)\n[timed out after 2 s]");
        assert_eq!(out(2), "(no output)\n[timed out after 1 s]");
        // The shell ended by itself; who is still there then is killed at once, TERM or not.
        assert!(matches!(answers[3].ok(), "(no output)" | "deaf\n"), "{:?}", answers[3]);
        assert_eq!(out(4), "deaf\n[timed out after 1 s]");
        assert_eq!(out(5), "hello\nbye\n[timed out after 1 s]");
        assert_eq!(out(6), "child too\n[timed out after 1.5 s]");
        assert_eq!(out(7), "no line end\n[timed out after 0.25 s]");
        for (answer, least, most) in [(0, 1000, 3000), (1, 2000, 6000), (2, 1000, 3000), (3, 0, 3000), (4, 3000, 9000)]
        {
            let took = answers[answer].duration();
            assert!((Duration::from_millis(least)..Duration::from_millis(most)).contains(&took), "{answer}: {took:?}");
        }
        block.assert_empty();
        let mut size = || desk.bash("wc -c < /tmp/t; sleep .3").ok().to_owned();
        assert_eq!(size(), size(), "/tmp/t still grows");
    }
}

/// T-BASH-3: the agent's `bashTimeout` holds for calls that name none, and a call may ask for more.
#[test]
fn the_agent_sets_the_usual_limit() {
    for place in Place::on_each_image() {
        place.agent("worker", "bashTimeout = 1\n");
        let mut desk = place.desk();
        assert_eq!(desk.bash("echo a; sleep 30").fails("timeout"), "a\n[timed out after 1 s]");
        assert_eq!(desk.bash_for(30.0, "sleep 1.2; echo b").ok(), "b\n");
    }
}

/// T-BASH-3, bug 7: what the session has left caps the call; the call's limit comes first and keeps the output.
#[test]
fn a_call_ends_before_its_session() {
    // Such a session lasts ten seconds; those of all images last them together.
    let places: Vec<Place> = Place::on_each_image().collect();
    let desks: Vec<_> = places
        .iter()
        .map(|place| {
            place.agent("worker", "timeout = 4\n");
            let mut desk = place.desk();
            desk.send("bash", &serde_json::json!({"command": "echo part; sleep 60", "timeout": 60}));
            desk
        })
        .collect();
    for mut desk in desks {
        let answer = desk.answer();
        let text = answer.fails("timeout");
        let Some(seconds) = text.strip_prefix("part\n[timed out after ").and_then(|rest| rest.split_once(' ')) else {
            panic!("{text}")
        };
        assert_eq!(seconds.1, "s (all that the session had left)]");
        assert!(seconds.0.parse::<f64>().is_ok_and(|seconds| seconds <= 4.0), "{text}");
        desk.wait().exits(124);
    }
}

/// T-10, bug 5: Ctrl-C in mid-command ends it as cancelled, with what it printed, and nothing is left.
#[test]
fn an_interrupted_command_is_cancelled() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        desk.send("bash", &serde_json::json!({"command": "trap '' TERM; echo partial; sleep 300 & sleep 300"}));
        // It prints before it starts the first sleep.
        block.wait_for(3);
        let begun = Instant::now();
        desk.interrupt();
        assert_eq!(desk.answer().fails("cancelled"), "partial\n[cancelled]");
        assert!(begun.elapsed() < Duration::from_secs(9));
        block.assert_empty();
        desk.close().exits(130);
        place.assert_clean();
    }
}
