//! Asks again, later each time, when a failure may pass.
//!
//! The wait after the n-th failure is a random part of a time that doubles ("full jitter"), so that sessions that failed
//! together do not come back together. A provider that says when to come back is waited for at least that long; one that
//! wants more patience than there is has failed at once.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::{AssistantTurn, Model, ModelError, ModelEvent, TurnRequest};

/// Times that one turn is asked for.
pub(super) const ATTEMPTS: u32 = 6;

/// The same for a server of this machine that is not there.
const ATTEMPTS_ABSENT: u32 = 3;

/// Longest wait after the first failure; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Most time that one turn may spend waiting between attempts. The limits of providers are by the minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Picks a time between nothing and the one that it is given.
pub(super) type Jitter = Box<dyn Fn(Duration) -> Duration>;

/// A model whose passing failures are retried.
pub(crate) struct Retrying<M> {
    model: M,
    jitter: Jitter,
}

impl<M: Model> Retrying<M> {
    pub(crate) fn new(model: M) -> Self {
        Self::with_jitter(model, Box::new(random_part))
    }

    pub(super) fn with_jitter(model: M, jitter: Jitter) -> Self {
        Self { model, jitter }
    }

    async fn ask(
        &self,
        request: &TurnRequest,
        events: &UnboundedSender<ModelEvent>,
        cancel: &CancellationToken,
    ) -> Result<AssistantTurn, ModelError> {
        let mut longest = FIRST_WAIT;
        let mut patience = PATIENCE;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut error = match self.model.turn(request, events, cancel).await {
                Err(error) if error.kind.passes() => error,
                other => return other,
            };
            if attempt >= if error.absent { ATTEMPTS_ABSENT } else { ATTEMPTS } {
                error.message = format!("{} (asked {attempt} times)", error.message);
                return Err(error);
            }
            let wait = error.retry_after.unwrap_or_default().saturating_add((self.jitter)(longest));
            if wait > patience {
                let seconds = wait.as_secs();
                error.message =
                    format!("{} (it may be asked again in {seconds} s, which is too long to wait)", error.message);
                return Err(error);
            }
            patience -= wait;
            longest *= 2;
            // Nobody listening means nobody is watching; the turn goes on all the same.
            let _ = events.send(ModelEvent::Retry { error, wait });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = cancel.cancelled() => return Err(ModelError::cancelled()),
            }
        }
    }
}

impl<M: Model> Model for Retrying<M> {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        Box::pin(self.ask(request, events, cancel))
    }

    fn takes_images(&self) -> bool {
        self.model.takes_images()
    }
}

/// Somewhere between nothing and `most`. Without random bytes all of it, which is only less polite.
fn random_part(most: Duration) -> Duration {
    match getrandom::u32() {
        Ok(random) => most.mul_f64(f64::from(random) / f64::from(u32::MAX)),
        Err(_) => most,
    }
}
