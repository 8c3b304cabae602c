//! One turn of the model: what happens on the way is shown and journalled, and a conversation that is too long is
//! shortened.

use std::pin::pin;

use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::driver::{Conclusion, Driver, Stop};
use super::journal::{EndCause, Event, Informed};
use super::progress::Progress;
use crate::crash;
use crate::model::{AssistantTurn, FailKind, ModelError, ModelEvent};

/// Times that half of the old outputs goes; then all of them do. Each is a request that may be refused again.
const HALVES: u32 = 5;

impl Driver<'_> {
    /// Asks for the next turn, with less of the conversation each time that it is too long.
    pub(super) async fn ask(
        &mut self,
        interruption: &mut LocalBoxFuture<'_, Conclusion>,
    ) -> Result<AssistantTurn, Stop> {
        let mut round = 0;
        loop {
            let error = match self.ask_once(interruption).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if error.kind != FailKind::ContextLength {
                return Err(Conclusion::new(EndCause::Model, error.message).into());
            }
            let Some(removed) = self.room.make(&mut self.request.messages, round >= HALVES) else {
                let words = "the conversation is longer than the model takes, and no old output is left to remove";
                return Err(Conclusion::new(EndCause::Model, format!("{words}: {}", error.message)).into());
            };
            round += 1;
            self.caller.journal.record_later(&removed.event()).await;
            // Also says that what the model may have written by then does not count.
            let outputs = if removed.keys.len() == 1 { "output" } else { "outputs" };
            let (count, bytes) = (removed.keys.len(), removed.bytes);
            let words = format!("{}; {count} old {outputs} with {bytes} bytes removed to make room", error.message);
            self.caller.watcher.see(&Progress::Retry { error: &words, wait_ms: 0 });
        }
    }

    /// One request; the outer error ends the session.
    async fn ask_once(
        &self,
        interruption: &mut LocalBoxFuture<'_, Conclusion>,
    ) -> Result<Result<AssistantTurn, ModelError>, Stop> {
        let cancel = CancellationToken::new();
        let _cancel_when_left = cancel.clone().drop_guard();
        let (events, mut seen) = unbounded_channel();
        crash::point("model.before");
        let mut turn = pin!(self.model.turn(&self.request, &events, &cancel));
        loop {
            tokio::select! {
                biased;
                end = &mut *interruption => return Err(end.into()),
                // What it was about to say is asked for again.
                () = self.signals.leave.cancelled() => return Err(Stop::Left),
                () = sleep_until(self.limits.deadline) => return Err(self.limits.timed_out().into()),
                Some(event) = seen.recv() => self.tell(&event).await,
                answer = &mut turn => {
                    crash::point("model.after");
                    self.drain(&mut seen).await;
                    return Ok(answer);
                }
            }
        }
    }

    async fn drain(&self, seen: &mut UnboundedReceiver<ModelEvent>) {
        while let Ok(event) = seen.try_recv() {
            self.tell(&event).await;
        }
    }

    /// Shows what happened, and journals what matters later.
    async fn tell(&self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(text) => self.caller.watcher.see(&Progress::Writing { text }),
            ModelEvent::Retry { error, wait } => {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                self.caller.watcher.see(&Progress::Retry { error: &error.message, wait_ms });
            }
            ModelEvent::Fallback { from, to, error } => {
                let content = json!({"from": from, "to": to, "kind": error.kind, "error": error.message});
                let informed = Informed { source: "model".to_owned(), content };
                self.caller.journal.record_later(&Event::Informed(informed)).await;
                self.caller.watcher.see(&Progress::Fallback { from, to, error: &error.message });
            }
        }
    }
}
