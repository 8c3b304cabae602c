//! `runner locks`: which locks are held, and by whom.

use std::io::Write;

use serde_json::json;

use super::overview::{self, OverviewArgs, left};
use super::ps::short;
use super::records::{Records, RecordsError};
use super::table::{self, Cell, Style};
use crate::store::Lock;

/// Arguments of `runner locks`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner locks
  runner locks --all --json | jq -r '.[].resource'

A lock is free when its time is over or its session has ended.")]
pub struct LocksArgs {
    /// Of what, and how
    #[command(flatten)]
    pub overview: OverviewArgs,
}

/// Lists them.
pub async fn run(args: LocksArgs) -> Result<u8, RecordsError> {
    overview::show(&args.overview, list).await
}

async fn list(
    records: &Records,
    project: Option<String>,
    json: bool,
    style: Style,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    let locks = records.store.locks(project).await?;
    let now = records.store.now().await?;
    let entry = |lock: &Lock| {
        let row = vec![
            Cell::new(&lock.resource),
            Cell::new(&lock.agent),
            Cell::new(short(&lock.session)),
            Cell::new(&lock.fence.to_string()),
            Cell::new(&table::duration(now - lock.held_since)),
            Cell::new(&left(lock.expires_at, now)),
        ];
        (row, object(lock))
    };
    let entries = locks.iter().map(entry).collect();
    overview::print(entries, &["RESOURCE", "AGENT", "SESSION", "FENCE", "HELD", "LEFT"], json, style, out)
}

/// A lock as `locks --json` and `show --json` print it.
pub(super) fn object(lock: &Lock) -> serde_json::Value {
    json!({
        "resource": lock.resource,
        "session": lock.session,
        "agent": lock.agent,
        "project": lock.project,
        "fence": lock.fence,
        "held_since": table::rfc3339(lock.held_since),
        "expires_at": table::rfc3339(lock.expires_at),
    })
}

#[cfg(test)]
mod tests;
