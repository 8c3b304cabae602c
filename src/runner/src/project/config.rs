//! The project's config.toml: its models and the defaults of its agents.

use std::path::{Path, PathBuf};

use super::error::ProjectError;
use super::near::near;
use super::section::{Document, Found, Keys, Known, Section};
use super::settings::{PROJECT_LOCAL, Written};

const ROOT: Keys = &[
    ("models", Known::Read),
    ("local", Known::Read),
    ("bashTimeout", Known::Read),
    ("orphanGrace", Known::Read),
    ("maxTurns", Known::Read),
    ("maxTokens", Known::Read),
    ("projectName", Known::Read),
    ("scale", Known::Later),
    ("defaultAgentScale", Known::Later),
    ("maxCallDepth", Known::Later),
    ("workQueueSize", Known::Later),
    ("resourceLockTimeout", Known::Later),
    ("defaultWaitTimeout", Known::Later),
    ("maxSuspended", Known::Later),
    ("onCallerExit", Known::Later),
    ("historyRetentionDays", Known::Later),
    ("unattended", Known::Later),
    ("webhooks", Known::Later),
    ("notify", Known::Later),
    ("limits", Known::Later),
    ("gateway", Known::Later),
    ("telemetry", Known::Later),
];

/// All keys of a model are let through to [`model`], which names the provider first.
const MODEL: Keys = &[
    ("provider", Known::Read),
    ("file", Known::Read),
    ("model", Known::Read),
    ("authType", Known::Read),
    ("thinkingLevel", Known::Read),
    ("baseUrl", Known::Read),
];

/// Providers that the documentation names and that are not built yet.
const LATER_PROVIDERS: [&str; 7] = ["anthropic", "openai", "gemini", "google", "ollama", "openai-compatible", "custom"];

/// A model of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Its name in `[models.<name>]`.
    pub name: String,
    /// Where its turns come from.
    pub source: ModelSource,
}

/// Where a model's turns come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// `provider = "script"`: a file of turns.
    Script {
        /// The file.
        file: PathBuf,
    },
}

/// What config.toml says.
#[derive(Debug, Clone)]
pub(super) struct ProjectConfig {
    pub(super) models: Vec<ModelSettings>,
    pub(super) written: Written,
    pub(super) name: Option<Found<String>>,
}

pub(super) fn parse(path: &Path, text: &str) -> Result<ProjectConfig, ProjectError> {
    let document = Document::parse(path, text)?;
    let root = document.root(ROOT)?;
    let mut models = Vec::new();
    for (name, section) in root.tables("models", MODEL)? {
        models.push(model(path, name, &section)?);
    }
    let local = root.table("local", PROJECT_LOCAL)?;
    Ok(ProjectConfig {
        models,
        written: Written::read(&root, local.as_ref(), false)?,
        name: root.string("projectName")?,
    })
}

fn model(path: &Path, name: Found<String>, section: &Section<'_>) -> Result<ModelSettings, ProjectError> {
    let Some(provider) = section.string("provider")? else {
        let what = format!("`models.{}` has no `provider`", name.value);
        return Err(ProjectError::Content { place: name.place, what, hint: Some("provider = \"script\"".to_owned()) });
    };
    match provider.value.as_str() {
        "script" => {}
        later if LATER_PROVIDERS.contains(&later) => {
            return Err(ProjectError::Content {
                place: provider.place,
                what: format!("the provider `{later}` is not supported yet"),
                hint: Some("use `provider = \"script\"` with a `file` of turns".to_owned()),
            });
        }
        unknown => {
            let near = near(unknown, LATER_PROVIDERS.into_iter().chain(["script"]));
            return Err(ProjectError::Content {
                place: provider.place,
                what: format!("unknown provider {unknown:?}"),
                hint: Some(match near.first() {
                    Some(best) => format!("did you mean `{best}`?"),
                    None => "known: script".to_owned(),
                }),
            });
        }
    }
    for key in ["model", "authType", "thinkingLevel", "baseUrl"] {
        if let Some(found) = section.string(key)? {
            let what = format!("`models.{}.{key}` means nothing for the provider `script`", name.value);
            return Err(ProjectError::Content { place: found.place, what, hint: Some("remove it".to_owned()) });
        }
    }
    let Some(file) = section.string("file")? else {
        let what = format!("`models.{}` has no `file`", name.value);
        return Err(ProjectError::Content {
            place: name.place,
            what,
            hint: Some("file = \"script.json\", relative to this config.toml".to_owned()),
        });
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(ModelSettings { name: name.value, source: ModelSource::Script { file: folder.join(file.value) } })
}
