//! Containers: made, looked at, listed, ended.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bollard::{
    models::{ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum},
    query_parameters::{
        CreateContainerOptions, EventsOptions, InspectContainerOptions, KillContainerOptions, ListContainersOptions,
        RemoveContainerOptions, StartContainerOptions,
    },
};
use futures_util::future::ready;
use futures_util::{Stream, StreamExt};
use tokio::time::sleep;

use super::{
    super::spec::{LABEL_IDS, LABEL_SESSION, LABEL_TOKEN},
    Engine, EngineError,
};

/// What a container is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Made and never started.
    Created,
    /// Running.
    Running,
    /// Frozen.
    Paused,
    /// Being removed.
    Removing,
    /// Its PID 1 ended, or the engine gave up on it.
    Exited,
}

impl From<Option<ContainerStateStatusEnum>> for Status {
    fn from(status: Option<ContainerStateStatusEnum>) -> Status {
        match status {
            Some(ContainerStateStatusEnum::CREATED) => Status::Created,
            Some(ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::RESTARTING) => Status::Running,
            Some(ContainerStateStatusEnum::PAUSED) => Status::Paused,
            Some(ContainerStateStatusEnum::REMOVING) => Status::Removing,
            _ => Status::Exited,
        }
    }
}

/// What inspect shows of a container.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// Its full id.
    pub id: String,
    /// Its name, without the slash that the engine puts before it.
    pub name: String,
    /// What it is doing.
    pub status: Status,
    /// Process id of its PID 1 on the host, while there is one.
    pub pid: Option<u32>,
    /// Exit code of its PID 1, when it ended.
    pub exit_code: i64,
    /// The kernel killed something in it for memory at some time; whether it was PID 1 it does not say.
    pub oom_killed: bool,
    /// The engine's words on a failed start.
    pub error: String,
    /// Its labels, the image's among them.
    pub labels: HashMap<String, String>,
    /// The whole answer.
    pub(crate) whole: Box<ContainerInspectResponse>,
}

/// A container in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its full id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The session it says it is of.
    pub session: String,
    /// The first id of its block, if it has one.
    pub ids: Option<u32>,
    /// It runs or is paused; else it was never started or ended.
    pub alive: bool,
}

/// The client library builds paths from names, so a name must not be able to leave its place in one.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 128 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

impl Engine {
    /// Makes a container and returns its id. Warnings about the limits are failures: the container is deleted again.
    pub(crate) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<String, EngineError> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let answer = self.docker.create_container(Some(options), body);
        let made = Engine::call("create a container", self.deadlines.act, answer).await?;
        let unheld: Vec<&str> = made.warnings.iter().map(String::as_str).filter(|w| is_about_limits(w)).collect();
        if !unheld.is_empty() {
            let warnings = unheld.join("; ");
            self.remove(&made.id).await?;
            return Err(EngineError::Unlimited(warnings));
        }
        Ok(made.id)
    }

    /// Starts a container.
    pub(crate) async fn start(&self, id: &str) -> Result<(), EngineError> {
        let answer = self.docker.start_container(id, None::<StartContainerOptions>);
        Engine::call("start the container", self.deadlines.act, answer).await.map_err(|error| absent(error, id))
    }

    /// Looks at a container by id or name.
    pub async fn inspect(&self, id: &str) -> Result<Inspected, EngineError> {
        if !is_name(id) {
            return Err(EngineError::NoContainer(id.to_owned()));
        }
        let answer = self.docker.inspect_container(id, None::<InspectContainerOptions>);
        let whole = Engine::call("inspect the container", self.deadlines.ask, answer)
            .await
            .map_err(|error| absent(error, id))?;
        let state = whole.state.clone().unwrap_or_default();
        Ok(Inspected {
            id: whole.id.clone().unwrap_or_default(),
            name: whole.name.as_deref().unwrap_or_default().trim_start_matches('/').to_owned(),
            status: state.status.into(),
            pid: state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0),
            exit_code: state.exit_code.unwrap_or_default(),
            oom_killed: state.oom_killed.unwrap_or_default(),
            error: state.error.unwrap_or_default(),
            labels: whole.config.as_ref().and_then(|config| config.labels.clone()).unwrap_or_default(),
            whole: Box::new(whole),
        })
    }

    /// Freezes a container. An engine may fail here after it froze it; what it is doing then [`Engine::inspect`] says.
    pub(crate) async fn pause(&self, id: &str) -> Result<(), EngineError> {
        let answer = self.docker.pause_container(id);
        Engine::call("pause the container", self.deadlines.act, answer).await.map_err(|error| absent(error, id))
    }

    /// Thaws a container. Its processes go on before the engine answers.
    pub(crate) async fn unpause(&self, id: &str) -> Result<(), EngineError> {
        let answer = self.docker.unpause_container(id);
        Engine::call("unpause the container", self.deadlines.act, answer).await.map_err(|error| absent(error, id))
    }

    /// Kills PID 1 of a container, paused or not; one that does not run or does not exist is fine.
    pub async fn kill(&self, id: &str) -> Result<(), EngineError> {
        let options = KillContainerOptions { signal: "KILL".to_owned() };
        let answer = self.docker.kill_container(id, Some(options));
        match Engine::call("kill the container", self.deadlines.act, answer).await {
            Err(EngineError::Answer { status: 404 | 409, .. }) => Ok(()),
            other => other,
        }
    }

    /// Removes a container, running or not, and returns when it is really gone; one that does not exist is fine.
    pub async fn remove(&self, id: &str) -> Result<(), EngineError> {
        let started = Instant::now();
        loop {
            let options = RemoveContainerOptions { force: true, v: true, link: false };
            let answer = self.docker.remove_container(id, Some(options));
            let removed = Engine::call("remove the container", self.deadlines.act, answer).await;
            match removed {
                // 409: someone else is removing it; 500: engines say so when a killed process is not reaped in time.
                Ok(()) | Err(EngineError::Answer { status: 404 | 409 | 500, .. }) => {}
                Err(other) => return Err(other),
            }
            match self.inspect(id).await {
                Err(EngineError::NoContainer(_)) => return Ok(()),
                Ok(_) if started.elapsed() < self.deadlines.act => sleep(Duration::from_millis(20)).await,
                Ok(_) => return removed.and(Err(EngineError::late("remove the container", self.deadlines.act))),
                Err(other) => return Err(other),
            }
        }
    }

    /// Kills a container and removes it, verified.
    pub async fn end(&self, id: &str) -> Result<(), EngineError> {
        self.kill(id).await?;
        self.remove(id).await
    }

    /// Lists the containers that carry this install token. Whether one is ours its recorded name decides.
    pub async fn list_by_token(&self, token: &str) -> Result<Vec<Listed>, EngineError> {
        self.list(&format!("{LABEL_TOKEN}={token}")).await
    }

    /// Tells each time that a container with this install token dies; ends when the engine goes away.
    pub(crate) fn deaths(&self, token: &str) -> impl Stream<Item = ()> + Send + use<> {
        let filters = HashMap::from([
            ("type".to_owned(), vec!["container".to_owned()]),
            ("event".to_owned(), vec!["die".to_owned()]),
            ("label".to_owned(), vec![format!("{LABEL_TOKEN}={token}")]),
        ]);
        let options = EventsOptions { filters: Some(filters), ..EventsOptions::default() };
        // A failure ends it, like an engine that goes away.
        self.docker.events(Some(options)).take_while(|event| ready(event.is_ok())).map(drop)
    }

    /// The first ids of the blocks that sandboxes of anyone on this engine have.
    pub(crate) async fn ids_in_use(&self) -> Result<Vec<u32>, EngineError> {
        Ok(self.list(LABEL_IDS).await?.into_iter().filter_map(|container| container.ids).collect())
    }

    /// The containers made from this image, each said for people: its name, and its session when it is a sandbox.
    pub(super) async fn containers_from(&self, image_id: &str) -> Result<Vec<String>, EngineError> {
        let listed = self.list_by("ancestor", image_id).await?;
        let said = |container: Listed| match container.session.as_str() {
            "" => format!("container {}", container.name),
            session => format!("container {} (session {session}: `runner stop {session}`)", container.name),
        };
        Ok(listed.into_iter().map(said).collect())
    }

    async fn list(&self, label: &str) -> Result<Vec<Listed>, EngineError> {
        self.list_by("label", label).await
    }

    async fn list_by(&self, filter: &str, value: &str) -> Result<Vec<Listed>, EngineError> {
        let filters = HashMap::from([(filter.to_owned(), vec![value.to_owned()])]);
        let options = ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
        let answer = self.docker.list_containers(Some(options));
        let list = Engine::call("list its containers", self.deadlines.ask, answer).await?;
        let listed = list.into_iter().map(|container| {
            let mut labels = container.labels.unwrap_or_default();
            let state = container.state.map(|state| state.to_string()).unwrap_or_default();
            Listed {
                id: container.id.unwrap_or_default(),
                // A container has several names when others are linked to it; its own has one slash.
                name: container
                    .names
                    .into_iter()
                    .flatten()
                    .find_map(|name| name.strip_prefix('/').filter(|name| !name.contains('/')).map(str::to_owned))
                    .unwrap_or_default(),
                session: labels.remove(LABEL_SESSION).unwrap_or_default(),
                ids: labels.get(LABEL_IDS).and_then(|ids| ids.parse().ok()),
                alive: matches!(state.as_str(), "running" | "paused" | "restarting"),
            }
        });
        Ok(listed.collect())
    }

    /// Ends a container if it is ours: it carries this install token and has the recorded name. A foreign one with our
    /// labels or our name is left alone. One that does not exist is fine.
    pub async fn end_ours(&self, token: &str, recorded_name: &str) -> Result<(), EngineError> {
        let found = match self.inspect(recorded_name).await {
            Ok(found) => found,
            Err(EngineError::NoContainer(_)) => return Ok(()),
            Err(other) => return Err(other),
        };
        let ours = found.name == recorded_name && found.labels.get(LABEL_TOKEN).is_some_and(|label| label == token);
        if !ours {
            return Err(EngineError::NotOurs(recorded_name.to_owned()));
        }
        // By id: the name may be another's in a moment.
        self.end(&found.id).await
    }
}

fn absent(error: EngineError, id: &str) -> EngineError {
    match error {
        EngineError::Answer { status: 404, .. } => EngineError::NoContainer(id.to_owned()),
        other => other,
    }
}

/// A lack of swap limits is `doctor`'s to mention; a lack of the others would leave the host open.
fn is_about_limits(warning: &str) -> bool {
    let warning = warning.to_ascii_lowercase();
    if warning.contains("swap") && !warning.contains("memory limit capabilities") {
        return false;
    }
    ["memory", "pids", "cpu", "cgroup"].iter().any(|word| warning.contains(word))
}
