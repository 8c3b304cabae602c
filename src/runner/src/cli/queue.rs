//! `runner queue`: which sessions wait for a slot.

use std::collections::BTreeSet;
use std::io::Write;

use super::overview::{self, Entry, OverviewArgs};
use super::ps::{object, short};
use super::records::{Records, RecordsError};
use super::surroundings::Surroundings;
use super::table::{self, Cell, Style};
use crate::observe::sanitise;
use crate::store::{SessionFilter, SessionState, Status};

/// Arguments of `runner queue`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner queue
  runner queue --all --json | jq 'map(.agent)'

First those that were woken, then new ones; each agent's start in the order shown.")]
pub struct QueueArgs {
    /// Of what, and how
    #[command(flatten)]
    pub overview: OverviewArgs,
}

/// Lists them, in the order in which they go on.
pub async fn run(args: QueueArgs) -> Result<u8, RecordsError> {
    overview::show(&args.overview, list).await
}

async fn list(
    records: &Records,
    project: Option<String>,
    json: bool,
    style: Style,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    let filter = SessionFilter { project: project.clone(), status: Status::Live, ..SessionFilter::default() };
    let mut sessions = records.store.sessions(filter).await?;
    sessions.retain(|session| matches!(session.state, SessionState::Queued | SessionState::Woken));
    sessions.sort_by_key(|session| (session.state != SessionState::Woken, session.key));
    let projects: BTreeSet<String> = sessions.iter().map(|session| session.project.clone()).chain(project).collect();
    let around = Surroundings::of(&*records.store, projects).await?;
    let now = records.store.now().await?;
    let mut entries: Vec<Entry> = Vec::new();
    for session in &sessions {
        let condition = records.condition(session, around.wait(session))?;
        let row = vec![
            Cell::new(short(&session.id)),
            Cell::new(&session.agent),
            Cell::painted(&condition.words(), Style::busy),
            Cell::new(session.parent.as_deref().map(short).unwrap_or_default()),
            Cell::new(&table::date_time(session.created_at)),
            Cell::new(&table::duration(now - session.created_at)),
        ];
        entries.push((row, object(session, &condition, &around)));
    }
    overview::print(entries, &["SESSION", "AGENT", "STATE", "CALLER", "STARTED", "AGE"], json, style, out)?;
    if !json {
        for line in around.paused() {
            writeln!(out, "{}", sanitise::line(&line))?;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
