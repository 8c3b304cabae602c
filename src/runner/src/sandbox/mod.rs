//! Where hands live: the container engine, the container, the link to its PID 1, the copies in and out.
//!
//! [`Sandbox`] is all that the rest of the runner sees of one. Below it [`engine`] makes containers as `spec` orders
//! them, and the link carries calls: `listener` lets PID 1 in, `welcome` shakes hands, `connection` carries frames,
//! `link` keeps calls over lost connections, `files` chooses who serves a file call.

mod call;
pub(crate) mod cgroup;
mod connection;
mod copy;
mod death;
pub mod engine;
pub(crate) mod environment;
mod facts;
mod files;
pub(crate) mod folder;
mod get;
mod handshake;
pub(crate) mod ids;
pub mod image;
mod incoming;
pub(crate) mod launch;
mod lifecycle;
pub mod limits;
mod link;
mod listener;
mod order;
mod outbox;
mod put;
mod running;
mod slot;
pub(crate) mod spec;
pub(crate) mod stage;
mod terms;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;
pub(crate) mod verify;
mod welcome;

pub use call::{CallError, Gone, GoneKind, Reply, ToolCall};
pub use copy::{Copied, CopyError};
pub use lifecycle::Sandbox;
pub use order::{Order, SandboxError};
