//! The session room.

pub mod journal;
