//! One agent at work.
//!
//! ```text
//!  recorded ──> starting ──> copying in ──> thinking <──> acting ──> copying out ──> removing ──> ended
//!                  |             |              |            |            ^              |
//!                  |             |              +-----+------+            |              | fails: recorded as left
//!                  |             |                    |                   |              v behind, the next runner
//!                  |             |   done, maxTurns, maxTokens, timeout,  |           removes it
//!                  |             |   stop, Ctrl-C, model failure,         |
//!                  |             +-> journal failure ---------------------+
//!                  |                 sandbox lost, protocol broken ----------> removing
//!                  +-> engine or image failure ------------------------------> removing
//! ```
//!
//! One task owns every transition: `driver` those of the loop, `life` those around it. Each end has a cause of its
//! own ([`journal::EndCause`]) in the journal, in `ps` and `show`, and as exit code.

mod active;
mod arriving;
mod ask;
pub(crate) mod begin;
pub(crate) mod calls;
pub mod conversation;
pub(crate) mod drive;
pub(crate) mod driver;
#[cfg(test)]
mod driver_tests;
pub(crate) mod held;
pub mod journal;
pub(crate) mod life;
pub mod owner;
pub mod progress;
pub(crate) mod prompt;
pub mod recovery;
pub(crate) mod room;
