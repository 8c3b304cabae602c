//! What a wait refuses at once.

use serde_json::{Value, json};

use crate::harness::Place;
use crate::harness::script::{call, say};

/// Calls `wait_for_trigger` with each of these, in one session that ends, and gives the answers.
fn refusals(project: &str, waits: &[Value]) -> Vec<String> {
    let mut turns: Vec<Value> =
        waits.iter().enumerate().map(|(n, args)| call(&format!("w{n}"), "wait_for_trigger", args)).collect();
    turns.push(say("done"));
    let place = Place::fleet(project, &[("waits", "", Value::Array(turns))]);
    let session = place.alone("waits");
    assert_eq!(place.kinds(&session, "suspended"), 0, "none of them waits");
    place.answers(&session).into_iter().map(|(_, answer)| answer.to_string()).collect()
}

/// S-WAIT-1: a time is written as the grammar says, at most 30 days; anything else is refused with the grammar.
#[test]
fn times_have_a_grammar() {
    let of = |timeout: &str| json!({"type": "webhook", "source": "github", "timeout": timeout});
    let wrong = ["", "45", "s", "1.5h", "-1m", "1h-30m", "30m1h", "1 h", "1w", "31d", "0s", "99999999999999999999s"];
    let told = refusals("", &wrong.map(of));
    for (timeout, answer) in wrong.iter().zip(&told) {
        assert!(
            answer.contains("45s") && answer.contains("1h30m"),
            "{timeout:?} is refused with the grammar: {answer}"
        );
    }
}

/// S-WAIT-1: each form of the grammar is taken, and without one the agent's `waitTimeout` or the project's
/// `defaultWaitTimeout` counts.
#[test]
fn times_have_defaults() {
    let waits = |timeout: Option<&str>| {
        let mut args = json!({"type": "webhook", "source": "github"});
        if let Some(timeout) = timeout {
            args["timeout"] = json!(timeout);
        }
        json!([call("w", "wait_for_trigger", &args), say("done")])
    };
    let forms = [
        ("a", "", Some("45s"), 45),
        ("b", "", Some("30m"), 1800),
        ("c", "", Some("2h"), 7200),
        ("d", "", Some("1h30m"), 5400),
        ("e", "", Some("2d"), 172_800),
        ("f", "waitTimeout = \"3m\"", None, 180),
        ("g", "", None, 240),
    ];
    let agents: Vec<(&str, &str, Value)> =
        forms.iter().map(|(name, config, timeout, _)| (*name, *config, waits(*timeout))).collect();
    let place = Place::fleet("defaultWaitTimeout = \"4m\"", &agents);
    let daemon = place.serve();
    for (name, _, _, seconds) in forms {
        let session = place.detach(name);
        place.waiting(&session);
        let shown = place.listed("waits").into_iter().find(|wait| wait["session"] == session).expect("it is listed");
        let time = |key: &str| -> jiff::Timestamp {
            shown[key].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {key} in {shown}"))
        };
        let length = time("deadline").as_second() - time("since").as_second();
        assert!((length - seconds).abs() <= 1, "{name}: {length} s");
        place.run(["stop", &session]).exits(0);
        place.ended(&session);
    }
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-WAIT-2: an unknown source is refused at once with the known names; so are an unknown type and a `match` that compares
/// with what is no scalar (S-WAIT-3).
#[test]
fn unknown_sources_are_refused() {
    let told = refusals(
        "[webhooks.tracker]\ntype = \"linear\"",
        &[
            json!({"type": "webhook", "source": "gitlab"}),
            json!({"type": "email"}),
            json!({"type": "webhook", "source": "github", "match": {"labels": ["bug"]}}),
            json!({"type": "webhook", "source": "github", "match": "acme/app"}),
        ],
    );
    assert!(told[0].contains("github") && told[0].contains("tracker"), "the known names: {}", told[0]);
    assert!(told[1].contains("agent_trigger"), "{}", told[1]);
    assert!(told[2].contains("labels"), "{}", told[2]);
    assert!(told[3].contains("match"), "{}", told[3]);
}
