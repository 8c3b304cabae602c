//! Anthropic's messages: <https://docs.anthropic.com/en/api/messages-streaming>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fault::Fault;
use super::kept::{self, Load};
use super::steps::{self, Answered, Step};
use super::{Answer, Assembler, End, abilities};
use crate::model::{ToolCallRequest, TurnRequest, Usage};
use crate::project::ProviderSettings;

/// The request for the next turn.
pub(super) fn body(settings: &ProviderSettings, request: &TurnRequest) -> Value {
    let output = abilities::claude_output(&settings.model, settings.thinking);
    let mut body = json!({"model": settings.model, "max_tokens": output, "stream": true});
    let mut steps = steps::of(&request.messages, is_plain);
    if let Some(level) = settings.thinking {
        let (thinking, effort) = abilities::claude_thinking(&settings.model, level, output);
        // A model that must think first does not go on with a turn of another model, which has no thinking of its own.
        let foreign = steps.last().is_some_and(|step| !step.ids.is_empty() && !starts_thinking(settings, step));
        if let Some(thinking) = thinking
            && !(foreign && thinking["type"] == "enabled")
        {
            body["thinking"] = thinking;
        }
        if let Some(effort) = effort {
            body["output_config"] = json!({"effort": effort});
        }
    }
    if !request.system.is_empty() {
        // The mark covers the tools too: they come before the system prompt.
        body["system"] = json!([{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}]);
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::model::ToolDefinition| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema});
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    let mut messages = vec![json!({"role": "user", "content": [{"type": "text", "text": request.prompt}]})];
    for step in &mut steps {
        messages.push(json!({"role": "assistant", "content": said(settings, step)}));
        if !step.results.is_empty() {
            let results: Vec<Value> =
                step.ids.iter().zip(&step.results).map(|(id, result)| answered(id, result)).collect();
            messages.push(json!({"role": "user", "content": results}));
        }
    }
    mark_for_cache(&mut messages);
    body["messages"] = Value::Array(messages);
    body
}

/// Marks the ends of the last two of the user's messages: the first was written to the cache by the turn before.
fn mark_for_cache(messages: &mut [Value]) {
    for message in messages.iter_mut().rev().filter(|message| message["role"] == "user").take(2) {
        if let Some(last) = message["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
    }
}

/// Anthropic's own ids are of these characters, and no others are taken.
fn is_plain(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn starts_thinking(settings: &ProviderSettings, step: &Step<'_>) -> bool {
    let first = kept::message(settings, &step.turn.raw).and_then(|blocks| blocks[0]["type"].as_str());
    matches!(first, Some("thinking" | "redacted_thinking"))
}

/// The blocks of a turn, as they came if they came from here.
fn said(settings: &ProviderSettings, step: &Step<'_>) -> Vec<Value> {
    if let Some(Value::Array(blocks)) = kept::message(settings, &step.turn.raw) {
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use").count();
        if calls == step.ids.len() && !blocks.is_empty() {
            let mut ids = step.ids.iter();
            // A text of nothing but space is said and not taken back.
            let blank =
                |block: &Value| block["type"] == "text" && block["text"].as_str().is_none_or(|t| t.trim().is_empty());
            return blocks
                .iter()
                .filter(|block| !blank(block))
                .cloned()
                .map(|mut block| {
                    if block["type"] == "tool_use" {
                        block["id"] = json!(ids.next());
                        block["input"] = kept::as_object(&block["input"]);
                    }
                    block
                })
                .collect();
        }
    }
    let mut blocks = Vec::new();
    if !step.turn.text.trim().is_empty() {
        blocks.push(json!({"type": "text", "text": step.turn.text}));
    }
    for (id, call) in step.ids.iter().zip(&step.turn.calls) {
        blocks.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": kept::as_object(&call.args)}));
    }
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": "(nothing)"}));
    }
    blocks
}

fn answered(id: &str, result: &Answered<'_>) -> Value {
    let mut content = vec![json!({"type": "text", "text": result.text()})];
    if let Some((media_type, bytes)) = result.image() {
        let data = STANDARD.encode(bytes);
        content.push(json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}));
    }
    let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
    if result.is_error() {
        block["is_error"] = json!(true);
    }
    block
}

/// An answer on its way.
#[derive(Default)]
pub(super) struct Reading {
    /// In the order in which they began, with their numbers.
    blocks: Vec<(u64, Block)>,
    calls: usize,
    load: Load,
    usage: Value,
    stop: Option<String>,
    over: bool,
}

struct Block {
    value: Value,
    /// The arguments so far.
    written: String,
    /// Its end has come.
    whole: bool,
}

impl Assembler for Reading {
    fn take(&mut self, data: &str, said: &mut String) -> Result<bool, Fault> {
        let event = kept::event(data)?;
        let index = event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => {
                let value = &event["content_block"];
                if !value.is_object() {
                    return Err(Fault::format("a block that is no object"));
                }
                self.load.value(value)?;
                if value["type"] == "tool_use" {
                    self.calls += 1;
                    if self.calls > kept::MOST_CALLS {
                        return Err(kept::too_many_calls());
                    }
                }
                said.push_str(value["text"].as_str().unwrap_or_default());
                // A number that comes again begins another block: what was said by then stays said.
                self.blocks.push((index, Block { value: value.clone(), written: String::new(), whole: false }));
            }
            "content_block_delta" => {
                let block = newest(&mut self.blocks, index).ok_or_else(|| Fault::format("a part of no block"))?;
                for key in ["text", "thinking", "signature", "partial_json"] {
                    self.load.text(event["delta"][key].as_str().unwrap_or_default())?;
                }
                block.add(&event["delta"], said);
            }
            "content_block_stop" => {
                if let Some(block) = newest(&mut self.blocks, index) {
                    block.whole = true;
                }
            }
            "message_delta" => {
                self.count(&event["usage"]);
                if let Some(stop) = event["delta"]["stop_reason"].as_str() {
                    self.stop = Some(stop.to_owned());
                }
            }
            "message_stop" => {
                self.over = true;
                return Ok(true);
            }
            "error" => return Err(Fault::of_event(&event["error"])),
            // `ping`, and what may come.
            _ => {}
        }
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Option<Answer> {
        if !self.over {
            return None;
        }
        let count = |key: &str| kept::tokens(&self.usage[key]);
        let cached = count("cache_read_input_tokens");
        let usage = Usage {
            input: count("input_tokens") + count("cache_creation_input_tokens") + cached,
            cached,
            output: count("output_tokens"),
        };
        let end = match self.stop.as_deref() {
            Some("max_tokens") => End::Cut,
            Some("refusal") => End::Refused("stop reason `refusal`".to_owned()),
            Some("model_context_window_exceeded") => End::Full,
            _ => End::Whole,
        };
        let (mut text, mut calls, mut message) = (String::new(), Vec::new(), Vec::new());
        for (_, block) in self.blocks {
            let Block { mut value, written, whole } = block;
            match value["type"].as_str() {
                Some("text") => {
                    if !text.is_empty() {
                        text.push_str("\n\n");
                    }
                    text.push_str(value["text"].as_str().unwrap_or_default());
                }
                Some("tool_use") => {
                    if !written.is_empty() || !whole {
                        value["input"] = kept::parse_arguments(&written, !whole);
                    }
                    calls.push(ToolCallRequest {
                        provider_id: value["id"].as_str().unwrap_or_default().to_owned(),
                        name: value["name"].as_str().unwrap_or_default().to_owned(),
                        args: value["input"].clone(),
                    });
                }
                _ => {}
            }
            message.push(value);
        }
        Some(Answer { text, calls, message: Value::Array(message), usage, end })
    }
}

/// The block of this number that began last.
fn newest(blocks: &mut [(u64, Block)], index: u64) -> Option<&mut Block> {
    blocks.iter_mut().rev().find(|(number, _)| *number == index).map(|(_, block)| block)
}

impl Reading {
    /// Each report of usage is of the whole answer so far.
    fn count(&mut self, usage: &Value) {
        for (key, value) in usage.as_object().into_iter().flatten() {
            if !value.is_null() {
                self.usage[key.as_str()] = value.clone();
            }
        }
    }
}

impl Block {
    fn add(&mut self, delta: &Value, said: &mut String) {
        let part = |key: &str| delta[key].as_str().unwrap_or_default();
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => {
                append(&mut self.value["text"], part("text"));
                said.push_str(part("text"));
            }
            "thinking_delta" => append(&mut self.value["thinking"], part("thinking")),
            "signature_delta" => append(&mut self.value["signature"], part("signature")),
            "input_json_delta" => self.written.push_str(part("partial_json")),
            _ => {}
        }
    }
}

fn append(text: &mut Value, more: &str) {
    if let Value::String(text) = text {
        text.push_str(more);
    } else {
        *text = Value::String(more.to_owned());
    }
}
