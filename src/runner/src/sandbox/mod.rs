//! Where hands live: the container engine, the link to a container's PID 1, the copies in and out.

mod call;
pub(crate) mod cgroup;
mod connection;
mod copy;
pub mod engine;
pub(crate) mod environment;
mod facts;
mod files;
pub(crate) mod folder;
mod get;
mod handshake;
pub(crate) mod ids;
pub mod image;
pub(crate) mod launch;
pub mod limits;
mod link;
mod listener;
mod outbox;
mod put;
mod slot;
pub(crate) mod spec;
pub(crate) mod stage;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;
pub(crate) mod verify;
mod welcome;

pub use call::{CallError, Gone, GoneKind, Reply, ToolCall};
pub use copy::{Copied, CopyError};
