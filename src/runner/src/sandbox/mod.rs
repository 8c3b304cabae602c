//! The sandbox room.

pub(crate) mod cgroup;
pub mod engine;
pub(crate) mod environment;
pub(crate) mod folder;
pub(crate) mod ids;
pub mod image;
pub(crate) mod launch;
pub mod limits;
pub(crate) mod spec;
pub(crate) mod stage;
pub(crate) mod verify;

#[cfg(test)]
mod trial;
