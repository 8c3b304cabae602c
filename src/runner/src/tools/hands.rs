//! What tools act with: the verbs of a sandbox, as a seam, so that tests can put a fake in its place.

use futures_util::future::LocalBoxFuture;

use crate::sandbox::{CallError, Gone, Reply, Sandbox, ToolCall};

/// The hands of one session.
pub trait Hands {
    /// Makes one call. Cancelling it still waits for its end, which says that it was cancelled.
    fn call(&self, call: ToolCall) -> LocalBoxFuture<'_, Result<Reply, CallError>>;

    /// Resolves when the hands are gone, with the reason.
    fn gone(&self) -> LocalBoxFuture<'_, Gone>;

    /// The shell of commands, when it is not bash.
    fn other_shell(&self) -> Option<String>;

    /// Says that the result of this call is in the journal: the hands need not keep it any longer.
    fn forget(&self, key: &str);

    /// From here on, a call whose caller goes away is not cancelled: the next runner takes it up.
    fn let_go(&self);
}

impl Hands for Sandbox {
    fn call(&self, call: ToolCall) -> LocalBoxFuture<'_, Result<Reply, CallError>> {
        Box::pin(Sandbox::call(self, call))
    }

    fn gone(&self) -> LocalBoxFuture<'_, Gone> {
        Box::pin(Sandbox::gone(self))
    }

    fn other_shell(&self) -> Option<String> {
        let shell = self.facts().shell.as_ref()?;
        let is_bash = shell.rsplit('/').next() == Some("bash");
        (!is_bash).then(|| shell.clone())
    }

    fn forget(&self, key: &str) {
        Sandbox::forget(self, key);
    }

    fn let_go(&self) {
        Sandbox::let_go(self);
    }
}
