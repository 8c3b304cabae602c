//! Google's Gemini API: <https://ai.google.dev/api/generate-content>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::kept::{self, Load};
use super::steps::{self, Step};
use super::{Answer, Assembler, End};
use crate::model::{ToolCallRequest, TurnRequest, Usage};
use crate::project::{ProviderSettings, ThinkingLevel};

/// What stands for the signature of a call that another model made; Gemini 3 refuses calls without one.
const FOREIGN: &str = "skip_thought_signature_validator";

/// The request for the next turn.
pub(super) fn body(settings: &ProviderSettings, request: &TurnRequest) -> Value {
    let mut body = json!({});
    if !request.system.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": request.system}]});
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::model::ToolDefinition| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema});
        let tools: Vec<Value> = request.tools.iter().map(tool).collect();
        body["tools"] = json!([{"functionDeclarations": tools}]);
    }
    if let Some(level) = settings.thinking {
        body["generationConfig"] = json!({"thinkingConfig": think(&settings.model, level)});
    }
    let mut contents = vec![json!({"role": "user", "parts": [{"text": request.prompt}]})];
    for step in steps::of(&request.messages, |id| !id.is_empty()) {
        let (parts, named) = said(settings, &step);
        contents.push(json!({"role": "model", "parts": parts}));
        if step.results.is_empty() {
            continue;
        }
        let mut parts = Vec::new();
        let mut images = Vec::new();
        for (at, (result, call)) in step.results.iter().zip(&step.turn.calls).enumerate() {
            let key = if result.is_error() { "error" } else { "output" };
            let mut response = json!({"name": call.name, "response": {key: result.text()}});
            // Answers belong to calls by their order, or by an id where the model gave one.
            if named[at] {
                response["id"] = json!(step.ids[at]);
            }
            parts.push(json!({"functionResponse": response}));
            if let Some((media_type, bytes)) = result.image() {
                images.push(json!({"inlineData": {"mimeType": media_type, "data": STANDARD.encode(bytes)}}));
            }
        }
        parts.append(&mut images);
        contents.push(json!({"role": "user", "parts": parts}));
    }
    body["contents"] = Value::Array(contents);
    body
}

fn think(model: &str, level: ThinkingLevel) -> Value {
    if model.contains("gemini-2") {
        // They are given tokens.
        return json!({"thinkingBudget": match level {
            ThinkingLevel::Off => 0,
            ThinkingLevel::Minimal => 512,
            ThinkingLevel::Low => 2_048,
            ThinkingLevel::Medium => 8_192,
            ThinkingLevel::High => 16_384,
            ThinkingLevel::Xhigh => 24_576,
        }});
    }
    json!({"thinkingLevel": match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal => "MINIMAL",
        ThinkingLevel::Low => "LOW",
        ThinkingLevel::Medium => "MEDIUM",
        ThinkingLevel::High | ThinkingLevel::Xhigh => "HIGH",
    }})
}

/// The parts of a turn, as they came if they came from here, and which of its calls have an id.
fn said(settings: &ProviderSettings, step: &Step<'_>) -> (Vec<Value>, Vec<bool>) {
    if let Some(Value::Array(parts)) = kept::message(settings, &step.turn.raw) {
        let calls = parts.iter().filter(|part| !part["functionCall"].is_null()).count();
        if calls == step.ids.len() && !parts.is_empty() {
            let mut parts = parts.clone();
            let mut named = Vec::new();
            let calls = parts.iter_mut().filter_map(|part| part.get_mut("functionCall").filter(|call| !call.is_null()));
            for (call, id) in calls.zip(&step.ids) {
                named.push(!call["id"].is_null());
                if !call["id"].is_null() {
                    call["id"] = json!(id);
                }
                call["args"] = kept::as_object(&call["args"]);
            }
            return (parts, named);
        }
    }
    let mut parts = Vec::new();
    if !step.turn.text.is_empty() {
        parts.push(json!({"text": step.turn.text}));
    }
    for (at, call) in step.turn.calls.iter().enumerate() {
        let mut part = json!({"functionCall": {"name": call.name, "args": kept::as_object(&call.args)}});
        if at == 0 {
            part["thoughtSignature"] = json!(FOREIGN);
        }
        parts.push(part);
    }
    if parts.is_empty() {
        parts.push(json!({"text": "(nothing)"}));
    }
    (parts, vec![false; step.ids.len()])
}

/// An answer on its way.
#[derive(Default)]
pub(super) struct Reading {
    parts: Vec<Value>,
    calls: usize,
    load: Load,
    usage: Usage,
    finish: Option<String>,
    why: String,
}

impl Assembler for Reading {
    fn take(&mut self, data: &str, said: &mut String) -> Result<bool, Fault> {
        let event = kept::event(data)?;
        if !event["error"].is_null() {
            return Err(Fault::of_event(&event["error"]));
        }
        if event["usageMetadata"].is_object() {
            let count = |key: &str| kept::tokens(&event["usageMetadata"][key]);
            self.usage = Usage {
                input: count("promptTokenCount") + count("toolUsePromptTokenCount"),
                cached: count("cachedContentTokenCount"),
                output: count("candidatesTokenCount") + count("thoughtsTokenCount"),
            };
        }
        if let Some(blocked) = event["promptFeedback"]["blockReason"].as_str() {
            self.finish = Some("SAFETY".to_owned());
            self.why = format!("the prompt was blocked: {blocked}");
        }
        let candidate = &event["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.add(part, said)?;
        }
        if let Some(finish) = candidate["finishReason"].as_str() {
            self.finish = Some(finish.to_owned());
            candidate["finishMessage"].as_str().unwrap_or(finish).clone_into(&mut self.why);
        }
        // The stream ends with the body: usage may follow the reason.
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Option<Answer> {
        let end = match self.finish.as_deref()? {
            "STOP" | "FINISH_REASON_UNSPECIFIED" => End::Whole,
            "MAX_TOKENS" => End::Cut,
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "OTHER" => End::Garbled(self.why.clone()),
            _ => End::Refused(self.why.clone()),
        };
        let mut text = String::new();
        let mut calls = Vec::new();
        for part in &self.parts {
            let call = &part["functionCall"];
            if !call.is_null() {
                calls.push(ToolCallRequest {
                    provider_id: call["id"].as_str().unwrap_or_default().to_owned(),
                    name: call["name"].as_str().unwrap_or_default().to_owned(),
                    args: if call["args"].is_null() { json!({}) } else { call["args"].clone() },
                });
            } else if part["thought"] != true {
                text.push_str(part["text"].as_str().unwrap_or_default());
            }
        }
        Some(Answer { text, calls, message: Value::Array(self.parts), usage: self.usage, end })
    }
}

impl Reading {
    /// Adds a part. Pieces of one text become one; a signature stays with the part that it came on.
    fn add(&mut self, part: &Value, said: &mut String) -> Result<(), Fault> {
        if !part["functionCall"].is_null() {
            if !part["functionCall"].is_object() {
                return Err(Fault::format("a call that is no object"));
            }
            self.calls += 1;
            if self.calls > kept::MOST_CALLS {
                return Err(kept::too_many_calls());
            }
        }
        let only_text = |part: &Value| {
            let known = |keys: &Map<String, Value>| keys.keys().all(|key| matches!(key.as_str(), "text" | "thought"));
            part["text"].is_string() && part.as_object().is_some_and(known)
        };
        if part["thought"] != true {
            said.push_str(part["text"].as_str().unwrap_or_default());
        }
        if let Some(last) = self.parts.last_mut()
            && only_text(last)
            && only_text(part)
            && last["thought"] == part["thought"]
            && let (Value::String(text), Some(more)) = (&mut last["text"], part["text"].as_str())
        {
            self.load.text(more)?;
            text.push_str(more);
            return Ok(());
        }
        self.load.value(part)?;
        self.parts.push(part.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantTurn, CallResult, Message};
    use crate::project::Provider;

    fn settings(thinking: Option<ThinkingLevel>) -> ProviderSettings {
        ProviderSettings { provider: Provider::Google, model: "gemini-3-pro".to_owned(), thinking, base_url: None }
    }

    fn read(events: &[Value]) -> (Option<Answer>, String) {
        let mut reading = Box::new(Reading::default());
        let mut said = String::new();
        for event in events {
            assert!(!reading.take(&event.to_string(), &mut said).unwrap());
        }
        (reading.finish(), said)
    }

    fn candidate(parts: &Value) -> Value {
        json!({"candidates": [{"content": {"role": "model", "parts": parts}}]})
    }

    fn answer() -> Vec<Value> {
        vec![
            candidate(&json!([{"text": "Think", "thought": true}])),
            candidate(&json!([{"text": "ing.", "thought": true}])),
            candidate(&json!([{"text": "I "}])),
            candidate(&json!([{"text": "look."}, {"text": "", "thoughtSignature": "c2ln"}])),
            candidate(&json!([
                {"functionCall": {"name": "ls", "args": {"path": "/tmp"}}, "thoughtSignature": "Y2FsbA=="},
                {"functionCall": {"name": "read"}},
            ])),
            json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {
                "promptTokenCount": 50, "cachedContentTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}}),
        ]
    }

    /// M-WIRE-1: parts go back as they came, each with its signature.
    #[test]
    fn parts_are_kept_with_their_signatures() {
        let (found, said) = read(&answer());
        let found = found.unwrap();
        assert_eq!((said.as_str(), found.text.as_str()), ("I look.", "I look."));
        assert_eq!(found.usage, Usage { input: 50, cached: 20, output: 8 });
        assert_eq!((found.end, found.calls.len(), &found.calls[1].args), (End::Whole, 2, &json!({})));
        let raw = kept::keep(&settings(None), found.message);
        let result = |text: &str, is_error| CallResult {
            provider_id: String::new(),
            name: "ls".to_owned(),
            is_error,
            text: text.to_owned(),
            image: None,
        };
        let turn = AssistantTurn { text: found.text, calls: found.calls, raw, ..AssistantTurn::default() };
        let results = Message::Results(vec![result("a", false), result("b", true)]);
        let request = TurnRequest {
            prompt: "Look.".to_owned(),
            messages: vec![Message::Assistant(turn), results],
            ..TurnRequest::default()
        };
        let body = body(&settings(Some(ThinkingLevel::Low)), &request);
        assert_eq!(body["generationConfig"], json!({"thinkingConfig": {"thinkingLevel": "LOW"}}));
        assert_eq!(
            body["contents"],
            json!([
                {"role": "user", "parts": [{"text": "Look."}]},
                {"role": "model", "parts": [
                    {"text": "Thinking.", "thought": true},
                    {"text": "I look."},
                    {"text": "", "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "ls", "args": {"path": "/tmp"}}, "thoughtSignature": "Y2FsbA=="},
                    {"functionCall": {"name": "read", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "ls", "response": {"output": "a"}}},
                    {"functionResponse": {"name": "read", "response": {"error": "b"}}},
                ]},
            ])
        );
    }

    /// M-WIRE-3: a stream that breaks off, a refusal and a call that nobody can read are no answers.
    #[test]
    fn what_is_no_answer() {
        let events = answer();
        assert!(read(&events[..5]).0.is_none());
        let ended = |reason: &str| read(&[json!({"candidates": [{"finishReason": reason}]})]).0.unwrap().end;
        assert_eq!(ended("MAX_TOKENS"), End::Cut);
        assert_eq!(ended("SAFETY"), End::Refused("SAFETY".to_owned()));
        assert_eq!(ended("MALFORMED_FUNCTION_CALL"), End::Garbled("MALFORMED_FUNCTION_CALL".to_owned()));
        let blocked = read(&[json!({"promptFeedback": {"blockReason": "OTHER"}})]).0.unwrap().end;
        assert_eq!(blocked, End::Refused("the prompt was blocked: OTHER".to_owned()));
    }

    /// Gemini 3 refuses a call without a signature, also one that another model made.
    #[test]
    fn a_foreign_call_has_a_stand_in_for_its_signature() {
        let call =
            |name: &str| ToolCallRequest { provider_id: "x".to_owned(), name: name.to_owned(), args: json!("cut") };
        let turn = AssistantTurn { calls: vec![call("ls"), call("read")], ..AssistantTurn::default() };
        let request = TurnRequest { messages: vec![Message::Assistant(turn)], ..TurnRequest::default() };
        let parts = &body(&settings(None), &request)["contents"][1]["parts"];
        assert_eq!(parts[0]["thoughtSignature"], FOREIGN);
        assert_eq!(parts[1], json!({"functionCall": {"name": "read", "args": {"malformed_arguments": "cut"}}}));
    }
}
