//! What tools act with: the verbs of a sandbox, as a seam, so that tests can put a fake in its place.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Outcome, Request};
use tokio_util::sync::CancellationToken;

/// The hands of one session.
pub trait Hands {
    /// Makes one call. Cancelling it still waits for its end, which says that it was cancelled.
    fn call(&self, call: HandCall) -> LocalBoxFuture<'_, Result<HandReply, HandError>>;

    /// Copies a file or folder of the host to `to`, below /tmp.
    fn put<'a>(&'a self, from: &'a Path, to: &'a str) -> LocalBoxFuture<'a, Result<CopyReport, HandError>>;

    /// Copies a file or folder below /tmp into the folder `to` of the host.
    fn get<'a>(&'a self, from: &'a str, to: &'a Path) -> LocalBoxFuture<'a, Result<CopyReport, HandError>>;

    /// Resolves when the hands are gone, with the reason.
    fn gone(&self) -> LocalBoxFuture<'_, HandsGone>;

    /// The shell of commands, when it is not bash.
    fn other_shell(&self) -> Option<String>;

    /// How often the container's limits were hit so far.
    fn hits(&self) -> Hits;
}

/// One call to the sandbox.
#[derive(Debug, Clone)]
pub struct HandCall {
    /// `session/turn/index`.
    pub key: String,
    /// What to do.
    pub request: Request,
    /// The body that belongs to it.
    pub body: Bytes,
    /// The time it may take.
    pub timeout: Duration,
    /// Ends it early.
    pub cancel: CancellationToken,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct HandReply {
    /// How it ended.
    pub outcome: Outcome,
    /// What belongs to the outcome.
    pub payload: Vec<u8>,
    /// What was streamed before it: the bytes of an image.
    pub streamed: Vec<u8>,
}

/// A call that got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HandError {
    /// Machine-readable.
    pub cause: Cause,
    /// One sentence.
    pub message: String,
}

/// What a copy did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyReport {
    /// Regular files.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// What was left out and why.
    pub skipped: Vec<String>,
}

/// Why hands are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandsGone {
    /// The sandbox broke the link's protocol.
    pub protocol: bool,
    /// One sentence.
    pub message: String,
}

/// Counters of the container's limits; only their differences mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// Processes killed because of the memory limit.
    pub oom: u64,
    /// Forks refused because of the process limit.
    pub pids: u64,
}
