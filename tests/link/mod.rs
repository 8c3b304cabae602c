//! The link survives what drops it.

mod grace;
mod restart;
