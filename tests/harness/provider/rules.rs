//! What the real providers demand of a request. Each rule is one that a real provider answers with 400 (or 401).

use std::collections::HashSet;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Part, Turn};
use super::wires::Wire;
use super::{KEY, Request};

/// What a provider has said: its thinking must come back as it was.
#[derive(Debug, Default)]
pub(super) struct Issued {
    /// The thinking blocks of each turn that had some.
    thinking: Vec<Vec<Value>>,
}

impl Issued {
    pub(super) fn remember(&mut self, wire: Wire, turn: &Turn) {
        if wire != Wire::Anthropic {
            return;
        }
        let blocks: Vec<Value> = turn
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Thinking(text, signature) => {
                    Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
                }
                Part::Redacted(data) => Some(json!({"type": "redacted_thinking", "data": data})),
                Part::Text(_) | Part::Call(..) => None,
            })
            .collect();
        if !blocks.is_empty() {
            self.thinking.push(blocks);
        }
    }
}

/// Holds a request against the rules of its wire format.
pub(super) fn check(wire: Wire, request: &Request, issued: &Issued) -> Result<(), (StatusCode, String)> {
    if request.path != wire.path() {
        return Err((StatusCode::NOT_FOUND, format!("there is no {}", request.path)));
    }
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    let authentic = match wire {
        Wire::Anthropic => header("x-api-key") == Some(KEY),
        Wire::Openai => header("authorization") == Some(&format!("Bearer {KEY}")),
        // It needs no key, but a wrong one is a mistake.
        Wire::Ollama => header("authorization").is_none_or(|value| value == format!("Bearer {KEY}")),
    };
    if !authentic {
        return Err((StatusCode::UNAUTHORIZED, "invalid key".to_owned()));
    }
    let conversation = match wire {
        Wire::Anthropic if header("anthropic-version").is_none() => Err("anthropic-version: header is required".into()),
        Wire::Anthropic => anthropic(&request.body, issued),
        Wire::Openai => openai(&request.body),
        Wire::Ollama => ollama(&request.body),
    };
    conversation.map_err(|why| (StatusCode::BAD_REQUEST, why))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn list<'a>(value: &'a Value, what: &str) -> Result<&'a Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("{what} must be a list, not {value}"))
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{what} must be a string, not {value}"))
}

/// Letters, digits, `_` and `-`.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn anthropic(body: &Value, issued: &Issued) -> Result<(), String> {
    ensure(body["stream"] == true, || "the test serves streams only".to_owned())?;
    text(&body["model"], "model")?;
    let most = body["max_tokens"].as_u64().ok_or("max_tokens: field required")?;
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
        ensure(budget >= 1024 && budget < most, || {
            "`max_tokens` must be greater than `thinking.budget_tokens`".into()
        })?;
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        ensure(tool["input_schema"]["type"] == "object", || format!("tools: input_schema must be an object: {tool}"))?;
    }
    let marks = body.to_string().matches("\"cache_control\"").count();
    ensure(marks <= 4, || format!("a maximum of 4 blocks with cache_control may be provided, found {marks}"))?;

    let messages = list(&body["messages"], "messages")?;
    ensure(messages.first().is_some_and(|first| first["role"] == "user"), || {
        "the first message must be a user's".into()
    })?;
    ensure(messages.last().is_some_and(|last| last["role"] == "user"), || {
        "prefilled answers are not supported".into()
    })?;
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let place = |what: &str| format!("messages.{at}: {what}");
        // Content may be one string, which is a block of text.
        let said = message["content"].as_str();
        let blocks: &[Value] = if said.is_some() { &[] } else { list(&message["content"], &place("content"))? };
        let empty = said.map_or(blocks.is_empty(), str::is_empty);
        ensure(!empty, || place("all messages must have non-empty content"))?;
        for block in blocks {
            if block["type"] == "text" {
                ensure(!text(&block["text"], "text")?.is_empty(), || place("text content blocks must be non-empty"))?;
            }
        }
        match message["role"].as_str() {
            Some("user") => {
                let results: Vec<&Value> = blocks.iter().take_while(|block| block["type"] == "tool_result").collect();
                let late = blocks.iter().skip(results.len()).any(|block| block["type"] == "tool_result");
                ensure(!late, || place("tool_result blocks must come first"))?;
                let mut answered = Vec::new();
                for result in results {
                    answered.push(text(&result["tool_use_id"], "tool_use_id")?);
                    ensure(!result["content"].is_null(), || place("a tool_result without content"))?;
                }
                let (mut asked, mut given) = (open.clone(), answered.clone());
                asked.sort_unstable();
                given.sort_unstable();
                ensure(asked == given, || {
                    place(&format!(
                        "`tool_use` ids {open:?} need a `tool_result` each in the next message, found {answered:?}"
                    ))
                })?;
                open.clear();
            }
            Some("assistant") => {
                ensure(open.is_empty(), || {
                    place(&format!("`tool_use` ids were found without `tool_result`: {open:?}"))
                })?;
                for block in blocks.iter().filter(|block| block["type"] == "tool_use") {
                    let id = text(&block["id"], "id")?;
                    ensure(is_plain(id), || place(&format!("tool_use.id {id:?} does not match ^[a-zA-Z0-9_-]+$")))?;
                    ensure(ids.insert(id), || place("`tool_use` ids must be unique"))?;
                    ensure(block["input"].is_object(), || place("tool_use.input: input should be a valid dictionary"))?;
                    open.push(id);
                }
                check_thinking(blocks, issued).map_err(|why| place(&why))?;
            }
            other => return Err(place(&format!("unexpected role {other:?}"))),
        }
    }
    ensure(open.is_empty(), || format!("`tool_use` ids were found without `tool_result`: {open:?}"))?;
    let last = messages.iter().rev().find(|message| message["role"] == "assistant");
    if body["thinking"]["type"] == "enabled"
        && let Some(last) = last
        && last["content"].as_array().is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_use"))
    {
        let first = last["content"][0]["type"].as_str().unwrap_or_default();
        ensure(matches!(first, "thinking" | "redacted_thinking"), || {
            format!(
                "expected `thinking` or `redacted_thinking`, but found `{first}`: a final assistant message must start with a thinking block"
            )
        })?;
    }
    Ok(())
}

/// The thinking of a message is all of one turn's, unchanged and in its order.
fn check_thinking(blocks: &[Value], issued: &Issued) -> Result<(), String> {
    let thinking: Vec<Value> = blocks
        .iter()
        .filter(|block| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking")))
        .cloned()
        .collect();
    ensure(thinking.is_empty() || issued.thinking.contains(&thinking), || {
        format!("`thinking` blocks cannot be modified and need their `signature`: {}", Value::from(thinking.clone()))
    })
}

fn openai(body: &Value) -> Result<(), String> {
    ensure(body["stream"] == true, || "the test serves streams only".to_owned())?;
    ensure(body.get("max_tokens").is_none(), || {
        "unsupported parameter: 'max_tokens' is not supported with this model".into()
    })?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        ensure(tool["type"] == "function" && tool["function"]["parameters"].is_object(), || {
            format!("not a tool: {tool}")
        })?;
    }
    let mut open: Vec<&str> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in list(&body["messages"], "messages")?.iter().enumerate() {
        let place = |what: &str| format!("messages[{at}]: {what}");
        let role = text(&message["role"], "role")?;
        if role == "tool" {
            let id = text(&message["tool_call_id"], "tool_call_id")?;
            let asked = open.iter().position(|open| *open == id);
            let asked = asked.ok_or_else(|| {
                place("messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
            })?;
            open.remove(asked);
            ensure(message["content"].is_string(), || place("content of a tool message must be a string"))?;
            continue;
        }
        ensure(open.is_empty(), || {
            place(&format!(
                "an assistant message with 'tool_calls' must be followed by tool messages; {open:?} have none"
            ))
        })?;
        match role {
            "system" | "developer" | "user" => {
                ensure(message["content"].is_string() || message["content"].is_array(), || {
                    place("content is missing")
                })?;
            }
            "assistant" => {
                let calls = message["tool_calls"].as_array();
                ensure(calls.is_none_or(|calls| !calls.is_empty()), || place("[] is too short - 'tool_calls'"))?;
                let said = message["content"].as_str().is_some_and(|said| !said.is_empty());
                ensure(said || calls.is_some(), || place("content or tool_calls is required"))?;
                for call in calls.into_iter().flatten() {
                    let id = text(&call["id"], "id")?;
                    ensure(!id.is_empty() && id.len() <= 40, || place("string too long: tool_calls[].id"))?;
                    ensure(ids.insert(id), || place(&format!("duplicate tool call id {id:?}")))?;
                    text(&call["function"]["name"], "name")?;
                    // Servers that fill a chat template parse it: vLLM, llama.cpp, Mistral.
                    let args = text(&call["function"]["arguments"], "arguments")?;
                    let object = serde_json::from_str::<Value>(args).is_ok_and(|args| args.is_object());
                    ensure(object, || place(&format!("arguments are no JSON object: {args:?}")))?;
                    open.push(id);
                }
            }
            other => return Err(place(&format!("unexpected role {other:?}"))),
        }
    }
    ensure(open.is_empty(), || format!("tool calls without an answer: {open:?}"))
}

fn ollama(body: &Value) -> Result<(), String> {
    ensure(body["stream"] == true, || "the test serves streams only".to_owned())?;
    let mut open = 0;
    for (at, message) in list(&body["messages"], "messages")?.iter().enumerate() {
        let place = |what: &str| format!("messages[{at}]: {what}");
        ensure(message["content"].is_string(), || place("json: cannot unmarshal into Message.content of type string"))?;
        match text(&message["role"], "role")? {
            "system" | "user" => ensure(open == 0, || place("a tool call has no answer"))?,
            "tool" => {
                ensure(open > 0, || place("an answer without a tool call"))?;
                open -= 1;
            }
            "assistant" => {
                ensure(open == 0, || place("a tool call has no answer"))?;
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    text(&call["function"]["name"], "name")?;
                    ensure(call["function"]["arguments"].is_object(), || {
                        place("json: cannot unmarshal into ToolCallFunctionArguments of type map")
                    })?;
                    open += 1;
                }
            }
            other => return Err(place(&format!("unexpected role {other:?}"))),
        }
        if let Some(images) = message.get("images") {
            for image in list(images, "images")? {
                text(image, "image")?;
            }
        }
    }
    ensure(open == 0, || "a tool call has no answer".to_owned())
}
