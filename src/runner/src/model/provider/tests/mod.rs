//! Against a server that speaks the wire formats, in this process. What the whole program does with them is in
//! `tests/models` of the product's tests.

#[allow(dead_code, unused_imports, unreachable_pub, reason = "shared with the product's tests, which use other parts")]
#[path = "../../../../../../tests/harness/provider/mod.rs"]
mod server;

mod conversations;
mod faults;
mod hostile;
mod turns;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

use super::{ProviderModel, open};
use crate::model::{AssistantTurn, CallResult, Message, Model, ModelError, ModelEvent, ToolDefinition, TurnRequest};
use crate::project::{Provider as Name, ProviderSettings, ThinkingLevel};
use server::{Answer, Fault, KEY, Provider, Turn, Wire};

fn settings(provider: &Provider, wire: Wire) -> ProviderSettings {
    let name = match wire {
        Wire::Anthropic => Name::Anthropic,
        Wire::Openai => Name::Openai,
        Wire::Ollama => Name::Ollama,
    };
    ProviderSettings {
        provider: name,
        model: wire.model().to_owned(),
        thinking: None,
        base_url: Some(provider.base_url()),
    }
}

/// The model of this server.
fn model(provider: &Provider, wire: Wire) -> ProviderModel {
    open(&settings(provider, wire), Some(KEY.into())).expect("the settings are right")
}

/// The model of this server with this much thinking.
fn thinking(provider: &Provider, wire: Wire, level: ThinkingLevel) -> ProviderModel {
    let settings = ProviderSettings { thinking: Some(level), ..settings(provider, wire) };
    open(&settings, Some(KEY.into())).expect("the settings are right")
}

fn request(messages: Vec<Message>) -> TurnRequest {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: format!("Does {name}."),
        schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    TurnRequest {
        system: "You are an agent.".to_owned(),
        prompt: "Look around.".to_owned(),
        messages,
        tools: vec![tool("ls"), tool("read")],
        ..TurnRequest::default()
    }
}

/// Asks for a turn; gives it with the pieces of text that came on the way.
async fn ask(model: &ProviderModel, request: &TurnRequest) -> (Result<AssistantTurn, ModelError>, Vec<String>) {
    let (events, mut seen) = unbounded_channel();
    let cancel = CancellationToken::new();
    let turn = tokio::time::timeout(Duration::from_secs(30), model.turn(request, &events, &cancel));
    let turn = turn.await.expect("it answers");
    let mut pieces = Vec::new();
    while let Ok(event) = seen.try_recv() {
        match event {
            ModelEvent::Text(text) => pieces.push(text),
            other => panic!("unexpected {other:?}"),
        }
    }
    (turn, pieces)
}

/// Asks for a turn that must come about.
#[track_caller]
fn turn_of(asked: (Result<AssistantTurn, ModelError>, Vec<String>)) -> AssistantTurn {
    asked.0.unwrap_or_else(|error| panic!("{error:?}"))
}

/// A turn as it is after a restart: through the journal's JSON.
fn through_the_journal(turn: &AssistantTurn) -> AssistantTurn {
    let text = turn.raw.to_string();
    AssistantTurn { raw: serde_json::from_str(&text).expect("JSON"), ..turn.clone() }
}

/// A result for each call of a turn, which says which call it belongs to.
fn results(turn: &AssistantTurn) -> Message {
    let result = |(at, call): (usize, &crate::model::ToolCallRequest)| CallResult {
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        is_error: false,
        text: format!("result {at} of {}", call.args),
        image: None,
    };
    Message::Results(turn.calls.iter().enumerate().map(result).collect())
}

/// The messages of a request that are not the system's.
fn said(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().expect("there are messages");
    messages.iter().filter(|message| message["role"] != "system").cloned().collect()
}
