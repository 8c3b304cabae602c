//! A list of models, on scripts.

use serde_json::json;

use super::{end_of, events, session_of};
use crate::harness::Place;

const TWO: &str = "[models.first]\nprovider = \"script\"\nfile = \"first.json\"\n[models.second]\nprovider = \"script\"\nfile = \"second.json\"\n";

/// A place with two scripts; the agent falls back from the first to the second.
fn place(first: &serde_json::Value, second: &serde_json::Value) -> Place {
    let place = Place::new();
    place.write("config.toml", TWO);
    place.agent("worker", "models = [\"first\", \"second\"]\n");
    place.write("first.json", json!({"turns": first}).to_string());
    place.write("second.json", json!({"turns": second}).to_string());
    place
}

/// M-FALL-1, M-FALL-3: the second model goes on where the first failed, and is asked first from then on; the journal says
/// who answered and why another was asked.
#[test]
fn the_second_goes_on_where_the_first_failed() {
    let call = |id: &str| json!({"id": id, "tool": "bash", "args": {"command": format!("echo {id}")}});
    let place = place(
        &json!([{"text": "one", "calls": [call("a")]}, {"fail": {"kind": "auth"}}, {"text": "never asked"}]),
        &json!([{"text": "after ${a.text}", "calls": [call("b")]}, {"text": "done"}]),
    );
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    ran.exits(0);
    let fallbacks = events(&ran, "fallback");
    let error = "turn 2: the provider does not accept the key";
    assert_eq!(fallbacks, [json!({"event": "fallback", "from": "first", "to": "second", "error": error})]);
    let session = session_of(&ran);
    let turns = place.bodies(&session, "assistant");
    let said: Vec<_> = turns.iter().map(|turn| (turn["model"].as_str(), turn["text"].as_str())).collect();
    assert_eq!(
        said,
        [
            (Some("script/first"), Some("one")),
            (Some("script/second"), Some("after a\n")),
            (Some("script/second"), Some("done"))
        ]
    );
    let informed = place.bodies(&session, "informed");
    let expected = json!({
        "source": "model", "content": {"from": "first", "to": "second", "kind": "auth", "error": error}
    });
    assert!(informed.contains(&expected), "{informed:?}");
    let ran = place.run(["start", "--agent", "worker"]);
    ran.exits(0).prints(&format!("the model first failed: {error}; second is asked instead\n"));
}

/// M-FALL-1, M-RETRY-1: a failure that passes is waited for first; when all have failed, the session has.
#[test]
fn when_all_have_failed_the_session_has() {
    let fail = |kind: &str, times: u32| json!([{"fail": {"kind": kind, "times": times}}, {"text": "late"}]);
    let place = place(&fail("overloaded", 1), &fail("auth", 1));
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    ran.exits(0);
    assert_eq!((events(&ran, "retry").len(), events(&ran, "fallback").len()), (1, 0), "{ran}");
    place.write("first.json", json!({"turns": fail("refused", 1)}).to_string());
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    ran.exits(4);
    let why = "turn 1: the provider does not accept the key (as the last of 2 models)";
    assert_eq!(end_of(&ran), ("model".to_owned(), why.to_owned()));
}

/// M-FALL-2: a script that is at fault is not covered up by another model.
#[test]
fn a_fault_of_a_script_is_seen() {
    let place = place(&json!([{"text": "${nothing}"}]), &json!([{"text": "done"}]));
    place.run(["start", "--agent", "worker"]).exits(4).prints("no earlier call has this id");
}

/// M-LIST-2: `--model` takes the place of the agent's list.
#[test]
fn the_command_line_chooses() {
    let place = place(&json!([{"text": "I am the first"}]), &json!([{"text": "I am the second"}]));
    place.run(["start", "--agent", "worker", "--model", "second"]).exits(0).prints("│ I am the second");
    place.run(["start", "--agent", "worker", "--model", "second", "--model", "first"]).exits(0).prints("second");
    let ran = place.run(["start", "--agent", "worker", "--model", "secnd"]);
    ran.exits(2).complains("--model names \"secnd\", which the project does not have\nhint: did you mean `second`?");
}
