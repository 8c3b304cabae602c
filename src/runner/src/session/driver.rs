//! The loop of a session: ask the model, make its calls, ask again.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture, join_all};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::calls::{CallOrder, Caller};
use super::journal::{Assistant, Call, EndCause, Event, Usage};
use super::progress::Progress;
use super::room::Room;
use crate::model::{AssistantTurn, CallResult, Message, Model, TurnRequest};
use crate::project::Settings;
use crate::sandbox::{Gone, GoneKind};
use crate::store::StoreError;
use crate::tools::ToolResult;

/// How long calls may go on after the session's time is up: each is capped by that time itself, and its own limit ends
/// it with the output so far (SIGKILL follows SIGTERM after 2 s).
const INNER_LIMIT_FIRST: Duration = Duration::from_secs(6);

/// How long cancelled calls are waited for; the link gives the sandbox up earlier.
const CANCELLED_CALLS: Duration = Duration::from_secs(10);

/// Shortest time between two looks for a stop request. Every change of the store is a reason to look, our own journal
/// lines among them.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conclusion {
    pub(crate) cause: EndCause,
    /// One sentence.
    pub(crate) message: String,
    /// What the model said last.
    pub(crate) text: String,
}

impl Conclusion {
    pub(crate) fn new(cause: EndCause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), text: String::new() }
    }
}

impl From<StoreError> for Conclusion {
    fn from(error: StoreError) -> Self {
        Self::new(EndCause::Store, error.to_string())
    }
}

/// The limits of the loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopLimits {
    /// When the session's active time is up.
    pub(crate) deadline: Instant,
    /// That time, for messages.
    pub(crate) timeout: Duration,
    pub(crate) max_turns: u64,
    pub(crate) max_tokens: Option<u64>,
}

impl LoopLimits {
    /// The limits of these settings for a session that begins now.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            deadline: Instant::now() + settings.timeout,
            timeout: settings.timeout,
            max_turns: settings.max_turns,
            max_tokens: settings.max_tokens,
        }
    }

    /// What is left of it.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// When calls are cancelled that were not ended by their own limit.
    pub(crate) fn last_moment(&self) -> Instant {
        self.deadline + INNER_LIMIT_FIRST
    }

    /// The end of a session whose time is up.
    pub(crate) fn timed_out(&self) -> Conclusion {
        let words = format!("the session's time of {} s was up", self.timeout.as_secs());
        Conclusion::new(EndCause::Timeout, words)
    }
}

/// Something from outside that ends a session: the sandbox is gone, somebody stopped it, or Ctrl-C.
pub(crate) async fn interruption(caller: Caller<'_>, interrupt: &CancellationToken) -> Conclusion {
    tokio::select! {
        biased;
        () = interrupt.cancelled() => Conclusion::new(EndCause::Interrupted, "Ctrl-C or a signal ended it"),
        gone = caller.hands.gone() => lost(&gone),
        by = stopped(caller) => Conclusion::new(EndCause::Stopped, format!("stopped by {by}")),
    }
}

/// What the end of a sandbox is to its session.
pub(crate) fn lost(gone: &Gone) -> Conclusion {
    let cause = match gone.kind {
        GoneKind::Protocol => EndCause::Protocol,
        GoneKind::Facts => EndCause::Policy,
        GoneKind::Engine => EndCause::Engine,
        GoneKind::Died | GoneKind::Stuck | GoneKind::Lost | GoneKind::Stopped => EndCause::SandboxLost,
    };
    Conclusion::new(cause, gone.to_string())
}

async fn stopped(caller: Caller<'_>) -> String {
    let store = caller.journal.store();
    let mut changes = store.watch();
    loop {
        // A store that cannot be read fails the journal too, which ends the session with its reason.
        if let Ok(Some(request)) = store.stop_requested(caller.journal.key()).await {
            return request.by;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Drives a session to its end.
pub(crate) struct Driver<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) model: &'a dyn Model,
    pub(crate) limits: LoopLimits,
    pub(crate) request: TurnRequest,
    /// What can go when the conversation becomes too long.
    pub(crate) room: Room,
    /// Ctrl-C.
    pub(crate) interrupt: &'a CancellationToken,
}

impl Driver<'_> {
    /// Runs the loop.
    pub(crate) async fn run(mut self) -> Conclusion {
        let caller = self.caller;
        let interrupt = self.interrupt;
        let mut interruption: LocalBoxFuture<'_, Conclusion> = Box::pin(interruption(caller, interrupt));
        let mut said = String::new();
        let conclusion = self.turns(&mut interruption, &mut said).await.unwrap_or_else(|end| end);
        Conclusion { text: said, ..conclusion }
    }

    /// The loop itself; both ways out are conclusions, so that `?` ends a session.
    async fn turns(
        &mut self,
        interruption: &mut LocalBoxFuture<'_, Conclusion>,
        said: &mut String,
    ) -> Result<Conclusion, Conclusion> {
        let mut tokens = 0;
        let mut turn = 0;
        loop {
            if u64::from(turn) >= self.limits.max_turns {
                let words = match self.limits.max_turns {
                    1 => "the limit of 1 turn was reached".to_owned(),
                    most => format!("the limit of {most} turns was reached"),
                };
                return Err(Conclusion::new(EndCause::MaxTurns, words));
            }
            // What has happened by now ends the session before the model is asked again.
            if let Some(end) = interruption.as_mut().now_or_never() {
                return Err(end);
            }
            if self.limits.remaining().is_zero() {
                return Err(self.limits.timed_out());
            }
            turn += 1;
            self.caller.watcher.see(&Progress::Thinking { turn });
            let answer = self.ask(interruption).await?;
            tokens += answer.usage.input + answer.usage.output;
            if !answer.text.is_empty() {
                said.clone_from(&answer.text);
                self.caller.watcher.see(&Progress::Text { text: &answer.text });
            }
            self.caller.journal.record_later(&self.assistant(turn, &answer)).await;
            if answer.calls.is_empty() {
                return Ok(Conclusion::new(EndCause::Done, "the agent is done"));
            }
            if let Some(most) = self.limits.max_tokens.filter(|most| tokens >= *most) {
                let words = format!("the limit of {most} tokens was reached: {tokens} were used");
                return Err(Conclusion::new(EndCause::MaxTokens, words));
            }
            let results = self.act(turn, &answer, interruption).await?;
            self.request.messages.push(Message::Assistant(answer));
            self.request.messages.push(Message::Results(results));
        }
    }

    /// Makes the calls of a turn at once; their results come in the order asked (T-8).
    async fn act(
        &mut self,
        turn: u32,
        answer: &AssistantTurn,
        interruption: &mut LocalBoxFuture<'_, Conclusion>,
    ) -> Result<Vec<CallResult>, Conclusion> {
        let cancel = CancellationToken::new();
        let remaining = self.limits.remaining();
        let calls = answer.calls.iter().enumerate().map(|(index, call)| {
            self.caller.call(CallOrder {
                turn,
                index,
                name: &call.name,
                args: &call.args,
                journal_args: false,
                remaining,
                cancel: &cancel,
            })
        });
        let mut calls = pin!(join_all(calls));
        let results = tokio::select! {
            biased;
            results = &mut calls => results,
            end = &mut *interruption => {
                cancel_and_wait(&cancel, calls).await;
                return Err(end);
            }
            () = sleep_until(self.limits.last_moment()) => {
                cancel_and_wait(&cancel, calls).await;
                return Err(self.limits.timed_out());
            }
        };
        let results: Vec<ToolResult> = results.into_iter().collect::<Result<_, _>>()?;
        for (index, result) in results.iter().enumerate() {
            self.room.note(self.caller.key(turn, index), &result.details);
        }
        let answered = answer.calls.iter().zip(results).map(|(call, result)| CallResult {
            provider_id: call.provider_id.clone(),
            name: call.name.clone(),
            is_error: result.is_error,
            text: result.text,
            image: result.image,
        });
        Ok(answered.collect())
    }

    fn assistant(&self, turn: u32, answer: &AssistantTurn) -> Event {
        let call = |(index, call): (usize, &crate::model::ToolCallRequest)| Call {
            key: self.caller.key(turn, index),
            provider_id: call.provider_id.clone(),
            name: call.name.clone(),
            args: call.args.clone(),
        };
        Event::Assistant(Assistant {
            turn,
            text: answer.text.clone(),
            calls: answer.calls.iter().enumerate().map(call).collect(),
            model: answer.model.clone(),
            raw: answer.raw.clone(),
            usage: Usage { input: answer.usage.input, cached: answer.usage.cached, output: answer.usage.output },
        })
    }
}

/// Cancels calls and waits until each has said how it ended, so that the journal has it.
async fn cancel_and_wait<T>(cancel: &CancellationToken, calls: Pin<&mut impl Future<Output = T>>) {
    cancel.cancel();
    // A sandbox that does not even end cancelled calls is killed next; their results are lost with it.
    let _ = timeout(CANCELLED_CALLS, calls).await;
}
