//! A session from start to end, and after a crash.
