//! What passes between the runner on the host and the toolbox in the container.
//!
//! # The conversation
//!
//! PID 1 of the container connects to the Unix socket that the host mounts at `/app/link/sock`, when it starts and again
//! whenever the connection drops. It speaks first:
//!
//! ```text
//! PID 1                                host
//!   Hello {versions, role, facts}  ->
//!                                  <-  Welcome {version, ids, environment, unfinished calls}
//!   Ready {state of each of those} ->
//!                                  <-  Call {id, key, request, body}   Chunk …
//!   Chunk {id} …                   ->
//!                                  <-  Credit {id, bytes} · Cancel {id}
//!   Done {id, outcome}             ->
//!                                  <-  Forget {key}
//! ```
//!
//! There are two roles. The one *control* connection belongs to PID 1 itself: commands, jobs and the birth and death of
//! file servers. A *files* connection is opened and labelled by PID 1 too, but handed to a dropped child that serves file
//! calls on it and nothing else, so file contents never pass through PID 1.
//!
//! # Rules
//!
//! - A frame's length is checked against its cap before anything is allocated ([`frame`]).
//! - Call ids belong to one connection and strictly increase. Every call gets exactly one `Done`.
//! - A body longer than one frame follows in chunks. The sender of chunks may have at most its credit in flight:
//!   [`INITIAL_CREDIT`] bytes per call and direction, more when the receiver says so.
//! - A peer that breaks a rule is not talked to again: the host ends the sandbox, PID 1 drops the connection.
//! - A call's key (`session/turn/index`) outlives connections. PID 1 keeps the bounded result of a control call until
//!   the host says [`ToSandbox::Forget`]; after a reconnection the host lists the keys it still waits for and PID 1
//!   answers each: finished, running or unknown.
//! - The host speaks [`VERSION`] and everything down to [`OLDEST`].
//!
//! This package does no I/O and starts nothing; both ends bring their own.

#![forbid(unsafe_code)]

pub mod call;
pub mod frame;
pub mod hello;
pub mod message;

pub use call::{
    BashEnd, Call, Cause, Done, Edited, End, Entry, EntryKind, Found, ListEntry, ListKind, Matches, Outcome, Partial,
    Replacement, Request, Skipped, Space, TextWindow,
};
pub use frame::{Decoder, Frame, FrameError, encode};
pub use hello::{CallState, Facts, Hello, Ids, Known, Role, Unfinished, Welcome};
pub use message::{FromSandbox, ToSandbox};

/// The protocol version this build speaks.
pub const VERSION: u16 = 1;

/// The oldest protocol version this build still speaks: its own and the one before.
pub const OLDEST: u16 = 1;

/// Bytes a sender may have in flight per call and direction before the receiver grants more.
pub const INITIAL_CREDIT: u32 = 256 * 1024;

/// Longest call key in bytes.
pub const MAX_KEY: usize = 160;

/// Longest path in a request or entry, in bytes (`PATH_MAX` of Linux).
pub const MAX_PATH: usize = 4096;

/// Largest body of one call, in bytes: what a command or a `write` may carry.
pub const MAX_BODY: u64 = 64 * 1024 * 1024;

/// Most calls that may be unfinished on one connection.
pub const MAX_CALLS: usize = 256;
