//! What can go wrong between the runner and the engine.

use std::{path::PathBuf, time::Duration};

use super::super::ids::IdsError;

/// A failure of the engine or a refusal to use it. The text is one line that says what, where and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// `DOCKER_HOST` names an engine on another machine.
    #[error(
        "DOCKER_HOST is {0:?}, an engine on another machine; sandboxes share a socket with this host: unset it, or set it to unix:///var/run/docker.sock"
    )]
    Remote(String),
    /// `DOCKER_HOST` is not an address.
    #[error("DOCKER_HOST is {0:?}, which is no engine's address; unset it, or set it to unix:///var/run/docker.sock")]
    BadAddress(String),
    /// Nobody answers at the socket.
    #[error(
        "no Docker engine is running at {socket} ({why}); start it (`systemctl start docker`), or set DOCKER_HOST to unix://<its socket>"
    )]
    NotRunning {
        /// The socket's path.
        socket: PathBuf,
        /// What the attempt gave.
        why: String,
    },
    /// The path is not a socket.
    #[error("{0} is not a socket; set DOCKER_HOST to unix://<the engine's socket>, or unset it")]
    NotASocket(PathBuf),
    /// The socket's mode does not let this user in.
    #[error(
        "no permission on the engine's socket {socket}; it belongs to group {group}: join it (`sudo usermod -aG {group} $USER`) and log in again"
    )]
    NoPermission {
        /// The socket's path.
        socket: PathBuf,
        /// The group whose members may use it.
        group: String,
    },
    /// Something answers, and it is not a Docker engine that can hold our sandboxes.
    #[error("the engine at {socket} is refused: {reason}")]
    Refused {
        /// The socket's path.
        socket: PathBuf,
        /// Why, with the remedy.
        reason: String,
    },
    /// The engine did not answer in time, or hung up: cause `engine_gone`.
    #[error("the Docker engine is gone: it did not {step} ({why}); see that it runs (`docker info`)")]
    Gone {
        /// What was asked.
        step: &'static str,
        /// What happened instead.
        why: String,
    },
    /// The engine said no.
    #[error("the Docker engine could not {step} (status {status}): {message}")]
    Answer {
        /// What was asked.
        step: &'static str,
        /// Its HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The engine's answer cannot be understood.
    #[error("the Docker engine was asked to {step} and its answer cannot be understood: {message}")]
    Garbled {
        /// What was asked.
        step: &'static str,
        /// What is wrong with the answer.
        message: String,
    },
    /// No such container.
    #[error("container {0} does not exist")]
    NoContainer(String),
    /// A container that we must not touch.
    #[error("container {0} is not ours (its install token or its name differs); it is left alone")]
    NotOurs(String),
    /// No such image.
    #[error("image {reference} is not on this engine; {remedy}")]
    NoImage {
        /// What was asked for.
        reference: String,
        /// How to get it.
        remedy: String,
    },
    /// An image that cannot hold a sandbox.
    #[error("image {reference} is refused: {reason}")]
    ImageRefused {
        /// What was asked for.
        reference: String,
        /// Why, with the remedy.
        reason: String,
    },
    /// An image that containers are made from.
    #[error("image {reference} is in use by {users}; it can be removed once they are gone")]
    ImageInUse {
        /// What was asked for.
        reference: String,
        /// The containers, and whose they are.
        users: String,
    },
    /// The engine cannot be told of a path.
    #[error("the path {0:?} is not UTF-8, and the engine takes no other; set RUNNER_STATE to another")]
    BadPath(PathBuf),
    /// The engine does not know the runtime.
    #[error("local.runtime is {runtime:?}; this engine knows {known}")]
    UnknownRuntime {
        /// What was asked for.
        runtime: String,
        /// What there is.
        known: String,
    },
    /// The engine would not hold a limit.
    #[error(
        "the Docker engine cannot hold the sandbox's limits: {0}; enable the cgroup controllers memory, pids and cpu"
    )]
    Unlimited(String),
    /// The container read back is not the one that was ordered; it was deleted.
    #[error(
        "the Docker engine made another container than was ordered, and it was deleted: {field} is {found}, ordered was {ordered}"
    )]
    Altered {
        /// The field's name in inspect.
        field: String,
        /// What was ordered.
        ordered: String,
        /// What inspect shows.
        found: String,
    },
    /// No user ids for the session.
    #[error(transparent)]
    Ids(#[from] IdsError),
}

impl EngineError {
    /// The call was cut off by its deadline.
    pub(super) fn late(step: &'static str, deadline: Duration) -> EngineError {
        EngineError::Gone { step, why: format!("no answer in {} s", deadline.as_secs_f32()) }
    }

    /// The engine itself is gone or stuck, in difference to an answer that we do not like: cause `engine_gone`.
    pub fn is_gone(&self) -> bool {
        matches!(self, EngineError::Gone { .. } | EngineError::NotRunning { .. })
    }

    /// Says what a failed call of the client library means.
    pub(super) fn from_client(step: &'static str, error: bollard::errors::Error) -> EngineError {
        use bollard::errors::Error;
        match error {
            Error::DockerResponseServerError { status_code, message } => {
                EngineError::Answer { step, status: status_code, message: one_line(&message) }
            }
            Error::DockerStreamError { error } => EngineError::Answer { step, status: 200, message: one_line(&error) },
            Error::JsonDataError { message, .. } => EngineError::Garbled { step, message: one_line(&message) },
            Error::JsonSerdeError { err } => EngineError::Garbled { step, message: err.to_string() },
            Error::APIVersionParseError {} => {
                EngineError::Garbled { step, message: "it has no API version".to_owned() }
            }
            other => EngineError::Gone { step, why: chain(&other) },
        }
    }
}

/// Joins an error with its sources: the client's own text alone says "client error (Connect)".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = error.source();
    }
    one_line(&text)
}

/// Engines answer in lines; our errors are one.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
