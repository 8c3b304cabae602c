//! A session's journal: its events as types, and how they become rows of the store.
//!
//! A row is a kind and a JSON body; long strings of it are kept as payloads of their own (see `payload.rs`).

mod payload;

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{CallsAfter, End, EventRow, Generation, NewEvent, Seat, SessionKey, Store, StoreError};

/// What happened in a session.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the largest comes once in a journal, and few events are held at a time")]
pub enum Event {
    /// It was created: all that it needs to be driven.
    Started(Started),
    /// The model has answered.
    Assistant(Assistant),
    /// A call is about to be made.
    ToolStarted(ToolStarted),
    /// A call has ended.
    ToolFinished(ToolFinished),
    /// The agent says what it is doing.
    Status(Status),
    /// Something arrived for the agent: a trigger, an answer.
    Informed(Informed),
    /// It waits, without a slot.
    Suspended(Suspended),
    /// It goes on, after a wait or after its runner died.
    Resumed(Resumed),
    /// The agent set its return value.
    Returned(Returned),
    /// It is over; nothing follows.
    Ended(Ended),
}

/// Body of [`Event::Started`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Started {
    /// The agent's name.
    pub agent: String,
    /// The project's canonical path.
    pub project: String,
    /// What the agent was asked to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What started it: `{"type": "manual"}` and the like.
    #[serde(default)]
    pub trigger: Value,
    /// Parameters of the agent.
    #[serde(default)]
    pub params: Value,
    /// The image's reference.
    pub image: String,
    /// The image's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// The model's name in the project; absent when somebody else is the mind (`runner tool`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Limits of the sandbox and the loop, as they were resolved.
    #[serde(default)]
    pub limits: Value,
    /// SHA-256 of the staged copy of the agent's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// The agent's folder, when it is not that of its name in the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Names of the models that it thinks with instead of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Files and folders of the host, and where they go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy_in: Vec<(String, String)>,
    /// Files and folders of the sandbox, and the folders they go to at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy_out: Vec<(String, String)>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The first user prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// Body of [`Event::Assistant`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Assistant {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// What the model said.
    pub text: String,
    /// The calls it asks for, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Which model answered: `provider/model`, or `script/name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The provider's message, without loss: thinking blocks and signatures must go back as they came.
    #[serde(default)]
    pub raw: Value,
    /// Tokens of this turn.
    #[serde(default)]
    pub usage: Usage,
    /// The inbox's position when the model was asked: what came after it counts for the waits of this turn.
    #[serde(default)]
    pub since: i64,
}

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Call {
    /// `session/turn/index`.
    pub key: String,
    /// The provider's id of it.
    pub provider_id: String,
    /// The tool's name, as the model gave it.
    pub name: String,
    /// Its arguments, as the model gave them.
    pub args: Value,
}

/// Tokens of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Of these, tokens read from the provider's cache.
    #[serde(default)]
    pub cached: u64,
    /// Tokens written.
    pub output: u64,
}

/// Body of [`Event::ToolStarted`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolStarted {
    /// `session/turn/index`.
    pub key: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments; absent when an [`Event::Assistant`] has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
}

/// Body of [`Event::ToolFinished`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolFinished {
    /// `session/turn/index`.
    pub key: String,
    /// The tool's name.
    pub name: String,
    /// The model is told that it failed.
    pub is_error: bool,
    /// What the model is told.
    pub text: String,
    /// An image for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Why it failed, machine-readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What the tool says of itself.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// Milliseconds it took.
    pub duration_ms: u64,
}

/// An image in a tool's result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Image {
    /// `image/png` and the like.
    pub media_type: String,
    /// Its bytes in base64, as every provider takes them.
    pub base64: String,
}

/// Body of [`Event::Status`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// In the agent's words.
    pub text: String,
}

/// Body of [`Event::Informed`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Informed {
    /// Where it came from.
    pub source: String,
    /// What arrived.
    pub content: Value,
}

/// Body of [`Event::Suspended`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Suspended {
    /// What it waits for.
    pub on: Value,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
    /// When it gives up, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// Active time that it has used, in milliseconds.
    #[serde(default)]
    pub active_ms: i64,
}

/// Body of [`Event::Resumed`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Resumed {
    /// What woke it.
    pub by: Value,
}

/// Body of [`Event::Returned`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Returned {
    /// The value.
    pub value: Value,
}

/// Body of [`Event::Ended`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Why.
    pub cause: EndCause,
    /// One sentence.
    pub message: String,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// The model stopped calling tools.
    Done,
    /// The agent said that it failed.
    Failed,
    /// Something people wrote is wrong.
    Config,
    /// The container engine does not do what it must.
    Engine,
    /// The model failed.
    Model,
    /// The container or its PID 1 died.
    SandboxLost,
    /// The sandbox broke the link's protocol, so it has been compromised.
    Protocol,
    /// Refused by policy.
    Policy,
    /// `maxTurns` was reached.
    MaxTurns,
    /// `maxTokens` was reached.
    MaxTokens,
    /// A bug of ours.
    Bug,
    /// `timeout` passed.
    Timeout,
    /// Somebody stopped it.
    Stopped,
    /// Somebody killed it, with its call tree.
    Killed,
    /// Ctrl-C or a signal ended its runner in an orderly way.
    Interrupted,
    /// Its runner died without ending it.
    RunnerDied,
    /// The journal could not be written.
    Store,
}

impl EndCause {
    /// Its name in rows and output, the same as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            EndCause::Done => "done",
            EndCause::Failed => "failed",
            EndCause::Config => "config",
            EndCause::Engine => "engine",
            EndCause::Model => "model",
            EndCause::SandboxLost => "sandbox_lost",
            EndCause::Protocol => "protocol",
            EndCause::Policy => "policy",
            EndCause::MaxTurns => "max_turns",
            EndCause::MaxTokens => "max_tokens",
            EndCause::Bug => "bug",
            EndCause::Timeout => "timeout",
            EndCause::Stopped => "stopped",
            EndCause::Killed => "killed",
            EndCause::Interrupted => "interrupted",
            EndCause::RunnerDied => "runner_died",
            EndCause::Store => "store",
        }
    }

    /// The exit code of `runner start` for it.
    pub fn exit_code(self) -> u8 {
        match self {
            EndCause::Done => 0,
            EndCause::Failed | EndCause::RunnerDied | EndCause::Store => 1,
            EndCause::Config => 2,
            EndCause::Engine => 3,
            EndCause::Model => 4,
            EndCause::SandboxLost | EndCause::Protocol => 5,
            EndCause::Policy => 6,
            EndCause::MaxTurns => 7,
            EndCause::MaxTokens => 8,
            EndCause::Bug => 70,
            EndCause::Timeout => 124,
            EndCause::Stopped | EndCause::Killed => 125,
            EndCause::Interrupted => 130,
        }
    }
}

impl Event {
    /// The row's kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Started(_) => "started",
            Event::Assistant(_) => "assistant",
            Event::ToolStarted(_) => "tool_started",
            Event::ToolFinished(_) => "tool_finished",
            Event::Status(_) => "status",
            Event::Informed(_) => "informed",
            Event::Suspended(_) => "suspended",
            Event::Resumed(_) => "resumed",
            Event::Returned(_) => "returned",
            Event::Ended(_) => "ended",
        }
    }

    /// The row that stands for it, with the payloads that left its body.
    pub fn to_row(&self) -> NewEvent {
        let (body, blobs) = match self {
            Event::Started(b) => payload::encode(b),
            Event::Assistant(b) => payload::encode(b),
            Event::ToolStarted(b) => payload::encode(b),
            Event::ToolFinished(b) => payload::encode(b),
            Event::Status(b) => payload::encode(b),
            Event::Informed(b) => payload::encode(b),
            Event::Suspended(b) => payload::encode(b),
            Event::Resumed(b) => payload::encode(b),
            Event::Returned(b) => payload::encode(b),
            Event::Ended(b) => payload::encode(b),
        };
        let tokens = match self {
            Event::Assistant(turn) => turn.usage.input.saturating_add(turn.usage.output),
            _ => 0,
        };
        NewEvent { kind: Cow::Borrowed(self.kind()), body, blobs, tokens }
    }

    /// Reads a row, fetching the payloads that left its body.
    pub async fn from_row(store: &dyn Store, row: &EventRow) -> Result<Event, JournalError> {
        let broken = |source| JournalError::Row { seq: row.seq, kind: row.kind.clone(), source: Arc::new(source) };
        let body = match payload::references(&row.body).map_err(broken)? {
            Some(body) => Cow::Owned(payload::fetch(store, body).await?.to_string()),
            None => Cow::Borrowed(row.body.as_str()),
        };
        decode(&row.kind, &body).map_err(broken)
    }
}

/// Why a journal cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// A row is not an event that this runner knows.
    #[error("line {seq} of the journal ({kind}) cannot be understood by this runner: {source}")]
    Row {
        /// Its number.
        seq: u64,
        /// Its kind.
        kind: String,
        /// Why.
        source: Arc<serde_json::Error>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One session's journal, as its driver writes it.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    key: SessionKey,
    generation: Generation,
}

impl Journal {
    /// The journal of a session that this process drives under this generation.
    pub fn new(store: Arc<dyn Store>, key: SessionKey, generation: Generation) -> Journal {
        Journal { store, key, generation }
    }

    /// Its session.
    pub fn key(&self) -> SessionKey {
        self.key
    }

    /// The generation that this driver writes under.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Appends and waits until the event is durable: before a call with side effects, and before anything that depends
    /// on it is shown to others.
    pub async fn record(&self, event: &Event) -> Result<u64, StoreError> {
        self.store.append(self.key, self.generation, event.to_row()).await
    }

    /// Appends in the background; a failure is returned by the next awaited verb on this session. Await the result: it
    /// is ready at once unless the store's queue is full.
    pub fn record_later(&self, event: &Event) -> BoxFuture<'_, ()> {
        self.store.append_later(self.key, self.generation, event.to_row())
    }

    /// Ends the session in its row and its journal.
    ///
    /// When a line before could not be written, the session is ended for that reason instead ([`EndCause::Store`]) and
    /// the failure is returned: a journal with something missing does not say that all went well.
    pub async fn end(&self, cause: EndCause, message: String, sandbox_removed: bool) -> Result<(), StoreError> {
        self.end_with(cause, message, sandbox_removed, Last::default()).await
    }

    /// Ends the session as [`Journal::end`] does, with what it leaves to others.
    pub async fn end_with(
        &self,
        cause: EndCause,
        message: String,
        sandbox_removed: bool,
        last: Last,
    ) -> Result<(), StoreError> {
        let failure = match self.try_end(cause, message, sandbox_removed, &last).await {
            Ok(()) => return Ok(()),
            Err(failure @ (StoreError::Fenced { .. } | StoreError::Ended { .. })) => return Err(failure),
            Err(failure) => failure,
        };
        let message = format!("its journal could not be written: {failure}");
        // When this fails too, whoever starts a runner next finds the session and ends it.
        let _ = self.try_end(EndCause::Store, message, sandbox_removed, &last).await;
        Err(failure)
    }

    async fn try_end(
        &self,
        cause: EndCause,
        message: String,
        sandbox_removed: bool,
        last: &Last,
    ) -> Result<(), StoreError> {
        let text = last.text.clone().filter(|_| cause.exit_code() == 0);
        let (end, ended) = last_line(cause, message, sandbox_removed, text);
        // S-CALL-4: what it called goes on after a good end only.
        let calls = if cause.exit_code() == 0 {
            CallsAfter::GoOn
        } else {
            let message = format!("the session that called it ended: {}", cause.as_str());
            // Who kills means the whole tree.
            let how = if cause == EndCause::Killed { cause } else { EndCause::Stopped };
            let (end, ended) = last_line(how, message, true, None);
            CallsAfter::Cancel { end, ended, detach: last.detach }
        };
        let seat = Seat { key: self.key, generation: self.generation };
        self.store.end_session(seat, end, calls, ended).await
    }
}

/// What a session that ends leaves to others.
#[derive(Debug, Clone, Default)]
pub struct Last {
    /// What it said last.
    pub text: Option<String>,
    /// Its running calls go on although it failed.
    pub detach: bool,
}

fn last_line(cause: EndCause, message: String, sandbox_removed: bool, text: Option<String>) -> (End, NewEvent) {
    let end = End {
        cause: cause.as_str().to_owned(),
        exit_code: cause.exit_code(),
        message: message.clone(),
        sandbox_removed,
        text,
    };
    (end, Event::Ended(Ended { cause, message }).to_row())
}

/// What a row says as JSON, with the payloads that left its body; also of a kind that this runner does not know.
pub async fn body(store: &dyn Store, row: &EventRow) -> Result<Value, JournalError> {
    let broken = |source| JournalError::Row { seq: row.seq, kind: row.kind.clone(), source: Arc::new(source) };
    match payload::references(&row.body).map_err(broken)? {
        Some(body) => Ok(payload::fetch(store, body).await?),
        None => payload::parse(&row.body).map_err(broken),
    }
}

/// Reads a whole journal.
pub async fn load(store: &dyn Store, key: SessionKey) -> Result<Vec<Event>, JournalError> {
    Ok(lines(store, key).await?.into_iter().map(|(_, event)| event).collect())
}

/// Reads a whole journal: each event with when it was recorded, in milliseconds since 1970.
pub async fn lines(store: &dyn Store, key: SessionKey) -> Result<Vec<(i64, Event)>, JournalError> {
    const PAGE: usize = 256;
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let rows = store.events(key, after, PAGE).await?;
        for row in &rows {
            events.push((row.at, Event::from_row(store, row).await?));
        }
        match rows.last() {
            Some(row) if rows.len() == PAGE => after = row.seq,
            _ => return Ok(events),
        }
    }
}

fn decode(kind: &str, body: &str) -> Result<Event, serde_json::Error> {
    fn read<T: DeserializeOwned>(body: &str, event: fn(T) -> Event) -> Result<Event, serde_json::Error> {
        payload::parse(body).map(event)
    }
    match kind {
        "started" => read(body, Event::Started),
        "assistant" => read(body, Event::Assistant),
        "tool_started" => read(body, Event::ToolStarted),
        "tool_finished" => read(body, Event::ToolFinished),
        "status" => read(body, Event::Status),
        "informed" => read(body, Event::Informed),
        "suspended" => read(body, Event::Suspended),
        "resumed" => read(body, Event::Resumed),
        "returned" => read(body, Event::Returned),
        "ended" => read(body, Event::Ended),
        _ => Err(serde::de::Error::custom("its kind is not known")),
    }
}

#[cfg(test)]
mod tests;
