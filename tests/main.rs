//! What the product promises, against a real engine. One folder a promise:
//!
//! - `commands`: `bash` does what its contract says, jobs, limits and output included.
//! - `files`: `read`, `write`, `ls`, and copies in and out.
//! - `search`: `grep` and `find`.
//! - `kill`: no process of a finished call survives, whatever it tried.
//! - `attack`: an agent that attacks its box gets nowhere.
//! - `sandbox`: the container is what was ordered, images are what we allow, nothing is left on the engine.
//! - `link`: the link between host and PID 1 survives what drops it.
//! - `models`: a model's key, failures, and length of conversations are dealt with; recordings do the same again.
//! - `sessions`: a session from start to end, in the store, in the exit code and after a crash.
//! - `fleet`: sessions share locks, slots and calls, and a daemon drives them.
//! - `waits`: a session that waits costs nothing, and nothing that it waits for is lost.
//! - `crash`: a runner that is killed at any point leaves nothing undone, done twice, or behind.
//! - `cli`: what people and programs read reads well: transcripts, help, completions, the doctor, and nothing hostile in it.
//! - `refusals`: bad input is named, with the place and the remedy, and nothing is half done.
//!
//! `harness` is the place that they run in.

mod harness;

mod attack;
mod cli;
mod commands;
mod crash;
mod files;
mod fleet;
mod kill;
mod link;
mod models;
mod refusals;
mod sandbox;
mod search;
mod sessions;
mod waits;
