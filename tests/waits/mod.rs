//! A session that waits costs nothing, and nothing that it waits for is lost.

mod agents;
mod arguments;
mod cycles;
mod engine;
mod filters;
mod paused;
mod races;
mod webhooks;
