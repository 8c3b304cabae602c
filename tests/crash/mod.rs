//! A runner that is killed at any point leaves nothing undone, done twice, or behind.
//!
//! Each test plays the same scene (`scene.rs`): a lock, a call, two waits and commands. The runner is killed in the middle,
//! another one is started, and then everything is held against what must be so however often it was killed.

mod commands;
mod contenders;
mod matrix;
mod points;
mod random;
mod scene;
mod two;
