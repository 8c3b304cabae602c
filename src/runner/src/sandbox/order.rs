//! What is asked for when a sandbox is started, and why there may be none.

use std::io;
use std::path::PathBuf;

use super::call::{Gone, GoneKind};
use super::engine::EngineError;
use super::folder::FolderError;
use super::launch::LaunchError;
use super::limits::Limits;
use super::stage::StageError;
use crate::state::StateError;

/// Everything that makes one sandbox different from another.
#[derive(Debug, Clone)]
pub struct Order {
    /// The session's id.
    pub session: String,
    /// The container's random name, which the store has recorded: whatever happens, it can be found by it.
    pub name: String,
    /// Reference of the image.
    pub image: String,
    /// Its limits.
    pub limits: Limits,
    /// The OCI runtime, if not the engine's default.
    pub runtime: Option<String>,
    /// Seconds of PID 1's own running without a runner after which it exits.
    pub orphan_grace: u32,
    /// The agent's folder, whose files are staged.
    pub agent: PathBuf,
}

/// Why there is no sandbox. Nothing of it is left, unless the engine is gone too.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine, or a refusal of an image or an engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The agent's files cannot be given to a sandbox.
    #[error("{0}")]
    Files(String),
    /// The session's folder or socket.
    #[error("{step}: {source}")]
    Folder {
        /// What was tried, and where.
        step: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Its PID 1 ended, broke the protocol or is not confined as ordered.
    #[error("the sandbox did not start: {}", .0.message)]
    Gone(Gone),
}

impl SandboxError {
    pub(super) fn late() -> Self {
        Self::Gone(Gone::new(GoneKind::Stuck, "its PID 1 was not ready in time"))
    }
}

impl From<FolderError> for SandboxError {
    fn from(error: FolderError) -> Self {
        Self::Folder { step: format!("cannot {} {}", error.step, error.path.display()), source: error.source }
    }
}

impl From<LaunchError> for SandboxError {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Engine(error) => error.into(),
            LaunchError::Folder(error) => error.into(),
            LaunchError::Ended { exit_code, words } => {
                let message = format!("its PID 1 ended at once with exit code {exit_code}{words}");
                Gone::new(GoneKind::Died, message).into()
            }
        }
    }
}

impl From<StageError> for SandboxError {
    fn from(error: StageError) -> Self {
        match error {
            StageError::Write(error) => error.into(),
            refused => Self::Files(refused.to_string()),
        }
    }
}

impl From<Gone> for SandboxError {
    fn from(gone: Gone) -> Self {
        Self::Gone(gone)
    }
}
