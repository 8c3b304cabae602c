//! What `grep` and `find` share: a walk through a tree that heeds ignore files, and what bounds it.

mod clock;
mod engine;
mod globs;
mod hits;
mod lines;
mod names;
mod pattern;
mod rules;
mod walk;
mod wildmatch;

pub(super) use clock::{Clock, Stop};
pub(super) use engine::{Engine, PIECE, SAMPLE, Verdict, fill, is_binary, without_mark};
pub(super) use globs::Globs;
pub(super) use hits::{FileSink, Hits};
pub(super) use lines::push_name;
pub(super) use names::{Item, ItemKind};
pub(super) use pattern::{Pattern, Wanted};
pub(super) use walk::{Visitor, Walk};

/// What stands before the paths of results: the folder as the model gave it, so that a path can be given to `read` as it
/// stands. Empty for the working directory.
pub(super) fn shown_root(given: Option<&str>) -> Vec<u8> {
    let given = given.unwrap_or(".");
    let named = given.strip_prefix('@').unwrap_or(given);
    let mut shown = named.trim_end_matches('/');
    while let Some(rest) = shown.strip_prefix("./") {
        shown = rest.trim_start_matches('/');
    }
    if shown == "." || (shown.is_empty() && !named.starts_with('/')) {
        return Vec::new();
    }
    let mut root = Vec::new();
    push_name(&mut root, shown.as_bytes());
    root.push(b'/');
    root
}
