//! Language models behind one trait.
//!
//! A model sees the whole conversation at every turn and keeps nothing of its own that matters: whoever has the journal
//! can go on with it. A failed turn is an error and never a turn without calls, which would count as success.

pub mod credentials;
mod fallback;
#[cfg(test)]
mod fallback_tests;
mod open;
pub mod provider;
mod reference;
mod retry;
pub mod script;
#[cfg(test)]
mod tests;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

pub(crate) use open::doubts;
pub use open::{OpenError, open};
pub(crate) use reference::{literal, literal_value};

/// Something that thinks: it answers a conversation with text and tool calls.
pub trait Model {
    /// Asks for the next turn. What happens on the way goes to `events`; `cancel` ends the request.
    ///
    /// # Errors
    /// Any [`ModelError`]; the conversation is as it was.
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>>;

    /// True when tool results may hold images.
    fn takes_images(&self) -> bool;
}

/// Everything a model is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnRequest {
    /// The system prompt.
    pub system: String,
    /// The user's prompt.
    pub prompt: String,
    /// The parts that the prompt was made of, for models that do not read prose.
    pub parts: PromptParts,
    /// The conversation after the prompt: turns and results alternate.
    pub messages: Vec<Message>,
    /// The tools on offer.
    pub tools: Vec<ToolDefinition>,
}

/// The parts of a user prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptParts {
    /// What the agent was asked to do.
    pub task: Option<String>,
    /// What started it.
    pub trigger: Value,
    /// The agent's parameters.
    pub params: Value,
}

/// One message after the prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The model's.
    Assistant(AssistantTurn),
    /// The results of that turn's calls, in the order asked.
    Results(Vec<CallResult>),
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AssistantTurn {
    /// What it says.
    pub text: String,
    /// The calls it asks for; none ends the session.
    pub calls: Vec<ToolCallRequest>,
    /// Which model answered: `provider/model`, or `script/name`.
    pub model: String,
    /// The provider's message without loss, to be given back to the same model as it came.
    pub raw: Value,
    /// Tokens of this turn.
    pub usage: Usage,
}

/// A call that a model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallRequest {
    /// The provider's id of it.
    pub provider_id: String,
    /// The tool's name, unchecked.
    pub name: String,
    /// Its arguments, unchecked.
    pub args: Value,
}

/// The result of a call, as the model is told.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// The provider's id of the call.
    pub provider_id: String,
    /// The tool's name.
    pub name: String,
    /// It failed.
    pub is_error: bool,
    /// What to say.
    pub text: String,
    /// An image: its media type and bytes.
    pub image: Option<(String, Vec<u8>)>,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema (2020-12) of its arguments.
    pub schema: Value,
}

/// Tokens of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Of these, read from the provider's cache.
    pub cached: u64,
    /// Tokens written.
    pub output: u64,
}

/// What happens while a model thinks.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// More of its text.
    Text(String),
    /// A request failed and is repeated. What came of its text was never said.
    Retry {
        /// Why.
        error: ModelError,
        /// After how long.
        wait: std::time::Duration,
    },
    /// A model failed for good and the next of the list is asked. What came of its text was never said.
    Fallback {
        /// The name of the one that failed.
        from: String,
        /// The name of the one that is asked.
        to: String,
        /// Why.
        error: ModelError,
    },
}

/// A turn that did not come about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Which kind of failure.
    pub kind: FailKind,
    /// What failed, in words.
    pub message: String,
    /// How long the provider wants to be left alone, if it says so.
    pub retry_after: Option<std::time::Duration>,
    /// Nobody listens at an address of this machine: a server that is not started does not come by itself.
    pub absent: bool,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailKind {
    /// Too many requests; passes.
    RateLimit,
    /// The provider is busy; passes.
    Overloaded,
    /// No answer in time; may pass.
    Timeout,
    /// The provider could not be reached; may pass.
    Network,
    /// The key is wrong.
    Auth,
    /// The provider does not take the request.
    Invalid,
    /// The conversation is longer than the model takes.
    ContextLength,
    /// The provider's policy refuses it.
    Refused,
    /// The script itself is at fault: a value is missing or an expectation unmet.
    #[serde(skip)]
    Script,
    /// It was cancelled.
    #[serde(skip)]
    Cancelled,
}

impl FailKind {
    /// True when the same request may succeed later.
    pub fn passes(self) -> bool {
        matches!(self, Self::RateLimit | Self::Overloaded | Self::Timeout | Self::Network)
    }
}

impl ModelError {
    /// An error of this kind.
    pub fn new(kind: FailKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, absent: false }
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(FailKind::Cancelled, "the request was cancelled")
    }
}
