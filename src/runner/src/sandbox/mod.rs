//! Where hands live: the container engine, the container, the link to its PID 1, the copies in and out.
//!
//! [`Sandbox`] is all that the rest of the runner sees of one. Below it [`engine`] makes containers as `spec` orders
//! them, and `link` carries calls: its `listener` lets PID 1 in, `welcome` shakes hands, `connection` carries frames,
//! `files` chooses who serves a file call, `put` and `get` copy; the link itself keeps calls over lost connections.

mod call;
pub(crate) mod cgroup;
mod copy;
mod death;
pub mod engine;
pub(crate) mod environment;
mod facts;
pub(crate) mod folder;
pub(crate) mod ids;
pub mod image;
pub(crate) mod launch;
mod lifecycle;
pub mod limits;
mod link;
mod order;
pub(crate) mod spec;
pub(crate) mod stage;
mod terms;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;
pub(crate) mod verify;

pub use call::{CallError, Gone, GoneKind, Reply, ToolCall};
pub use copy::{Copied, CopyError};
pub use lifecycle::{Found, Sandbox};
pub use order::{Order, SandboxError};
