//! `runner new`: an agent to begin with.

use std::path::PathBuf;

use super::agent::find_project;
use super::output;
use crate::exit::Failure;
use crate::observe::sanitise;
use crate::project::ModelSource;

/// Arguments of `runner new`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Makes agents/AGENT with a SKILL.md for its instructions and a config.toml. What exists is
never written over.

Examples:
  runner new review
  runner new review --project ~/mine && $EDITOR ~/mine/agents/review/SKILL.md")]
pub struct NewArgs {
    /// Its name: lower-case letters and digits with single hyphens between, at most 64
    #[arg(value_name = "AGENT")]
    pub name: String,
    /// The project's folder; else it is found upward from the working directory
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
}

/// Makes the agent.
///
/// # Errors
/// There is no project, the name fits no agent, or it exists.
pub fn run(args: &NewArgs) -> Result<u8, Failure> {
    let project = find_project(args.project.as_deref())?;
    let written = project.create_agent(&args.name)?;
    let lines = written.iter().map(|path| format!("wrote {}\n", sanitise::line(&path.display().to_string())));
    // A script plays the turns that were written for another agent, whatever this one's instructions say.
    let agent = project.agent(&args.name)?;
    let mind = agent.models.first().filter(|model| matches!(model.source, ModelSource::Script { .. })).map(|model| {
        let config = agent.folder.join("config.toml");
        let (name, config) = (sanitise::line(&model.name), config.display().to_string());
        format!("its mind is models.{name}, a script: name another in {}\n", sanitise::line(&config))
    });
    let next = format!("next: write its instructions into SKILL.md, then runner start --agent {}", args.name);
    output::check(output::line(&lines.chain(mind).chain([next]).collect::<String>()))?;
    Ok(0)
}
