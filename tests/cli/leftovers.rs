//! `runner doctor --fix` removes what sessions left, and nothing else.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::harness::script::Gate;
use crate::harness::{Place, Ran, engine, engine_with, long_sleep, processes, until};

fn doctor(place: &Place, more: &[&str]) -> Value {
    let mut command: Command = place.command(["doctor", "--json"]);
    command.args(more).env("XDG_CONFIG_HOME", place.folder());
    Ran::from(command.output().expect("it starts")).exits(0).json()
}

fn seen(report: &Value) -> String {
    let checks = report["checks"].as_array().expect("a list");
    let check = checks.iter().find(|check| check["name"] == "leftovers").expect("it is looked at");
    format!("{}: {}", check["level"].as_str().expect("a level"), check["seen"].as_str().expect("a text"))
}

/// CLI-19: calls of `runner tool` whose runner was killed: named without `--fix`, ended and removed with it.
#[test]
fn sessions_of_dead_runners() {
    let place = Place::new();
    let sleep = long_sleep();
    let mut desk = place.desk();
    desk.send("bash", &json!({"command": sleep, "timeout": 1000}));
    until("it works", || !processes(&sleep).is_empty());
    let id = place.run(["ps", "--json"]).exits(0).json()[0]["session"].as_str().expect("an id").to_owned();
    assert_eq!(seen(&doctor(&place, &[])), "ok: none", "one at work is no leftover");
    desk.kill();
    let report = doctor(&place, &[]);
    assert_eq!(seen(&report), "warning: 1 × session whose runner died or whose sandbox is still there");
    assert_eq!(place.containers().len(), 1, "a look removes nothing");
    let report = doctor(&place, &["--fix"]);
    assert_eq!(report["fixed"], json!([format!("ended session {id}, whose runner had died")]));
    assert_eq!(seen(&report), "ok: none");
    assert_eq!(place.show(&id)["cause"], "runner_died");
    place.assert_clean();
}

/// CLI-19: an agent's session whose runner was killed is no leftover: the next runner goes on with it.
#[test]
fn sessions_that_go_on() {
    let place = Place::new();
    let gate = Gate::new();
    place.script(&json!([gate.turn("long"), {"text": "done"}]));
    let queued = place.detach("worker");
    assert_eq!(seen(&doctor(&place, &["--fix"])), "ok: none", "one that is queued needs no runner now");
    place.run(["stop", &queued]).exits(0);
    let mut session = place.start(&[]);
    let id = session.id();
    gate.reached();
    session.crash();
    for more in [&[][..], &["--fix"]] {
        let report = doctor(&place, more);
        let gone = "1 × session whose runner is gone (`runner serve` or `runner resume` goes on with them)";
        assert_eq!(seen(&report), format!("ok: none; {gone}"));
    }
    assert_eq!((place.show(&id)["state"].clone(), place.containers().len()), (json!("runner_died"), 1));
    gate.open();
    place.run(["resume", &id]).exits(0);
    assert_eq!(seen(&doctor(&place, &[])), "ok: none");
    assert_eq!(place.show(&id)["cause"], "done");
    place.assert_clean();
}

/// CLI-19: what was kept on purpose stays.
#[test]
fn a_kept_sandbox_stays() {
    let place = Place::new();
    let ran = place.run(["start", "--agent", "worker", "--json", "--keep"]);
    let id = ran.exits(0).json_lines()[0]["session"].as_str().expect("an id").to_owned();
    let report = doctor(&place, &["--fix"]);
    assert_eq!(seen(&report), "ok: none; 1 kept on purpose (`runner ps --all`)");
    assert_eq!((report["fixed"].clone(), place.containers().len()), (json!([]), 1));
    place.run(["stop", &id]).exits(0);
}

/// CLI-19: superseded programs that no session links to go, and drafts of dead writers; never the current one, one that
/// a session has, a link, or what is not ours by name.
#[test]
fn superseded_files() {
    let place = Place::new();
    place.drive().exits(0);
    let state = place.state();
    let hash = |c: char| format!("toolbox-{}", String::from(c).repeat(64));
    fs::write(state.join(hash('a')), "old").expect("ours");
    fs::write(state.join(hash('b')), "in use").expect("ours");
    fs::create_dir(state.join("owners/x")).expect("ours");
    fs::hard_link(state.join(hash('b')), state.join("owners/x/toolbox")).expect("ours");
    std::os::unix::fs::symlink("/etc/passwd", state.join(hash('c'))).expect("ours");
    fs::write(state.join("toolbox-mine"), "").expect("ours");
    let draft = |name: &str, age: Duration| {
        let file = fs::File::create(state.join(format!(".new-{}", name.repeat(32)))).expect("ours");
        file.set_modified(SystemTime::now() - age).expect("ours");
    };
    draft("1", Duration::from_hours(2));
    draft("2", Duration::ZERO);
    let list = || {
        let mut names: Vec<String> = fs::read_dir(&state)
            .expect("it is there")
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            // SQLite's own, which the last one who closes the store removes.
            .filter(|name| !name.starts_with("store.db-"))
            .collect();
        names.sort();
        names
    };
    let before = list();
    assert_eq!(seen(&doctor(&place, &[])), "warning: 1 × superseded toolbox file; 1 × unfinished file");
    assert_eq!(list(), before, "a look removes nothing");
    let report = doctor(&place, &["--fix"]);
    assert_eq!(report["fixed"].as_array().map(Vec::len), Some(2), "{report}");
    let gone: Vec<String> = before.into_iter().filter(|name| !list().contains(name)).collect();
    assert_eq!(gone, [format!(".new-{}", "1".repeat(32)), hash('a')]);
    assert_eq!(seen(&report), "ok: none");
}

/// CLI-19: the records were lost. What this install made is proven by its folder, a stranger with our label is left
/// alone.
#[test]
fn what_the_records_do_not_know() {
    let mut place = Place::new();
    let ran = place.run(["start", "--agent", "worker", "--json", "--keep"]);
    let id = ran.exits(0).json_lines()[0]["session"].as_str().expect("an id").to_owned();
    let ours = place.containers().remove(0);
    let labels = engine("GET", &format!("/containers/{ours}/json")).1["Config"]["Labels"].clone();
    let (status, stranger) = engine_with(
        "POST",
        "/containers/create",
        &json!({"Image": "runner/minimal", "Cmd": ["/bin/bash"], "Labels": labels, "HostConfig": {"NetworkMode": "none"}}),
    );
    assert_eq!(status, 201, "{stranger}");
    let stranger = stranger["Id"].as_str().expect("an id").to_owned();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = fs::remove_file(place.state().join(name));
    }
    fs::create_dir(place.state().join("sessions/not-an-id")).expect("ours");
    let report = doctor(&place, &["--fix"]);
    let fixed = report["fixed"].to_string();
    assert!(fixed.contains(&format!("of session {id}, which the store does not know")), "{fixed}");
    assert_eq!(engine("GET", &format!("/containers/{ours}/json")).0, 404);
    assert_eq!(engine("GET", &format!("/containers/{stranger}/json")).0, 200, "a stranger's is left alone");
    assert_eq!(engine("DELETE", &format!("/containers/{stranger}?force=1")).0, 204);
    // Now nothing needs its folder.
    doctor(&place, &["--fix"]);
    let left: Vec<_> = place.session_folders().iter().filter_map(|path| Some(path.file_name()?.to_owned())).collect();
    assert_eq!(left, ["not-an-id"]);
    place.settle();
}
