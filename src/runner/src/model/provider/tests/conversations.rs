//! Several turns: what was said goes back as it was, after a restart, with repeated ids, and to another model.

use super::*;

/// The blocks of the assistant's messages of the last request.
fn blocks(provider: &Provider) -> Vec<Value> {
    let said = said(&provider.last().body);
    let blocks = said.iter().filter(|message| message["role"] == "assistant");
    blocks.flat_map(|message| message["content"].as_array().cloned().unwrap_or_default()).collect()
}

/// M-WIRE-1: thinking, redacted thinking, text and calls, in the order in which they came: the server compares them byte for byte.
#[tokio::test]
async fn thinking_comes_back_as_it_was() {
    let answer = Turn::new()
        .think("First 日本, \"quoted\" \\ and\nlines.", "EqQBCkgIARABGAIiQL8+/signature==")
        .redacted("EmwKAhgBEgy3va3pzix/LafPsn4a==")
        .say("I look.")
        .think("Between.", "c2Vjb25k")
        .call("toolu_1", "ls", &json!({"path": "/tmp"}));
    let provider = Provider::with(Wire::Anthropic, [answer]);
    let open = || thinking(&provider, Wire::Anthropic, ThinkingLevel::High);
    let turn = turn_of(ask(&open(), &request(Vec::new())).await);
    assert_eq!(turn.text, "I look.");
    provider.push(Turn::new().say("Done."));
    let messages = vec![Message::Assistant(through_the_journal(&turn)), results(&turn)];
    turn_of(ask(&open(), &request(messages)).await);
    assert_eq!(provider.refused(), Vec::<String>::new());
    let blocks = blocks(&provider);
    assert_eq!(
        blocks,
        [
            json!({"type": "thinking", "thinking": "First 日本, \"quoted\" \\ and\nlines.",
            "signature": "EqQBCkgIARABGAIiQL8+/signature=="}),
            json!({"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4a=="}),
            json!({"type": "text", "text": "I look."}),
            json!({"type": "thinking", "thinking": "Between.", "signature": "c2Vjb25k"}),
            json!({"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "/tmp"}}),
        ]
    );
}

/// The server would refuse changed thinking: a test of the test.
#[tokio::test]
async fn changed_thinking_is_refused_by_the_server() {
    let answer = Turn::new().think("a", "sig").call("toolu_1", "ls", &json!({}));
    let provider = Provider::with(Wire::Anthropic, [answer]);
    let model = thinking(&provider, Wire::Anthropic, ThinkingLevel::Low);
    let mut turn = turn_of(ask(&model, &request(Vec::new())).await);
    turn.raw["message"][0]["signature"] = json!("sIg");
    let messages = vec![Message::Assistant(turn.clone()), results(&turn)];
    let error = ask(&model, &request(messages)).await.0.unwrap_err();
    assert_eq!(error.kind, crate::model::FailKind::Invalid);
    assert!(error.message.contains("cannot be modified"), "{error}");
}

/// M-WIRE-1: fields that providers put beside the text, and arguments to the byte.
#[tokio::test]
async fn openai_messages_come_back_as_they_were() {
    let answer =
        Turn::new().think("Let me think.", "").say("I look.").call_as_written("c1", "ls", "{ \"path\":\t\"/tmp\"}");
    let provider = Provider::with(Wire::Openai, [answer, Turn::new().say("Done.")]);
    let model = model(&provider, Wire::Openai);
    let turn = turn_of(ask(&model, &request(Vec::new())).await);
    let messages = vec![Message::Assistant(through_the_journal(&turn)), results(&turn)];
    turn_of(ask(&model, &request(messages)).await);
    assert_eq!(
        said(&provider.last().body)[1..],
        [
            json!({"role": "assistant", "content": "I look.", "reasoning_content": "Let me think.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{ \"path\":\t\"/tmp\"}"}}]}),
            json!({"role": "tool", "tool_call_id": "c1", "content": "result 0 of {\"path\":\"/tmp\"}"}),
        ]
    );
}

#[tokio::test]
async fn ollama_messages_come_back_as_they_were() {
    let answer = Turn::new().think("Let me think.", "").say("I look.").call("", "ls", &json!({"path": "/tmp"}));
    let provider = Provider::with(Wire::Ollama, [answer, Turn::new().say("Done.")]);
    let model = model(&provider, Wire::Ollama);
    let turn = turn_of(ask(&model, &request(Vec::new())).await);
    let messages = vec![Message::Assistant(through_the_journal(&turn)), results(&turn)];
    turn_of(ask(&model, &request(messages)).await);
    assert_eq!(
        said(&provider.last().body)[1..],
        [
            json!({"role": "assistant", "content": "I look.", "thinking": "Let me think.", "tool_calls": [
            {"function": {"name": "ls", "arguments": {"path": "/tmp"}}, "id": "call00001"}]}),
            json!({"role": "tool", "tool_name": "ls", "tool_call_id": "call00001",
            "content": "result 0 of {\"path\":\"/tmp\"}"}),
        ]
    );
}

/// M-WIRE-2: ids that repeat within a turn and in later turns: results stay with their calls, and the provider accepts them.
#[tokio::test]
async fn repeated_ids_keep_results_with_their_calls() {
    for wire in Wire::ALL {
        let provider = Provider::start(wire);
        let model = model(&provider, wire);
        let mut messages = Vec::new();
        for round in 0..3 {
            provider.push(Turn::new().call("same", "ls", &json!({"n": format!("{round}a")})).call(
                "same",
                "read",
                &json!({"n": format!("{round}b")}),
            ));
            let turn = turn_of(ask(&model, &request(messages.clone())).await);
            assert_eq!(turn.calls.len(), 2, "{wire:?}");
            messages.push(Message::Assistant(through_the_journal(&turn)));
            messages.push(results(&turn));
        }
        provider.push(Turn::new().say("Done."));
        turn_of(ask(&model, &request(messages)).await);
        assert_eq!(provider.refused(), Vec::<String>::new(), "{wire:?}");
        // Each result names the arguments of its call.
        let body = provider.last().body;
        let mut asked = Vec::new();
        let mut given = Vec::new();
        for message in said(&body) {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                asked.push((call["id"].clone(), call["function"]["arguments"].to_string().replace('\\', "")));
            }
            for block in message["content"].as_array().into_iter().flatten() {
                match block["type"].as_str() {
                    Some("tool_use") => asked.push((block["id"].clone(), block["input"].to_string())),
                    Some("tool_result") => given.push((block["tool_use_id"].clone(), block["content"].to_string())),
                    _ => {}
                }
            }
            if message["role"] == "tool" {
                given.push((message["tool_call_id"].clone(), message["content"].to_string()));
            }
        }
        assert_eq!((asked.len(), given.len()), (6, 6));
        for ((id, args), (answered, text)) in asked.iter().zip(&given) {
            assert_eq!(id, answered);
            assert!(text.replace('\\', "").contains(args.trim_matches('"')), "{wire:?}: {text} for {args}");
        }
    }
}

/// M-WIRE-1, M-WIRE-2: a turn of another model is told again without its thinking, ids and all.
#[tokio::test]
async fn a_foreign_turn_is_told_again() {
    for from in Wire::ALL {
        let answer = Turn::new().think("secret thoughts", "foreign-signature").say("I look.").call(
            "functions.ls:0/weird id",
            "ls",
            &json!({"path": "/tmp"}),
        );
        let first = Provider::with(from, [answer]);
        let turn = turn_of(ask(&model(&first, from), &request(Vec::new())).await);
        for to in Wire::ALL.into_iter().filter(|to| *to != from) {
            for level in [None, Some(ThinkingLevel::High)] {
                let provider = Provider::with(to, [Turn::new().say("Done.")]);
                let settings = ProviderSettings { thinking: level, ..settings(&provider, to) };
                let messages = vec![Message::Assistant(through_the_journal(&turn)), results(&turn)];
                turn_of(ask(&open(&settings, Some(KEY.into())).unwrap(), &request(messages)).await);
                assert_eq!(provider.refused(), Vec::<String>::new(), "{from:?} to {to:?}");
                let body = provider.last().body.to_string();
                assert!(body.contains("I look.") && body.contains("result 0 of"), "{body}");
                assert!(!body.contains("secret thoughts") && !body.contains("foreign-signature"), "{body}");
            }
        }
    }
}

/// Another model of the same provider does not take the signatures either.
#[tokio::test]
async fn another_model_s_thinking_stays_away() {
    let answer = Turn::new().think("mine", "sig").call("toolu_1", "ls", &json!({}));
    let provider = Provider::with(Wire::Anthropic, [answer, Turn::new().say("Done.")]);
    let turn = turn_of(ask(&thinking(&provider, Wire::Anthropic, ThinkingLevel::Low), &request(Vec::new())).await);
    let other = ProviderSettings {
        model: "claude-opus-4-1".to_owned(),
        thinking: Some(ThinkingLevel::Low),
        ..settings(&provider, Wire::Anthropic)
    };
    let messages = vec![Message::Assistant(turn.clone()), results(&turn)];
    turn_of(ask(&open(&other, Some(KEY.into())).unwrap(), &request(messages)).await);
    assert_eq!(blocks(&provider), [json!({"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}})]);
}

/// M-WIRE-4: images of results go where the format has a place for them.
#[tokio::test]
async fn images_are_shown() {
    for wire in Wire::ALL {
        let answer = Turn::new().call("c1", "read", &json!({"path": "/a.png"})).call("c2", "ls", &json!({}));
        let provider = Provider::with(wire, [answer, Turn::new().say("A crab.")]);
        let model = model(&provider, wire);
        assert!(model.takes_images());
        let turn = turn_of(ask(&model, &request(Vec::new())).await);
        let Message::Results(mut given) = results(&turn) else { unreachable!("results are results") };
        given[0].image = Some(("image/png".to_owned(), b"crab".to_vec()));
        let messages = vec![Message::Assistant(turn), Message::Results(given)];
        turn_of(ask(&model, &request(messages)).await);
        assert_eq!(provider.refused(), Vec::<String>::new());
        let said = said(&provider.last().body);
        match wire {
            Wire::Anthropic => assert_eq!(
                said[2]["content"][0]["content"][1],
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Y3JhYg=="}})
            ),
            Wire::Openai => {
                assert_eq!(said[4]["role"], "user");
                assert_eq!(
                    said[4]["content"][1],
                    json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,Y3JhYg=="}})
                );
            }
            Wire::Ollama => assert_eq!(said[4]["images"], json!(["Y3JhYg=="])),
        }
    }
}

/// A failed call is said to have failed.
#[tokio::test]
async fn failed_calls_are_marked() {
    for wire in Wire::ALL {
        let provider = Provider::with(wire, [Turn::new().call("c1", "ls", &json!({})), Turn::new().say("Oh.")]);
        let model = model(&provider, wire);
        let turn = turn_of(ask(&model, &request(Vec::new())).await);
        let Message::Results(mut given) = results(&turn) else { unreachable!("results are results") };
        given[0].is_error = true;
        given[0].text = "nothing is there".to_owned();
        turn_of(ask(&model, &request(vec![Message::Assistant(turn), Message::Results(given)])).await);
        let said = said(&provider.last().body);
        match wire {
            Wire::Anthropic => assert_eq!(said[2]["content"][0]["is_error"], true),
            Wire::Openai | Wire::Ollama => assert_eq!(said[2]["content"], "error: nothing is there"),
        }
    }
}

/// Anthropic's cache: the tools and the system prompt, and the conversation up to its end; never more than four marks.
#[tokio::test]
async fn the_cache_is_marked() {
    let provider = Provider::start(Wire::Anthropic);
    let model = model(&provider, Wire::Anthropic);
    let mut messages = Vec::new();
    for _ in 0..4 {
        provider.push(Turn::new().call("toolu", "ls", &json!({})));
        let turn = turn_of(ask(&model, &request(messages.clone())).await);
        messages.push(Message::Assistant(turn.clone()));
        messages.push(results(&turn));
    }
    let body = provider.last().body;
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral"}));
    let said = said(&body);
    let marked: Vec<usize> = (0..said.len()).filter(|at| said[*at].to_string().contains("cache_control")).collect();
    assert_eq!(marked, [said.len() - 3, said.len() - 1]);
}
