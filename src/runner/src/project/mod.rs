//! What people write: a project's config.toml and its agents. Knows nothing of how they run.
//!
//! Every key is read by name and checked for its range here, so that no other room meets a wrong value; what is
//! documented and not built yet is refused by name.

mod agent;
mod base_url;
mod check;
mod config;
mod error;
mod fleet;
#[cfg(test)]
mod fleet_tests;
mod fresh;
mod front_matter;
mod mistakes;
mod models;
#[cfg(test)]
mod models_tests;
mod near;
mod provider;
mod read;
mod schedule;
mod section;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use agent::Agent;
pub use check::{Checked, check_agent, check_project};
pub use error::{Place, ProjectError};
pub use fleet::{FleetSettings, MAX_WAIT, OnCallerExit, OnSandboxLost, WebhookProvider, WebhookSource};
pub use fresh::create_project;
pub use front_matter::Skill;
use mistakes::Mistakes;
pub use models::{ModelSettings, ModelSource};
pub(crate) use near::near;
pub use provider::{Provider, ProviderSettings, ThinkingLevel};
pub use schedule::Schedule;
pub use settings::{DEFAULT_IMAGE, Settings};

/// A project: the folder with config.toml.
#[derive(Debug, Clone)]
pub struct Project {
    /// Its folder, with every link resolved: the project's identity.
    pub root: PathBuf,
    /// `projectName`, else the folder's name.
    pub name: String,
    config: config::ProjectConfig,
}

impl Project {
    /// Finds the project of `start`: the folder itself or the nearest above with a config.toml. An agent's folder has a
    /// config.toml too and is passed over.
    ///
    /// # Errors
    /// [`ProjectError::NoProject`], or what is wrong with the config.toml found.
    pub fn find(start: &Path) -> Result<Self, ProjectError> {
        Self::load(&Self::root_of(start)?)
    }

    /// Opens the project in `root`.
    ///
    /// # Errors
    /// [`ProjectError::NotAProject`], or what is wrong with its config.toml.
    pub fn open(root: &Path) -> Result<Self, ProjectError> {
        let root = root.canonicalize().map_err(|error| unreadable(root, &error))?;
        Self::load(&root)
    }

    fn load(root: &Path) -> Result<Self, ProjectError> {
        Self::load_noting(root, None)
    }

    /// With `mistakes`, what is wrong in config.toml goes there, and it counts as not written.
    fn load_noting(root: &Path, mistakes: Option<&Mistakes>) -> Result<Self, ProjectError> {
        let path = root.join("config.toml");
        let Some(text) = read::inside(root, "config.toml")? else {
            return Err(ProjectError::NotAProject(root.to_owned()));
        };
        let mut config = config::parse(&path, &text, mistakes)?;
        if !config.written.check_alone(mistakes)? {
            // Its agents are not to blame.
            config.written = settings::Written::default();
        }
        let name = match &config.name {
            Some(found) if !agent::is_name(&found.value) => {
                let error = ProjectError::Content {
                    place: found.place.clone(),
                    what: format!("`projectName` {:?} is not a name", found.value),
                    hint: Some("lower-case letters and digits with single hyphens between, at most 64".to_owned()),
                };
                Mistakes::note(mistakes, error)?;
                None
            }
            found => found.as_ref().map(|found| found.value.clone()),
        };
        let name = name.unwrap_or_else(|| {
            root.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
        });
        Ok(Self { root: root.to_owned(), name, config })
    }

    /// Loads an agent by name (a folder of `agents/`) or by path (anything with a `/`, or `.`).
    ///
    /// # Errors
    /// [`ProjectError::UnknownAgent`] with near names, or what is wrong with its files.
    pub fn agent(&self, name_or_path: &str) -> Result<Agent, ProjectError> {
        self.agent_on(name_or_path, &[])
    }

    /// Loads an agent that is to think with these models of the project and not with its own, unless the list is empty.
    ///
    /// # Errors
    /// As [`Self::agent`], or [`ProjectError::Model`].
    pub fn agent_on(&self, name_or_path: &str, models: &[String]) -> Result<Agent, ProjectError> {
        if name_or_path.contains('/') || name_or_path == "." || name_or_path == ".." {
            let path = Path::new(name_or_path);
            let folder = path.canonicalize().map_err(|error| ProjectError::NotAnAgent {
                what: format!("{name_or_path}: {error}"),
                hint: "name an agent of agents/, or the path of an agent's folder".to_owned(),
            })?;
            return agent::load(self, &folder, models);
        }
        let folder = self.root.join("agents").join(name_or_path);
        if !name_or_path.is_empty() && folder.is_dir() {
            return agent::load(self, &folder, models);
        }
        Err(self.unknown(name_or_path))
    }

    /// What is said of an agent that the project does not have.
    pub(crate) fn unknown(&self, name: &str) -> ProjectError {
        let known = self.agent_names();
        let close = near(name, known.iter().map(String::as_str));
        ProjectError::UnknownAgent {
            project: self.root.clone(),
            name: name.to_owned(),
            near: if close.is_empty() { known.into_iter().take(20).collect() } else { close },
        }
    }

    /// The folder of the project that `start` is in: the folder itself or the nearest above, as for [`Project::find`].
    ///
    /// # Errors
    /// [`ProjectError::NoProject`], or `start` does not exist.
    pub fn root_of(start: &Path) -> Result<PathBuf, ProjectError> {
        let start = start.canonicalize().map_err(|error| unreadable(start, &error))?;
        root_of(&start).ok_or(ProjectError::NoProject(start))
    }

    /// The models of its config.toml.
    pub fn models(&self) -> impl Iterator<Item = &ModelSettings> {
        self.config.models.iter()
    }

    /// What its sessions share.
    pub fn fleet(&self) -> &FleetSettings {
        &self.config.fleet
    }

    /// How many sessions of each agent of `agents/` may run at once. An agent whose files are wrong counts like one that
    /// does not say: what is queued for it is to end with that error, and not to wait.
    pub fn agent_scales(&self) -> BTreeMap<String, u32> {
        let scale = |name: &String| self.agent(name).map_or(self.fleet().agent_scale, |agent| agent.settings.scale);
        self.agent_names().into_iter().map(|name| (name.clone(), scale(&name))).collect()
    }

    /// Names of the folders in `agents/` that are agents, sorted.
    pub fn agent_names(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.join("agents")) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| is_agent(&entry.path()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| agent::is_name(name))
            .collect();
        names.sort();
        names
    }
}

/// The nearest folder with a project's config.toml, from `start` upward.
fn root_of(start: &Path) -> Option<PathBuf> {
    let found = start.ancestors().find(|folder| folder.join("config.toml").exists() && !is_agent(folder));
    found.map(Path::to_owned)
}

/// True for a folder that says it is an agent's.
pub(crate) fn is_agent(folder: &Path) -> bool {
    folder.join("SKILL.md").exists() || folder.join("agent.yaml").exists()
}

/// The text of a file that the operator named in config.toml, at most `max_bytes` long.
pub(crate) fn read_named(path: &Path, max_bytes: u64) -> Result<String, ProjectError> {
    read::named(path, max_bytes)
}

fn unreadable(path: &Path, error: &std::io::Error) -> ProjectError {
    ProjectError::Unreadable { file: path.to_owned(), why: error.to_string() }
}
