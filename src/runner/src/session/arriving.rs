//! The hands of a session that goes on: on their way while the model thinks, and aware of the calls that were begun
//! before.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;

use futures_util::future::LocalBoxFuture;
use protocol::Request;
use tokio::sync::Notify;

use crate::sandbox::{CallError, Gone, Reply, Sandbox, ToolCall};
use crate::tools::Hands;

/// A sandbox that is being taken up again.
pub(super) struct Arriving {
    sandbox: OnceCell<Result<Sandbox, Gone>>,
    arrived: Notify,
    /// Calls that were begun by an earlier driver, by their keys: they are not begun again.
    begun: RefCell<BTreeSet<String>>,
}

impl Arriving {
    /// Hands that come later, with the keys of calls that were begun.
    pub(super) fn new(begun: BTreeSet<String>) -> Self {
        Self { sandbox: OnceCell::new(), arrived: Notify::new(), begun: RefCell::new(begun) }
    }

    /// Here they are, or will never be.
    pub(super) fn arrive(&self, sandbox: Result<Sandbox, Gone>) {
        // Nobody sets it twice: a session has one sandbox at a time.
        let _ = self.sandbox.set(sandbox);
        self.arrived.notify_waiters();
    }

    /// The sandbox, if there is one.
    pub(super) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.get()?.as_ref().ok()
    }

    /// The sandbox for good.
    pub(super) fn into_sandbox(self) -> Option<Sandbox> {
        self.sandbox.into_inner()?.ok()
    }

    /// Waits until they are here, or will never be.
    pub(super) async fn arrived(&self) -> Result<(), Gone> {
        self.here().await.map(|_| ())
    }

    async fn here(&self) -> Result<&Sandbox, Gone> {
        loop {
            let arrived = self.arrived.notified();
            if let Some(sandbox) = self.sandbox.get() {
                return sandbox.as_ref().map_err(Clone::clone);
            }
            arrived.await;
        }
    }
}

impl Hands for Arriving {
    fn call(&self, call: ToolCall) -> LocalBoxFuture<'_, Result<Reply, CallError>> {
        Box::pin(async move {
            let sandbox = self.here().await?;
            if !self.begun.borrow_mut().remove(&call.key) {
                return sandbox.call(call).await;
            }
            match call.request {
                // PID 1 kept it, or it still runs.
                Request::Bash { .. } | Request::StopJob { .. } => {
                    sandbox.take_up(&call.key, call.timeout, &call.cancel).await
                }
                Request::Write { .. } | Request::Edit { .. } => Err(CallError::Interrupted),
                // It only looks.
                _ => sandbox.call(call).await,
            }
        })
    }

    fn gone(&self) -> LocalBoxFuture<'_, Gone> {
        Box::pin(async {
            match self.here().await {
                Ok(sandbox) => sandbox.gone().await,
                Err(gone) => gone,
            }
        })
    }

    fn other_shell(&self) -> Option<String> {
        self.sandbox()?.other_shell()
    }

    fn forget(&self, key: &str) {
        if let Some(sandbox) = self.sandbox() {
            sandbox.forget(key);
        }
    }

    fn let_go(&self) {
        if let Some(sandbox) = self.sandbox() {
            sandbox.let_go();
        }
    }
}
