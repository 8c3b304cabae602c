//! Whole sessions with a provider's model in each wire format, in real containers.

use serde_json::{Value, json};

use super::{place_with, run, session_of, start};
use crate::harness::provider::{Provider, Turn, Wire};

/// The result of each call that the provider was sent last, whatever the format.
fn results(provider: &Provider) -> Vec<String> {
    let body = provider.last().body;
    let mut found = Vec::new();
    for message in body["messages"].as_array().expect("messages") {
        if message["role"] == "tool" {
            found.push(message["content"].as_str().expect("text").to_owned());
        }
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_result" {
                found.push(block["content"][0]["text"].as_str().expect("text").to_owned());
            }
        }
    }
    found
}

/// M-WIRE-1, M-WIRE-2, M-WIRE-3: thinking, calls at once with one id, arguments that are no JSON, and a second turn with
/// the same ids: the provider accepts every request, and each result is its call's.
#[test]
fn a_session_in_each_wire_format() {
    for wire in Wire::ALL {
        let provider = Provider::with(
            wire,
            [
                Turn::new()
                    .think("What is there?", "c2lnbmF0dXJl")
                    .say("I write two files.")
                    .call("call_1", "bash", &json!({"command": "echo first >/tmp/a; cat /tmp/a"}))
                    .call("call_1", "bash", &json!({"command": "echo second >/tmp/b; cat /tmp/b"}))
                    .call_as_written("call_1", "bash", "{\"command\": \"echo thi"),
                Turn::new().call("call_1", "read", &json!({"path": "/tmp/a"})),
                Turn::new().say("Two files are there.").usage(900, 300, 12),
            ],
        );
        let place = place_with(&provider);
        let ran = run(start(&place, &provider));
        ran.exits(0);
        assert_eq!((provider.refused(), provider.left()), (Vec::<String>::new(), 0), "{wire:?}");
        let results = results(&provider);
        assert_eq!((results[0].as_str(), results[1].as_str()), ("first\n", "second\n"), "{wire:?}");
        assert!(results[2].contains("they end too early"), "{wire:?}: {results:?}");
        assert!(results[3].contains("first"), "{wire:?}: {results:?}");
        let session = session_of(&ran);
        let turns = place.bodies(&session, "assistant");
        assert_eq!(turns[0]["raw"]["provider"], wire.provider());
        assert_eq!(turns[0]["calls"][2]["args"], "{\"command\": \"echo thi");
        let cached = if wire == Wire::Ollama { 0 } else { 300 };
        assert_eq!(turns[2]["usage"], json!({"input": 900, "cached": cached, "output": 12}));
    }
}

/// M-WIRE-4: an image that `read` finds is shown to models that take images, and is described to others.
#[test]
fn images_reach_the_model() {
    /// A PNG of one pixel.
    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    for wire in Wire::ALL {
        let provider = Provider::with(
            wire,
            [
                Turn::new().call(
                    "call_1",
                    "bash",
                    &json!({"command": format!("echo {PIXEL} | base64 -d >/tmp/pixel.png")}),
                ),
                Turn::new().call("call_2", "read", &json!({"path": "/tmp/pixel.png"})),
                Turn::new().say("A pixel."),
            ],
        );
        let place = place_with(&provider);
        run(start(&place, &provider)).exits(0);
        assert_eq!(provider.refused(), Vec::<String>::new());
        let body = provider.last().body;
        let media: Vec<&Value> = match wire {
            Wire::Anthropic => {
                body["messages"][4]["content"][0]["content"][1].pointer("/source/data").into_iter().collect()
            }
            Wire::Openai => body["messages"][6]["content"][1].pointer("/image_url/url").into_iter().collect(),
            Wire::Ollama => body["messages"][6]["images"].as_array().into_iter().flatten().collect(),
        };
        assert_eq!(media.len(), 1, "{wire:?}: {body}");
        assert!(media[0].as_str().is_some_and(|data| data.contains("iVBORw0KGgo")), "{wire:?}");

        let blind = Provider::with(wire, [Turn::new().say("unused")]);
        let blind_model = blind.config().replace(wire.model(), "gpt-3.5-turbo");
        if wire != Wire::Anthropic {
            place.write("config.toml", blind_model);
            run(start(&place, &blind)).exits(0);
        }
    }
}
