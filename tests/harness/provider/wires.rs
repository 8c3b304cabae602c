//! The three wire formats: where they are served and how a turn looks in each.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Fault, Part, Turn};

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's chat completions.
    Openai,
    /// Ollama's chat.
    Ollama,
}

impl Wire {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Anthropic, Self::Openai, Self::Ollama];

    /// What `baseUrl` has after the address.
    pub(super) fn base_path(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Openai => "/v1/",
            Self::Ollama => "/",
        }
    }

    /// The path of requests.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/messages",
            Self::Openai => "/v1/chat/completions",
            Self::Ollama => "/api/chat",
        }
    }

    /// The value of `provider`.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Ollama => "ollama",
        }
    }

    /// The environment variable for the key.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai => "OPENAI_API_KEY",
            Self::Ollama => "OLLAMA_API_KEY",
        }
    }

    /// A model that can everything that the provider can.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "claude-sonnet-4-5",
            Self::Openai => "gpt-5-mini",
            Self::Ollama => "qwen3-vl:8b",
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Openai => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
        }
    }

    /// The body of an error.
    pub(super) fn error_body(self, status: StatusCode, message: &str) -> String {
        let kind = match status.as_u16() {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        match self {
            Self::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
            Self::Openai => json!({"error": {"message": message, "type": kind, "param": null, "code": null}}),
            Self::Ollama => json!({"error": message}),
        }
        .to_string()
    }

    /// A turn as the events of a stream, each with its end of line.
    pub(super) fn events(self, turn: &Turn) -> Vec<String> {
        match self {
            Self::Anthropic => anthropic(turn),
            Self::Openai => openai(turn),
            Self::Ollama => ollama(turn),
        }
    }

    /// A fault as an event, when it is one.
    pub(super) fn fault_event(self, fault: &Fault) -> Option<String> {
        match (fault, self) {
            (Fault::Error(kind, words), Self::Anthropic) => {
                Some(named("error", &json!({"type": "error", "error": {"type": kind, "message": words}})))
            }
            (Fault::Error(kind, words), Self::Openai) => {
                Some(data(&json!({"error": {"message": words, "type": kind, "code": null}})))
            }
            (Fault::Error(_, words), Self::Ollama) => Some(json!({"error": words}).to_string() + "\n"),
            (Fault::Garbage, Self::Ollama) => Some("{\"message\": {\"content\n".to_owned()),
            (Fault::Garbage, _) => Some("event: content_block_delta\ndata: {\"type\": \"content_bl\n\n".to_owned()),
            (Fault::Ends | Fault::Breaks | Fault::Stalls, _) => None,
        }
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}

/// Text in the pieces that models stream: words with the space before them.
fn words(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.char_indices().filter(|(_, c)| *c == ' ').map(|(at, _)| at).collect();
    starts.insert(0, 0);
    starts.dedup();
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).filter(|word| !word.is_empty()).collect()
}

/// Arguments in two pieces, which need not be JSON by themselves.
fn halves(text: &str) -> Vec<&str> {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle += 1;
    }
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty()).collect()
}

fn anthropic(turn: &Turn) -> Vec<String> {
    let (input, cached, output) = turn.usage;
    let usage = json!({
        "input_tokens": input - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": 1,
    });
    let mut events = vec![named(
        "message_start",
        &json!({"type": "message_start", "message": {
            "id": "msg_test", "type": "message", "role": "assistant", "model": Wire::Anthropic.model(),
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
        }}),
    )];
    events.push(named("ping", &json!({"type": "ping"})));
    for (index, part) in turn.parts.iter().enumerate() {
        let start = |block: Value| {
            let event = json!({"type": "content_block_start", "index": index, "content_block": block});
            named("content_block_start", &event)
        };
        let delta = |delta: Value| {
            let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
            named("content_block_delta", &event)
        };
        match part {
            Part::Text(text) => {
                events.push(start(json!({"type": "text", "text": ""})));
                events.extend(words(text).into_iter().map(|w| delta(json!({"type": "text_delta", "text": w}))));
            }
            Part::Thinking(text, signature) => {
                events.push(start(json!({"type": "thinking", "thinking": "", "signature": ""})));
                events.extend(words(text).into_iter().map(|w| delta(json!({"type": "thinking_delta", "thinking": w}))));
                events.push(delta(json!({"type": "signature_delta", "signature": signature})));
            }
            Part::Redacted(blob) => events.push(start(json!({"type": "redacted_thinking", "data": blob}))),
            Part::Call(id, name, args) => {
                events.push(start(json!({"type": "tool_use", "id": id, "name": name, "input": {}})));
                events.push(delta(json!({"type": "input_json_delta", "partial_json": ""})));
                let piece = |half| delta(json!({"type": "input_json_delta", "partial_json": half}));
                events.extend(halves(args).into_iter().map(piece));
            }
        }
        events.push(named("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
    }
    let usual = if turn.has_calls() { "tool_use" } else { "end_turn" };
    let stop = turn.stop.as_deref().unwrap_or(usual);
    events.push(named(
        "message_delta",
        &json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": output}}),
    ));
    events.push(named("message_stop", &json!({"type": "message_stop"})));
    events
}

fn openai(turn: &Turn) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        data(&json!({
            "id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": Wire::Openai.model(),
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut index = 0;
    for part in &turn.parts {
        match part {
            Part::Text(text) => {
                events.extend(words(text).into_iter().map(|w| chunk(json!({"content": w}), Value::Null)));
            }
            Part::Thinking(text, _) => {
                let piece = |w| chunk(json!({"reasoning_content": w}), Value::Null);
                events.extend(words(text).into_iter().map(piece));
            }
            Part::Redacted(_) => {}
            Part::Call(id, name, args) => {
                let begin = json!([{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]);
                events.push(chunk(json!({"tool_calls": begin}), Value::Null));
                for half in halves(args) {
                    let more = json!([{"index": index, "function": {"arguments": half}}]);
                    events.push(chunk(json!({"tool_calls": more}), Value::Null));
                }
                index += 1;
            }
        }
    }
    let usual = if turn.has_calls() { "tool_calls" } else { "stop" };
    events.push(chunk(json!({}), json!(turn.stop.as_deref().unwrap_or(usual))));
    let (input, cached, output) = turn.usage;
    events.push(data(&json!({
        "id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": Wire::Openai.model(), "choices": [],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": cached}},
    })));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn ollama(turn: &Turn) -> Vec<String> {
    let line = |message: Value| {
        json!({"model": Wire::Ollama.model(), "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false})
            .to_string()
            + "\n"
    };
    let mut lines = Vec::new();
    for part in &turn.parts {
        match part {
            Part::Text(text) => {
                lines.extend(words(text).into_iter().map(|w| line(json!({"role": "assistant", "content": w}))));
            }
            Part::Thinking(text, _) => lines.extend(
                words(text).into_iter().map(|w| line(json!({"role": "assistant", "content": "", "thinking": w}))),
            ),
            Part::Redacted(_) => {}
            // Ollama has parsed arguments; what is not JSON arrives as a string.
            Part::Call(id, name, args) => {
                let args: Value = serde_json::from_str(args).unwrap_or_else(|_| json!(args));
                let mut call = json!({"function": {"name": name, "arguments": args}});
                if !id.is_empty() {
                    call["id"] = json!(id);
                }
                lines.push(line(json!({"role": "assistant", "content": "", "tool_calls": [call]})));
            }
        }
    }
    let (input, _, output) = turn.usage;
    let end = json!({
        "model": Wire::Ollama.model(), "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": ""}, "done": true,
        "done_reason": turn.stop.as_deref().unwrap_or("stop"), "total_duration": 1,
        "prompt_eval_count": input, "eval_count": output,
    });
    lines.push(end.to_string() + "\n");
    lines
}
