//! Answers that no provider means: of another shape, with numbers that lie, and with more than anybody can keep.

use proptest::prelude::*;

use super::super::kept;
use super::super::{Answer as Whole, Wire as Format};
use super::*;

const FORMATS: [Format; 4] = [Format::Anthropic, Format::Gemini, Format::Ollama, Format::Openai];

/// Puts an answer together: the words of its fault, or the answer if it has come to its end.
fn read(format: Format, events: impl IntoIterator<Item = String>) -> Result<Option<Whole>, String> {
    let mut assembler = format.assembler();
    let mut said = String::new();
    for event in events {
        if assembler.take(&event, &mut said).map_err(|fault| fault.words)? {
            break;
        }
    }
    Ok(assembler.finish())
}

/// The next request, when this was the answer to the last one.
fn next(format: Format, answer: Whole) -> Value {
    let provider = Name::ALL.into_iter().find(|name| Format::of(*name) == format).expect("each has one");
    let settings = ProviderSettings { provider, model: "m".to_owned(), thinking: None, base_url: None };
    let Whole { text, calls, message, usage, .. } = answer;
    let raw = kept::keep(&settings, message);
    let turn = AssistantTurn { text, calls, raw, usage, model: format!("{provider}/m") };
    let answered = results(&turn);
    format.body(&settings, &request(vec![Message::Assistant(turn), answered]))
}

/// One event that has `value` where the answer's content stands, and what ends an answer.
fn around(format: Format, value: &Value) -> Vec<String> {
    let events = match format {
        Format::Anthropic => vec![
            json!({"type": "content_block_start", "index": 0, "content_block": value}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}),
            json!({"type": "message_stop"}),
        ],
        Format::Gemini => {
            vec![json!({"candidates": [{"content": {"parts": [value]}, "finishReason": "STOP"}]})]
        }
        Format::Ollama => vec![json!({"message": {"content": "x", "tool_calls": [value]}, "done": true})],
        Format::Openai => vec![json!({"choices": [{"delta": {"content": [value]}, "finish_reason": "stop"}]})],
    };
    events.iter().map(Value::to_string).collect()
}

/// An event that is no object is a fault and no panic.
#[test]
fn an_event_of_another_shape_is_refused() {
    for format in FORMATS {
        for event in ["[]", "[{}]", "5", "\"x\"", "true", "null"] {
            let said = read(format, [event.to_owned()]).err().expect(event);
            assert!(said.contains("not of the provider's format"), "{format:?} {event}: {said}");
        }
    }
}

/// What is kept goes into the next request, so its shape matters later too.
#[test]
fn content_of_another_shape_is_refused_or_sent_back() {
    let call = json!({"functionCall": "ls", "function": "ls", "type": "tool_use", "input": "ls"});
    for format in FORMATS {
        for value in [json!("x"), json!(5), json!([]), json!({}), json!(null), json!({"function": []}), call.clone()] {
            if let Ok(Some(answer)) = read(format, around(format, &value)) {
                next(format, answer);
            }
        }
    }
}

/// The limit of calls holds in each format.
#[test]
fn too_many_calls_are_refused() {
    let many = 0..300_u64;
    let anthropic = many.clone().map(|at| {
        json!({"type": "content_block_start", "index": at, "content_block": {"type": "tool_use", "id": "a", "name": "ls", "input": {}}})
    });
    let gemini =
        many.clone().map(|_| json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "ls"}}]}}]}));
    let ollama = many.clone().map(|_| json!({"message": {"tool_calls": [{"function": {"name": "ls"}}]}}));
    let openai = many.map(|at| {
        let call = json!({"index": u64::MAX - at, "function": {"name": "ls"}});
        json!({"choices": [{"delta": {"tool_calls": [call]}}]})
    });
    let all: [(Format, Vec<Value>); 4] = [
        (Format::Anthropic, anthropic.collect()),
        (Format::Gemini, gemini.collect()),
        (Format::Ollama, ollama.collect()),
        (Format::Openai, openai.collect()),
    ];
    for (format, events) in all {
        let said = read(format, events.iter().map(Value::to_string)).err().expect("it is refused");
        assert!(said.contains("more than 256 calls"), "{format:?}: {said}");
    }
}

/// A block whose number came before is another block; nothing that was said is lost.
#[test]
fn a_number_that_comes_again_loses_nothing() {
    let block = |text: &str| json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}});
    let more = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "!"}});
    let events = [block("one"), more.clone(), block("two"), more, json!({"type": "message_stop"})];
    let answer = read(Format::Anthropic, events.iter().map(Value::to_string)).unwrap().expect("it is whole");
    assert_eq!(answer.text, "one!\n\ntwo!");
}

/// M-WIRE-6: small values cost memory many times their bytes, so they are counted.
#[test]
fn values_are_counted() {
    let many = json!(vec![json!([]); 100_000]);
    for format in FORMATS {
        let value = json!({"type": "x", "function": {"arguments": many}, "functionCall": {"args": many}, "text": many});
        let events = around(format, &value);
        let said = read(format, std::iter::repeat_n(events[0].replace("\"done\":true", "\"done\":false"), 20));
        assert_eq!(said.err().as_deref(), Some("the answer has more than 524288 JSON values"), "{format:?}");
    }
    let written = format!("[{}[]]", "[],".repeat(1_000_000));
    assert_eq!(kept::parse_arguments(&written, false), Value::String(written));
}

/// M-WIRE-6: more text than any model writes, in whatever place.
#[test]
fn text_is_counted() {
    let long = "x".repeat(1024 * 1024);
    let delta =
        |kind: &str, key: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: long}});
    let begin = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}});
    let choice = |delta: Value| json!({"choices": [{"delta": delta}]});
    let argument = json!([{"index": 0, "function": {"name": "ls", "arguments": long}}]);
    for (format, event) in [
        (Format::Anthropic, delta("text_delta", "text")),
        (Format::Anthropic, delta("thinking_delta", "thinking")),
        (Format::Anthropic, delta("signature_delta", "signature")),
        (Format::Anthropic, delta("input_json_delta", "partial_json")),
        (Format::Gemini, json!({"candidates": [{"content": {"parts": [{"text": long}]}}]})),
        (Format::Ollama, json!({"message": {"content": long}})),
        (Format::Ollama, json!({"message": {"thinking": long}})),
        (Format::Openai, choice(json!({"content": long}))),
        (Format::Openai, choice(json!({"reasoning": long}))),
        (Format::Openai, choice(json!({"refusal": long}))),
        (Format::Openai, choice(json!({"content": [{"type": "text", "text": long}]}))),
        (Format::Openai, choice(json!({"reasoning_details": [{"index": 0, "type": "t", "text": long}]}))),
        (Format::Openai, choice(json!({"tool_calls": argument}))),
    ] {
        let begin = Some(begin.to_string()).filter(|_| format == Format::Anthropic);
        let events = begin.into_iter().chain(std::iter::repeat_n(event.to_string(), 20));
        assert_eq!(read(format, events).err().as_deref(), Some("the answer says more than 16 MiB"), "{format:?}");
    }
}

/// Names that some format reads.
const NAMES: [&str; 30] = [
    "type",
    "index",
    "content_block",
    "delta",
    "text",
    "thinking",
    "partial_json",
    "id",
    "name",
    "input",
    "usage",
    "message",
    "content",
    "tool_calls",
    "function",
    "arguments",
    "choices",
    "finish_reason",
    "error",
    "reasoning_details",
    "candidates",
    "parts",
    "functionCall",
    "args",
    "thought",
    "usageMetadata",
    "promptFeedback",
    "done",
    "status",
    "code",
];

const WORDS: [&str; 17] = [
    "",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_start",
    "message_delta",
    "message_stop",
    "text_delta",
    "thinking_delta",
    "input_json_delta",
    "tool_use",
    "text",
    "thinking",
    "error",
    "STOP",
    "{\"a\":1}",
    "[",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![
            json!(0),
            json!(-1),
            json!(1.5),
            json!(4_294_967_295_u64),
            json!(u64::MAX),
            json!(1e300)
        ]),
        prop::sample::select(&WORDS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let field = (prop::sample::select(&NAMES[..]).prop_map(str::to_owned), inner.clone());
        let object = prop::collection::vec(field, 0..5).prop_map(|fields| Value::Object(fields.into_iter().collect()));
        prop_oneof![prop::collection::vec(inner, 0..3).prop_map(Value::Array), object]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a provider sends: no panic, not even in the request after it.
    #[test]
    fn nothing_panics(events in prop::collection::vec(any_value(), 1..5), content in any_value()) {
        for format in FORMATS {
            for events in [around(format, &content), events.iter().map(Value::to_string).collect()] {
                if let Ok(Some(answer)) = read(format, events) {
                    next(format, answer);
                }
            }
        }
    }
}
