//! The container is what was ordered, and nothing is left on the engine.

mod base;
mod build;
mod checks;
mod images;
mod minimal;
mod record;
mod side_by_side;
