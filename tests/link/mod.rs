//! The link survives what drops it.
