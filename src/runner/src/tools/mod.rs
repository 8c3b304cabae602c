//! The tools room.
