//! Waits for the end of one control call, with the caller's cancel and the host's own deadline.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Shared, cancelled};
use crate::sandbox::call::{CallError, Gone, GoneKind, Reply};

/// A control call that runs. When its caller goes away before the reply, it is cancelled.
#[derive(Debug)]
pub(super) struct Running<'a> {
    shared: &'a Shared,
    key: &'a str,
    armed: bool,
}

impl<'a> Running<'a> {
    /// A call whose key is noted as running.
    pub(super) fn new(shared: &'a Shared, key: &'a str) -> Self {
        Self { shared, key, armed: true }
    }

    /// Waits for `answer` (none: cancelled before it was sent), for the caller's cancel and for the host's own deadline.
    pub(super) async fn supervise(
        mut self,
        answer: impl Future<Output = Result<Option<Reply>, CallError>>,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Result<Reply, CallError> {
        let timing = self.shared.timing;
        let mut answer = std::pin::pin!(answer);
        let mut deadline = std::pin::pin!(tokio::time::sleep(timeout.saturating_add(timing.grace)));
        let mut was_cancelled = false;
        let result = loop {
            tokio::select! {
                biased;
                result = &mut answer => break result.map(|reply| reply.unwrap_or_else(cancelled)),
                () = cancel.cancelled(), if !was_cancelled => {
                    was_cancelled = true;
                    if !self.shared.cancel(self.key) {
                        break self.shared.check_gone().map(|()| cancelled()).map_err(CallError::from);
                    }
                    let sooner = Instant::now() + timing.cancel;
                    if sooner < deadline.deadline() {
                        deadline.as_mut().reset(sooner);
                    }
                }
                () = &mut deadline => {
                    let late = if was_cancelled { timing.cancel } else { timing.grace };
                    let what = if was_cancelled { "was cancelled" } else { "should have timed out" };
                    self.shared.end(Gone::new(
                        GoneKind::Stuck,
                        format!("it did not end a call within {} s after it {what}", late.as_secs_f32()),
                    ));
                    break Err(self.shared.gone_now().into());
                }
            }
        };
        self.armed = false;
        result
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.armed && !self.shared.let_go.load(Ordering::Relaxed) {
            self.shared.cancel(self.key);
        }
        self.shared.lock().running.remove(self.key);
    }
}
