//! The local Docker engine, as far as sandboxes need it.
//!
//! Only a Unix socket of this host will do, because a sandbox shares the link's socket with it. Each call has a
//! connection of its own and a deadline: one stuck answer holds up nothing else, and a stuck engine is an error
//! (`engine_gone`) and never a hang. `exec`, `attach` and the archive verbs are not here on purpose (security.md 1).

mod address;
mod containers;
mod errors;
mod facts;
mod images;
mod survey;

#[cfg(test)]
pub(crate) mod mock;
#[cfg(test)]
mod tests;

use std::{future::Future, time::Duration};

use bollard::models::{SystemInfo, SystemVersion};
use bollard::{ClientVersion, Docker};
use tokio::time::timeout;

use crate::crash;

pub use containers::{Inspected, Listed, Status};
pub use errors::EngineError;
pub use facts::EngineFacts;
pub use images::ImageListed;
pub use survey::Survey;

/// How long connecting may take in all.
const CONNECT: Duration = Duration::from_millis(1800);

/// The client library's own limit on an answer's first byte, in seconds. Ours are shorter and cover the whole answer.
const CLIENT_LIMIT: u64 = 600;

/// A local Docker engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    docker: Docker,
    facts: std::sync::Arc<EngineFacts>,
    deadlines: Deadlines,
}

/// How long each kind of call may take. Tests shorten them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// Questions: inspect, list.
    pub(crate) ask: Duration,
    /// Create, start, kill, remove: a busy disk or runtime makes them slow.
    pub(crate) act: Duration,
    /// Loading a small image.
    pub(crate) load: Duration,
    /// Loading an image of a gigabyte.
    pub(crate) stream: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            ask: Duration::from_secs(10),
            act: Duration::from_mins(1),
            load: Duration::from_mins(2),
            stream: Duration::from_mins(9),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Engine {
    /// Connects to an engine, or says in one line and in under two seconds why not.
    ///
    /// `docker_host` is an address like `DOCKER_HOST` has; `None` takes that variable, else the usual socket.
    pub async fn connect(docker_host: Option<&str>) -> Result<Engine, EngineError> {
        let from_environment = std::env::var("DOCKER_HOST").ok();
        let socket = address::socket(docker_host.or(from_environment.as_deref()))?;
        timeout(CONNECT, Engine::introduce(&socket))
            .await
            .unwrap_or_else(|_| Err(EngineError::late("introduce itself", CONNECT)))
    }

    /// Asks an engine for what it says of itself, and whether it can be used: for people who are to see why not.
    ///
    /// # Errors
    /// No engine answers at the address, or not in two seconds.
    pub async fn survey(docker_host: Option<&str>) -> Result<(Survey, Result<Engine, EngineError>), EngineError> {
        let from_environment = std::env::var("DOCKER_HOST").ok();
        let socket = address::socket(docker_host.or(from_environment.as_deref()))?;
        let (docker, version, info) = timeout(CONNECT, Engine::ask(&socket))
            .await
            .unwrap_or_else(|_| Err(EngineError::late("introduce itself", CONNECT)))?;
        let survey = Survey::new(&socket, &version, &info);
        Ok((survey, Engine::judged(docker, &socket, &version, &info)))
    }

    async fn introduce(socket: &std::path::Path) -> Result<Engine, EngineError> {
        let (docker, version, info) = Engine::ask(socket).await?;
        Engine::judged(docker, socket, &version, &info)
    }

    async fn ask(socket: &std::path::Path) -> Result<(Docker, SystemVersion, SystemInfo), EngineError> {
        address::knock(socket).await?;
        let path = socket.to_str().ok_or_else(|| EngineError::BadAddress(socket.to_string_lossy().into_owned()))?;
        let newest = ClientVersion { major_version: 1, minor_version: 53 };
        let failed = |error| EngineError::from_client("introduce itself", error);
        let docker = Docker::connect_with_unix(path, CLIENT_LIMIT, &newest).map_err(failed)?;
        let docker = docker.negotiate_version().await.map_err(failed)?;
        let (version, info) = tokio::try_join!(docker.version(), docker.info()).map_err(failed)?;
        Ok((docker, version, info))
    }

    fn judged(
        docker: Docker,
        socket: &std::path::Path,
        version: &SystemVersion,
        info: &SystemInfo,
    ) -> Result<Engine, EngineError> {
        let kernel = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
        let facts = EngineFacts::judge(socket, version, info, &kernel.unwrap_or_default())?;
        Ok(Engine { docker, facts: std::sync::Arc::new(facts), deadlines: Deadlines::default() })
    }

    /// What the engine said of itself when we connected.
    pub fn facts(&self) -> &EngineFacts {
        &self.facts
    }

    /// The same engine with other deadlines.
    #[cfg(test)]
    pub(crate) fn with_deadlines(mut self, deadlines: Deadlines) -> Engine {
        self.deadlines = deadlines;
        self
    }

    /// Makes one call: the answer must be complete before the deadline.
    async fn call<T>(
        step: &'static str,
        deadline: Duration,
        answer: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        let verb = step.split(' ').next().unwrap_or_default();
        crash::point(&format!("engine.{verb}.before"));
        let answer = timeout(deadline, answer).await;
        crash::point(&format!("engine.{verb}.after"));
        match answer {
            Ok(answer) => answer.map_err(|error| EngineError::from_client(step, error)),
            Err(_) => Err(EngineError::late(step, deadline)),
        }
    }
}
