//! `runner waits`: which sessions wait for a trigger, and for which.

use std::io::Write;

use serde_json::json;

use super::overview::{self, OverviewArgs, left};
use super::ps::short;
use super::records::{Records, RecordsError};
use super::table::{self, Cell, Style};
use crate::store::{Wait, Woken};

/// Arguments of `runner waits`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner waits
  runner waits --json | jq '.[] | select(.paused | not)'

A session that was woken is listed until it has gone on.")]
pub struct WaitsArgs {
    /// Of what, and how
    #[command(flatten)]
    pub overview: OverviewArgs,
}

/// Lists them, oldest first.
pub async fn run(args: WaitsArgs) -> Result<u8, RecordsError> {
    overview::show(&args.overview, list).await
}

async fn list(
    records: &Records,
    project: Option<String>,
    json: bool,
    style: Style,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    let waits = records.store.waits(project, 0).await?;
    let now = records.store.now().await?;
    let entry = |wait: &Wait| {
        let row = vec![
            Cell::new(short(&wait.session)),
            Cell::new(&wait.agent),
            Cell::new(&wait.words),
            Cell::new(&table::duration(now - wait.since)),
            Cell::new(&left(wait.deadline, now)),
            Cell::painted(stands(wait), Style::busy),
        ];
        (row, object(wait))
    };
    let entries = waits.iter().map(entry).collect();
    overview::print(entries, &["SESSION", "AGENT", "WAITS FOR", "SINCE", "LEFT", "STATE"], json, style, out)
}

/// How a wait stands, in a word or two.
pub(super) fn stands(wait: &Wait) -> &'static str {
    match &wait.woken {
        Some(Woken::Trigger(_)) => "woken",
        Some(Woken::Timeout) => "timed out",
        None if wait.paused => "paused",
        None => "not paused",
    }
}

/// A wait as `waits --json` and `show --json` print it.
pub(super) fn object(wait: &Wait) -> serde_json::Value {
    json!({
        "session": wait.session,
        "agent": wait.agent,
        "project": wait.project,
        "waiting_for": wait.words,
        "since": table::rfc3339(wait.since),
        "deadline": table::rfc3339(wait.deadline),
        "paused": wait.paused,
        "woken": wait.woken.is_some(),
    })
}

#[cfg(test)]
mod tests;
