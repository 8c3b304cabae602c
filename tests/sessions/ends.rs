//! Every way in which a session ends has a cause and an exit code of its own.

use serde_json::{Value, json};

use crate::harness::{Place, Relay, Rule, long_sleep, processes_with};

/// Cause, exit code and message of the last event, which `show` must know too.
#[track_caller]
fn ended(place: &Place, ran: &crate::harness::Ran) -> (String, Value, String) {
    let last = ran.json_lines().pop().expect("events");
    assert_eq!(last["event"], "ended", "{ran}");
    assert_eq!(last["exit_code"], ran.code, "{ran}");
    let shown = place.show(last["session"].as_str().expect("an id"));
    for key in ["cause", "exit_code", "message"] {
        assert_eq!(shown[key], last[key], "{key} of {shown}");
    }
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&last["cause"]), last["exit_code"].clone(), text(&last["message"]))
}

fn end(cause: &str, code: i32, message: &str) -> (String, Value, String) {
    (cause.to_owned(), json!(code), message.to_owned())
}

fn start(place: &Place) -> crate::harness::Ran {
    place.run(["start", "--agent", "worker", "--json"])
}

/// A model that never stops ends at `maxTurns`.
#[test]
fn turns_run_out() {
    let place = Place::new();
    place.agent("worker", "maxTurns = 3\n");
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": "echo on"}}],
         "repeat": {"until": {"a.text": "never"}, "max": 100}}
    ]));
    let ran = start(&place);
    assert_eq!(ended(&place, &ran), end("max_turns", 7, "the limit of 3 turns was reached"));
    let calls = ran.json_lines().iter().filter(|event| event["event"] == "tool_finished").count();
    assert_eq!(calls, 3);
}

/// A session that has used its tokens ends before it acts on the answer.
#[test]
fn tokens_run_out() {
    let place = Place::new();
    place.agent("worker", "maxTokens = 100\n");
    let call = json!([{"id": "a", "tool": "bash", "args": {"command": "true"}}]);
    place.script(&json!([
        {"calls": call, "usage": {"input": 50, "output": 9}},
        {"calls": call, "usage": {"input": 30, "output": 11}},
        {"text": "never said"}
    ]));
    let ran = start(&place);
    assert_eq!(ended(&place, &ran), end("max_tokens", 8, "the limit of 100 tokens was reached: 100 were used"));
    let session = ran.json_lines()[0]["session"].clone();
    let shown = place.show(session.as_str().expect("an id"));
    assert_eq!(shown["tokens"], json!({"input": 80, "cached": 0, "output": 20}));
    assert_eq!((&shown["turns"], &shown["calls"]), (&json!(2), &json!(1)));
}

/// bug 7: of the call's limit and the session's the inner one fires first, so that what was printed is kept.
#[test]
fn time_runs_out_with_the_output_so_far() {
    let place = Place::new();
    place.agent("worker", "timeout = 2\n");
    let sleep = long_sleep();
    let command = format!("echo before; {sleep}");
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": command, "timeout": 1000}}]},
        {"text": "never said"}
    ]));
    let ran = start(&place);
    assert_eq!(ended(&place, &ran), end("timeout", 124, "the session's time of 2 s was up"));
    let finished = ran.json_lines().into_iter().find(|event| event["event"] == "tool_finished").expect("a result");
    assert_eq!(finished["cause"], "timeout");
    let text = finished["text"].as_str().expect("a text");
    let note = regex::Regex::new(r"^before\n\[timed out after [0-9.]+ s \(all that the session had left\)\]$")
        .expect("a pattern");
    assert!(note.is_match(text), "{text:?}");
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
}

/// A model that fails for good ends the session; one that fails and recovers does not.
#[test]
fn a_model_fails_or_recovers() {
    let place = Place::new();
    place.script(&json!([{"fail": {"kind": "auth"}}]));
    let ran = start(&place);
    assert_eq!(ended(&place, &ran), end("model", 4, "turn 1: the provider does not accept the key"));

    place.script(&json!([{"fail": {"kind": "rate_limit", "times": 1}}, {"text": "here I am"}]));
    let ran = start(&place);
    assert_eq!(ended(&place, &ran), end("done", 0, "the agent is done"));
    let retry = ran.json_lines().into_iter().find(|event| event["event"] == "retry").expect("a retry");
    let wait = retry["wait_ms"].as_u64().expect("milliseconds");
    assert_eq!(retry, json!({"event": "retry", "error": "turn 1: too many requests", "wait_ms": wait}));
    assert!(wait <= 500, "{wait}");
}

/// An engine that fails while the container is made ends the session with its words; nothing is left of it.
#[test]
fn the_engine_fails() {
    let place = Place::new();
    let relay = Relay::new();
    relay.rule("/start", Rule::HangUp);
    let mut command = place.start_command(&[]);
    let ran = crate::harness::Ran::from(command.env("DOCKER_HOST", relay.address()).output().expect("it starts"));
    let (cause, code, message) = ended(&place, &ran);
    assert_eq!((cause.as_str(), &code), ("engine", &json!(3)));
    assert!(message.starts_with("the Docker engine is gone: it did not start the container"), "{message}");
    place.assert_clean();
}
