//! `match`: which events a wait takes.

use serde_json::{Value, json};

use crate::harness::script::{say, wait};
use crate::harness::{Place, until};

/// S-WAIT-3: paths lead to normalised fields first and then into the payload, through lists and over escaped dots; equal
/// is the same scalar, or a string written like the number or boolean; a missing path equals nothing, not even null.
#[test]
fn an_event_wakes_exactly_those_that_match() {
    let event = json!({
        "action": "opened",
        "number": 42,
        "pull_request": {
            "number": 42, "title": "Bulk prices", "draft": false, "body": null,
            "user": {"login": "hubot"}, "labels": [{"name": "bug"}, {"name": "urgent"}],
            "head": {"ref": "bulk"}, "base": {"ref": "main"},
        },
        "custom": {"a.b": 1, "deep": [{"x": [10, 20]}]},
    });
    let matching = [
        json!({}),
        json!({"repo": "acme/app"}),
        json!({"action": "opened", "number": 42, "title": "Bulk prices", "author": "hubot", "sender": "octocat"}),
        json!({"number": "42"}),
        json!({"pull_request.draft": false}),
        json!({"pull_request.draft": "false"}),
        json!({"pull_request.body": null}),
        json!({"labels.1.name": "urgent"}),
        json!({"pull_request.labels.0.name": "bug"}),
        json!({"custom.a\\.b": 1, "custom.deep.0.x.1": 20}),
    ];
    let others = [
        json!({"repo": "acme/other"}),
        json!({"repo": "ACME/app"}),
        json!({"number": 43}),
        json!({"number": true}),
        json!({"pull_request.draft": 0}),
        json!({"pull_request.missing": null}),
        json!({"labels": null}),
        json!({"labels.7.name": "bug"}),
        json!({"custom.a.b": 1}),
        json!({"repo": "acme/app", "action": "closed"}),
    ];
    let name = |kind: &str, n: usize| format!("{kind}{n}");
    let agents: Vec<(String, Value)> = matching
        .iter()
        .enumerate()
        .map(|(n, filter)| (name("yes", n), filter))
        .chain(others.iter().enumerate().map(|(n, filter)| (name("no", n), filter)))
        .map(|(name, filter)| (name, json!([wait("w", filter, "5m"), say("woken")])))
        .collect();
    let agents: Vec<(&str, &str, Value)> =
        agents.iter().map(|(name, turns)| (name.as_str(), "", turns.clone())).collect();
    let place = Place::fleet("", &agents);
    let daemon = place.serve();
    let sessions: Vec<(String, String)> =
        agents.iter().map(|(name, ..)| ((*name).to_owned(), place.detach(name))).collect();
    for (_, session) in &sessions {
        place.waiting(session);
    }
    place.emit("pull_request", "acme/app", &event);
    until("ten are left", || place.listed("ps").len() == others.len());
    for (name, session) in &sessions {
        let woken = place.kinds(session, "resumed") > 0;
        assert_eq!(woken, name.starts_with("yes"), "{name}");
        if woken {
            assert_eq!(place.ended(session), "done");
        } else {
            place.run(["kill", session]).exits(0);
        }
    }
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
