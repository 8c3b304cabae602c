//! Which agent a command is about, and with what: the arguments that `start` and `tool` share.

use std::path::PathBuf;

use super::copies::{CopyIn, CopyOut};
use crate::exit::Failure;
use crate::project::{Agent, Project, ProjectError};

/// Arguments that name an agent.
#[derive(Debug, Clone, clap::Args)]
pub struct AgentArgs {
    /// The agent: a name in the project's agents/, or a path to its folder
    #[arg(short, long, value_name = "NAME|PATH")]
    pub agent: String,
    /// The project's folder; else it is found upward from the working directory
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
    /// Copy a file or folder into the sandbox first, to /tmp/<its name> unless a place is given
    #[arg(long = "in", value_name = "PATH[:/tmp/…]")]
    pub copy_in: Vec<CopyIn>,
    /// Copy a file or folder of the sandbox into a folder of this machine at the end, also after a failure
    #[arg(long = "out", value_name = "/tmp/…:DIR")]
    pub copy_out: Vec<CopyOut>,
    /// Leave the sandbox running when the session ends; `runner stop SESSION` removes it
    #[arg(long)]
    pub keep: bool,
}

impl AgentArgs {
    /// Loads the project and the agent, and looks at what is to be copied in. `models` are for the agent instead of its
    /// own, unless there are none.
    pub(super) fn load(&self, models: &[String]) -> Result<(Project, Agent), Failure> {
        for copy in &self.copy_in {
            copy.check()?;
        }
        let project = match &self.project {
            Some(folder) => Project::open(folder)?,
            None => Project::find(&working_directory()?)?,
        };
        let agent = project.agent_on(&self.agent, models)?;
        Ok((project, agent))
    }

    pub(super) fn copies_in(&self) -> Vec<(PathBuf, String)> {
        self.copy_in.iter().map(|copy| (copy.from.clone(), copy.to.clone())).collect()
    }

    pub(super) fn copies_out(&self) -> Vec<(String, PathBuf)> {
        self.copy_out.iter().map(|copy| (copy.from.clone(), copy.to.clone())).collect()
    }
}

fn working_directory() -> Result<PathBuf, ProjectError> {
    std::env::current_dir()
        .map_err(|error| ProjectError::Unreadable { file: PathBuf::from("."), why: error.to_string() })
}
