//! Ollama's own chat, a JSON value a line: <https://github.com/ollama/ollama/blob/main/docs/api.md>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fault::Fault;
use super::kept::{self, Load};
use super::steps::{self, Step};
use super::{Answer, Assembler, End};
use crate::model::{ToolCallRequest, TurnRequest, Usage};
use crate::project::{ProviderSettings, ThinkingLevel};

/// The request for the next turn.
pub(super) fn body(settings: &ProviderSettings, request: &TurnRequest) -> Value {
    let mut body = json!({"model": settings.model, "stream": true});
    if let Some(level) = settings.thinking {
        body["think"] = match level {
            ThinkingLevel::Off => json!(false),
            ThinkingLevel::Minimal | ThinkingLevel::Low => json!("low"),
            ThinkingLevel::Medium => json!("medium"),
            ThinkingLevel::High | ThinkingLevel::Xhigh => json!("high"),
        };
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::model::ToolDefinition| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
            json!({"type": "function", "function": function})
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    messages.push(json!({"role": "user", "content": request.prompt}));
    for step in steps::of(&request.messages, |id| !id.is_empty()) {
        messages.push(said(settings, &step));
        let mut images = Vec::new();
        for ((id, result), call) in step.ids.iter().zip(&step.results).zip(&step.turn.calls) {
            // Answers belong to calls by their order; newer servers also know the id.
            let message =
                json!({"role": "tool", "tool_name": call.name, "tool_call_id": id, "content": result.plain()});
            messages.push(message);
            images.extend(result.image().map(|(_, bytes)| STANDARD.encode(bytes)));
        }
        if !images.is_empty() {
            let words = "The images that the calls returned, in their order.";
            messages.push(json!({"role": "user", "content": words, "images": images}));
        }
    }
    body["messages"] = Value::Array(messages);
    body
}

/// The message of a turn, as it came if it came from here.
fn said(settings: &ProviderSettings, step: &Step<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": step.turn.text});
    let kept = kept::message(settings, &step.turn.raw);
    if let Some(thinking) = kept.and_then(|kept| kept.get("thinking")) {
        message["thinking"] = thinking.clone();
    }
    let calls = kept.and_then(|kept| kept["tool_calls"].as_array()).filter(|calls| calls.len() == step.ids.len());
    let call = |(at, id): (usize, &String)| {
        let asked = &step.turn.calls[at];
        let rebuilt = || json!({"function": {"name": asked.name, "arguments": asked.args}});
        let mut call = calls.map_or_else(rebuilt, |calls| calls[at].clone());
        call["id"] = json!(id);
        call["function"]["arguments"] = kept::as_object(&call["function"]["arguments"]);
        call
    };
    if !step.ids.is_empty() {
        message["tool_calls"] = step.ids.iter().enumerate().map(call).collect();
    }
    message
}

/// An answer on its way.
#[derive(Default)]
pub(super) struct Reading {
    text: String,
    thinking: String,
    calls: Vec<Value>,
    load: Load,
    usage: Usage,
    stop: Option<String>,
    over: bool,
}

impl Assembler for Reading {
    fn take(&mut self, data: &str, said: &mut String) -> Result<bool, Fault> {
        let event = kept::event(data)?;
        if !event["error"].is_null() {
            return Err(Fault::of_event(&event["error"]));
        }
        let message = &event["message"];
        let text = message["content"].as_str().unwrap_or_default();
        let thinking = message["thinking"].as_str().unwrap_or_default();
        self.load.text(text)?;
        self.load.text(thinking)?;
        self.text.push_str(text);
        said.push_str(text);
        self.thinking.push_str(thinking);
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            if !call["function"].is_object() {
                return Err(Fault::format("a call without a function"));
            }
            if self.calls.len() == kept::MOST_CALLS {
                return Err(kept::too_many_calls());
            }
            self.load.value(call)?;
            self.calls.push(call.clone());
        }
        if event["done"] != true {
            return Ok(false);
        }
        let count = |key: &str| kept::tokens(&event[key]);
        self.usage = Usage {
            input: count("prompt_eval_count"),
            cached: count("prompt_eval_cached_count"),
            output: count("eval_count"),
        };
        self.stop = event["done_reason"].as_str().map(str::to_owned);
        self.over = true;
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Option<Answer> {
        if !self.over {
            return None;
        }
        let end = if self.stop.as_deref() == Some("length") { End::Cut } else { End::Whole };
        let calls = self.calls.iter().map(|call| {
            let args = match &call["function"]["arguments"] {
                // Some models' templates write text.
                Value::String(written) => kept::parse_arguments(written, false),
                Value::Null => json!({}),
                args => args.clone(),
            };
            ToolCallRequest {
                provider_id: call["id"].as_str().unwrap_or_default().to_owned(),
                name: call["function"]["name"].as_str().unwrap_or_default().to_owned(),
                args,
            }
        });
        let calls = calls.collect();
        let mut message = json!({"content": self.text});
        if !self.thinking.is_empty() {
            message["thinking"] = json!(self.thinking);
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = Value::Array(self.calls);
        }
        Some(Answer { text: self.text, calls, message, usage: self.usage, end })
    }
}
