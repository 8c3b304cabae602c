//! `runner pause` and `runner unpause`: whether new sessions get slots.

use std::path::PathBuf;

use super::agent::find_project;
use super::output;
use crate::exit::Failure;
use crate::observe::sanitise;
use crate::project::Project;
use crate::state::State;
use crate::store::{SqliteStore, Store};

/// Arguments of `runner pause`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner pause                 no new session of this project starts
  runner pause review          none of this agent does

What is queued stays queued. Sessions at work go on, also after a wait.")]
pub struct PauseArgs {
    /// Whom
    #[command(flatten)]
    pub whom: Whom,
}

/// Arguments of `runner unpause`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner unpause review
  runner unpause

An agent that was paused by name stays so until it is unpaused by name.")]
pub struct UnpauseArgs {
    /// Whom
    #[command(flatten)]
    pub whom: Whom,
}

/// An agent, or all of a project.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Whom {
    /// The agent; all of the project when none is named
    #[arg(value_name = "AGENT")]
    pub agent: Option<String>,
    /// The project's folder; else it is found upward from the working directory
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
}

/// Pauses.
///
/// # Errors
/// There is no such agent, or it could not be recorded.
pub async fn pause(args: PauseArgs) -> Result<u8, Failure> {
    run(args.whom, true).await
}

/// Unpauses.
///
/// # Errors
/// There is no such agent, or it could not be recorded.
pub async fn unpause(args: UnpauseArgs) -> Result<u8, Failure> {
    run(args.whom, false).await
}

async fn run(whom: Whom, paused: bool) -> Result<u8, Failure> {
    let project = find_project(whom.project.as_deref())?;
    let state = State::open()?;
    let store = SqliteStore::open(state.root())?;
    let said = set(&store, &project, whom.agent, paused).await?;
    output::check(output::line(&said))?;
    Ok(0)
}

/// Pauses or unpauses, and says how things stand then.
async fn set(store: &dyn Store, project: &Project, agent: Option<String>, paused: bool) -> Result<String, Failure> {
    let identity = project.root.display().to_string();
    let known = project.agent_names();
    if let Some(agent) = agent.as_ref().filter(|agent| !known.contains(agent)) {
        // One that was removed while it was paused may be forgotten.
        let forgets = !paused && store.paused_agents(identity.clone()).await?.contains(agent);
        if !forgets {
            return Err(project.unknown(agent).into());
        }
    }
    store.pause_agent(identity.clone(), agent.clone(), paused).await?;
    let mut still = store.paused_agents(identity).await?;
    let what = agent.as_ref().map_or_else(|| format!("project {}", project.name), |agent| format!("agent {agent}"));
    let mut said = if paused {
        format!("{what} is paused: no new session starts, those at work go on")
    } else {
        format!("{what} is not paused")
    };
    if !paused && !still.is_empty() {
        still.iter_mut().filter(|name| name.is_empty()).for_each(|name| "the whole project".clone_into(name));
        said = format!("{said}; still paused: {}", still.join(", "));
    }
    Ok(sanitise::line(&said).into_owned())
}

#[cfg(test)]
mod tests;
