//! bug 29: runners that are killed, and the next one that cleans up after them.

use serde_json::{Value, json};

use crate::harness::{Place, Relay, Rule, Session, engine, engine_with, long_sleep, processes, processes_with, until};

fn sleepy() -> (Place, String) {
    let place = Place::new();
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": sleep, "timeout": 1000}}]},
        {"text": "never said"}
    ]));
    (place, sleep)
}

/// Lines that the next runner prints about sessions it ended, sorted.
fn notes(ids: &[&String]) -> Vec<String> {
    let note = |id: &&String| format!("note: session {id} was ended and cleaned up: its runner had died");
    let mut notes: Vec<String> = ids.iter().map(note).collect();
    notes.sort();
    notes
}

#[track_caller]
fn recovered(place: &Place, ids: &[&String]) {
    let next = place.drive();
    assert_eq!(next.exits(0).stdout, "next\n");
    let mut said: Vec<String> = next.stderr.lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, notes(ids));
    for id in ids {
        let shown = place.show(id);
        let end = json!([shown["state"], shown["cause"], shown["exit_code"], shown["message"], shown["sandbox_kept"]]);
        assert_eq!(end, json!(["ended", "runner_died", 1, "its runner died without ending it", false]), "{id}");
    }
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}

/// Five agents at work, their runners killed: the next runner ends all five. A container that carries our labels and
/// one that looks like ours are not touched.
#[test]
fn five_agents_at_work() {
    let (mut place, sleep) = sleepy();
    let mut sessions: Vec<Session> = (0..5).map(|_| place.start(&[])).collect();
    let ids: Vec<String> = sessions.iter_mut().map(Session::id).collect();
    until("five agents work", || processes(&sleep).len() == 5);
    assert_eq!((place.containers().len(), place.owners()), (5, 5));

    let token = std::fs::read_to_string(place.state().join("token")).expect("a token");
    let labels = json!({"runner.install": token.trim(), "runner.session": ids[0], "runner.ids": "7"});
    let labelled = foreign("labelled", &labels);
    let name = place.show(&ids[0])["container"]["name"].as_str().expect("a name").to_owned();
    let look_alike = foreign(&format!("{name}x"), &json!({"runner.session": ids[0]}));

    sessions.into_iter().for_each(Session::crash);
    let listed = place.run(["ps", "--json"]).exits(0).json();
    assert!(listed.as_array().expect("a list").iter().all(|session| session["state"] == "runner_died"), "{listed}");

    let next = place.drive();
    assert_eq!(next.exits(0).stdout, "next\n");
    let mut said: Vec<String> = next.stderr.lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, notes(&ids.iter().collect::<Vec<_>>()));
    until("the commands are gone", || processes_with(&sleep).is_empty());
    assert_eq!(place.containers(), [format!("runner-test-labelled-{}", std::process::id())]);
    for foreign in [labelled, look_alike] {
        let (status, found) = engine("GET", &format!("/containers/{foreign}/json"));
        assert_eq!((status, &found["State"]["Status"]), (200, &json!("created")), "it is left alone");
        engine("DELETE", &format!("/containers/{foreign}?force=1"));
    }
    assert_eq!((place.session_folders().len(), place.owners()), (0, 0));
    place.settle();
    recovered(&place, &[]);
}

/// Makes a container that is not ours, and gives its id.
fn foreign(name: &str, labels: &Value) -> String {
    let body = json!({"Image": "runner/minimal", "Cmd": ["/bin/true"], "Labels": labels});
    let path = match name {
        "labelled" => format!("/containers/create?name=runner-test-{name}-{}", std::process::id()),
        _ => format!("/containers/create?name={name}"),
    };
    let (status, made) = engine_with("POST", &path, &body);
    assert_eq!(status, 201, "{made}");
    made["Id"].as_str().expect("an id").to_owned()
}

/// Kills a runner while the engine is at a request, and gives the session's id.
fn die_at(place: &Place, part: &str, rule: Rule) -> String {
    let relay = Relay::new();
    relay.rule(part, rule);
    let mut command = place.start_command(&[]);
    command.env("DOCKER_HOST", relay.address());
    let mut session = Session::of(command);
    let id = session.id();
    relay.met(part);
    session.crash();
    id
}

/// Before the engine heard of the container: its recorded name may be another's by now, which is left alone.
#[test]
fn before_create() {
    let (place, _) = sleepy();
    let id = die_at(&place, "/containers/create", Rule::Mute);
    assert_eq!((place.containers().len(), place.session_folders().len()), (0, 1));
    let name = place.show(&id)["container"]["name"].as_str().expect("a name").to_owned();
    let thief = foreign(&name, &json!({}));
    recovered(&place, &[&id]);
    let (status, _) = engine("GET", &format!("/containers/{thief}/json"));
    engine("DELETE", &format!("/containers/{thief}?force=1"));
    assert_eq!(status, 200, "it is left alone");
}

/// Between create and the record of its id: the recorded name is enough to find it.
#[test]
fn between_create_and_the_record_of_its_id() {
    let (place, _) = sleepy();
    let id = die_at(&place, "/containers/create", Rule::Swallow);
    assert_eq!((place.containers().len(), &place.show(&id)["container"]["id"]), (1, &Value::Null));
    recovered(&place, &[&id]);
}

/// Between create and start.
#[test]
fn between_create_and_start() {
    let (place, _) = sleepy();
    let id = die_at(&place, "/start", Rule::Mute);
    assert_eq!(place.containers().len(), 1);
    recovered(&place, &[&id]);
}

/// After start, before PID 1 was let in.
#[test]
fn between_start_and_ready() {
    let (place, _) = sleepy();
    let id = die_at(&place, "/start", Rule::Swallow);
    assert_eq!(place.containers().len(), 1);
    recovered(&place, &[&id]);
}

/// While the sandbox is removed: the session's own end stays, and what is left goes.
#[test]
fn while_it_is_removed() {
    let place = Place::new();
    let id = die_at(&place, "DELETE /", Rule::Mute);
    let shown = place.show(&id);
    assert_eq!(json!([shown["cause"], shown["exit_code"], shown["sandbox_kept"]]), json!(["done", 0, true]));
    let next = place.drive();
    assert_eq!((next.exits(0).stdout.as_str(), next.stderr.as_str()), ("next\n", ""));
    let shown = place.show(&id);
    assert_eq!(json!([shown["cause"], shown["exit_code"], shown["sandbox_kept"]]), json!(["done", 0, false]));
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}

/// `runner start` recovers too, and says so before its own first line.
#[test]
fn the_next_start_recovers() {
    let (place, sleep) = sleepy();
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || !processes(&sleep).is_empty());
    session.crash();
    place.script(&json!([{"text": "done"}]));
    let next = place.run(["start", "--agent", "worker"]);
    let first = next.exits(0).stdout.lines().next().expect("lines");
    assert_eq!(first, format!("note: session {id} was ended and cleaned up: its runner had died"));
    recovered(&place, &[&id][..0]);
    assert_eq!(place.show(&id)["cause"], "runner_died");
}

/// `runner stop` of a session whose runner died does the same for that one.
#[test]
fn a_dead_session_is_stopped_by_name() {
    let (place, sleep) = sleepy();
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || !processes(&sleep).is_empty());
    session.crash();
    let stop = place.run(["stop", &id]);
    assert_eq!((stop.exits(0).stdout.as_str(), stop.stderr.as_str()), (format!("{id}  stopped\n").as_str(), ""));
    assert_eq!(place.show(&id)["cause"], "stopped");
    place.assert_clean();
}

/// `logs -f` of a session whose runner dies says so and ends.
#[test]
fn a_follower_hears_of_the_death() {
    let (place, sleep) = sleepy();
    let mut session = place.start(&[]);
    let id = session.id();
    until("it works", || !processes(&sleep).is_empty());
    let mut follower = Session::of(place.command(["logs", "-f", &id]));
    follower.line_with("call       bash");
    session.crash();
    let ran = follower.end();
    assert_eq!((ran.exits(1).stderr.as_str()), format!("its runner died; `runner stop {id}` cleans up\n"));
    recovered(&place, &[&id]);
}

/// Several runners that notice at once end each session once.
#[test]
fn several_notice_at_once() {
    let (place, sleep) = sleepy();
    let mut sessions: Vec<Session> = (0..2).map(|_| place.start(&[])).collect();
    let ids: Vec<String> = sessions.iter_mut().map(Session::id).collect();
    until("they work", || processes(&sleep).len() == 2);
    sessions.into_iter().for_each(Session::crash);
    let tool = ["tool", "--agent", "worker", "bash", r#"{"command": "echo next"}"#];
    let next: Vec<Session> = (0..3).map(|_| Session::of(place.command(tool))).collect();
    let mut said: Vec<String> = Vec::new();
    for session in next {
        let ran = session.end();
        assert_eq!(ran.exits(0).stdout, "next\n");
        said.extend(ran.stderr.lines().map(str::to_owned));
    }
    said.sort();
    assert_eq!(said, notes(&ids.iter().collect::<Vec<_>>()));
    for id in &ids {
        assert_eq!(place.bodies(id, "ended").len(), 1);
    }
    place.assert_clean();
}
