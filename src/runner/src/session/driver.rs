//! The loop of a session: ask the model, make its calls, ask again.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture, join, join_all};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::calls::{CallOrder, Caller};
use super::conversation::OpenCall;
use super::drive::Signals;
use super::journal::{Assistant, Call, EndCause, Event, Usage};
use super::progress::Progress;
use super::room::Room;
use crate::model::{AssistantTurn, CallResult, Message, Model, TurnRequest};
use crate::project::Settings;
use crate::sandbox::{Gone, GoneKind};
use crate::store::{StopHow, StoreError};
use crate::tools::{Order, ToolResult};

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

/// Why a driver lets go of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is over.
    End(Conclusion),
    /// It waits for a trigger.
    Suspended,
    /// It is left to the next runner.
    Left,
    /// Somebody else drives it.
    Fenced,
}

impl From<Conclusion> for Stop {
    fn from(conclusion: Conclusion) -> Self {
        Self::End(conclusion)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            // One who ended it has taken it over first.
            StoreError::Fenced { .. } | StoreError::Ended { .. } => Self::Fenced,
            error => Self::End(error.into()),
        }
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
    /// The limits of these settings for a session that has been at work for `used` and works on now.
    pub(crate) fn of(settings: &Settings, used: Duration) -> Self {
        Self {
            deadline: Instant::now() + settings.timeout.saturating_sub(used),
            timeout: settings.timeout,
            max_turns: settings.max_turns,
            max_tokens: settings.max_tokens,
        }
    }

    /// Active time that the session has used, in milliseconds.
    pub(crate) fn used(&self) -> i64 {
        i64::try_from(self.timeout.saturating_sub(self.remaining()).as_millis()).unwrap_or(i64::MAX)
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
        (by, how) = stopped(caller) => match how {
            StopHow::Orderly => Conclusion::new(EndCause::Stopped, format!("stopped by {by}")),
            StopHow::Kill => Conclusion::new(EndCause::Killed, format!("killed by {by}")),
        },
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

async fn stopped(caller: Caller<'_>) -> (String, StopHow) {
    let store = caller.journal.store();
    let mut changes = store.watch();
    loop {
        // A store that cannot be read fails the journal too, which ends the session with its reason.
        if let Ok(Some(request)) = store.stop_requested(caller.journal.key()).await {
            return (request.by, request.how);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Drives a session until it ends, waits, or is left.
pub(crate) struct Driver<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) model: &'a dyn Model,
    pub(crate) limits: LoopLimits,
    /// The conversation so far. The last message is a turn when some of its calls are open.
    pub(crate) request: TurnRequest,
    /// What can go when the conversation becomes too long.
    pub(crate) room: Room,
    /// Turns so far.
    pub(crate) turn: u32,
    /// The calls of the last turn, when they have not all been answered.
    pub(crate) open: Vec<OpenCall>,
    /// What the model said last.
    pub(crate) said: String,
    /// The inbox's position when the model was asked for the last turn.
    pub(crate) since: i64,
    pub(crate) signals: &'a Signals,
}

impl Driver<'_> {
    /// Runs the loop.
    pub(crate) async fn run(mut self) -> Stop {
        let caller = self.caller;
        let interrupt = &self.signals.interrupt;
        let mut interruption: LocalBoxFuture<'_, Conclusion> = Box::pin(interruption(caller, interrupt));
        match self.turns(&mut interruption).await {
            Ok(conclusion) | Err(Stop::End(conclusion)) => Stop::End(Conclusion { text: self.said, ..conclusion }),
            Err(stop) => stop,
        }
    }

    /// The loop itself; both ways out let go of the session, so that `?` does.
    async fn turns(&mut self, interruption: &mut LocalBoxFuture<'_, Conclusion>) -> Result<Conclusion, Stop> {
        let mut settled = self.open.iter().map(|open| open.call.key.clone()).collect::<Vec<_>>();
        if let Some(Message::Assistant(last)) = self.request.messages.last() {
            if last.calls.is_empty() {
                return Ok(done());
            }
            self.answer(interruption).await?;
        }
        loop {
            if u64::from(self.turn) >= self.limits.max_turns {
                let words = match self.limits.max_turns {
                    1 => "the limit of 1 turn was reached".to_owned(),
                    most => format!("the limit of {most} turns was reached"),
                };
                return Err(Conclusion::new(EndCause::MaxTurns, words).into());
            }
            // What has happened by now ends the session before the model is asked again.
            if let Some(end) = interruption.as_mut().now_or_never() {
                return Err(end.into());
            }
            if self.limits.remaining().is_zero() {
                return Err(self.limits.timed_out().into());
            }
            self.turn += 1;
            self.caller.watcher.see(&Progress::Thinking { turn: self.turn });
            if let Some(member) = self.caller.member {
                self.since = member.store.inbox_position(member.project.clone()).await?;
            }
            let caller = self.caller;
            let (answer, settled_now) = join(self.ask(interruption), settle(caller, &settled)).await;
            settled_now?;
            let answer = answer?;
            if !answer.text.is_empty() {
                self.said.clone_from(&answer.text);
                self.caller.watcher.see(&Progress::Text { text: &answer.text });
            }
            let turn = self.assistant(&answer);
            self.open =
                turn.calls.iter().map(|call| OpenCall { call: call.clone(), begun: false, result: None }).collect();
            self.caller.journal.record_later(&Event::Assistant(turn)).await;
            self.request.messages.push(Message::Assistant(answer));
            if self.open.is_empty() {
                return Ok(done());
            }
            settled = self.open.iter().map(|open| open.call.key.clone()).collect();
            self.answer(interruption).await?;
        }
    }

    /// Makes the open calls of the last turn and tells the model what came of all.
    async fn answer(&mut self, interruption: &mut LocalBoxFuture<'_, Conclusion>) -> Result<(), Stop> {
        if let Some(most) = self.limits.max_tokens {
            let (used, _) = self.caller.journal.store().tree_tokens(self.caller.journal.key()).await?;
            if used >= most {
                let words = format!("the limit of {most} tokens was reached: {used} were used");
                return Err(Conclusion::new(EndCause::MaxTokens, words).into());
            }
        }
        let open = std::mem::take(&mut self.open);
        let results = self.act(&open, interruption).await?;
        for (open, result) in open.iter().zip(&results) {
            if let Some(result) = result {
                self.room.note(open.call.key.clone(), &result.details);
            }
        }
        let answered = open.into_iter().zip(results).map(|(open, result)| match result {
            Some(result) => CallResult {
                provider_id: open.call.provider_id,
                name: open.call.name,
                is_error: result.is_error,
                text: result.text,
                image: result.image,
            },
            None => open.result.expect("a call without a new result had one"),
        });
        self.request.messages.push(Message::Results(answered.collect()));
        Ok(())
    }

    /// Makes calls of a turn: those of transport tools at once, beside them scheduler tools one by one, and those that
    /// may suspend the session when all others have ended (S-3). Results come in the order asked (T-8); nothing for a
    /// call that had its result.
    async fn act(
        &self,
        open: &[OpenCall],
        interruption: &mut LocalBoxFuture<'_, Conclusion>,
    ) -> Result<Vec<Option<ToolResult>>, Stop> {
        let cancel = CancellationToken::new();
        let mut calls = pin!(self.in_order(open, &cancel));
        tokio::select! {
            biased;
            results = &mut calls => results,
            end = &mut *interruption => {
                // Who kills does not wait.
                if end.cause != EndCause::Killed {
                    cancel_and_wait(&cancel, calls).await;
                }
                Err(end.into())
            }
            () = sleep_until(self.limits.last_moment()) => {
                cancel_and_wait(&cancel, calls).await;
                Err(self.limits.timed_out().into())
            }
        }
    }

    async fn in_order(&self, open: &[OpenCall], cancel: &CancellationToken) -> Result<Vec<Option<ToolResult>>, Stop> {
        let todo = |wanted: Order| {
            let registry = self.caller.registry;
            let fits = move |(_, open): &(usize, &OpenCall)| {
                open.result.is_none() && registry.order(&open.call.name) == wanted
            };
            open.iter().enumerate().filter(fits)
        };
        let at_once =
            join_all(todo(Order::AtOnce).map(async |(index, open)| (index, self.carried(index, open, cancel).await)));
        let scheduled = async {
            let mut results = Vec::new();
            for (index, open) in todo(Order::OneByOne) {
                results.push((index, self.scheduled(index, open, cancel).await));
            }
            results
        };
        let (at_once, scheduled) = join(at_once, scheduled).await;
        let mut results: Vec<Option<ToolResult>> = open.iter().map(|_| None).collect();
        for (index, result) in at_once.into_iter().chain(scheduled) {
            results[index] = Some(result?);
        }
        for (index, open) in todo(Order::Last) {
            results[index] = Some(self.scheduled(index, open, cancel).await?);
        }
        Ok(results)
    }

    /// A call that is carried into the sandbox. A runner that leaves lets it go on there.
    async fn carried(&self, index: usize, open: &OpenCall, cancel: &CancellationToken) -> Result<ToolResult, Stop> {
        let leave = async {
            self.signals.leave.cancelled().await;
            // While the call is still there: from here on its end is not its cancellation.
            self.caller.hands.let_go();
        };
        tokio::select! {
            biased;
            result = self.caller.say(self.order(index, open, cancel)) => result?.ok_or(Stop::Suspended),
            () = leave => Err(Stop::Left),
        }
    }

    /// A call that is one transaction of the store: it is made whole or not at all.
    async fn scheduled(&self, index: usize, open: &OpenCall, cancel: &CancellationToken) -> Result<ToolResult, Stop> {
        // Whoever cancels has another reason, and does not look at this one.
        if self.signals.leave.is_cancelled() || cancel.is_cancelled() {
            return Err(Stop::Left);
        }
        self.caller.say(self.order(index, open, cancel)).await?.ok_or(Stop::Suspended)
    }

    fn order<'a>(&self, index: usize, open: &'a OpenCall, cancel: &'a CancellationToken) -> CallOrder<'a> {
        CallOrder {
            turn: self.turn,
            index,
            name: &open.call.name,
            args: &open.call.args,
            journal_args: false,
            begun: open.begun,
            remaining: self.limits.remaining(),
            active_ms: self.limits.used(),
            since: self.since,
            cancel,
        }
    }

    fn assistant(&self, answer: &AssistantTurn) -> Assistant {
        let call = |(index, call): (usize, &crate::model::ToolCallRequest)| Call {
            key: self.caller.key(self.turn, index),
            provider_id: call.provider_id.clone(),
            name: call.name.clone(),
            args: call.args.clone(),
        };
        Assistant {
            turn: self.turn,
            text: answer.text.clone(),
            calls: answer.calls.iter().enumerate().map(call).collect(),
            model: answer.model.clone(),
            raw: answer.raw.clone(),
            usage: Usage { input: answer.usage.input, cached: answer.usage.cached, output: answer.usage.output },
            since: self.since,
        }
    }
}

fn done() -> Conclusion {
    Conclusion::new(EndCause::Done, "the agent is done")
}

/// Makes sure that the results of these calls are in the journal, then lets the sandbox forget them.
async fn settle(caller: Caller<'_>, keys: &[String]) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    caller.journal.store().flush(caller.journal.key()).await?;
    for key in keys {
        caller.hands.forget(key);
    }
    Ok(())
}

/// Cancels calls and waits until each has said how it ended, so that the journal has it.
async fn cancel_and_wait<T>(cancel: &CancellationToken, calls: Pin<&mut impl Future<Output = T>>) {
    cancel.cancel();
    // A sandbox that does not even end cancelled calls is killed next; their results are lost with it.
    let _ = timeout(CANCELLED_CALLS, calls).await;
}
