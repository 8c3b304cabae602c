//! What people and programs read of the command line.

mod completions;
mod doctor;
mod documents;
mod help;
mod hostile;
mod leftovers;
mod projects;
mod transcripts;
