//! OpenAI's chat completions, which most providers and local servers speak:
//! <https://platform.openai.com/docs/api-reference/chat>. What each of them adds is read where it is and sent back.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::kept::{self, Load};
use super::steps::{self, Step};
use super::{Answer, Assembler, End};
use crate::model::{ToolCallRequest, TurnRequest, Usage};
use crate::project::{Provider, ProviderSettings, ThinkingLevel};

/// The request for the next turn.
pub(super) fn body(settings: &ProviderSettings, request: &TurnRequest) -> Value {
    let mut body = json!({"model": settings.model, "stream": true, "stream_options": {"include_usage": true}});
    if let Some(level) = settings.thinking {
        think(&mut body, settings.provider, level);
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
    for step in steps::of(&request.messages, |id| fits(settings.provider, id)) {
        messages.push(said(settings, &step));
        let mut images = Vec::new();
        for ((id, result), call) in step.ids.iter().zip(&step.results).zip(&step.turn.calls) {
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": result.plain()}));
            if let Some((media_type, bytes)) = result.image() {
                let url = format!("data:{media_type};base64,{}", STANDARD.encode(bytes));
                images.push(json!({"type": "text", "text": format!("The image of the {} call {id}:", call.name)}));
                images.push(json!({"type": "image_url", "image_url": {"url": url}}));
            }
        }
        // A tool's message holds text only; the user shows the images once all calls are answered.
        if !images.is_empty() {
            messages.push(json!({"role": "user", "content": images}));
        }
    }
    body["messages"] = Value::Array(messages);
    body
}

fn think(body: &mut Value, provider: Provider, level: ThinkingLevel) {
    let effort = if level == ThinkingLevel::Off { "none" } else { level.name() };
    match provider {
        Provider::Openrouter if level == ThinkingLevel::Off => body["reasoning"] = json!({"enabled": false}),
        Provider::Openrouter => body["reasoning"] = json!({"effort": effort}),
        _ => body["reasoning_effort"] = json!(effort),
    }
}

fn fits(provider: Provider, id: &str) -> bool {
    match provider {
        Provider::Mistral => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
        _ => (1..=40).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()),
    }
}

/// The message of a turn, as it came if it came from here.
fn said(settings: &ProviderSettings, step: &Step<'_>) -> Value {
    if let Some(Value::Object(message)) = kept::message(settings, &step.turn.raw) {
        let calls = message.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len);
        if calls == step.ids.len() {
            let mut message = message.clone();
            if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
                for (call, id) in calls.iter_mut().zip(&step.ids) {
                    call["id"] = json!(id);
                    let written = call["function"]["arguments"].as_str().unwrap_or_default();
                    call["function"]["arguments"] = json!(as_written(written));
                }
            }
            return Value::Object(message);
        }
    }
    let mut message = json!({"role": "assistant", "content": step.turn.text});
    if !step.ids.is_empty() {
        let call = |(id, call): (&String, &ToolCallRequest)| {
            let arguments = kept::as_object(&call.args).to_string();
            json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
        };
        message["tool_calls"] = step.ids.iter().zip(&step.turn.calls).map(call).collect();
    }
    message
}

/// Arguments byte for byte if they are an object; many servers parse them to fill a template.
fn as_written(written: &str) -> String {
    match serde_json::from_str::<Value>(written) {
        Ok(Value::Object(_)) => written.to_owned(),
        _ => kept::as_object(&kept::parse_arguments(written, false)).to_string(),
    }
}

/// An answer on its way.
#[derive(Default)]
pub(super) struct Reading {
    text: String,
    /// Mistral's thinking models write content in parts.
    parts: Vec<Value>,
    refusal: String,
    /// Fields beside content and calls, under their own names.
    reasoning: Map<String, Value>,
    calls: BTreeMap<u64, Call>,
    load: Load,
    usage: Usage,
    finish: Option<String>,
    over: bool,
}

#[derive(Default)]
struct Call {
    /// Everything but the arguments, as it came.
    value: Map<String, Value>,
    id: String,
    name: String,
    written: String,
}

impl Assembler for Reading {
    fn take(&mut self, data: &str, said: &mut String) -> Result<bool, Fault> {
        if data.trim() == "[DONE]" {
            self.over = true;
            return Ok(true);
        }
        let mut event = kept::event(data)?;
        if !event["error"].is_null() {
            return Err(Fault::of_event(&event["error"]));
        }
        self.count(&event);
        let choice =
            event.get_mut("choices").and_then(|choices| choices.get_mut(0)).map(Value::take).unwrap_or_default();
        if !choice["error"].is_null() {
            return Err(Fault::of_event(&choice["error"]));
        }
        self.add(&choice["delta"], said)?;
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Option<Answer> {
        // Not every server says `[DONE]`.
        if !self.over && self.finish.is_none() {
            return None;
        }
        let end = match self.finish.as_deref() {
            Some("length" | "model_length") => End::Cut,
            Some("content_filter") => End::Refused("the content filter stopped it".to_owned()),
            Some("error") => End::Garbled("finish reason `error`".to_owned()),
            _ if !self.refusal.is_empty() && self.calls.is_empty() => End::Refused(self.refusal.clone()),
            _ => End::Whole,
        };
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        let content = if self.parts.is_empty() {
            Some(&self.text).filter(|text| !text.is_empty()).map_or(Value::Null, |text| json!(text))
        } else {
            Value::Array(self.parts)
        };
        message.insert("content".to_owned(), content);
        message.extend(self.reasoning);
        let (mut calls, mut kept_calls) = (Vec::new(), Vec::new());
        let last = self.calls.len().saturating_sub(1);
        for (at, call) in self.calls.into_values().enumerate() {
            let cut = end == End::Cut && at == last;
            calls.push(ToolCallRequest {
                provider_id: call.id.clone(),
                name: call.name.clone(),
                args: kept::parse_arguments(&call.written, cut),
            });
            let mut value = json!({"id": call.id, "type": "function"});
            value["function"] = json!({"name": call.name, "arguments": call.written});
            for (key, more) in call.value {
                value[key] = more;
            }
            kept_calls.push(value);
        }
        if !kept_calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::Array(kept_calls));
        }
        Some(Answer { text: self.text, calls, message: Value::Object(message), usage: self.usage, end })
    }
}

impl Reading {
    fn add(&mut self, delta: &Value, said: &mut String) -> Result<(), Fault> {
        match &delta["content"] {
            Value::String(text) => {
                self.load.text(text)?;
                said.push_str(text);
                self.text.push_str(text);
                if let Some(Value::String(last)) = self.parts.last_mut().and_then(|part| part.get_mut("text")) {
                    last.push_str(text);
                } else if !self.parts.is_empty() && !text.is_empty() {
                    self.parts.push(json!({"type": "text", "text": text}));
                }
            }
            Value::Array(parts) => self.add_parts(parts, said)?,
            _ => {}
        }
        if let Some(refusal) = delta["refusal"].as_str() {
            self.load.text(refusal)?;
            self.refusal.push_str(refusal);
        }
        for key in ["reasoning_content", "reasoning"] {
            if let Some(more) = delta[key].as_str().filter(|more| !more.is_empty()) {
                self.load.text(more)?;
                match self.reasoning.get_mut(key) {
                    Some(Value::String(text)) => text.push_str(more),
                    _ => drop(self.reasoning.insert(key.to_owned(), json!(more))),
                }
            }
        }
        if let Some(details) = delta["reasoning_details"].as_array() {
            self.add_details(details)?;
        }
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            self.add_call(part)?;
        }
        Ok(())
    }

    /// Content in parts: text, and thinking that has to come back in its place.
    fn add_parts(&mut self, parts: &[Value], said: &mut String) -> Result<(), Fault> {
        if self.parts.is_empty() && !self.text.is_empty() {
            self.parts.push(json!({"type": "text", "text": self.text}));
        }
        for part in parts {
            let text = part["text"].as_str().unwrap_or_default();
            said.push_str(text);
            self.text.push_str(text);
            match (self.parts.last_mut(), part["type"].as_str()) {
                (Some(last), Some("text")) if last["type"] == "text" => {
                    if let Value::String(last) = &mut last["text"] {
                        self.load.text(text)?;
                        last.push_str(text);
                    }
                }
                (Some(last), Some("thinking")) if last["type"] == "thinking" && part["thinking"].is_array() => {
                    if let (Value::Array(last), Some(more)) = (&mut last["thinking"], part["thinking"].as_array()) {
                        for piece in more {
                            self.load.value(piece)?;
                            last.push(piece.clone());
                        }
                    }
                }
                _ => {
                    self.load.value(part)?;
                    self.parts.push(part.clone());
                }
            }
        }
        Ok(())
    }

    /// OpenRouter's blocks of reasoning come in pieces of one index; text grows, everything else stands.
    fn add_details(&mut self, details: &[Value]) -> Result<(), Fault> {
        let kept = self.reasoning.entry("reasoning_details").or_insert_with(|| json!([]));
        let Value::Array(kept) = kept else { return Ok(()) };
        for detail in details.iter().filter(|detail| detail.is_object()) {
            let same = kept.last_mut().filter(|last| {
                last["index"] == detail["index"] && last["type"] == detail["type"] && !detail["index"].is_null()
            });
            let Some(last) = same else {
                self.load.value(detail)?;
                kept.push(detail.clone());
                continue;
            };
            for (key, value) in detail.as_object().into_iter().flatten() {
                match (&mut last[key.as_str()], value) {
                    (Value::String(text), Value::String(more))
                        if matches!(key.as_str(), "text" | "summary" | "data") =>
                    {
                        self.load.text(more)?;
                        text.push_str(more);
                    }
                    (slot, value) if !value.is_null() && slot != value => {
                        self.load.value(value)?;
                        *slot = value.clone();
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A piece of a call. Servers number calls, or give all of them the number 0 and another id, or no number at all.
    fn add_call(&mut self, part: &Value) -> Result<(), Fault> {
        let id = part["id"].as_str().unwrap_or_default();
        let name = part["function"]["name"].as_str().unwrap_or_default();
        let newest = self.calls.last_key_value().map(|(at, _)| *at);
        let next = newest.map_or(0, |at| at.saturating_add(1));
        let at = match part["index"].as_u64() {
            Some(index) => match self.calls.get(&index) {
                Some(known) if !id.is_empty() && !known.id.is_empty() && known.id != id && !name.is_empty() => next,
                _ => index,
            },
            None if !name.is_empty() => next,
            None => newest.ok_or_else(|| Fault::format("a part of no call"))?,
        };
        if self.calls.len() >= kept::MOST_CALLS && !self.calls.contains_key(&at) {
            return Err(kept::too_many_calls());
        }
        let call = self.calls.entry(at).or_default();
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        let begun = call.written.len();
        match &part["function"]["arguments"] {
            Value::String(more) => call.written.push_str(more),
            Value::Null => {}
            // Some servers send them parsed.
            object => call.written.push_str(&object.to_string()),
        }
        self.load.text(&call.written[begun..])?;
        for (key, value) in part.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "index" | "id" | "type" | "function") && !value.is_null() {
                self.load.value(value)?;
                call.value.insert(key.clone(), value.clone());
            }
        }
        Ok(())
    }

    fn count(&mut self, event: &Value) {
        // Groq has a place of its own.
        let usage = if event["usage"].is_object() { &event["usage"] } else { &event["x_groq"]["usage"] };
        if !usage.is_object() {
            return;
        }
        let input = kept::tokens(&usage["prompt_tokens"]);
        let cached = [&usage["prompt_tokens_details"]["cached_tokens"], &usage["prompt_cache_hit_tokens"]];
        // xAI leaves thinking out of what was written, and has it in the total.
        let rest = kept::tokens(&usage["total_tokens"]).saturating_sub(input);
        self.usage = Usage {
            input,
            cached: cached.into_iter().map(kept::tokens).max().unwrap_or(0),
            output: kept::tokens(&usage["completion_tokens"]).max(rest),
        };
    }
}
