//! `runner ps`: which sessions there are.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use super::records::{Condition, Records, RecordsError, unless_closed};
use super::table::{self, Cell, Style};
use crate::observe::sanitise;
use crate::store::{Session, SessionFilter, Status};

/// Arguments of `runner ps`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner ps                                 what runs
  runner ps --all -n 10                     the ten newest sessions, ended or not
  runner ps --all --json | jq -r '.[] | select(.cause == \"timeout\").session'")]
pub struct PsArgs {
    /// Also sessions that have ended
    #[arg(short, long)]
    pub all: bool,
    /// Only this agent's sessions
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only sessions of this project's folder
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
    /// At most this many, the newest
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists sessions, newest first.
pub async fn run(args: PsArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    unless_closed(list(&records, args, Style::of_stdout(), &mut io::stdout().lock()).await)
}

async fn list(records: &Records, args: PsArgs, style: Style, out: &mut dyn Write) -> Result<u8, RecordsError> {
    // A project is recorded by its canonical path; one that is gone by now is looked for as it was typed.
    let project = args.project.map(|path| std::fs::canonicalize(&path).unwrap_or(path).display().to_string());
    let status = if args.all { Status::Any } else { Status::Live };
    let sessions = records
        .store
        .sessions(SessionFilter { project, agent: args.agent, status, limit: args.limit, tree: None })
        .await?;
    let now = records.store.now().await?;
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for session in &sessions {
        let condition = records.condition(session)?;
        if args.json {
            objects.push(object(session, &condition));
        } else {
            rows.push(row(session, &condition, now));
        }
    }
    if args.json {
        let text = serde_json::Value::from(objects).to_string();
        writeln!(out, "{}", sanitise::json(&text))?;
    } else {
        table::write(out, style, &["SESSION", "AGENT", "STATE", "STARTED", "TOOK"], &rows)?;
        if rows.is_empty() && !args.all {
            eprintln!("none is running; `runner ps --all` lists those that have ended");
        }
    }
    Ok(0)
}

fn row(session: &Session, condition: &Condition, now: i64) -> Vec<Cell> {
    let until = session.end.as_ref().map_or(now, |(_, at)| *at);
    let paint = match condition {
        Condition::Running | Condition::Stopping => Style::busy,
        Condition::Ended { failed: false, .. } => Style::good,
        Condition::Ended { failed: true, .. } | Condition::RunnerDied => Style::bad,
    };
    vec![
        Cell::new(short(&session.id)),
        Cell::new(&session.agent),
        Cell::painted(&condition.words(), paint),
        Cell::new(&table::date_time(session.created_at)),
        Cell::new(&table::duration(until - session.created_at)),
    ]
}

/// The end of an id, which is random and enough to name a session; its beginning is the time, and sessions of one hour
/// share most of it.
fn short(id: &str) -> &str {
    const SHOWN: usize = 8;
    id.len().checked_sub(SHOWN).and_then(|from| id.get(from..)).unwrap_or(id)
}

/// A session as `ps --json` and `show --json` print it.
pub(crate) fn object(session: &Session, condition: &Condition) -> serde_json::Value {
    let end = session.end.as_ref();
    json!({
        "session": session.id,
        "agent": session.agent,
        "project": session.project,
        "state": if end.is_some() { "ended" } else { condition.as_str() },
        "started_at": table::rfc3339(session.created_at),
        "ended_at": end.map(|(_, at)| table::rfc3339(*at)),
        "cause": end.map(|(end, _)| &end.cause),
        "exit_code": end.map(|(end, _)| end.exit_code),
        "message": end.map(|(end, _)| &end.message),
        "stop_requested_by": session.stop_requested_by,
        "container": session.container.as_ref().map(|c| json!({"name": c.name, "id": c.id})),
        "sandbox_kept": end.is_some_and(|(end, _)| !end.sandbox_removed),
    })
}

#[cfg(test)]
pub(crate) mod tests;
