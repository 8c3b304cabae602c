//! `runner stop`: ends sessions, also those that nobody drives.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::records::{Records, RecordsError, unless_closed};
use super::waiting::who;
use crate::observe::sanitise;
use crate::project::{OnCallerExit, Project};
use crate::sandbox::engine::Engine;
use crate::session::owner::Owner;
use crate::session::recovery::{Containers, NoContainers, OnEngine, is_driven, is_finished, recover_session};
use crate::store::{Session, SessionFilter, SessionKey, Status, StopHow, StoreError};

/// Arguments of `runner stop`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner stop 5c1e09d7
  runner stop 5c1e09d7 80f3b2a6 --wait 5

Its files are copied out and the calls that it made are ended, as its agent says. One that is queued, waits or whose
runner died is ended too; so is what a session that ended left of its sandbox, also when it was kept.")]
pub struct StopArgs {
    /// Sessions' ids, or unique beginnings or ends of them
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Wait at most this many seconds for them to end
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub wait: u64,
}

/// How often whoever waits makes sure that the session's runner lives.
const LOOK_AFTER: Duration = Duration::from_millis(250);

/// Which sessions are to end, and how.
pub(super) struct Ask {
    pub(super) sessions: Vec<String>,
    /// Longest time to wait for them, in seconds.
    pub(super) wait: u64,
    pub(super) how: StopHow,
}

/// Stops the sessions, all at once, and waits until they have ended.
pub async fn run(args: StopArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    let engine = async || Ok(OnEngine::new(Engine::connect(None).await?, &records.state));
    let ask = Ask { sessions: args.sessions, wait: args.wait, how: StopHow::Orderly };
    unless_closed(stop(&records, &ask, engine, &mut io::stdout().lock()).await)
}

/// Ends them, and the sessions they called as far as these end with them. The engine is asked for only when there is
/// something to clean up.
pub(super) async fn stop<C: Containers>(
    records: &Records,
    ask: &Ask,
    engine: impl AsyncFn() -> Result<C, RecordsError>,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    // Every name is looked up first: a mistyped one stops nothing.
    let mut sessions: Vec<Session> = Vec::new();
    for asked in &ask.sessions {
        let session = records.store.session(asked).await?;
        if !sessions.iter().any(|other| other.key == session.key) {
            sessions.push(session);
        }
    }
    let mut done: HashSet<String> = HashSet::new();
    let roots: HashSet<SessionKey> = sessions.iter().map(|session| session.root).collect();
    let mut ids: Vec<String> = sessions.into_iter().map(|session| session.id).collect();
    let cleaner = Cleaner { records, engine, how: ask.how, me: OnceCell::new(), containers: OnceCell::new() };
    let deadline = Instant::now() + Duration::from_secs(ask.wait);
    let mut code = 0;
    let mut failure = None;
    while !ids.is_empty() {
        let outcomes = join_all(ids.iter().map(|id| stop_one(&cleaner, id, deadline))).await;
        for (id, outcome) in ids.iter().zip(outcomes) {
            let said = match outcome {
                Ok(Outcome::Ended(cause)) => format!("{id}  {cause}"),
                Ok(Outcome::EndedBefore(cause)) => format!("{id}  had ended already ({cause})"),
                Ok(Outcome::Removed(cause)) => {
                    format!("{id}  had ended already ({cause}); what it had left is removed")
                }
                Ok(Outcome::Waiting) => {
                    code = 1;
                    format!("{id}  has not ended within {} s; it was asked to stop", ask.wait)
                }
                Err(error) => {
                    let said = format!("{id}  {error}");
                    failure = failure.or(Some(error));
                    said
                }
            };
            writeln!(out, "{}", sanitise::line(&said))?;
        }
        done.extend(ids);
        ids = asked_below(records, &roots, &done).await?;
    }
    failure.map_or(Ok(code), Err)
}

/// Live sessions that were called by one of `done`, were asked to stop with it, and are not among them.
async fn asked_below(
    records: &Records,
    roots: &HashSet<SessionKey>,
    done: &HashSet<String>,
) -> Result<Vec<String>, StoreError> {
    let mut ids = Vec::new();
    for root in roots {
        let filter = SessionFilter { tree: Some(*root), status: Status::Live, ..SessionFilter::default() };
        let below = |session: &Session| session.parent.as_ref().is_some_and(|parent| done.contains(parent));
        let asked = |session: &Session| session.stop_requested_by.is_some() && !done.contains(&session.id);
        let live = records.store.sessions(filter).await?;
        ids.extend(live.into_iter().filter(|session| below(session) && asked(session)).map(|session| session.id));
    }
    Ok(ids)
}

enum Outcome {
    Ended(String),
    EndedBefore(String),
    /// It had ended, and its sandbox was kept or could not be removed then.
    Removed(String),
    Waiting,
}

/// What ending a session that nobody drives takes, made when it is first needed.
struct Cleaner<'a, C, F> {
    records: &'a Records,
    engine: F,
    how: StopHow,
    me: OnceCell<Owner>,
    containers: OnceCell<C>,
}

impl<C: Containers, F: AsyncFn() -> Result<C, RecordsError>> Cleaner<'_, C, F> {
    /// Ends the session and removes its sandbox, unless somebody is at it by now.
    async fn end(&self, session: &Session) -> Result<(), RecordsError> {
        let Records { state, store } = self.records;
        let me = self.me.get_or_try_init(async || Owner::claim(state)).await?;
        let containers: &dyn Containers = match session.container {
            Some(_) => self.containers.get_or_try_init(|| (self.engine)()).await?,
            None => &NoContainers,
        };
        let done = recover_session(store, state, me, containers, session, detaches(session)).await?;
        match done.and_then(|done| done.problems.into_iter().next()) {
            Some(problem) => Err(RecordsError::LeftBehind(problem)),
            None => Ok(()),
        }
    }
}

/// Whether the session's running calls go on without it, as its agent says now.
fn detaches(session: &Session) -> bool {
    let agent = Project::open(Path::new(&session.project)).and_then(|project| project.agent(&session.agent));
    agent.is_ok_and(|agent| agent.settings.on_caller_exit == OnCallerExit::Detach)
}

async fn stop_one<C: Containers>(
    cleaner: &Cleaner<'_, C, impl AsyncFn() -> Result<C, RecordsError>>,
    id: &str,
    deadline: Instant,
) -> Result<Outcome, RecordsError> {
    let Records { state, store } = cleaner.records;
    let mut changes = store.watch();
    let mut session = store.session(id).await?;
    let ended_before = session.end.is_some();
    let left = ended_before && !is_finished(&session);
    if !ended_before {
        store.request_stop(session.key, who(), cleaner.how).await?;
    }
    loop {
        changes.mark_unchanged();
        session = store.session(id).await?;
        if !is_finished(&session) && !is_driven(state, &session)? {
            cleaner.end(&session).await?;
            session = store.session(id).await?;
        }
        match session.end {
            Some((end, _)) if left => return Ok(Outcome::Removed(end.cause)),
            Some((end, _)) if ended_before => return Ok(Outcome::EndedBefore(end.cause)),
            Some((end, _)) => return Ok(Outcome::Ended(end.cause)),
            None if Instant::now() >= deadline => return Ok(Outcome::Waiting),
            None => {}
        }
        let next = deadline.min(Instant::now() + LOOK_AFTER);
        // Either way we look again.
        let _ = tokio::time::timeout_at(next, changes.changed()).await;
    }
}

#[cfg(test)]
mod tests;
