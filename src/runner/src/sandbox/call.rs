//! What the rest of the runner asks of a sandbox and what it gets back.

use std::time::Duration;

use bytes::Bytes;
use protocol::{Cause, End, MAX_BODY, MAX_KEY, MAX_PATH, Outcome, Request};
use tokio_util::sync::CancellationToken;

/// One call of a transport tool.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// `session/turn/index`: names the call across restarts. Never used twice in a session.
    pub key: String,
    /// What to do.
    pub request: Request,
    /// The command or the file's content; empty for most.
    pub body: Bytes,
    /// Time after which the sandbox ends it by itself. The host waits a little longer before it gives the sandbox up.
    pub timeout: Duration,
    /// Ends it early.
    pub cancel: CancellationToken,
}

impl ToolCall {
    /// Checks what the protocol bounds, before anything is sent.
    pub(super) fn check(&self) -> Result<(), CallError> {
        let length = self.body.len() as u64;
        if self.key.is_empty() || self.key.len() > MAX_KEY {
            return Err(CallError::Invalid(format!("call key of {} bytes is outside 1..={MAX_KEY}", self.key.len())));
        }
        if length > MAX_BODY {
            return Err(CallError::Invalid(format!("{length} bytes are over the limit of {MAX_BODY} for one call")));
        }
        let path = match &self.request {
            Request::Read { path, .. }
            | Request::Write { path }
            | Request::Edit { path, .. }
            | Request::Ls { path: Some(path), .. }
            | Request::Grep { path: Some(path), .. }
            | Request::Find { path: Some(path), .. }
            | Request::Put { path }
            | Request::Get { path, .. } => path,
            Request::StopJob { job } => job,
            Request::Bash { .. }
            | Request::OpenFiles { .. }
            | Request::CloseFiles { .. }
            | Request::Ls { path: None, .. }
            | Request::Grep { path: None, .. }
            | Request::Find { path: None, .. } => return Ok(()),
        };
        if path.len() > MAX_PATH {
            return Err(CallError::Invalid(format!("path of {} bytes is over the limit of {MAX_PATH}", path.len())));
        }
        Ok(())
    }
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// How it ended.
    pub outcome: Outcome,
    /// Text or bytes that the outcome speaks of.
    pub payload: Vec<u8>,
    /// Bytes that were streamed before the end: those of an image.
    pub streamed: Vec<u8>,
    /// The sandbox's memory limit killed something while the call ran.
    pub oom: bool,
    /// The sandbox's process limit refused something while the call ran.
    pub pids: bool,
}

impl Reply {
    /// A reply of the sandbox.
    pub(super) fn new(outcome: Outcome, payload: Vec<u8>) -> Self {
        Self { outcome, payload, streamed: Vec::new(), oom: false, pids: false }
    }

    /// A failure that the host found out by itself.
    pub(super) fn failed(cause: Cause, message: impl Into<String>) -> Self {
        Self::new(Outcome::Failed { cause, message: message.into() }, Vec::new())
    }

    /// True when the call did what was asked: no failure and, for a command, exit code 0.
    pub fn is_success(&self) -> bool {
        match &self.outcome {
            Outcome::Failed { .. } => false,
            Outcome::Bash(end) => end.end == End::Exited(0),
            _ => true,
        }
    }
}

/// Why a call has no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The sandbox is gone, and the call with it.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// A restart or a lost connection came in between and PID 1 does not know the call: its effect is unknown.
    #[error("interrupted by a restart; its effect is unknown")]
    Interrupted,
    /// The call breaks a bound of the protocol and was not sent.
    #[error("{0}")]
    Invalid(String),
}

impl CallError {
    /// The cause as the journal and the model see it.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Gone(gone) => gone.cause(),
            Self::Interrupted => Cause::Interrupted,
            Self::Invalid(_) => Cause::Invalid,
        }
    }
}

/// How a sandbox came to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox is gone: {message}")]
pub struct Gone {
    /// The kind of end.
    pub kind: GoneKind,
    /// One lower-case sentence that says what happened.
    pub message: String,
}

impl Gone {
    pub(super) fn new(kind: GoneKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The cause as the journal and the model see it.
    pub fn cause(&self) -> Cause {
        match self.kind {
            GoneKind::Engine => Cause::EngineGone,
            _ => Cause::SandboxGone,
        }
    }
}

/// The kinds of end a sandbox comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoneKind {
    /// Its container or its PID 1 died.
    Died,
    /// It broke the protocol, or speaks one that this runner does not.
    Protocol,
    /// It is not confined as it was ordered.
    Facts,
    /// It did not end a call long after the call's time limit.
    Stuck,
    /// Its link dropped and it did not connect again.
    Lost,
    /// The container engine does not answer.
    Engine,
    /// The runner stopped it.
    Stopped,
}
