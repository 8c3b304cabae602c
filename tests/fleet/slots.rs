//! Who gets a slot, when, and in which order.

use serde_json::{Value, json};

use crate::harness::script::{Gate, say, wait};
use crate::harness::{Place, until};

fn turns(gate: &Gate) -> Value {
    json!([gate.turn("hold"), say("done")])
}

/// S-NUM-1: an agent's `scale`, by default 1, is how many of it work at once; 0 disables it.
#[test]
fn scale_bounds_an_agent() {
    let (one, two) = (Gate::new(), Gate::new());
    let agents =
        [("one", "", turns(&one)), ("two", "scale = 2", turns(&two)), ("resting", "scale = 0", json!([say("x")]))];
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    for agent in ["one", "one", "two", "two", "two"] {
        place.detach(agent);
    }
    until("as many as may work do", || (one.waiting(), two.waiting()) == (1, 2));
    assert_eq!(place.listed("queue").len(), 2);
    let refused = place.run(["start", "--agent", "resting", "--detach"]);
    refused.exits(2).complains("scale");
    for _ in 0..2 {
        until("the next ones work", || one.waiting() > 0 || two.waiting() > 0);
        assert!(one.waiting() <= 1 && two.waiting() <= 2, "{} {}", one.waiting(), two.waiting());
        one.open();
        two.open();
        until("the next ones work, or all is done", || {
            one.waiting() > 0 || two.waiting() > 0 || place.listed("ps").is_empty()
        });
    }
    one.open();
    two.open();
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-NUM-1: `defaultAgentScale` is that of agents that say none, and `scale` of a project counts call trees.
#[test]
fn scale_bounds_a_project() {
    let gate = Gate::new();
    let agents = [("one", "", turns(&gate)), ("two", "", turns(&gate))];
    let place = Place::fleet("scale = 3\ndefaultAgentScale = 2", &agents);
    let daemon = place.serve();
    for agent in ["one", "one", "one", "two", "two", "two"] {
        place.detach(agent);
    }
    until("three work", || gate.waiting() == 3);
    assert_eq!(place.listed("queue").len(), 3);
    let working =
        |agent: &str| place.listed("ps").iter().filter(|s| s["agent"] == agent && s["state"] != "queued").count();
    assert!(working("one") <= 2 && working("two") <= 2);
    gate.open();
    until("the other three work", || gate.waiting() == 3);
    gate.open();
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// First in, first out for each agent.
#[test]
fn an_agents_queue_is_in_order() {
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    // Nobody serves yet, so all of them are queued.
    let asked: Vec<String> = (0..5).map(|_| place.detach("one")).collect();
    assert_eq!(place.listed("queue").len(), 5);
    let daemon = place.serve();
    place.all_ended();
    let mut ended: Vec<(String, String)> = asked
        .iter()
        .map(|session| (place.show(session)["ended_at"].as_str().expect("a time").to_owned(), session.clone()))
        .collect();
    ended.sort();
    let order: Vec<String> = ended.into_iter().map(|(_, session)| session).collect();
    assert_eq!(order, asked);
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// Of several agents the one that got a slot longest ago is next: one that asks a lot does not shut out the other.
#[test]
fn agents_take_turns() {
    let agents = [("busy", "", json!([say("done")])), ("rare", "", json!([say("done")]))];
    let place = Place::fleet("scale = 1", &agents);
    for _ in 0..6 {
        place.detach("busy");
    }
    let rare = place.detach("rare");
    let daemon = place.serve();
    place.all_ended();
    let end = |session: &str| place.show(session)["ended_at"].as_str().expect("a time").to_owned();
    let before = place.sessions_of("busy").iter().filter(|session| end(session) < end(&rare)).count();
    assert!(before <= 1, "{before} of the busy one went first");
    daemon.stop().exits(0);
}

/// S-WAIT-9, bug 44: a session that was woken takes a slot before new work does.
#[test]
fn woken_ones_go_first() {
    let gate = Gate::new();
    let agents =
        [("waits", "scale = 2", json!([wait("w", &json!({}), "1m"), say("woken")])), ("works", "", turns(&gate))];
    let place = Place::fleet("scale = 1", &agents);
    let daemon = place.serve();
    let waiting = place.detach("waits");
    place.waiting(&waiting);
    place.detach("works");
    // S-WAIT-6: its slot is free for other work while it waits.
    gate.reached();
    let queued = place.detach("works");
    place.emit("issues", "acme/app", &json!({}));
    gate.open();
    assert_eq!(place.ended(&waiting), "done");
    until("the queued one works", || gate.waiting() > 0);
    assert_eq!(place.state_of(&queued), "running");
    gate.open();
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// A paused agent gets no new slot, and goes on when it is unpaused; what waits for one is queued meanwhile.
#[test]
fn a_paused_agent_gets_no_slot() {
    let place = Place::fleet("", &[("one", "", json!([say("done")])), ("two", "", json!([say("done")]))]);
    let daemon = place.serve();
    place.run(["pause", "one"]).exits(0);
    let held = place.detach("one");
    let other = place.detach("two");
    assert_eq!(place.ended(&other), "done");
    assert_eq!(place.state_of(&held), "queued");
    place.run(["unpause", "one"]).exits(0);
    assert_eq!(place.ended(&held), "done");
    place.run(["pause"]).exits(0);
    let held = place.detach("two");
    assert_eq!(place.listed("queue").len(), 1);
    assert_eq!(place.state_of(&held), "queued");
    place.run(["unpause"]).exits(0);
    assert_eq!(place.ended(&held), "done");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
