//! The part of the tools that is tested again as a user of the docker group: `make test` chooses it by name.

use std::fs;

use serde_json::json;

use crate::harness::Place;

/// Every tool, a job, a time limit and copies, for whoever may use the engine, root or not.
#[test]
fn docker_group_every_tool_works() {
    let place = Place::new();
    place.write("in.txt", "from the host\n");
    let mut desk = place.desk_with("worker", &["--in", "in.txt", "--out", "/tmp/out:results"]);
    let block = desk.block();
    assert_eq!(desk.bash("cat /tmp/in.txt; setsid sleep 300 & (sleep 300 &)").ok(), "from the host\n");
    block.assert_empty();
    assert_eq!(desk.bash_for(0.5, "echo part; sleep 300").fails("timeout"), "part\n[timed out after 0.5 s]");
    let (job, log) = desk.job("echo logged; sleep 300; true");
    block.wait_for(2);
    desk.call("bash", &json!({"stop": job})).ok();
    block.assert_empty();
    assert_eq!(desk.call("read", &json!({"path": log})).ok(), "logged\n");
    assert_eq!(
        desk.call("write", &json!({"path": "/tmp/out/a/b", "content": "x"})).ok(),
        "wrote /tmp/out/a/b: 1 bytes"
    );
    assert_eq!(desk.call("ls", &json!({"path": "/tmp/out"})).ok(), "a/\n");
    desk.call("write", &json!({"path": "/etc/x", "content": "x"})).fails("denied");
    desk.close().exits(0);
    assert_eq!(fs::read_to_string(place.project().join("results/out/a/b")).expect("it came out"), "x");
}
