//! Sandboxes of several runners on one engine.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Desk, Place, engine, long_sleep, processes, until};

/// Each session has a block of user ids of its own, whoever started it; its processes have the block's ids.
#[test]
fn blocks_of_ids_are_disjoint() {
    let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
    let mut desks: Vec<Desk> = places.iter().chain(&places[..1]).map(Place::desk).collect();
    let sleeps: Vec<String> = desks.iter().map(|_| long_sleep()).collect();
    for (desk, sleep) in desks.iter_mut().zip(&sleeps) {
        desk.send("bash", &serde_json::json!({"command": format!("{sleep} & wait"), "timeout": 1000}));
    }
    let mut owners = BTreeSet::new();
    for sleep in &sleeps {
        until("the command runs", || processes(sleep).len() == 1);
        owners.insert(std::fs::metadata(format!("/proc/{}", processes(sleep)[0])).expect("it runs").uid());
    }
    let mut blocks = BTreeSet::new();
    for name in places.iter().flat_map(Place::containers) {
        let labels = engine("GET", &format!("/containers/{name}/json")).1["Config"]["Labels"].clone();
        let base = labels["runner.ids"].as_str().and_then(|ids| ids.parse::<u32>().ok()).expect("a block");
        assert!(base >= 20_000 && blocks.iter().all(|other: &u32| other.abs_diff(base) >= 64), "{base} in {blocks:?}");
        blocks.insert(base);
    }
    assert_eq!(owners, blocks, "the first id of a block is the agent's");
    for desk in &desks {
        let pid = i32::try_from(desk.pid()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("it is ours");
    }
    for desk in desks {
        desk.close().exits(130);
    }
    for place in &places {
        place.assert_clean();
    }
}
