//! `runner stop`: ends sessions, also those whose runner has died.

use std::io::{self, Write};
use std::time::Duration;

use futures_util::future::join_all;
use nix::unistd::{Uid, User};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::records::{Records, RecordsError, unless_closed};
use crate::observe::sanitise;
use crate::sandbox::engine::Engine;
use crate::session::owner::Owner;
use crate::session::recovery::{Containers, OnEngine, is_finished, recover_session};

/// Arguments of `runner stop`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner stop 5c1e09d7
  runner stop 5c1e09d7 80f3b2a6 --wait 5

A sandbox that was kept, or that a runner which died left behind, is removed too.")]
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

/// Stops the sessions, all at once, and waits until they have ended.
pub async fn run(args: StopArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    let engine = async || {
        let engine = Engine::connect(None).await?;
        Ok(OnEngine::new(engine, &records.state))
    };
    unless_closed(stop(&records, &args, engine, &mut io::stdout().lock()).await)
}

/// The engine is asked for only when there is something to clean up.
async fn stop<C: Containers>(
    records: &Records,
    args: &StopArgs,
    engine: impl AsyncFn() -> Result<C, RecordsError>,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    // Every name is looked up first: a mistyped one stops nothing.
    let mut ids = Vec::new();
    for asked in &args.sessions {
        let id = records.store.session(asked).await?.id;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    let cleaner = Cleaner { records, engine, parts: OnceCell::new() };
    let outcomes = join_all(ids.iter().map(|id| stop_one(&cleaner, id, deadline))).await;
    let mut code = 0;
    let mut failure = None;
    for (id, outcome) in ids.iter().zip(outcomes) {
        let said = match outcome {
            Ok(Outcome::Ended(cause)) => format!("{id}  {cause}"),
            Ok(Outcome::EndedBefore(cause)) => format!("{id}  had ended already ({cause})"),
            Ok(Outcome::Removed(cause)) => format!("{id}  had ended already ({cause}); what it had left is removed"),
            Ok(Outcome::Waiting) => {
                code = 1;
                format!("{id}  has not ended within {} s; it was asked to stop", args.wait)
            }
            Err(error) => {
                let said = format!("{id}  {error}");
                failure = failure.or(Some(error));
                said
            }
        };
        writeln!(out, "{}", sanitise::line(&said))?;
    }
    failure.map_or(Ok(code), Err)
}

enum Outcome {
    Ended(String),
    EndedBefore(String),
    /// It had ended, and its sandbox was kept or could not be removed then.
    Removed(String),
    Waiting,
}

/// What cleaning up after a dead runner takes, made when it is first needed.
struct Cleaner<'a, C, F> {
    records: &'a Records,
    engine: F,
    parts: OnceCell<(Owner, C)>,
}

async fn stop_one<C: Containers>(
    cleaner: &Cleaner<'_, C, impl AsyncFn() -> Result<C, RecordsError>>,
    id: &str,
    deadline: Instant,
) -> Result<Outcome, RecordsError> {
    let store = &cleaner.records.store;
    let mut changes = store.watch();
    let mut session = store.session(id).await?;
    let ended_before = session.end.is_some();
    let left = ended_before && !is_finished(&session);
    if !ended_before {
        store.request_stop(session.key, who(), crate::store::StopHow::Orderly).await?;
    }
    loop {
        changes.mark_unchanged();
        session = store.session(id).await?;
        if !is_finished(&session) && !crate::session::owner::is_alive(&cleaner.records.state, &session.owner)? {
            let parts = async || -> Result<(Owner, C), RecordsError> {
                Ok((Owner::claim(&cleaner.records.state)?, (cleaner.engine)().await?))
            };
            let (me, containers) = cleaner.parts.get_or_try_init(parts).await?;
            let done = recover_session(store, &cleaner.records.state, me, containers, &session).await?;
            if let Some(problem) = done.and_then(|done| done.problems.into_iter().next()) {
                return Err(RecordsError::LeftBehind(problem));
            }
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

/// Who asks, for the record.
fn who() -> String {
    let uid = Uid::current();
    User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests;
