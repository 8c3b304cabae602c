//! A place to run the product in: a state directory and a project of its own, and the program as people start it.

mod desk;
mod engine;
mod image;
mod place;
mod processes;

pub(crate) use desk::{Answer, Desk};
pub(crate) use engine::{containers_of, engine};
pub(crate) use image::Variant;
pub(crate) use place::{Place, Ran};
pub(crate) use processes::{Block, resident_bytes};

/// Lines that `seq` would print.
pub(crate) fn seq(numbers: impl IntoIterator<Item = u64>) -> String {
    numbers.into_iter().fold(String::new(), |lines, number| lines + &number.to_string() + "\n")
}
