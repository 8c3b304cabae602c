//! `runner ps`: which sessions there are.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::overview;
use super::records::{Condition, Records, RecordsError, unless_closed};
use super::signals;
use super::surroundings::Surroundings;
use super::table::{self, Cell, Style};
use crate::observe::sanitise;
use crate::store::{Session, SessionFilter, Status};

/// Arguments of `runner ps`.
#[expect(clippy::struct_excessive_bools, reason = "they are flags of a command line")]
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner ps                                 what is queued, runs or waits
  runner ps --tree --watch                  who called whom, again and again until Ctrl-C
  runner ps --all -n 10                     the ten newest sessions, ended or not
  runner ps --all --json | jq -r '.[] | select(.cause == \"timeout\").session'

AGE is the time since a session was begun, or until it ended.")]
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
    /// Show sessions below those that called them
    #[arg(short, long)]
    pub tree: bool,
    /// Show it again whenever something has changed, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How often ages are drawn anew on a terminal.
const REDRAW: Duration = Duration::from_secs(1);

/// Longest status in a table.
const SHOWN: usize = 60;

/// Lists sessions, newest first.
pub async fn run(args: PsArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    let (style, mut out) = (Style::of_stdout(), io::stdout().lock());
    let shown = if args.watch {
        let redraw = io::stdout().is_terminal() && !args.json;
        watch(&records, &args, style, redraw, &signals::interrupt(), &mut out).await
    } else {
        list(&records, &args, style, &mut out).await
    };
    unless_closed(shown)
}

/// Lists them again whenever something has changed; `redraw` puts each list in the place of the one before.
async fn watch(
    records: &Records,
    args: &PsArgs,
    style: Style,
    redraw: bool,
    interrupt: &CancellationToken,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    let mut changes = records.store.watch();
    let mut before = None;
    while !interrupt.is_cancelled() {
        changes.mark_unchanged();
        let listing = Listing::read(records, args).await?;
        let now = listing.objects();
        // Ages alone are no change.
        if redraw || before.as_ref() != Some(&now) {
            if redraw {
                write!(out, "\u{1b}[H\u{1b}[2J")?;
            } else if before.is_some() && !args.json {
                writeln!(out)?;
            }
            listing.write(args, style, out)?;
            out.flush()?;
            before = Some(now);
        }
        tokio::select! {
            _ = changes.changed() => {}
            // A runner's death changes nothing in the store.
            () = tokio::time::sleep(REDRAW) => {}
            () = interrupt.cancelled() => {}
        }
    }
    Ok(0)
}

async fn list(records: &Records, args: &PsArgs, style: Style, out: &mut dyn Write) -> Result<u8, RecordsError> {
    let listing = Listing::read(records, args).await?;
    listing.write(args, style, out)?;
    if listing.sessions.is_empty() && !args.all && !args.json {
        eprintln!("none is running; `runner ps --all` lists those that have ended");
    }
    Ok(0)
}

/// Sessions and what is shown of them.
struct Listing {
    /// Each with its condition and how deep it stands in its tree.
    sessions: Vec<(Session, Condition, usize)>,
    around: Surroundings,
    now: i64,
}

impl Listing {
    async fn read(records: &Records, args: &PsArgs) -> Result<Listing, RecordsError> {
        let project = args.project.clone().map(overview::recorded);
        let status = if args.all { Status::Any } else { Status::Live };
        let agent = args.agent.clone();
        let filter = SessionFilter { project: project.clone(), agent, status, limit: args.limit, tree: None };
        let sessions = records.store.sessions(filter).await?;
        let live = sessions.iter().filter(|session| session.end.is_none()).map(|session| session.project.clone());
        let projects: BTreeSet<String> = live.chain(project.or_else(|| overview::here().ok())).collect();
        let around = Surroundings::of(&*records.store, projects).await?;
        let placed = if args.tree { below_callers(&sessions) } else { flat(sessions) };
        let mut sessions = Vec::new();
        for (session, depth) in placed {
            let condition = records.condition(&session, around.wait(&session))?;
            sessions.push((session, condition, depth));
        }
        Ok(Listing { sessions, around, now: records.store.now().await? })
    }

    fn objects(&self) -> Value {
        let objects = self.sessions.iter().map(|(session, condition, _)| object(session, condition, &self.around));
        Value::Array(objects.collect())
    }

    fn write(&self, args: &PsArgs, style: Style, out: &mut dyn Write) -> io::Result<()> {
        if args.json {
            return writeln!(out, "{}", sanitise::json(&self.objects().to_string()));
        }
        let rows: Vec<Vec<Cell>> =
            self.sessions.iter().map(|(session, condition, depth)| self.row(session, condition, *depth)).collect();
        let headings = ["SESSION", "AGENT", "STATE", "STARTED", "AGE", "TOKENS", "LOCK", "STATUS"];
        table::write(out, style, &headings, &rows)?;
        for line in self.around.paused() {
            writeln!(out, "{}", sanitise::line(&line))?;
        }
        Ok(())
    }

    fn row(&self, session: &Session, condition: &Condition, depth: usize) -> Vec<Cell> {
        let until = session.end.as_ref().map_or(self.now, |(_, at)| *at);
        let paint = match condition {
            Condition::Ended { failed: false, .. } => Style::good,
            Condition::Ended { failed: true, .. } | Condition::RunnerDied => Style::bad,
            _ => Style::busy,
        };
        let branch = if depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 1)) };
        vec![
            Cell::new(short(&session.id)),
            Cell::new(&format!("{branch}{}", session.agent)),
            Cell::painted(&table::cut(&condition.words(), SHOWN), paint),
            Cell::new(&table::date_time(session.created_at)),
            Cell::new(&table::duration(until - session.created_at)),
            Cell::new(&session.tokens.to_string()),
            Cell::new(self.around.lock(session).map(|lock| lock.resource.as_str()).unwrap_or_default()),
            Cell::new(&table::cut(session.status.as_deref().unwrap_or_default(), SHOWN)),
        ]
    }
}

fn flat(sessions: Vec<Session>) -> Vec<(Session, usize)> {
    sessions.into_iter().map(|session| (session, 0)).collect()
}

/// Each session below the one that called it, as far as that is listed, in the order of the calls.
fn below_callers(sessions: &[Session]) -> Vec<(Session, usize)> {
    let listed: BTreeSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let is_top = |session: &&Session| session.parent.as_deref().is_none_or(|parent| !listed.contains(parent));
    // What is looked at next stands last, the newest top first.
    let mut next: Vec<(&Session, usize)> = sessions.iter().filter(is_top).rev().map(|session| (session, 0)).collect();
    let mut placed = Vec::new();
    while let Some((session, depth)) = next.pop() {
        placed.push((session.clone(), depth));
        // Sessions are listed newest first, so the oldest is looked at next.
        let called = sessions.iter().filter(|other| other.parent.as_ref() == Some(&session.id));
        next.extend(called.map(|called| (called, depth + 1)));
    }
    placed
}

/// The end of an id, which is random and enough to name a session; its beginning is the time, and sessions of one hour
/// share most of it.
pub(super) fn short(id: &str) -> &str {
    const SHOWN: usize = 8;
    id.len().checked_sub(SHOWN).and_then(|from| id.get(from..)).unwrap_or(id)
}

/// A session as `ps --json` and `show --json` print it.
pub(crate) fn object(session: &Session, condition: &Condition, around: &Surroundings) -> Value {
    let end = session.end.as_ref();
    let wait = around.wait(session).filter(|_| end.is_none());
    json!({
        "session": session.id,
        "agent": session.agent,
        "project": session.project,
        "parent": session.parent,
        "state": if end.is_some() { "ended" } else { condition.as_str() },
        "waiting_for": wait.map(|wait| &wait.words),
        "paused": wait.is_some_and(|wait| wait.paused),
        "status": session.status,
        "lock": around.lock(session).map(|lock| &lock.resource),
        "tokens": session.tokens,
        "overcommit": session.overcommit,
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
