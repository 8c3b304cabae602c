//! The frames' headers, one enum per direction.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Done, Entry};
use crate::hello::{Hello, Known, Welcome};

/// A message from the host to PID 1 or to a file server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToSandbox {
    /// The host's first frame on every connection.
    Welcome(Box<Welcome>),
    /// Starts a call. The payload is the first part of its body.
    Call(Call),
    /// More of a call's body, in the payload.
    Chunk {
        /// The call.
        id: u64,
    },
    /// The next file, folder or link of a copy into the sandbox; a file's bytes follow in chunks.
    Entry {
        /// The call.
        id: u64,
        /// What it is.
        entry: Entry,
    },
    /// No more entries follow for this copy.
    EndOfEntries {
        /// The call.
        id: u64,
    },
    /// Allows the sandbox to send more chunk bytes for a call.
    Credit {
        /// The call.
        id: u64,
        /// Bytes, on top of what was allowed before.
        bytes: u32,
    },
    /// Ends a call early. It still gets its `Done`. Unknown ids are ignored: the call may just have ended.
    Cancel {
        /// The call.
        id: u64,
    },
    /// The result of this call is in the journal: PID 1 drops its copy.
    Forget {
        /// The call's key.
        key: String,
    },
    /// Asks for a [`FromSandbox::Pong`] with the same number.
    Ping {
        /// Any number.
        nonce: u64,
    },
}

/// A message from PID 1 or a file server to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromSandbox {
    /// The sandbox's first frame on every connection.
    Hello(Box<Hello>),
    /// Answers `Welcome`: the sandbox is ready; one state per unfinished call that was listed, in that order.
    Ready {
        /// What is known of each.
        known: Vec<Known>,
    },
    /// A part of a call's streamed result, in the payload.
    Chunk {
        /// The call.
        id: u64,
    },
    /// The next file, folder or link of a copy out of the sandbox; a file's bytes follow in chunks.
    Entry {
        /// The call.
        id: u64,
        /// What it is.
        entry: Entry,
    },
    /// Allows the host to send more chunk bytes for a call.
    Credit {
        /// The call.
        id: u64,
        /// Bytes, on top of what was allowed before.
        bytes: u32,
    },
    /// The one end of a call. The payload is the result's text or bytes.
    Done(Box<Done>),
    /// Answers `Ping`.
    Pong {
        /// The number asked with.
        nonce: u64,
    },
}
