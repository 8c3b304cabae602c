//! `runner logs`: a session's journal, also while it grows.

use std::io::{self, Write};
use std::time::Duration;

use super::records::{Records, RecordsError, unless_closed};
use super::render;
use super::table::{self, Style};
use crate::observe::sanitise;
use crate::session::journal::{self, Event, JournalError};
use crate::session::owner;
use crate::store::{EventRow, SessionState};

/// Arguments of `runner logs`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner logs last --full
  runner logs --follow 5c1e09d7
  runner logs last --json | jq 'select(.kind == \"tool_finished\").body.cause'

A follower stays through waits, and while nobody drives the session, until it has ended.")]
pub struct LogsArgs {
    /// The session's id, a unique beginning or end of it, or `last`
    pub session: String,
    /// Go on as long as the session does
    #[arg(short, long)]
    pub follow: bool,
    /// Show long texts in full
    #[arg(long)]
    pub full: bool,
    /// Print JSON, one line an event
    #[arg(long)]
    pub json: bool,
}

/// How often a follower makes sure that the session's runner lives.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Lines read at once.
const PAGE: usize = 256;

/// Prints the journal.
pub async fn run(args: LogsArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    unless_closed(print(&records, &args, Style::of_stdout(), &mut io::stdout().lock()).await)
}

async fn print(records: &Records, args: &LogsArgs, style: Style, out: &mut dyn Write) -> Result<u8, RecordsError> {
    let mut changes = records.store.watch();
    let session = records.meant(&args.session).await?;
    let (id, key) = (session.id, session.key);
    let (mut after, mut deserted) = (0, false);
    loop {
        changes.mark_unchanged();
        // Read before the lines: what was written before the end is printed before we stop.
        let session = records.store.session(&id).await?;
        let dead = session.state == SessionState::Active && !owner::is_alive(&records.state, &session.owner)?;
        loop {
            let rows = records.store.events(key, after, PAGE).await?;
            for row in &rows {
                line(records, &id, row, args, style, out).await?;
                after = row.seq;
            }
            if rows.len() < PAGE {
                break;
            }
        }
        out.flush()?;
        if !args.follow || session.end.is_some() {
            return Ok(0);
        }
        if dead && !session.slotted {
            let note = format!("its runner died; `runner stop {id}` cleans up");
            writeln!(io::stderr(), "{}", sanitise::line(&note))?;
            return Ok(1);
        }
        if dead && !deserted {
            let note = format!("its runner died; `runner serve` or `runner resume {id}` goes on with it");
            writeln!(io::stderr(), "{}", sanitise::line(&note))?;
        }
        deserted = dead;
        // Either way we look again.
        let _ = tokio::time::timeout(LOOK_AFTER, changes.changed()).await;
    }
}

async fn line(
    records: &Records,
    id: &str,
    row: &EventRow,
    args: &LogsArgs,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), RecordsError> {
    if args.json {
        let body = journal::body(&*records.store, row).await?;
        writeln!(out, "{}", render::json_line(id, row, &body))?;
        return Ok(());
    }
    let shown = match Event::from_row(&*records.store, row).await {
        Ok(event) => render::text(&event, style, args.full),
        // A newer runner wrote it: the rest of the journal is still worth showing.
        Err(error @ JournalError::Row { .. }) => sanitise::line(&error.to_string()).into_owned(),
        Err(error) => return Err(error.into()),
    };
    writeln!(out, "{} {shown}", style.dim(&table::time(row.at)))?;
    Ok(())
}

#[cfg(test)]
mod tests;
