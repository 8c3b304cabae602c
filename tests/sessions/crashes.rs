//! bug 29: runners that are killed, and the next one that goes on with their sessions, or cleans up after them.

use serde_json::{Value, json};

use crate::harness::script::Gate;
use crate::harness::{
    Desk, Place, Relay, Rule, Session, engine, engine_with, long_sleep, processes, processes_with, until,
};

/// A place whose agent `worker` stands before a gate and then is done.
fn gated(scale: u32) -> (Place, Gate) {
    let place = Place::new();
    place.agent("worker", &format!("models = [\"script\"]\nscale = {scale}\n"));
    let gate = Gate::new();
    place.script(&json!([gate.turn("long"), {"text": "${long.text}"}]));
    (place, gate)
}

/// Asserts that the sessions came to a good end, once, and that nothing is left.
#[track_caller]
fn came_to_their_ends(place: &Place, ids: &[String]) {
    for id in ids {
        let shown = place.show(id);
        let end = json!([shown["state"], shown["cause"], shown["exit_code"], shown["message"], shown["sandbox_kept"]]);
        assert_eq!(end, json!(["ended", "done", 0, "the agent is done", false]), "{id}");
        assert_eq!(place.kinds(id, "ended"), 1, "{id}");
    }
    place.assert_clean();
    until("no driver is left", || place.owners() == 0);
}

/// Five agents at work, their runners killed: the next runner goes on with all five. A container that carries our labels
/// and one that looks like ours are not touched.
#[test]
fn five_agents_at_work() {
    let (mut place, gate) = gated(5);
    let mut sessions: Vec<Session> = (0..5).map(|_| place.start(&[])).collect();
    let ids: Vec<String> = sessions.iter_mut().map(Session::id).collect();
    until("five agents work", || gate.waiting() == 5);
    assert_eq!((place.containers().len(), place.owners()), (5, 5));

    let token = std::fs::read_to_string(place.state().join("token")).expect("a token");
    let labels = json!({"runner.install": token.trim(), "runner.session": ids[0], "runner.ids": "7"});
    let labelled = foreign("labelled", &labels);
    let name = place.show(&ids[0])["container"]["name"].as_str().expect("a name").to_owned();
    let look_alike = foreign(&format!("{name}x"), &json!({"runner.session": ids[0]}));

    sessions.into_iter().for_each(Session::crash);
    let listed = place.run(["ps", "--json"]).exits(0).json();
    assert!(listed.as_array().expect("a list").iter().all(|session| session["state"] == "runner_died"), "{listed}");

    let daemon = place.serve();
    until("all are taken up", || ids.iter().all(|id| place.kinds(id, "resumed") == 1));
    assert_eq!(gate.waiting(), 5, "nothing was begun twice");
    gate.open();
    until("all have ended", || ids.iter().all(|id| place.show(id)["state"] == "ended"));
    daemon.stop().exits(0);
    assert_eq!(place.containers(), [format!("runner-test-labelled-{}", std::process::id())]);
    for foreign in [labelled, look_alike] {
        let (status, found) = engine("GET", &format!("/containers/{foreign}/json"));
        assert_eq!((status, &found["State"]["Status"]), (200, &json!("created")), "it is left alone");
        engine("DELETE", &format!("/containers/{foreign}?force=1"));
    }
    assert_eq!(place.session_folders().len(), 0);
    place.settle();
    came_to_their_ends(&place, &ids);
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

/// Kills a runner while the engine is at a request, and gives the session's id and how many containers there are then.
fn die_at(place: &Place, part: &str, rule: Rule) -> (String, usize) {
    let relay = Relay::new();
    relay.rule(part, rule);
    let mut command = place.start_command(&[]);
    command.env("DOCKER_HOST", relay.address());
    let mut session = Session::of(command);
    let id = session.id();
    relay.met(part);
    session.crash();
    let containers = place.containers().len();
    (id, containers)
}

/// The next runner goes on with a session that had come to nothing yet.
#[track_caller]
fn begins_again(place: &Place, id: String) {
    let ran = place.run(["resume", &id, "--json"]);
    let last = ran.exits(0).json_lines().pop().expect("events");
    assert_eq!((&last["cause"], &last["text"]), (&json!("done"), &json!("done")));
    came_to_their_ends(place, &[id]);
}

/// Before the engine heard of the container: its recorded name may be another's by now, which is left alone.
#[test]
fn before_create() {
    let place = Place::new();
    let (id, containers) = die_at(&place, "/containers/create", Rule::Mute);
    assert_eq!((containers, place.session_folders().len()), (0, 1));
    let name = place.show(&id)["container"]["name"].as_str().expect("a name").to_owned();
    let thief = foreign(&name, &json!({}));
    let ran = place.run(["resume", &id]);
    let (status, _) = engine("GET", &format!("/containers/{thief}/json"));
    engine("DELETE", &format!("/containers/{thief}?force=1"));
    assert_eq!(status, 200, "it is left alone");
    ran.exits(3);
    let shown = place.show(&id);
    assert_eq!(json!([shown["state"], shown["cause"]]), json!(["ended", "engine"]));
    place.assert_clean();
}

/// Between create and the record of its id: the recorded name is enough to find it.
#[test]
fn between_create_and_the_record_of_its_id() {
    let place = Place::new();
    let (id, containers) = die_at(&place, "/containers/create", Rule::Swallow);
    assert_eq!((containers, &place.show(&id)["container"]["id"]), (1, &Value::Null));
    begins_again(&place, id);
}

/// Between create and start.
#[test]
fn between_create_and_start() {
    let place = Place::new();
    let (id, containers) = die_at(&place, "/start", Rule::Mute);
    assert_eq!(containers, 1);
    begins_again(&place, id);
}

/// After start, before PID 1 was let in.
#[test]
fn between_start_and_ready() {
    let place = Place::new();
    let (id, containers) = die_at(&place, "/start", Rule::Swallow);
    assert_eq!(containers, 1);
    begins_again(&place, id);
}

/// While the sandbox is removed: the session's own end stays, and what is left goes.
#[test]
fn while_it_is_removed() {
    let place = Place::new();
    let (id, _) = die_at(&place, "DELETE /", Rule::Mute);
    let shown = place.show(&id);
    assert_eq!(json!([shown["cause"], shown["exit_code"], shown["sandbox_kept"]]), json!(["done", 0, true]));
    let next = place.drive();
    assert_eq!((next.exits(0).stdout.as_str(), next.stderr.as_str()), ("next\n", ""));
    let shown = place.show(&id);
    assert_eq!(json!([shown["cause"], shown["exit_code"], shown["sandbox_kept"]]), json!(["done", 0, false]));
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}

/// `runner start` of another agent takes a dead runner's session up beside its own, and leaves it again when its own is
/// over: its command stands still until somebody goes on with it.
#[test]
fn the_next_start_takes_up_and_leaves_again() {
    let (place, gate) = gated(1);
    place.agent("other", "models = [\"other\"]\n");
    let other = Gate::new();
    let config = std::fs::read_to_string(place.project().join("config.toml")).expect("it is there");
    place.write("config.toml", format!("{config}[models.other]\nprovider = \"script\"\nfile = \"other.json\"\n"));
    place.write("other.json", json!({"turns": [other.turn("a"), {"text": "bye"}]}).to_string());
    let mut session = place.start(&[]);
    let id = session.id();
    gate.reached();
    session.crash();
    let mut next = Session::of(place.command(["start", "--agent", "other"]));
    next.line_with(&format!("took over session {id} of worker: its runner had died"));
    other.reached();
    until("it is taken up", || place.kinds(&id, "resumed") == 1);
    other.open();
    let ran = next.end();
    let left = format!("note: leaving session {id} again; `runner resume {id}` or `runner serve` goes on with it");
    ran.exits(0).prints(&left);
    assert_eq!(place.show(&id)["state"], "runner_died");
    assert_eq!(gate.waiting(), 1, "its command is still there");
    let resumed = Session::of(place.command(["resume", &id]));
    until("it goes on again", || place.kinds(&id, "resumed") == 2);
    gate.open();
    resumed.end().exits(0);
    assert_eq!(
        place.bodies(&id, "resumed").iter().map(|body| &body["by"]["type"]).collect::<Vec<_>>(),
        ["runner_died", "runner_left"]
    );
    came_to_their_ends(&place, &[id]);
}

/// `runner start` of the same agent waits for the slot that a dead runner's session has, and goes on with that one first.
#[test]
fn the_next_start_waits_for_the_slot() {
    let (place, gate) = gated(1);
    let mut session = place.start(&[]);
    let first = session.id();
    gate.reached();
    session.crash();
    let mut next = place.start(&[]);
    until("it is taken up", || place.kinds(&first, "resumed") == 1);
    gate.open();
    let second = next.id();
    gate.reached();
    assert_eq!(place.show(&first)["cause"], "done", "the slot was free when it had ended");
    gate.open();
    next.end().exits(0);
    came_to_their_ends(&place, &[first, second]);
}

/// `runner stop` of a session whose runner died does the same for that one.
#[test]
fn a_dead_session_is_stopped_by_name() {
    let (place, gate) = gated(1);
    let mut session = place.start(&[]);
    let id = session.id();
    gate.reached();
    session.crash();
    let stop = place.run(["stop", &id]);
    assert_eq!((stop.exits(0).stdout.as_str(), stop.stderr.as_str()), (format!("{id}  stopped\n").as_str(), ""));
    assert_eq!(place.show(&id)["cause"], "stopped");
    place.assert_clean();
}

/// `logs -f` of a session whose runner dies says so, and goes on when the session does.
#[test]
fn a_follower_hears_of_the_death() {
    let (place, gate) = gated(1);
    let mut session = place.start(&[]);
    let id = session.id();
    gate.reached();
    let mut follower = Session::of(place.command(["logs", "-f", &id]));
    follower.line_with("call       bash");
    session.crash();
    let said = follower.complaint();
    assert_eq!(said, format!("its runner died; `runner serve` or `runner resume {id}` goes on with it\n"));
    gate.open();
    place.run(["resume", &id]).exits(0);
    follower.line_with("resumed    {\"type\":\"runner_died\"}");
    follower.line_with("ended      done");
    assert_eq!(follower.end().exits(0).stderr, "");
    came_to_their_ends(&place, &[id]);
}

/// Of several runners that notice at once, one goes on with the session and the others follow it.
#[test]
fn several_go_on_at_once() {
    let (place, gate) = gated(1);
    let mut session = place.start(&[]);
    let id = session.id();
    gate.reached();
    session.crash();
    let next: Vec<Session> = (0..3).map(|_| Session::of(place.command(["resume", &id, "--json"]))).collect();
    until("it is taken up", || place.kinds(&id, "resumed") == 1);
    gate.open();
    for session in next {
        let ran = session.end();
        let last = ran.exits(0).json_lines().pop().expect("events");
        assert_eq!(json!([last["event"], last["cause"]]), json!(["ended", "done"]));
    }
    assert_eq!((place.kinds(&id, "resumed"), place.kinds(&id, "tool_finished")), (1, 1));
    came_to_their_ends(&place, &[id]);
}

/// Calls of `runner tool` have no mind that could go on: several runners that notice at once end each of them once.
#[test]
fn several_clean_up_at_once() {
    let place = Place::new();
    let sleep = long_sleep();
    let mut desks: Vec<Desk> = (0..2).map(|_| place.desk()).collect();
    for desk in &mut desks {
        desk.send("bash", &json!({"command": sleep, "timeout": 1000}));
    }
    until("they work", || processes(&sleep).len() == 2);
    let listed = place.run(["ps", "--json"]).exits(0).json();
    let ids: Vec<String> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["session"].as_str().expect("an id").to_owned())
        .collect();
    desks.iter_mut().for_each(Desk::kill);
    let tool = ["tool", "--agent", "worker", "bash", r#"{"command": "echo next"}"#];
    let next: Vec<Session> = (0..3).map(|_| Session::of(place.command(tool))).collect();
    let mut said: Vec<String> = Vec::new();
    for session in next {
        let ran = session.end();
        assert_eq!(ran.exits(0).stdout, "next\n");
        said.extend(ran.stderr.lines().map(str::to_owned));
    }
    said.sort();
    let mut notes: Vec<String> =
        ids.iter().map(|id| format!("note: session {id} was ended and cleaned up: its runner had died")).collect();
    notes.sort();
    assert_eq!(said, notes);
    for id in &ids {
        let shown = place.show(id);
        let end = json!([shown["state"], shown["cause"], shown["exit_code"], shown["message"], shown["sandbox_kept"]]);
        assert_eq!(end, json!(["ended", "runner_died", 1, "its runner died without ending it", false]), "{id}");
        assert_eq!(place.kinds(id, "ended"), 1);
    }
    until("the commands are gone", || processes_with(&sleep).is_empty());
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}
