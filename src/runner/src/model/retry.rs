//! Asks again, later each time, when a failure may pass.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::{AssistantTurn, Model, ModelError, ModelEvent, TurnRequest};

/// Attempts at one turn.
const ATTEMPTS: u32 = 5;

/// Wait after the first failure; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// A model whose passing failures are retried.
pub(crate) struct Retrying<M>(M);

impl<M: Model> Retrying<M> {
    pub(crate) fn new(model: M) -> Self {
        Self(model)
    }
}

impl<M: Model> Model for Retrying<M> {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        Box::pin(async move {
            let mut wait = FIRST_WAIT;
            for _ in 1..ATTEMPTS {
                match self.0.turn(request, events, cancel).await {
                    Err(error) if error.kind.passes() => {
                        // Nobody listening means nobody is watching; the turn goes on all the same.
                        let _ = events.send(ModelEvent::Retry { error, wait });
                    }
                    other => return other,
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => wait *= 2,
                    () = cancel.cancelled() => return Err(ModelError::cancelled()),
                }
            }
            self.0.turn(request, events, cancel).await
        })
    }

    fn takes_images(&self) -> bool {
        self.0.takes_images()
    }
}
