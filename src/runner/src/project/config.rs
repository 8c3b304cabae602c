//! The project's config.toml: its models and the defaults of its agents.

use std::path::Path;

use super::error::ProjectError;
use super::fleet::{self, FleetSettings};
use super::mistakes::Mistakes;
use super::models::{self, ModelSettings};
use super::section::{Document, Found, Keys, Known};
use super::settings::{PROJECT_LOCAL, Written};

const ROOT: Keys = &[
    ("models", Known::Read),
    ("local", Known::Read),
    ("bashTimeout", Known::Read),
    ("orphanGrace", Known::Read),
    ("maxTurns", Known::Read),
    ("maxTokens", Known::Read),
    ("projectName", Known::Read),
    ("scale", Known::Read),
    ("defaultAgentScale", Known::Read),
    ("maxCallDepth", Known::Read),
    ("workQueueSize", Known::Read),
    ("resourceLockTimeout", Known::Read),
    ("defaultWaitTimeout", Known::Read),
    ("maxSuspended", Known::Read),
    ("onCallerExit", Known::Read),
    ("historyRetentionDays", Known::Read),
    ("timezone", Known::Read),
    ("webhooks", Known::Read),
    ("unattended", Known::Later),
    ("notify", Known::Later),
    ("limits", Known::Later),
    ("gateway", Known::Later),
    ("telemetry", Known::Later),
];

/// What config.toml says.
#[derive(Debug, Clone)]
pub(super) struct ProjectConfig {
    pub(super) models: Vec<ModelSettings>,
    pub(super) written: Written,
    pub(super) fleet: FleetSettings,
    pub(super) name: Option<Found<String>>,
}

/// With `mistakes`, what is wrong goes there; a model that is wrong then stands in for itself as a script without a file, so
/// that its agents are not blamed.
pub(super) fn parse(path: &Path, text: &str, mistakes: Option<&Mistakes>) -> Result<ProjectConfig, ProjectError> {
    let document = Document::parse(path, text, mistakes)?;
    let root = document.root(ROOT)?;
    let mut all = Vec::new();
    for (name, section) in root.tables("models", models::MODEL)? {
        let (stand_in, before) = (ModelSettings::broken(&name.value), mistakes.map(Mistakes::count));
        let read = models::read(path, name, &section)?;
        all.push(read.filter(|_| mistakes.map(Mistakes::count) == before).unwrap_or(stand_in));
    }
    let local = root.table("local", PROJECT_LOCAL)?;
    Ok(ProjectConfig {
        models: all,
        written: Written::read(&root, local.as_ref(), false)?,
        fleet: fleet::read(&root)?,
        name: root.string("projectName")?,
    })
}
