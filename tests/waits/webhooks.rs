//! Events from outside, and those that they wake.

use serde_json::{Value, json};

use crate::harness::script::{bash, call, say, wait};
use crate::harness::{Place, has, until};

fn waits(source: &Value, event: &Value) -> Value {
    let args = json!({"type": "webhook", "source": source, "event": event, "timeout": "5m"});
    json!([call("w", "wait_for_trigger", &args), say("woken")])
}

/// S-WAIT-2: a source is named by its name or by its provider's type, and an event by the provider's name.
#[test]
fn sources_are_named_in_two_ways() {
    let agents = [
        ("by-name", "", waits(&json!("hub-two"), &json!("issues"))),
        ("by-type", "", waits(&json!("github"), &json!("issues"))),
        ("other-event", "", waits(&json!("hub-two"), &json!("push"))),
        ("other-source", "", waits(&json!("hub-three"), &json!("issues"))),
    ];
    let sources = "[webhooks.hub-two]\ntype = \"github\"\n[webhooks.hub-three]\ntype = \"github\"";
    let place = Place::fleet(sources, &agents);
    let daemon = place.serve();
    let sessions: Vec<String> = agents.iter().map(|(name, ..)| place.detach(name)).collect();
    for session in &sessions {
        place.waiting(session);
    }
    let file = place.write("event.json", json!({"action": "opened"}).to_string());
    let file = file.to_str().expect("UTF-8");
    place.run(["emit", "webhook", "--source", "hub-two", "--event", "issues", file]).exits(0);
    until("two are left", || place.listed("ps").len() == 2);
    assert_eq!(sessions.iter().map(|s| place.kinds(s, "resumed")).collect::<Vec<_>>(), [1, 1, 0, 0]);
    for session in &sessions[2..] {
        place.run(["kill", session]).exits(0);
    }
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-9: every session that matches wakes, once for one event; the result is the whole trigger, how long it waited,
/// and whether its lock expired meanwhile.
#[test]
fn everyone_who_matches_wakes_once() {
    let turns = json!([
        call("lock", "acquire_lock", &json!({"resource_key": "lock://${trigger.type}/${task}", "ttl_seconds": 1})),
        wait("w", &json!({"repo": "acme/app"}), "5m"),
        say("woken"),
    ]);
    let place = Place::fleet("", &[("waits", "scale = 3", turns)]);
    let daemon = place.serve();
    let start = |task: &str| {
        let ran = place.run(["start", "--agent", "waits", "--detach", "--json", "--task", task]);
        ran.exits(0);
    };
    for task in ["a", "b", "c"] {
        start(task);
    }
    until("three wait", || place.listed("waits").len() == 3);
    let sessions = place.sessions_of("waits");
    for session in &sessions {
        place.waiting(session);
    }
    until("the locks have expired", || place.listed("locks").is_empty());
    place.emit("issues", "acme/app", &json!({"issue": {"number": 7, "title": "It is broken"}}));
    for session in &sessions {
        assert_eq!(place.ended(session), "done");
        assert_eq!(place.kinds(session, "resumed"), 1);
        let told = place.answer(session, "w");
        has(
            &told,
            &json!({"type": "webhook", "source": "github", "event": "issues", "repo": "acme/app", "action": "opened"}),
        );
        assert_eq!(told["payload"]["issue"]["title"], "It is broken", "{told}");
        assert!(told["waited_seconds"].as_f64().is_some_and(|waited| (0.5..60.0).contains(&waited)), "{told}");
        assert!(told["lost_lock"].to_string().contains("lock://manual/"), "{told}");
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-10, S-WAIT-8: nothing comes in time: an error that the model can handle; the container is unpaused and works,
/// and a timer inside it that passed during the pause has fired.
#[test]
fn a_wait_gives_up() {
    let turns = json!([
        call("timer", "bash", &json!({"command": "sleep 1; echo rang >/tmp/bell", "background": true})),
        wait("w", &json!({}), "3s"),
        bash("b", "until [ -s /tmp/bell ]; do sleep 0.05; done; cat /tmp/bell"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let session = place.alone("waits");
    let (is_error, _) = place.failure(&session, "w");
    assert!(is_error, "{}", place.answer(&session, "w"));
    assert!(place.answer(&session, "w").to_string().contains('3'), "it says how long it waited");
    assert_eq!(place.answer(&session, "b"), json!("rang\n"));
    place.assert_nothing_left();
}

/// S-WAIT-11: several waits in one session: files in /tmp are there after each, variables are not.
#[test]
fn files_survive_and_variables_do_not() {
    let turns = json!([
        bash("b1", "export GONE=yes; echo one >/tmp/f"),
        wait("w1", &json!({"number": 1}), "5m"),
        bash("b2", "echo ${GONE-no}; echo two >>/tmp/f".replace("${", "$${").as_str()),
        wait("w2", &json!({"number": 2}), "5m"),
        bash("b3", "cat /tmp/f"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("waits", "", turns)]);
    let daemon = place.serve();
    let session = place.detach("waits");
    for number in [1, 2] {
        until("it waits", || place.kinds(&session, "suspended") == number);
        place.waiting(&session);
        place.emit("issues", "acme/app", &json!({"number": number, "issue": {"number": number}}));
    }
    assert_eq!(place.ended(&session), "done");
    assert_eq!(place.answer(&session, "b2"), json!("no\n"));
    assert_eq!(place.answer(&session, "b3"), json!("one\ntwo\n"));
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// An event is kept with the sessions that it woke; one that woke nobody is kept too.
#[test]
fn events_say_what_they_woke() {
    let place = Place::fleet("", &[("waits", "", json!([wait("w", &json!({"repo": "acme/app"}), "5m"), say("x")]))]);
    let daemon = place.serve();
    let session = place.detach("waits");
    place.waiting(&session);
    let ran = place.emit("issues", "acme/other", &json!({}));
    assert!(!ran.stdout.contains(&session), "{ran}");
    let ran = place.emit("issues", "acme/app", &json!({}));
    assert_eq!(place.ended(&session), "done");
    assert!(ran.stdout.contains(&session[session.len() - 8..]), "whom it woke: {ran}");
    daemon.stop().exits(0);
}
