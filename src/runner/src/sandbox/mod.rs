//! Where hands live: the container engine, the link to a container's PID 1, the copies in and out.

mod call;
mod connection;
mod copy;
mod facts;
mod files;
mod get;
mod handshake;
pub mod limits;
mod link;
mod listener;
mod outbox;
mod put;
mod slot;
#[cfg(test)]
mod tests;
mod welcome;

pub use call::{CallError, Gone, GoneKind, Reply, ToolCall};
pub use copy::{Copied, CopyError};
