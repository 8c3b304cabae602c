//! One agent's folder: SKILL.md and config.toml.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{Place, ProjectError};
use super::front_matter::{self, Skill};
use super::models::{self, ModelSettings};
use super::section::{Document, Keys, Known};
use super::settings::{AGENT_LOCAL, Settings, Written};
use super::{Project, read};

const ROOT: Keys = &[
    ("models", Known::Read),
    ("params", Known::Read),
    ("local", Known::Read),
    ("timeout", Known::Read),
    ("bashTimeout", Known::Read),
    ("maxTurns", Known::Read),
    ("maxTokens", Known::Read),
    ("scale", Known::Later),
    ("maxWorkQueueSize", Known::Later),
    ("waitTimeout", Known::Later),
    ("onCallerExit", Known::Later),
    ("onSandboxLost", Known::Later),
    ("limits", Known::Later),
    ("credentials", Known::Later),
    ("schedule", Known::Later),
    ("webhooks", Known::Later),
    ("hooks", Known::Later),
    ("skills", Known::Later),
    ("tools", Known::Later),
    ("runtime", Known::Later),
    ("source", Known::Later),
];

/// An agent, loaded and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Its name: the folder's.
    pub name: String,
    /// Its folder, which is staged into the sandbox.
    pub folder: PathBuf,
    /// What SKILL.md says.
    pub skill: Skill,
    /// `params`: a JSON object for the prompt.
    pub params: Value,
    /// The models it thinks with: the first is asked, the others in their order when it fails. At least one.
    pub models: Vec<ModelSettings>,
    /// What it runs with.
    pub settings: Settings,
}

/// True when `name` fits `^[a-z0-9]+(-[a-z0-9]+)*$` and has 1–64 characters.
pub(super) fn is_name(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.len() <= 64 && name.split('-').all(part)
}

/// Loads the agent in `folder`; `instead` names models that it is to think with and not its own, unless it is empty.
pub(super) fn load(project: &Project, folder: &Path, instead: &[String]) -> Result<Agent, ProjectError> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if !is_name(&name) {
        return Err(ProjectError::NotAnAgent {
            what: format!("{} cannot be an agent: its name is {name:?}", folder.display()),
            hint: "names are lower-case letters and digits with single hyphens between, at most 64".to_owned(),
        });
    }
    let skill_path = folder.join("SKILL.md");
    let Some(text) = read::inside(folder, "SKILL.md")? else {
        let manifest = folder.join("agent.yaml");
        return Err(if manifest.exists() {
            ProjectError::NotAnAgent {
                what: format!("{}: manifests are not supported yet", manifest.display()),
                hint: "write a SKILL.md and a config.toml beside it".to_owned(),
            }
        } else {
            ProjectError::NotAnAgent {
                what: format!("{} is not an agent: it has no SKILL.md", folder.display()),
                hint: "write its instructions into SKILL.md".to_owned(),
            }
        });
    };
    let skill = front_matter::parse(&skill_path, &text)?;
    if let Some(other) = skill.name.as_ref().filter(|other| **other != name) {
        return Err(ProjectError::Content {
            place: Place::file(skill_path),
            what: format!("`name` is {other:?}, but the folder is {name:?}"),
            hint: Some("make them equal, or drop `name`".to_owned()),
        });
    }
    if skill.body.is_empty() {
        return Err(ProjectError::Content {
            place: Place::file(skill_path),
            what: "has no instructions".to_owned(),
            hint: Some("write below the front matter what the agent is to do".to_owned()),
        });
    }
    let path = folder.join("config.toml");
    let text = read::inside(folder, "config.toml")?.unwrap_or_default();
    let document = Document::parse(&path, &text)?;
    let root = document.root(ROOT)?;
    let local = root.table("local", AGENT_LOCAL)?;
    let settings = Written::read(&root, local.as_ref(), true)?.over(&project.config.written)?;
    let written = root.strings("models")?;
    let known = &project.config.models;
    let models = match instead {
        [] => models::choose(known, &project.root, written, &path)?,
        list => models::override_with(known, list)?,
    };
    let params = root.free_table("params")?.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    Ok(Agent { name, folder: folder.to_owned(), skill, params, models, settings })
}
