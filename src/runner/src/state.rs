//! The state directory.
