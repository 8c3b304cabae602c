//! The sandbox room.

pub mod engine;
pub(crate) mod environment;
pub(crate) mod ids;
pub mod image;
pub mod limits;
pub(crate) mod spec;
pub(crate) mod verify;
