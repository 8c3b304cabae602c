//! What a runner does first when it drives sessions: it finds those whose runner died, and cleans up after them.
//!
//! Three lists are compared: the store's sessions, the engine's containers, the folders in the state directory. A
//! session belongs to nobody when its owner's flock is free; of several runners that notice at once, the store lets one
//! take it over. A container is ours only when it carries this install's token *and* the name that the store recorded
//! before it was created (and the recorded id, when there is one); a label or a name alone proves nothing. A folder is
//! ours when the store knows its session. Everything else is left alone and reported.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use super::journal::{EndCause, Journal, Last};
use super::owner::{self, Owner, OwnerError};
use crate::sandbox::engine::Engine;
use crate::state::{State, StateError};
use crate::store::{Session, SessionFilter, SessionState, Status, StopHow, StopRequest, Store, StoreError};

/// What an engine's failure is to recovery: something to report.
pub type EngineFailure = Box<dyn Error + Send + Sync>;

/// What recovery asks of the container engine.
pub trait Containers: Send + Sync {
    /// Lists the containers, running or not, that carry this install's token as a label.
    fn with_our_token(&self) -> BoxFuture<'_, Result<Vec<FoundContainer>, EngineFailure>>;

    /// Kills and removes a container by its id, whatever state it is in; one that is gone already is no error.
    fn remove(&self, id: &str) -> BoxFuture<'_, Result<(), EngineFailure>>;

    /// Tells each time that a container with this install's token dies, until the engine goes away; without an engine
    /// that tells, nothing.
    fn deaths(&self) -> BoxStream<'static, ()> {
        Box::pin(futures_util::stream::pending())
    }
}

/// The containers of this install on a real engine.
#[derive(Clone)]
pub struct OnEngine {
    engine: Engine,
    token: String,
}

impl OnEngine {
    /// Those that carry this state directory's token.
    pub fn new(engine: Engine, state: &State) -> OnEngine {
        OnEngine { engine, token: state.token().to_owned() }
    }
}

impl Containers for OnEngine {
    fn with_our_token(&self) -> BoxFuture<'_, Result<Vec<FoundContainer>, EngineFailure>> {
        Box::pin(async {
            let listed = self.engine.list_by_token(&self.token).await?;
            let found = listed.into_iter().map(|container| FoundContainer {
                id: container.id,
                name: container.name,
                running: container.alive,
                session: Some(container.session).filter(|session| !session.is_empty()),
            });
            Ok(found.collect())
        })
    }

    fn remove(&self, id: &str) -> BoxFuture<'_, Result<(), EngineFailure>> {
        let id = id.to_owned();
        Box::pin(async move { self.engine.end(&id).await.map_err(EngineFailure::from) })
    }

    fn deaths(&self) -> BoxStream<'static, ()> {
        Box::pin(self.engine.deaths(&self.token))
    }
}

/// No engine is asked: for sessions that never had a container.
pub(crate) struct NoContainers;

impl Containers for NoContainers {
    fn with_our_token(&self) -> BoxFuture<'_, Result<Vec<FoundContainer>, EngineFailure>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn remove(&self, _id: &str) -> BoxFuture<'_, Result<(), EngineFailure>> {
        Box::pin(async { Ok(()) })
    }
}

/// A container that the engine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundContainer {
    /// The engine's id.
    pub id: String,
    /// Its name, without the slash that the engine puts before it.
    pub name: String,
    /// It runs (or is paused).
    pub running: bool,
    /// The session that its label names.
    pub session: Option<String>,
}

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions that were ended because their runner had died.
    pub ended: Vec<String>,
    /// Sessions that had ended before and whose sandbox was removed now.
    pub cleaned: Vec<String>,
    /// What could not be done or was left alone, one sentence each.
    pub problems: Vec<String>,
}

/// Why recovery could not even look.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The owners' files.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The engine could not list containers.
    #[error("cannot list this install's containers: {0}")]
    Engine(#[source] EngineFailure),
}

/// Finds sessions that nobody drives any more and nobody can go on with, removes their containers and folders, and
/// records their end.
pub async fn recover(
    store: &Arc<dyn Store>,
    state: &State,
    me: &Owner,
    containers: &dyn Containers,
) -> Result<Recovered, RecoveryError> {
    // Before the store is read: a folder is made after its session was recorded, so what is listed here and is not in
    // the store then was never in it.
    let folders = state.session_folders()?;
    let filter = SessionFilter { status: Status::Unfinished, ..SessionFilter::default() };
    let mut lost = Vec::new();
    for session in store.sessions(filter).await? {
        if !goes_on(&session) && !owner::is_alive(state, &session.owner)? {
            lost.push(session);
        }
    }
    let mut done = Recovered::default();
    let found = containers.with_our_token().await.map_err(RecoveryError::Engine)?;
    let ground = Ground { store, state, me, containers };
    for session in &lost {
        ground.recover_one(&found, session, false, &mut done).await?;
    }
    for container in &found {
        remove_latecomer(&**store, containers, container, &mut done).await?;
    }
    for id in folders {
        clean_folder(&**store, state, &id, &mut done).await?;
    }
    owner::sweep(state)?;
    for problem in &done.problems {
        tracing::warn!("{problem}");
    }
    Ok(done)
}

/// Removes the sandboxes that ended sessions have left, of those that are `ours`; returns what could not be removed.
pub(crate) async fn clean_up(
    store: &Arc<dyn Store>,
    state: &State,
    containers: &dyn Containers,
    ours: &dyn Fn(&Session) -> bool,
) -> Result<Vec<String>, RecoveryError> {
    let filter = SessionFilter { status: Status::Unfinished, ..SessionFilter::default() };
    let left = |session: &Session| session.end.is_some() && ours(session);
    let left: Vec<Session> = store.sessions(filter).await?.into_iter().filter(left).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let found = containers.with_our_token().await.map_err(RecoveryError::Engine)?;
    let mut problems = Vec::new();
    for session in &left {
        let container = found.iter().find(|container| is_ours(session, container));
        match remove_sandbox(state, containers, container, session).await {
            Ok(()) => store.sandbox_removed(session.key, session.generation).await?,
            Err(problem) => problems.push(problem),
        }
    }
    Ok(problems)
}

/// Ends this one session, and removes its sandbox, if nobody drives it; nothing when somebody does or nothing is left to
/// do. With `detach` the calls that it made go on.
pub async fn recover_session(
    store: &Arc<dyn Store>,
    state: &State,
    me: &Owner,
    containers: &dyn Containers,
    session: &Session,
    detach: bool,
) -> Result<Option<Recovered>, RecoveryError> {
    if is_finished(session) || is_driven(state, session)? {
        return Ok(None);
    }
    let found = containers.with_our_token().await.map_err(RecoveryError::Engine)?;
    let mut done = Recovered::default();
    // Asked for by name, so a sandbox that was kept goes too.
    let session = Session { keep: false, ..session.clone() };
    let ground = Ground { store, state, me, containers };
    ground.recover_one(&found, &session, detach, &mut done).await?;
    Ok(Some(done))
}

/// True when the session takes part in its project's fleet: whoever serves the project next goes on with it.
pub fn goes_on(session: &Session) -> bool {
    session.slotted && session.end.is_none()
}

/// True while somebody works on the session: on its turns, or on what is left of it after its end.
pub(crate) fn is_driven(state: &State, session: &Session) -> Result<bool, OwnerError> {
    Ok(!is_undriven(session) && owner::is_alive(state, &session.owner)?)
}

/// True when nobody drives it, because it waits for a slot or a trigger.
pub(crate) fn is_undriven(session: &Session) -> bool {
    matches!(session.state, SessionState::Queued | SessionState::Waiting | SessionState::Woken)
}

/// How a session ends that somebody asked to stop.
pub(crate) fn stopped(request: &StopRequest) -> (EndCause, String) {
    match request.how {
        StopHow::Orderly => (EndCause::Stopped, format!("stopped by {}", request.by)),
        StopHow::Kill => (EndCause::Killed, format!("killed by {}", request.by)),
    }
}

/// True when nothing of the session is left to do.
pub fn is_finished(session: &Session) -> bool {
    session.end.as_ref().is_some_and(|(end, _)| end.sandbox_removed)
}

/// What recovery works on.
struct Ground<'a> {
    store: &'a Arc<dyn Store>,
    state: &'a State,
    me: &'a Owner,
    containers: &'a dyn Containers,
}

impl Ground<'_> {
    async fn recover_one(
        &self,
        found: &[FoundContainer],
        session: &Session,
        detach: bool,
        done: &mut Recovered,
    ) -> Result<(), RecoveryError> {
        let ours = found.iter().find(|container| is_ours(session, container));
        if session.end.is_some() {
            if session.keep && ours.is_some_and(|container| container.running) {
                return Ok(());
            }
            match remove_sandbox(self.state, self.containers, ours, session).await {
                Ok(()) => {
                    self.store.sandbox_removed(session.key, session.generation).await?;
                    done.cleaned.push(session.id.clone());
                }
                Err(problem) => done.problems.push(problem),
            }
            return Ok(());
        }

        let generation = match self.store.take_over(session.key, session.generation, self.me.id().clone()).await {
            Ok(generation) => generation,
            // Another runner was faster.
            Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let removed = remove_sandbox(self.state, self.containers, ours, session).await;
        let (cause, message) = match self.store.stop_requested(session.key).await? {
            Some(request) if is_undriven(session) => stopped(&request),
            Some(request) => {
                let (cause, message) = stopped(&request);
                (cause, format!("{message}; its runner had died before it could"))
            }
            None => (EndCause::RunnerDied, "its runner died without ending it".to_owned()),
        };
        let journal = Journal::new(Arc::clone(self.store), session.key, generation);
        match journal.end_with(cause, message, removed.is_ok(), Last { text: None, detach }).await {
            Ok(()) => done.ended.push(session.id.clone()),
            // It ended with the session that called it.
            Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        done.problems.extend(removed.err());
        Ok(())
    }
}

/// True when the container is the one that was recorded for the session.
pub(crate) fn is_ours(session: &Session, container: &FoundContainer) -> bool {
    session.container.as_ref().is_some_and(|recorded| {
        recorded.name == container.name && recorded.id.as_ref().is_none_or(|id| *id == container.id)
    })
}

async fn remove_sandbox(
    state: &State,
    containers: &dyn Containers,
    container: Option<&FoundContainer>,
    session: &Session,
) -> Result<(), String> {
    if let Some(container) = container {
        let id = &container.id;
        containers
            .remove(id)
            .await
            .map_err(|e| format!("container {id} of session {} is still there: {e}", session.id))?;
    }
    remove_folder(state.session_folder(&session.id), &session.id).await
}

/// Removes a container whose session had been cleaned up before it appeared: its runner died while the engine was still
/// creating it.
async fn remove_latecomer(
    store: &dyn Store,
    containers: &dyn Containers,
    container: &FoundContainer,
    done: &mut Recovered,
) -> Result<(), StoreError> {
    let Some(id) = &container.session else { return Ok(()) };
    match store.session(id).await {
        Ok(session) if session.id == *id && is_finished(&session) && is_ours(&session, container) => {
            match containers.remove(&container.id).await {
                Ok(()) if done.ended.contains(id) || done.cleaned.contains(id) => {}
                Ok(()) => done.cleaned.push(id.clone()),
                Err(e) => done.problems.push(format!("container {} of session {id} is still there: {e}", container.id)),
            }
            Ok(())
        }
        Ok(_) | Err(StoreError::UnknownSession { .. } | StoreError::Ambiguous { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn clean_folder(store: &dyn Store, state: &State, id: &str, done: &mut Recovered) -> Result<(), StoreError> {
    match store.session(id).await {
        // Often it is gone by now, with its session.
        Ok(session) if session.id == id && is_finished(&session) && state.session_folder(id).exists() => {
            match remove_folder(state.session_folder(id), id).await {
                Ok(()) => done.cleaned.push(id.to_owned()),
                Err(problem) => done.problems.push(problem),
            }
        }
        Ok(session) if session.id == id => {}
        Ok(_) | Err(StoreError::UnknownSession { .. } | StoreError::Ambiguous { .. }) => {
            let path = state.session_folder(id);
            done.problems.push(format!("{} belongs to no session in the store; it is left alone", path.display()));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Links inside are removed, never followed.
async fn remove_folder(folder: PathBuf, id: &str) -> Result<(), String> {
    // An id is a UUID; anything else may lead out of the folder of sessions.
    if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(format!("the folder of session {id:?} is left alone: that is no id of ours"));
    }
    let shown = folder.display().to_string();
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
    match removed.unwrap_or_else(|e| Err(io::Error::other(e))) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("cannot remove {shown}: {e}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
