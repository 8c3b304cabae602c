//! Which directory is the state directory.

use std::path::PathBuf;

use super::StateError;

/// Everything that decides on the state directory's path.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// `$RUNNER_STATE`.
    pub runner_state: Option<PathBuf>,
    /// `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// The effective user is root.
    pub root: bool,
}

impl Place {
    /// Reads the environment of this process. An empty variable counts as unset.
    pub fn from_environment() -> Place {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Place {
            runner_state: path("RUNNER_STATE"),
            xdg_state_home: path("XDG_STATE_HOME"),
            home: path("HOME"),
            root: nix::unistd::geteuid().is_root(),
        }
    }

    /// The directory these values mean. A relative `XDG_STATE_HOME` is ignored, as its specification demands.
    pub fn directory(&self) -> Result<PathBuf, StateError> {
        if let Some(path) = &self.runner_state {
            return if path.is_absolute() { Ok(path.clone()) } else { Err(StateError::Relative(path.clone())) };
        }
        if self.root {
            return Ok(PathBuf::from("/var/lib/runner"));
        }
        let absolute = |path: &Option<PathBuf>| path.clone().filter(|path| path.is_absolute());
        if let Some(base) = absolute(&self.xdg_state_home) {
            return Ok(base.join("runner"));
        }
        match absolute(&self.home) {
            Some(home) => Ok(home.join(".local/state/runner")),
            None => Err(StateError::Nowhere),
        }
    }
}
