//! The sandbox room.

pub mod limits;
