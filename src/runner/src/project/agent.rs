//! One agent's folder: SKILL.md and config.toml.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::config::ModelSettings;
use super::error::{Place, ProjectError};
use super::front_matter::{self, Skill};
use super::near::near;
use super::section::{Document, Found, Keys, Known};
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
    /// The model it thinks with.
    pub model: ModelSettings,
    /// What it runs with.
    pub settings: Settings,
}

/// True when `name` fits `^[a-z0-9]+(-[a-z0-9]+)*$` and has 1–64 characters.
pub(super) fn is_name(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.len() <= 64 && name.split('-').all(part)
}

/// Loads the agent in `folder`.
pub(super) fn load(project: &Project, folder: &Path) -> Result<Agent, ProjectError> {
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
    let model = choose_model(project, root.strings("models")?, &path)?;
    let params = root.free_table("params")?.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    Ok(Agent { name, folder: folder.to_owned(), skill, params, model, settings })
}

/// An agent without `models` takes the project's only model.
fn choose_model(
    project: &Project,
    models: Option<Found<Vec<String>>>,
    path: &Path,
) -> Result<ModelSettings, ProjectError> {
    let known = &project.config.models;
    let names = || known.iter().map(|model| format!("`{}`", model.name)).collect::<Vec<_>>().join(", ");
    let Some(models) = models else {
        return match known.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(ProjectError::Content {
                place: Place::file(project.root.join("config.toml")),
                what: "no model: there is no [models.<name>]".to_owned(),
                hint: Some("add one with `provider = \"script\"` and a `file` of turns".to_owned()),
            }),
            _ => Err(ProjectError::Content {
                place: Place::file(path),
                what: format!("`models` is missing and the project has several: {}", names()),
                hint: Some("name one, such as models = [\"…\"]".to_owned()),
            }),
        };
    };
    let [name] = models.value.as_slice() else {
        let what = if models.value.is_empty() {
            "`models` is empty".to_owned()
        } else {
            "`models` with more than one entry (falling back) is not supported yet".to_owned()
        };
        return Err(ProjectError::Content { place: models.place, what, hint: Some("name exactly one".to_owned()) });
    };
    known.iter().find(|model| model.name == *name).cloned().ok_or_else(|| ProjectError::Content {
        place: models.place,
        what: format!("`models` names {name:?}, which the project does not have"),
        hint: Some(match near(name, known.iter().map(|model| model.name.as_str())).first() {
            Some(best) => format!("did you mean `{best}`?"),
            None if known.is_empty() => "the project's config.toml has no [models.<name>]".to_owned(),
            None => format!("it has {}", names()),
        }),
    })
}
