//! The session room.

pub mod journal;
pub mod owner;
pub mod recovery;
