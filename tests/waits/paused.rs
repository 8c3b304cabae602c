//! What a session is while it waits: paused, without a slot, and at no cost.

use serde_json::json;

use crate::harness::script::{bash, call, say, wait};
use crate::harness::{Place, until};

/// Processor time of a container's processes in clock ticks, by `/proc` of the host.
fn ticks(place: &Place, session: &str) -> u64 {
    let init = place.container_of(session)["State"]["Pid"].as_u64().expect("it runs");
    let session_of = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let ours = session_of(&init.to_string());
    let pids = std::fs::read_dir("/proc").expect("a /proc").flatten().filter_map(|e| e.file_name().into_string().ok());
    pids.filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()) && session_of(pid) == ours)
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let after = stat.rsplit_once(") ")?.1.split(' ').collect::<Vec<_>>();
            Some(after[11].parse::<u64>().ok()? + after[12].parse::<u64>().ok()?)
        })
        .sum()
}

/// S-WAIT-6: a job that would use all of a processor uses none while its session waits, and goes on after.
#[test]
fn its_processes_use_no_processor() {
    let turns = json!([
        call("job", "bash", &json!({"command": "while :; do echo x >>/tmp/n; done", "background": true})),
        wait("w", &json!({}), "5m"),
        bash("b", "a=$(wc -c </tmp/n); until [ $(wc -c </tmp/n) -gt $a ]; do sleep 0.05; done; echo grows"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    let before = ticks(&place, &session);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(ticks(&place, &session), before);
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.answer(&session, "b"), json!("grows\n"));
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-7: the wait is in the journal before the container is paused, and `ps` and `waits` tell of both.
#[test]
fn the_journal_is_first() {
    let place = Place::fleet("", &[("waits", "", json!([wait("w", &json!({}), "5m"), say("done")]))]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    let kinds: Vec<String> =
        place.events(&session).iter().map(|event| event["kind"].as_str().expect("a kind").to_owned()).collect();
    assert_eq!(kinds.last().map(String::as_str), Some("suspended"), "{kinds:?}");
    until("it is shown as paused", || place.listed("waits")[0]["paused"] == true);
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    let kinds: Vec<String> =
        place.events(&session).iter().map(|event| event["kind"].as_str().expect("a kind").to_owned()).collect();
    let at = |kind: &str| kinds.iter().position(|k| k == kind).expect("it is there");
    assert!(at("suspended") < at("resumed") && at("resumed") < at("ended"), "{kinds:?}");
    daemon.stop().exits(0);
}

/// S-WAIT-6: a restart of the engine is out of a test's hands, a container that is gone is not: the session ends with that
/// cause, and its lock is free.
#[test]
fn a_container_that_is_gone_ends_the_wait() {
    let turns = json!([
        call("l", "acquire_lock", &json!({"resource_key": "lock://a/b"})),
        wait("w", &json!({}), "5m"),
        bash("b", "echo nobody is there"),
        say("never"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    let name = place.show(&session)["container"]["name"].as_str().expect("a name").to_owned();
    crate::harness::engine("DELETE", &format!("/containers/{name}?force=1"));
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "sandbox_lost");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// `onSandboxLost = "restart"`: a new container and a fresh conversation; the journal says so, and turns count on.
#[test]
fn a_lost_container_is_made_anew_where_that_is_asked_for() {
    let turns =
        json!([bash("b", "touch /tmp/f; ls /tmp"), wait("w", &json!({}), "5m"), bash("c", "ls /tmp"), say("done")]);
    let place = Place::fleet("", &[("waits", "onSandboxLost = \"restart\"", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    let name = place.show(&session)["container"]["name"].as_str().expect("a name").to_owned();
    crate::harness::engine("DELETE", &format!("/containers/{name}?force=1"));
    place.emit("issues", "acme/app", &json!({}));
    until("it waits again", || place.kinds(&session, "suspended") == 2);
    place.waiting(&session);
    place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    let turns: Vec<i64> =
        place.bodies(&session, "assistant").iter().map(|body| body["turn"].as_i64().expect("a number")).collect();
    assert!(turns.windows(2).all(|two| two[0] < two[1]), "{turns:?}");
    // Two before the container was gone, four after it, and the one that met its loss if it was answered before that.
    assert!((6..=7).contains(&turns.len()), "{turns:?}");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
