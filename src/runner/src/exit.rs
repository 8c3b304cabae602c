//! How the program ends: exit codes, and failures with what to do about them.
//!
//! 0 done · 1 the agent failed, or any end not listed · 2 usage or configuration · 3 engine · 4 model · 5 sandbox lost ·
//! 6 refused by policy · 7 turn limit · 8 token limit · 70 a bug of ours · 124 timeout · 125 stopped by someone ·
//! 130 interrupted. Sessions have theirs from [`crate::session::journal::EndCause`].

use std::error::Error;

use crate::dispatch::seat::SeatError;
use crate::model::OpenError;
use crate::project::ProjectError;
use crate::sandbox::engine::EngineError;
use crate::sandbox::image::BuildError;
use crate::session::owner::OwnerError;
use crate::session::recovery::RecoveryError;
use crate::state::StateError;
use crate::store::StoreError;

/// Usage or configuration.
pub const USAGE: u8 = 2;
/// The container engine.
pub const ENGINE: u8 = 3;
/// Refused by policy.
pub const POLICY: u8 = 6;
/// A bug of ours.
pub const BUG: u8 = 70;
/// Interrupted.
pub const INTERRUPTED: u8 = 130;

/// Why a command could not be done.
#[derive(Debug)]
pub struct Failure {
    /// The program's exit code.
    pub code: u8,
    /// What failed: lower-case, with its sources, on one line.
    pub message: String,
    /// What the person can do about it, when the message does not say.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure with this code and an error's whole chain as its message.
    pub fn new(code: u8, error: &(dyn Error + 'static)) -> Self {
        Self { code, message: chain(error), hint: None }
    }

    /// Wrong usage, in words.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), hint: Some(hint.into()) }
    }
}

/// An error and its sources on one line; a source whose text is there already is not repeated.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let part = source.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = source.source();
    }
    text
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        Self { hint: error.hint(), ..Self::new(USAGE, &error) }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self { hint: error.hint(), ..Self::new(USAGE, &error) }
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::new(USAGE, &error)
    }
}

impl From<OwnerError> for Failure {
    fn from(error: OwnerError) -> Self {
        Self::new(USAGE, &error)
    }
}

impl From<SeatError> for Failure {
    fn from(error: SeatError) -> Self {
        Self::new(USAGE, &error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(store_code(&error), &error)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::new(engine_code(&error), &error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let code = match &error {
            BuildError::Engine(error) => engine_code(error),
            _ => USAGE,
        };
        Self::new(code, &error)
    }
}

impl From<RecoveryError> for Failure {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Store(error) => error.into(),
            RecoveryError::State(error) => error.into(),
            RecoveryError::Owner(error) => error.into(),
            RecoveryError::Engine(_) => Self::new(ENGINE, &error),
        }
    }
}

/// What was asked for, or where it was to be kept, is wrong: usage, like a state directory that cannot be used.
pub(crate) fn store_code(error: &StoreError) -> u8 {
    match error {
        StoreError::UnknownSession { .. }
        | StoreError::Ambiguous { .. }
        | StoreError::Newer { .. }
        | StoreError::Foreign { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Full { .. } => USAGE,
        _ => 1,
    }
}

/// The engine's own failures are 3; what we refuse about an image or a container is policy, a wrong name is usage.
pub(crate) fn engine_code(error: &EngineError) -> u8 {
    match error {
        EngineError::ImageRefused { .. } | EngineError::Altered { .. } => POLICY,
        EngineError::UnknownRuntime { .. } => USAGE,
        EngineError::ImageInUse { .. } => 1,
        _ => ENGINE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open {path}")]
    struct Outer {
        path: &'static str,
        source: std::io::Error,
    }

    #[test]
    fn a_chain_is_one_line_without_repetitions() {
        let inner = std::io::Error::other("no such file");
        let outer = Outer { path: "/x", source: inner };
        assert_eq!(chain(&outer), "cannot open /x: no such file");
        let state = StateError::Relative("x".into());
        assert_eq!(chain(&RecoveryError::State(state)), "RUNNER_STATE is \"x\"; it must be an absolute path");
    }
}
