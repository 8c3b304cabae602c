//! Conversations that are longer than the model takes.

use serde_json::{Value, json};

use super::{end_of, place_with, run, session_of, start};
use crate::harness::provider::{Answer, Provider, Turn, Wire};

/// Anthropic's words for a conversation that is too long.
fn too_long() -> Answer {
    Answer::status(400).body(
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
    )
}

/// The texts of all tool results in a request of Anthropic's format.
fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().expect("messages");
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let text = |block: &Value| match &block["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    };
    blocks.filter(|block| block["type"] == "tool_result").map(text).collect()
}

/// M-ROOM-1, M-ROOM-2, M-ROOM-3: old outputs make room and say where they are; the journal has them, and says what went.
#[test]
fn old_outputs_make_room() {
    let provider = Provider::start(Wire::Anthropic);
    let bash = |id: &str, command: &str| Turn::new().call(id, "bash", &json!({"command": command}));
    provider.push(bash("one", "seq 100000"));
    provider.push(bash("two", "seq 1000 2000"));
    provider.push(too_long());
    provider.push(Turn::new().call("three", "read", &json!({"path": "/tmp/.runner/out/none"})));
    provider.push(Turn::new().say("Done."));
    let place = place_with(&provider);
    let ran = run(start(&place, &provider));
    ran.exits(0);
    assert_eq!(provider.refused(), Vec::<String>::new());
    let requests = provider.requests();
    let (before, after) = (results(&requests[2].body), results(&requests[3].body));
    assert!(before[0].contains("\n99999\n") && before[0].len() > 10_000, "{before:?}");
    assert!(after[0].starts_with("[this output of ") && after[0].len() < 200, "{}", after[0]);
    assert!(
        after[0].contains(" bytes was removed to make room; all of it was kept in /tmp/.runner/out/"),
        "{}",
        after[0]
    );
    assert_eq!(after[1], before[1], "the newest stays");
    assert_eq!(results(&requests[4].body)[..2], after[..], "what is gone stays gone");
    let session = session_of(&ran);
    let finished = place.bodies(&session, "tool_finished");
    assert_eq!(finished[0]["text"].as_str(), Some(before[0].as_str()), "the journal keeps it");
    let informed = place.bodies(&session, "informed");
    let removed = informed.iter().find(|informed| informed["source"] == "context").expect("a line of the journal");
    assert_eq!(removed["content"]["removed"], json!([format!("{session}/1/0")]));
    let said = super::events(&ran, "retry").remove(0)["error"].clone();
    let said = said.as_str().expect("a text");
    assert!(said.contains("prompt is too long") && said.contains("1 old output with "), "{said}");
}

/// M-ROOM-4: a conversation that cannot be made to fit ends the session, and no other model is asked.
#[test]
fn what_cannot_fit_ends_the_session() {
    let provider = Provider::start(Wire::Anthropic);
    provider.always(too_long());
    let place = place_with(&provider);
    place.write(
        "config.toml",
        format!("{}[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n", provider.config()),
    );
    place.agent("worker", "models = [\"real\", \"script\"]\n");
    let ran = run(start(&place, &provider));
    ran.exits(4);
    let (cause, message) = end_of(&ran);
    assert_eq!(cause, "model");
    let words = "the conversation is longer than the model takes, and no old output is left to remove: ";
    assert!(message.starts_with(words) && message.contains("prompt is too long"), "{message}");
    assert_eq!(provider.requests().len(), 1);
}
