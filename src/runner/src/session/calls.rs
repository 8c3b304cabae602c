//! One tool call with its journal lines.
//!
//! The intent of a call with effects is durable before the call begins, so that a restart knows what may have happened.
//! Calls that only look are journalled in the background: they can simply be made again. A scheduler tool's line is
//! written by the store together with the call's effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::held::{Held, telling};
use super::journal::{Event, Image, Journal, Returned, Status, Suspended, ToolFinished, ToolStarted};
use super::progress::{Progress, Watcher};
use crate::fleet::Member;
use crate::store::{NewEvent, StoreError};
use crate::tools::{Among, Context, Finish, Hands, Note, Noter, Order, Ready, Registry, Said, ToolResult, ToolSession};

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
    /// What it shares with others; none for a session without a mind.
    pub(crate) member: Option<&'a Member>,
    /// The lock that it holds.
    pub(crate) held: &'a Held,
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
    /// The journal has it as begun: by a driver that is gone.
    pub(crate) begun: bool,
    /// The session's remaining time.
    pub(crate) remaining: Duration,
    /// Active time that it has used, in milliseconds.
    pub(crate) active_ms: i64,
    /// The inbox's position when the model was asked for this turn.
    pub(crate) since: i64,
    pub(crate) cancel: &'a CancellationToken,
}

impl Caller<'_> {
    /// The key of a call.
    pub(crate) fn key(&self, turn: u32, index: usize) -> String {
        format!("{}/{turn}/{index}", self.session)
    }

    /// Makes a call that cannot suspend the session, and journals it.
    ///
    /// # Errors
    /// The journal could not be written: nothing may be done any more.
    pub(crate) async fn call(&self, order: CallOrder<'_>) -> Result<ToolResult, StoreError> {
        // Only members of a fleet wait.
        self.say(order).await.map(Option::unwrap_or_default)
    }

    /// Makes the call and journals it; nothing when the session waits now.
    ///
    /// # Errors
    /// The journal could not be written: nothing may be done any more.
    pub(crate) async fn say(&self, order: CallOrder<'_>) -> Result<Option<ToolResult>, StoreError> {
        let key = self.key(order.turn, order.index);
        let name = order.name;
        self.watcher.see(&Progress::ToolStarted { key: &key, name, args: order.args });
        let ready = self.registry.prepare(name, order.args.clone());
        if !order.begun {
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
        }
        let lost = self.held.lost(&**self.journal.store()).await?;
        let begun = Instant::now();
        let said = match ready {
            Ok(ready) => self.run(ready, &key, &order, lost.clone(), begun).await?,
            Err(refused) => Said::Result(*refused),
        };
        let result = match said {
            Said::Result(result) => {
                let result = telling(result, lost.as_deref(), self.answers_in_json(name));
                self.journal.record_later(&finished(&key, name, &result, begun)).await;
                result
            }
            Said::Recorded(result) => telling(result, lost.as_deref(), self.answers_in_json(name)),
            Said::Suspended => return Ok(None),
        };
        self.held.note(&result.details);
        self.watcher.see(&Progress::ToolFinished {
            key: &key,
            name,
            is_error: result.is_error,
            cause: result.cause,
            text: &result.text,
            duration_ms: milliseconds(begun),
        });
        Ok(Some(result))
    }

    /// True for the scheduler tools, which are the ones that have an order.
    fn answers_in_json(&self, name: &str) -> bool {
        self.registry.order(name) != Order::AtOnce
    }

    async fn run(
        &self,
        ready: Ready<'_>,
        key: &str,
        order: &CallOrder<'_>,
        lost: Option<String>,
        begun: Instant,
    ) -> Result<Said, StoreError> {
        let (call, name) = (key.to_owned(), order.name.to_owned());
        let json = self.answers_in_json(order.name);
        let finish: Finish = Arc::new(move |result: &ToolResult| {
            finished(&call, &name, &telling(result.clone(), lost.as_deref(), json), begun).to_row()
        });
        let note: Noter = Arc::new(noted);
        let fleet = self.member.map(|member| Among {
            member,
            finish: &finish,
            note: &note,
            since: order.since,
            active_ms: order.active_ms,
        });
        let context = Context {
            hands: self.hands,
            session: self.tools,
            key,
            remaining: order.remaining,
            cancel: order.cancel,
            fleet,
        };
        ready.run(context).await
    }
}

/// The line of a call's result.
pub(super) fn finished(key: &str, name: &str, result: &ToolResult, begun: Instant) -> Event {
    Event::ToolFinished(ToolFinished {
        key: key.to_owned(),
        name: name.to_owned(),
        is_error: result.is_error,
        text: result.text.clone(),
        image: result
            .image
            .as_ref()
            .map(|(media_type, bytes)| Image { media_type: media_type.clone(), base64: STANDARD.encode(bytes) }),
        cause: result.cause.map(cause_name),
        details: result.details.clone(),
        duration_ms: milliseconds(begun),
    })
}

fn milliseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The line that a scheduler tool adds to its own.
fn noted(note: &Note) -> NewEvent {
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
