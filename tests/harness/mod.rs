//! A place to run the product in: a state directory and a project of its own, and the program as people start it.

mod daemon;
mod desk;
mod engine;
mod fleet;
mod host;
mod image;
mod masks;
mod place;
mod processes;
#[allow(dead_code, unused_imports, reason = "each of the programs that include it uses a part")]
pub(crate) mod provider;
mod relay;
pub(crate) mod script;
mod session;

pub(crate) use daemon::Daemon;
pub(crate) use desk::{Answer, Desk};
pub(crate) use engine::{engine, engine_with};
pub(crate) use fleet::has;
pub(crate) use host::{is_root, long_sleep, processes, processes_with, until};
pub(crate) use image::{Variant, listed_image};
pub(crate) use place::{BASE, MINIMAL, Place, Ran, program};
pub(crate) use processes::{Block, resident_bytes};
pub(crate) use relay::{Relay, Rule};
pub(crate) use session::Session;

/// Lines that `seq` would print.
pub(crate) fn seq(numbers: impl IntoIterator<Item = u64>) -> String {
    numbers.into_iter().fold(String::new(), |lines, number| lines + &number.to_string() + "\n")
}
