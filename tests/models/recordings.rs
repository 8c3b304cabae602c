//! A session that was recorded makes the same calls again.

use serde_json::{Value, json};

use super::{place_with, run, session_of, start};
use crate::harness::provider::{Answer, Provider, Turn, Wire};
use crate::harness::{Place, Ran};

/// Name, arguments and failure of each call of a session, in the order asked.
#[track_caller]
fn calls(place: &Place, session: &str) -> Vec<(Value, Value, Value)> {
    let ends = place.bodies(session, "tool_finished");
    let failed =
        |key: &Value| ends.iter().find(|end| end["key"] == *key).map_or(Value::Null, |end| end["is_error"].clone());
    let turns = place.bodies(session, "assistant");
    let all = turns.iter().flat_map(|turn| turn["calls"].as_array().cloned().unwrap_or_default());
    all.map(|call| (call["name"].clone(), call["args"].clone(), failed(&call["key"]))).collect()
}

/// What a session said, turn by turn.
#[track_caller]
fn texts(place: &Place, session: &str) -> Vec<Value> {
    place.bodies(session, "assistant").iter().map(|turn| turn["text"].clone()).collect()
}

/// Records the session of `ran` and runs the recording; returns how many calls both made.
#[track_caller]
fn assert_same_again(place: &Place, ran: &Ran) -> usize {
    let first = session_of(ran);
    let script = place.run(["show", &first, "--script"]);
    place.write("again.json", &script.exits(0).stdout);
    place.write("config.toml", "[models.again]\nprovider = \"script\"\nfile = \"again.json\"\n");
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    let second = session_of(ran.exits(0));
    assert_eq!(calls(place, &second), calls(place, &first));
    assert_eq!(texts(place, &second), texts(place, &first));
    let tokens = |session: &str| place.show(session)["tokens"].clone();
    assert_eq!(tokens(&second), tokens(&first));
    calls(place, &first).len()
}

/// M-REC-1: with failures, calls at once, references, and results that are others each time.
#[test]
fn of_a_script() {
    let place = Place::new();
    let bash = |command: &str| json!({"tool": "bash", "args": {"command": command}});
    place.script(&json!([
        {"text": "It costs $${5}.", "calls": [
            {"id": "id", "tool": "bash", "args": {"command": "cat /proc/sys/kernel/random/uuid | tee /tmp/id"}},
            bash("echo $${HOME}; exit 3"),
            {"tool": "read", "args": {"path": "/tmp/none"}},
            {"tool": "nonsense", "args": {"a": [1, 2.5, null]}}
        ], "usage": {"input": 10, "cached": 2, "output": 3}},
        {"text": "It was ${id.text}", "calls": [bash("date +%s%N; echo '${id.text}' | wc -c")]},
        {"text": "done"}
    ]));
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    assert_eq!(assert_same_again(&place, ran.exits(0)), 5);
}

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// M-REC-1: of a provider that sees a picture, repeats the ids of its calls and writes arguments that are no JSON.
#[test]
fn of_a_provider() {
    for wire in Wire::ALL {
        let provider = Provider::start(wire);
        let command = json!({"command": "echo ${task} $RANDOM; false"});
        provider.push(Turn::new().say("I try ${this}.").call("same", "bash", &command).call(
            "other",
            "ls",
            &json!({"path": "/tmp"}),
        ));
        provider.push(Answer::status(503));
        let draw = json!({"command": format!("echo {PIXEL} | base64 -d >/tmp/pixel")});
        provider.push(Turn::new().call("same", "bash", &draw));
        let missing = json!({"path": "/tmp/none"});
        let see = json!({"path": "/tmp/pixel"});
        provider.push(Turn::new().say("I see.").call("same", "read", &see).call("more", "read", &missing));
        provider.push(Turn::new().call("same", "bash", &json!({"command": "sleep 0.1; date +%N"})));
        if wire != Wire::Ollama {
            provider.push(Turn::new().say("Broken.").call_as_written("broken", "bash", "{\"command\": \"echo"));
        }
        provider.push(Turn::new().say("Done."));
        let place = place_with(&provider);
        let ran = run(start(&place, &provider));
        assert_eq!(provider.refused(), Vec::<String>::new(), "{wire:?}");
        let made = assert_same_again(&place, ran.exits(0));
        assert_eq!(made, if wire == Wire::Ollama { 6 } else { 7 }, "{wire:?}");
    }
}
