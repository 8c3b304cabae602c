//! Is a project right? What its files say, and what they name: scripts, keys, images.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::model::{self, OpenError, credentials};
use crate::project::{
    Checked, ModelSettings, ModelSource, Project, ProjectError, check_agent, check_project, is_agent,
};
use crate::sandbox::engine::{Engine, EngineError};
use crate::tools::Registry;

/// Something about a project that somebody should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// It cannot work like this; else it may work elsewhere, or later.
    pub is_error: bool,
    /// The file or folder.
    pub file: PathBuf,
    /// Line and column, both from 1.
    pub position: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// What was found out about a project.
#[derive(Debug)]
pub struct Verdict {
    /// The project's folder.
    pub root: PathBuf,
    /// How many agents were looked at.
    pub agents: usize,
    /// All that is to be said: mistakes by file, then what the files name.
    pub complaints: Vec<Complaint>,
}

/// Looks at the project or the agent at `path`, else at the project that the working directory is in.
///
/// # Errors
/// There is none.
pub async fn validate(path: Option<&Path>) -> Result<Verdict, ProjectError> {
    // Who names a project's or an agent's file means its folder.
    let path = match path {
        Some(path) if path.is_file() => match path.file_name().and_then(|name| name.to_str()) {
            Some("config.toml" | "SKILL.md") => Some(folder_of(path)),
            _ => {
                return Err(ProjectError::NotAnAgent {
                    what: format!("{} is a file", path.display()),
                    hint: "name the folder of a project or of an agent".to_owned(),
                });
            }
        },
        path => path,
    };
    let (root, checked) = match path {
        Some(path) if is_agent(path) => (Project::root_of(path)?, check_agent(path)?),
        path => {
            let root = match path {
                Some(path) => path.to_owned(),
                None => Project::root_of(Path::new("."))?,
            };
            let checked = check_project(&root)?;
            (root, checked)
        }
    };
    let config = root.join("config.toml");
    let mut complaints: Vec<Complaint> = checked.mistakes.iter().map(|(file, error)| mistake(file, error)).collect();
    complaints.extend(unwritten(&root, &checked));
    complaints.extend(models(&checked).into_iter().flat_map(|model| about_model(&config, model)));
    complaints.extend(about_images(&config, &checked).await);
    Ok(Verdict { root, agents: checked.looked_at, complaints })
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn mistake(file: &Path, error: &ProjectError) -> Complaint {
    let place = error.place();
    Complaint {
        is_error: true,
        position: place.as_ref().and_then(|place| place.position),
        file: place.map_or_else(|| file.to_owned(), |place| place.file),
        message: error.what(),
        hint: error.hint(),
    }
}

/// What is still to be written: a first agent, and the instructions of fresh ones.
fn unwritten(root: &Path, checked: &Checked) -> Vec<Complaint> {
    let warning = |file: PathBuf, message: &str, hint: &str| Complaint {
        is_error: false,
        file,
        position: None,
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
    };
    if checked.looked_at == 0 {
        return vec![warning(root.join("agents"), "there is no agent", "make one: `runner new <name>`")];
    }
    let untouched = checked.agents.iter().filter(|agent| agent.skill.is_untouched());
    let about = |folder: &Path| {
        let message = "has the instructions that `runner new` wrote";
        warning(folder.join("SKILL.md"), message, "write what the agent is to do")
    };
    untouched.map(|agent| about(&agent.folder)).collect()
}

/// The models that can be looked at, each once: the project's, and what an agent took from elsewhere.
fn models(checked: &Checked) -> Vec<&ModelSettings> {
    let of_project = checked.project.iter().flat_map(Project::models);
    let mut all: Vec<&ModelSettings> = Vec::new();
    for model in of_project.chain(checked.agents.iter().flat_map(|agent| &agent.models)) {
        if !all.contains(&model) && !model.is_broken() {
            all.push(model);
        }
    }
    all
}

/// A script must be there and be one; a key may be on another machine.
fn about_model(config: &Path, model: &ModelSettings) -> Vec<Complaint> {
    let complaint = |is_error, file: &Path, message, hint| {
        vec![Complaint { is_error, file: file.to_owned(), position: None, message, hint }]
    };
    match &model.source {
        ModelSource::Script { file } => match model::doubts(file, &Registry::session().names()) {
            Ok(doubts) => {
                doubts.into_iter().flat_map(|doubt| complaint(doubt.is_error, file, doubt.what, doubt.hint)).collect()
            }
            Err(OpenError::Script { file, position, why }) => {
                vec![Complaint { is_error: true, file, position, message: why, hint: None }]
            }
            Err(OpenError::File(error)) => {
                let hint = format!("`models.{}.file` in config.toml names it, relative to that file", model.name);
                complaint(true, file, error.what(), Some(hint))
            }
            Err(other) => complaint(true, config, other.to_string(), None),
        },
        ModelSource::Provider(settings) => {
            let provider = settings.provider;
            match credentials::find(provider) {
                Ok(None) if provider.needs_key() => {
                    let (variable, file) = (provider.key_variable(), credentials::file_of(provider));
                    let hint = format!("set {variable}, or write it to {} (mode 0600)", file.display());
                    let message = format!("the model `{}` has no key of {provider} on this machine", model.name);
                    complaint(false, config, message, Some(hint))
                }
                Ok(_) => Vec::new(),
                Err(error) => complaint(false, config, error.to_string(), None),
            }
        }
    }
}

/// Images that this machine's engine does not have, or that cannot hold a sandbox. Without an engine nothing is said:
/// projects are checked on machines that run none of them.
async fn about_images(config: &Path, checked: &Checked) -> Vec<Complaint> {
    let images: BTreeSet<&str> = checked.agents.iter().map(|agent| agent.settings.image.as_str()).collect();
    let mut complaints = Vec::new();
    if images.is_empty() {
        return complaints;
    }
    let Ok(engine) = Engine::connect(None).await else { return complaints };
    for image in images {
        let Err(error) = engine.image(image).await else { continue };
        let agents = checked.agents.iter().filter(|agent| agent.settings.image == image);
        let agents: Vec<&str> = agents.map(|agent| agent.name.as_str()).collect();
        let (is_error, message, hint) = match error {
            EngineError::NoImage { reference, remedy } => {
                let message = format!("image {reference} of {} is not on this machine's engine", agents.join(", "));
                (false, message, Some(remedy))
            }
            refused @ EngineError::ImageRefused { .. } => (true, refused.to_string(), None),
            other => (false, other.to_string(), None),
        };
        complaints.push(Complaint { is_error, file: config.to_owned(), position: None, message, hint });
    }
    complaints
}
