//! PID 1 of the container.

/// Runs until the container ends.
pub(crate) fn main() {}
