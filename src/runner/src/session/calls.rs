//! One tool call with its journal lines.
//!
//! The intent of a call with effects is durable before the call begins, so that a restart knows what may have happened.
//! Calls that only look are journalled in the background: they can simply be made again.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::journal::{Event, Image, Journal, Returned, Status, Suspended, ToolFinished, ToolStarted};
use super::progress::{Progress, Watcher};
use crate::store::{NewEvent, StoreError};
use crate::tools::{Context, Hands, Note, Ready, Registry, ToolResult, ToolSession};

/// What every call of a session is made with.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// The session's id.
    pub(crate) session: &'a str,
    pub(crate) journal: &'a Journal,
    pub(crate) registry: &'a Registry,
    pub(crate) hands: &'a dyn Hands,
    pub(crate) tools: &'a ToolSession,
    pub(crate) watcher: &'a dyn Watcher,
}

/// One call.
pub(crate) struct CallOrder<'a> {
    /// Number of the turn, from 1.
    pub(crate) turn: u32,
    /// Its place in the turn, from 0.
    pub(crate) index: usize,
    pub(crate) name: &'a str,
    pub(crate) args: &'a Value,
    /// No earlier line of the journal has the arguments.
    pub(crate) journal_args: bool,
    /// The session's remaining time.
    pub(crate) remaining: Duration,
    pub(crate) cancel: &'a CancellationToken,
}

impl Caller<'_> {
    /// The key of a call.
    pub(crate) fn key(&self, turn: u32, index: usize) -> String {
        format!("{}/{turn}/{index}", self.session)
    }

    /// Makes the call and journals it.
    ///
    /// # Errors
    /// The journal could not be written: nothing may be done any more.
    pub(crate) async fn call(&self, order: CallOrder<'_>) -> Result<ToolResult, StoreError> {
        let key = self.key(order.turn, order.index);
        let name = order.name;
        self.watcher.see(&Progress::ToolStarted { key: &key, name, args: order.args });
        let ready = self.registry.prepare(name, order.args.clone());
        let started = Event::ToolStarted(ToolStarted {
            key: key.clone(),
            name: name.to_owned(),
            args: order.journal_args.then(|| order.args.clone()),
        });
        if ready.as_ref().is_ok_and(Ready::has_effects) {
            self.journal.record(&started).await?;
        } else {
            self.journal.record_later(&started).await;
        }
        let begun = Instant::now();
        let result = match ready {
            Ok(ready) => {
                let context = Context {
                    hands: self.hands,
                    session: self.tools,
                    key: &key,
                    remaining: order.remaining,
                    cancel: order.cancel,
                    fleet: None,
                };
                match ready.run(context).await? {
                    crate::tools::Said::Result(result) | crate::tools::Said::Recorded(result) => result,
                    crate::tools::Said::Suspended => ToolResult::default(),
                }
            }
            Err(refused) => *refused,
        };
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let finished = Event::ToolFinished(ToolFinished {
            key: key.clone(),
            name: name.to_owned(),
            is_error: result.is_error,
            text: result.text.clone(),
            image: result
                .image
                .as_ref()
                .map(|(media_type, bytes)| Image { media_type: media_type.clone(), base64: STANDARD.encode(bytes) }),
            cause: result.cause.map(cause_name),
            details: result.details.clone(),
            duration_ms,
        });
        self.journal.record_later(&finished).await;
        self.watcher.see(&Progress::ToolFinished {
            key: &key,
            name,
            is_error: result.is_error,
            cause: result.cause,
            text: &result.text,
            duration_ms,
        });
        Ok(result)
    }
}

/// The line that a scheduler tool adds to its own.
#[expect(dead_code, reason = "the driver gives it to scheduler tools as soon as sessions are members of a fleet")]
pub(crate) fn noted(note: &Note) -> NewEvent {
    let event = match note.clone() {
        Note::Status(text) => Event::Status(Status { text }),
        Note::Returned(value) => Event::Returned(Returned { value }),
        Note::Suspended { on, words, deadline, active_ms } => {
            Event::Suspended(Suspended { on, words, deadline: Some(deadline), active_ms })
        }
    };
    event.to_row()
}

/// The cause as it stands in JSON.
fn cause_name(cause: protocol::Cause) -> String {
    match serde_json::to_value(cause) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
