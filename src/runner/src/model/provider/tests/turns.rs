//! Single turns: text, calls, tokens, what is asked for, and where the key is.

use super::*;
use crate::model::FailKind;

#[tokio::test]
async fn text_streams_as_it_comes() {
    for wire in Wire::ALL {
        let provider = Provider::with(wire, [Turn::new().say("Ada says hello, naïve 日本 🦀.").usage(120, 20, 7)]);
        let (turn, pieces) = ask(&model(&provider, wire), &request(Vec::new())).await;
        let turn = turn.unwrap();
        assert_eq!(turn.text, "Ada says hello, naïve 日本 🦀.", "{wire:?}");
        assert_eq!(pieces.concat(), turn.text);
        assert!(pieces.len() > 1, "{wire:?} gave {pieces:?}");
        assert_eq!((turn.usage.input, turn.usage.output), (120, 7));
        assert_eq!(turn.usage.cached, if wire == Wire::Ollama { 0 } else { 20 });
        assert_eq!(turn.model, format!("{}/{}", wire.provider(), wire.model()));
        assert!(turn.calls.is_empty());
        assert_eq!(provider.refused(), Vec::<String>::new());
    }
}

/// Pieces of the network cut characters and lines anywhere.
#[tokio::test]
async fn pieces_of_any_size_make_the_same_turn() {
    for wire in Wire::ALL {
        for size in [1, 3, 7] {
            let answer =
                Turn::new().say("naïve 日本 🦀 ä").call("c1", "ls", &json!({"path": "/tmp/日本 🦀"})).in_pieces(size);
            let provider = Provider::with(wire, [answer]);
            let turn = turn_of(ask(&model(&provider, wire), &request(Vec::new())).await);
            assert_eq!(turn.text, "naïve 日本 🦀 ä");
            assert_eq!(turn.calls[0].args, json!({"path": "/tmp/日本 🦀"}));
        }
    }
}

#[tokio::test]
async fn calls_come_in_their_order() {
    for wire in Wire::ALL {
        let answer = Turn::new()
            .say("I look.")
            .call("call_a", "ls", &json!({"path": "/tmp"}))
            .call("call_b", "read", &json!({"path": "/tmp/x", "n": 1.5}))
            .call("call_c", "ls", &json!({}));
        let provider = Provider::with(wire, [answer]);
        let turn = turn_of(ask(&model(&provider, wire), &request(Vec::new())).await);
        let calls: Vec<(&str, &str, Value)> =
            turn.calls.iter().map(|c| (c.provider_id.as_str(), c.name.as_str(), c.args.clone())).collect();
        assert_eq!(
            calls,
            [
                ("call_a", "ls", json!({"path": "/tmp"})),
                ("call_b", "read", json!({"path": "/tmp/x", "n": 1.5})),
                ("call_c", "ls", json!({})),
            ]
        );
    }
}

/// The address, the key and the program's name go with each request; tools and the prompt are in it.
#[tokio::test]
async fn a_request_is_what_the_provider_documents() {
    for wire in Wire::ALL {
        let provider = Provider::with(wire, [Turn::new().say("hi")]);
        turn_of(ask(&model(&provider, wire), &request(Vec::new())).await);
        let sent = provider.last();
        assert_eq!(sent.headers["user-agent"], concat!("runner/", env!("CARGO_PKG_VERSION")));
        assert_eq!(sent.headers["content-type"], "application/json");
        assert_eq!(sent.body["model"], wire.model());
        assert_eq!(sent.body["stream"], true);
        let text = sent.body.to_string();
        for part in ["You are an agent.", "Look around.", "Does ls.", "Does read."] {
            assert!(text.contains(part), "{wire:?}: no {part:?} in {text}");
        }
        // No thinking was asked for or forbidden.
        for key in ["thinking", "reasoning_effort", "think", "output_config"] {
            assert!(sent.body.get(key).is_none(), "{wire:?} {key}");
        }
    }
}

/// M-WIRE-5: the names of models decide nothing: `gpt-5` and its like are asked through chat completions, and a name that ends like
/// a level of thinking is sent whole.
#[tokio::test]
async fn the_provider_decides_the_format_and_names_are_sent_whole() {
    for name in ["gpt-5-codex", "gpt-5.1-high", "claude-sonnet-4-5", "gemini-3-pro", "qwen-max", "openai::x"] {
        let provider = Provider::with(Wire::Openai, [Turn::new().say("hi")]);
        let settings = ProviderSettings { model: name.to_owned(), ..settings(&provider, Wire::Openai) };
        turn_of(ask(&open(&settings, Some(KEY.into())).unwrap(), &request(Vec::new())).await);
        assert_eq!(provider.last().path, "/v1/chat/completions");
        assert_eq!(provider.last().body["model"], name);
        assert!(provider.last().body.get("reasoning_effort").is_none());
    }
}

#[tokio::test]
async fn levels_of_thinking_are_asked_for() {
    let asked = async |wire, level| {
        let provider = Provider::with(wire, [Turn::new().say("hi")]);
        turn_of(ask(&thinking(&provider, wire, level), &request(Vec::new())).await);
        provider.last().body
    };
    let body = asked(Wire::Anthropic, ThinkingLevel::Medium).await;
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 8192}));
    assert_eq!(asked(Wire::Anthropic, ThinkingLevel::Off).await.get("thinking"), None);
    assert_eq!(asked(Wire::Openai, ThinkingLevel::Xhigh).await["reasoning_effort"], "xhigh");
    assert_eq!(asked(Wire::Openai, ThinkingLevel::Off).await["reasoning_effort"], "none");
    assert_eq!(asked(Wire::Ollama, ThinkingLevel::Off).await["think"], false);
    assert_eq!(asked(Wire::Ollama, ThinkingLevel::Minimal).await["think"], "low");
}

/// M-WIRE-3: arguments that are no object never become a call that runs: they stay what they are, and no schema takes them.
#[tokio::test]
async fn malformed_arguments_are_passed_on() {
    let cases = [
        ("{\"path\": \"/tm", json!("{\"path\": \"/tm")),
        ("not json", json!("not json")),
        ("[1, 2]", json!([1, 2])),
        ("\"/tmp\"", json!("/tmp")),
        ("7", json!(7)),
        // No arguments at all.
        ("", json!({})),
        ("null", json!({})),
    ];
    for wire in Wire::ALL {
        for (written, args) in &cases {
            let provider = Provider::with(wire, [Turn::new().call_as_written("c1", "ls", written)]);
            let turn = turn_of(ask(&model(&provider, wire), &request(Vec::new())).await);
            // Ollama gives parsed arguments, so text within text is one text.
            let text = wire == Wire::Ollama && *written == "\"/tmp\"";
            let expected = if text { json!("/tmp") } else { args.clone() };
            assert_eq!(turn.calls[0].args, expected, "{wire:?} {written:?}");
            // What comes back to the model is valid for the provider all the same.
            let messages = vec![Message::Assistant(through_the_journal(&turn)), results(&turn)];
            provider.push(Turn::new().say("I mend it."));
            turn_of(ask(&model(&provider, wire), &request(messages)).await);
            assert_eq!(provider.refused(), Vec::<String>::new(), "{wire:?} {written:?}");
            if !args.is_object() {
                let body = provider.last().body.to_string();
                assert!(body.contains("malformed_arguments"), "{wire:?} {written:?}: {body}");
            }
        }
    }
}

/// M-WIRE-3: an answer that was cut at its limit never counts as whole: without calls it is an error, and a half call has text for
/// arguments.
#[tokio::test]
async fn a_cut_answer_is_not_a_whole_one() {
    for (wire, reason) in [(Wire::Anthropic, "max_tokens"), (Wire::Openai, "length"), (Wire::Ollama, "length")] {
        let provider = Provider::with(wire, [Turn::new().say("I begin to").stops(reason)]);
        let error = ask(&model(&provider, wire), &request(Vec::new())).await.0.unwrap_err();
        assert_eq!(error.kind, FailKind::Invalid);
        assert!(error.message.contains("was cut at the most tokens"), "{error}");

        let half = Turn::new().call_as_written("c1", "write", "{\"path\": \"/tmp/x\", \"content\": \"ha").stops(reason);
        let provider = Provider::with(wire, [half]);
        let turn = turn_of(ask(&model(&provider, wire), &request(Vec::new())).await);
        assert!(turn.calls[0].args.is_string(), "{wire:?} {:?}", turn.calls);
    }
    // A call of which nothing has come but its name.
    let provider = Provider::with(Wire::Openai, [Turn::new().call_as_written("c1", "ls", "").stops("length")]);
    let turn = turn_of(ask(&model(&provider, Wire::Openai), &request(Vec::new())).await);
    assert_eq!(turn.calls[0].args, json!(""));
}

#[tokio::test]
async fn refusals_and_full_contexts_are_errors() {
    for (wire, reason, kind) in [
        (Wire::Anthropic, "refusal", FailKind::Refused),
        (Wire::Anthropic, "model_context_window_exceeded", FailKind::ContextLength),
        (Wire::Openai, "content_filter", FailKind::Refused),
    ] {
        let answer = Turn::new().say("I can").call("c1", "ls", &json!({})).stops(reason);
        let provider = Provider::with(wire, [answer]);
        let error = ask(&model(&provider, wire), &request(Vec::new())).await.0.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
    }
}

/// M-WIRE-3: a turn of nothing would end the session as done; it is asked for again instead.
#[tokio::test]
async fn an_empty_answer_is_an_error_that_passes() {
    for wire in Wire::ALL {
        for answer in [Turn::new(), Turn::new().say(" \n"), Turn::new().think("hm", "sig")] {
            let provider = Provider::with(wire, [answer]);
            let error = ask(&model(&provider, wire), &request(Vec::new())).await.0.unwrap_err();
            assert_eq!(error.kind, FailKind::Overloaded);
            assert!(error.message.contains("the answer is empty"), "{error}");
        }
    }
}

/// Servers that number all calls 0, or none.
#[tokio::test]
async fn calls_without_good_numbers_are_told_apart() {
    let chunk = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    let call = |more: Value| chunk(json!({"tool_calls": [more]}));
    let bodies = [
        // All are number 0, each whole.
        call(json!({"index": 0, "id": "x1", "function": {"name": "ls", "arguments": "{\"a\":1}"}}))
            + &call(json!({"index": 0, "id": "x2", "function": {"name": "read", "arguments": "{\"b\":2}"}})),
        // None has a number; pieces follow their beginning.
        call(json!({"id": "x1", "function": {"name": "ls", "arguments": "{\"a\""}}))
            + &call(json!({"function": {"arguments": ":1}"}}))
            + &call(json!({"id": "x1", "function": {"name": "read", "arguments": {"b": 2}}})),
        // Each piece repeats id and name.
        call(json!({"index": 0, "id": "x1", "function": {"name": "ls", "arguments": "{\"a\""}}))
            + &call(json!({"index": 0, "id": "x1", "function": {"name": "ls", "arguments": ":1}"}}))
            + &call(
                json!({"index": 4_000_000_000_u64, "id": "x2", "function": {"name": "read", "arguments": "{\"b\":2}"}}),
            ),
    ];
    for body in bodies {
        let end =
            format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
        let body = (body + &end).into_bytes();
        let provider = Provider::with(Wire::Openai, [Answer::Raw { content_type: "text/event-stream", body }]);
        let turn = turn_of(ask(&model(&provider, Wire::Openai), &request(Vec::new())).await);
        let calls: Vec<(&str, Value)> = turn.calls.iter().map(|c| (c.name.as_str(), c.args.clone())).collect();
        assert_eq!(calls, [("ls", json!({"a": 1})), ("read", json!({"b": 2}))]);
    }
}

/// One connection serves turn after turn.
#[tokio::test]
async fn the_connection_is_kept() {
    for wire in Wire::ALL {
        let provider = Provider::start(wire);
        provider.always(Turn::new().say("hi"));
        let model = model(&provider, wire);
        for _ in 0..12 {
            turn_of(ask(&model, &request(Vec::new())).await);
        }
        // On a busy machine the end of a body may come too late to be waited for.
        assert!(provider.connections() < 6, "{wire:?}: {}", provider.connections());
    }
}

/// A key goes nowhere where it could be read on the way, and no key is no empty key.
#[tokio::test]
async fn no_key_is_no_header() {
    let provider = Provider::with(Wire::Ollama, [Turn::new().say("hi")]);
    let model = open(&settings(&provider, Wire::Ollama), None).unwrap();
    turn_of(ask(&model, &request(Vec::new())).await);
    assert!(!provider.last().headers.contains_key("authorization"));
    let missing = open(&settings(&provider, Wire::Anthropic), None).err().expect("a key is needed");
    assert!(missing.hint().is_some_and(|hint| hint.contains("ANTHROPIC_API_KEY")), "{missing}");
}
