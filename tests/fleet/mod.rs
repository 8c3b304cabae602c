//! Sessions share locks, slots and calls, and a daemon drives them.

mod calls;
mod chains;
mod commands;
mod ends;
mod identity;
mod locks;
mod lost_locks;
mod numbers;
mod results;
mod serve;
mod slots;
mod walk;
