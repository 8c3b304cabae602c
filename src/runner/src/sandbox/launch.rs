//! Brings a sandbox's container to life: ids, order, read-back, start.
//!
//! ```text
//! lock ─► lowest free block ─► accounts ─► create ─► unlock ─► read back ─► start ─► pid
//!                                 ▲                               │           │
//!                                 │                               ▼           ▼ a limit was denied
//!                                 │                            delete,     delete, leave the
//!                                 │                            refuse      limit out
//!                                 └───────────────────────────────────────────┘
//! ```
//!
//! The container's name was recorded by the caller before: whatever happens here, also to this process, the container
//! can be found by it and ended.

use bollard::models::ContainerCreateBody;
use protocol::Ids;

use super::{
    engine::{Engine, EngineError},
    folder::{FolderError, SessionFolder},
    ids::{self, Accounts, IdsLock},
    image::Image,
    limits::Limits,
    spec::{Spec, Without},
    verify,
};

/// What the container is to be.
#[derive(Debug, Clone)]
pub(crate) struct Launch<'a> {
    /// The session's id.
    pub(crate) session: &'a str,
    /// The container's random name, already recorded.
    pub(crate) name: &'a str,
    /// The install's token.
    pub(crate) token: &'a str,
    /// Its image.
    pub(crate) image: &'a Image,
    /// Its limits.
    pub(crate) limits: Limits,
    /// The OCI runtime, if not the engine's default.
    pub(crate) runtime: Option<&'a str>,
    /// The session's folder, with the link's socket bound and the agent's files staged.
    pub(crate) folder: &'a SessionFolder,
    /// Group of the link's socket, as lstat shows it.
    pub(crate) socket_gid: u32,
}

/// A container that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launched {
    /// Its id.
    pub(crate) id: String,
    /// Process id of its PID 1 on the host.
    pub(crate) pid: u32,
    /// Its block of ids.
    pub(crate) ids: Ids,
    /// What the engine could not do, in words.
    pub(crate) notices: Vec<String>,
}

/// Why there is no container.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The engine, or a refusal of ours.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The session's folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// PID 1 did not live long enough to be looked at.
    #[error("the sandbox's PID 1 ended at once with exit code {exit_code}{words}")]
    Ended {
        /// What it ended with.
        exit_code: i64,
        /// The engine's words on it, after a colon.
        words: String,
    },
}

impl Launch<'_> {
    /// Creates, reads back and starts the container. On failure nothing of it is left, unless the engine is gone.
    pub(crate) async fn run(&self, engine: &Engine) -> Result<Launched, LaunchError> {
        let (mut without, mut notices) = (Without::default(), Vec::new());
        let mut earlier: Option<(String, Ids)> = None;
        loop {
            let (id, ids) = self.create(engine, &without, earlier.take()).await?;
            match engine.start(&id).await {
                Ok(()) => {
                    let pid = self.look_for_pid_1(engine, &id).await?;
                    return Ok(Launched { id, pid, ids, notices });
                }
                Err(error) => match learn(&mut without, &error) {
                    Some(notice) => {
                        notices.push(notice);
                        earlier = Some((id, ids));
                    }
                    None => return Err(self.clean_up(engine, &id, error).await.into()),
                },
            }
        }
    }

    /// Creates a container and reads it back. One that failed to start keeps its block until it is replaced.
    async fn create(
        &self,
        engine: &Engine,
        without: &Without,
        earlier: Option<(String, Ids)>,
    ) -> Result<(String, Ids), LaunchError> {
        let lock = IdsLock::take().await.map_err(EngineError::from)?;
        let ids = if let Some((id, ids)) = earlier {
            engine.remove(&id).await?;
            ids
        } else {
            let accounts = Accounts::of_this_host().map_err(EngineError::from)?;
            let ids = ids::choose(&accounts, &engine.ids_in_use().await?).map_err(EngineError::from)?;
            self.folder.write_accounts(ids)?;
            ids
        };
        let spec = Spec {
            token: self.token,
            session: self.session,
            image: self.image,
            limits: self.limits,
            runtime: self.runtime,
            folder: self.folder.path(),
            socket_gid: self.socket_gid,
            ids,
            without: without.clone(),
        };
        let order = spec.body(engine.facts())?;
        let id = engine.create(self.name, order.clone()).await?;
        drop(lock);
        match self.read_back(engine, &id, &order).await {
            Ok(()) => Ok((id, ids)),
            Err(difference) => Err(self.clean_up(engine, &id, difference).await.into()),
        }
    }

    /// Finds PID 1 of a container that was just started.
    async fn look_for_pid_1(&self, engine: &Engine, id: &str) -> Result<u32, LaunchError> {
        let found = match engine.inspect(id).await {
            Ok(found) => found,
            Err(error) => return Err(self.clean_up(engine, id, error).await.into()),
        };
        if let Some(pid) = found.pid {
            return Ok(pid);
        }
        engine.remove(id).await?;
        let words = if found.error.is_empty() { String::new() } else { format!(": {}", found.error) };
        Err(LaunchError::Ended { exit_code: found.exit_code, words })
    }

    async fn read_back(&self, engine: &Engine, id: &str, order: &ContainerCreateBody) -> Result<(), EngineError> {
        let found = engine.inspect(id).await?;
        verify::compare(self.name, order, self.image, engine.facts(), &found.whole)
    }

    /// Removes the container and returns why; a failure to remove it is the graver one.
    async fn clean_up(&self, engine: &Engine, id: &str, why: EngineError) -> EngineError {
        match engine.remove(id).await {
            Err(error) if !why.is_gone() => error,
            _ => why,
        }
    }
}

fn learn(without: &mut Without, error: &EngineError) -> Option<String> {
    match error {
        EngineError::Answer { message, .. } => without.learn(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
