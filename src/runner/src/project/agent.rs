//! One agent's folder: SKILL.md and config.toml.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{Place, ProjectError};
use super::front_matter::{self, Skill};
use super::mistakes::Mistakes;
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
    ("scale", Known::Read),
    ("maxWorkQueueSize", Known::Read),
    ("waitTimeout", Known::Read),
    ("onCallerExit", Known::Read),
    ("onSandboxLost", Known::Read),
    ("schedule", Known::Read),
    ("timezone", Known::Read),
    ("limits", Known::Later),
    ("credentials", Known::Later),
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
    let name = name_of(folder)?;
    let skill = skill(folder, &name)?;
    let config = config(project, folder, instead, None)?.expect("without mistakes to go on with, there is an error");
    Ok(config.of(name, folder, skill))
}

/// Loads the agent in `folder` and collects all that is wrong with it; `None` when something is.
pub(super) fn check(project: &Project, folder: &Path, mistakes: &Mistakes) -> Result<Option<Agent>, ProjectError> {
    let noted = Some(mistakes);
    let before = mistakes.count();
    let Some(name) = Mistakes::keep(noted, name_of(folder))? else { return Ok(None) };
    let skill = Mistakes::keep(noted, skill(folder, &name))?;
    let config = Mistakes::keep(noted, config(project, folder, &[], noted))?.flatten();
    match (skill, config) {
        (Some(skill), Some(config)) if mistakes.count() == before => Ok(Some(config.of(name, folder, skill))),
        _ => Ok(None),
    }
}

fn name_of(folder: &Path) -> Result<String, ProjectError> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if is_name(&name) {
        return Ok(name);
    }
    Err(ProjectError::Content {
        place: Place::file(folder),
        what: format!("cannot be an agent: its name is {name:?}"),
        hint: Some("names are lower-case letters and digits with single hyphens between, at most 64".to_owned()),
    })
}

/// Reads SKILL.md.
fn skill(folder: &Path, name: &str) -> Result<Skill, ProjectError> {
    let path = folder.join("SKILL.md");
    let Some(text) = read::inside(folder, "SKILL.md")? else {
        return Err(without_skill(folder));
    };
    let skill = front_matter::parse(&path, &text)?;
    if let Some(other) = skill.name.as_ref().filter(|other| *other != name) {
        return Err(ProjectError::Content {
            place: Place::file(path),
            what: format!("`name` is {other:?}, but the folder is {name:?}"),
            hint: Some("make them equal, or drop `name`".to_owned()),
        });
    }
    if skill.body.is_empty() {
        return Err(ProjectError::Content {
            place: Place::file(path),
            what: "has no instructions".to_owned(),
            hint: Some("write below the front matter what the agent is to do".to_owned()),
        });
    }
    Ok(skill)
}

/// Why a folder without SKILL.md is no agent.
fn without_skill(folder: &Path) -> ProjectError {
    let manifest = folder.join("agent.yaml");
    let names = || std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let misspelt =
        names().filter_map(|name| name.into_string().ok()).find(|name| name.eq_ignore_ascii_case("SKILL.md"));
    let (place, what, hint) = if let Some(name) = misspelt {
        let hint = format!("rename it: mv {name} SKILL.md");
        (Place::file(folder), format!("is not an agent: `{name}` is not SKILL.md"), hint)
    } else if manifest.exists() {
        let hint = "write a SKILL.md and a config.toml beside it".to_owned();
        (Place::file(manifest), "manifests are not supported yet".to_owned(), hint)
    } else {
        let hint = "write its instructions into SKILL.md".to_owned();
        (Place::file(folder), "is not an agent: it has no SKILL.md".to_owned(), hint)
    };
    ProjectError::Content { place, what, hint: Some(hint) }
}

/// What an agent's config.toml says.
struct Config {
    params: Value,
    models: Vec<ModelSettings>,
    settings: Settings,
}

impl Config {
    fn of(self, name: String, folder: &Path, skill: Skill) -> Agent {
        let Self { params, models, settings } = self;
        Agent { name, folder: folder.to_owned(), skill, params, models, settings }
    }
}

/// Reads config.toml; with `mistakes`, what is wrong goes there, and nothing is returned when that is all there is.
fn config(
    project: &Project,
    folder: &Path,
    instead: &[String],
    mistakes: Option<&Mistakes>,
) -> Result<Option<Config>, ProjectError> {
    let path = folder.join("config.toml");
    let text = read::inside(folder, "config.toml")?.unwrap_or_default();
    let document = Document::parse(&path, &text, mistakes)?;
    let root = document.root(ROOT)?;
    let local = root.table("local", AGENT_LOCAL)?;
    let settings =
        Written::read(&root, local.as_ref(), true)?.over(&project.config.written, &project.config.fleet, mistakes)?;
    let known = &project.config.models;
    let chosen = match instead {
        [] => root.strings("models").and_then(|written| models::choose(known, &project.root, written, &path)),
        list => models::override_with(known, list),
    };
    let models = Mistakes::keep(mistakes, chosen)?;
    let params = root.free_table("params")?.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    Ok(settings.zip(models).map(|(settings, models)| Config { params, models, settings }))
}
