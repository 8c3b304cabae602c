//! `orphanGrace`: a sandbox whose runner died exits by itself.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Place, engine, long_sleep, processes, processes_with, until};

/// The container of a killed runner exits within its grace (ten seconds here), its command with it; the record and what
/// is left are for the next runner.
#[test]
fn an_orphan_exits_within_its_grace() {
    let place = Place::new();
    place.write("config.toml", "orphanGrace = 10\n[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n");
    let sleep = long_sleep();
    place.script(&json!([{"calls": [{"id": "a", "tool": "bash", "args": {"command": sleep, "timeout": 1000}}]}]));
    let mut session = place.start(&[]);
    let (id, container) = (session.id(), session.container());
    until("the command runs", || !processes(&sleep).is_empty());
    session.crash();
    let begun = Instant::now();
    let state = || engine("GET", &format!("/containers/{container}/json")).1["State"].clone();
    assert_eq!(state()["Running"], true, "not at once: a new runner may take it up");
    until("the orphan exits", || state()["Running"] == false);
    assert!(begun.elapsed() > Duration::from_secs(5), "after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(30), "after {:?}", begun.elapsed());
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
    assert_eq!(place.show(&id)["state"], "runner_died");
    // The record and what is left are for the next runner, which cannot go on with it.
    place.run(["resume", &id]).exits(5);
    assert_eq!(place.show(&id)["cause"], "sandbox_lost");
    place.assert_clean();
}
