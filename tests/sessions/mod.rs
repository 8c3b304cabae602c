//! A session from start to end, in the store, in the exit code and after a crash.

mod calls;
mod copies;
mod crashes;
mod docker_group;
mod ends;
mod examples;
mod full;
mod hostile;
mod interrupts;
mod lost;
mod prompts;
mod records;
mod side_by_side;
mod transcripts;
