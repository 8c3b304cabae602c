//! The session room.
