//! From settings to a model that can be asked: files read, keys found, retries and fallback around it.

use std::path::{Path, PathBuf};

use super::Model;
use super::credentials::{self, CredentialError};
use super::fallback::{Entry, Fallback};
use super::retry::Retrying;
use super::script::ScriptModel;
use crate::project::{ModelSettings, ModelSource, Provider, ProviderSettings};

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its file cannot be read.
    #[error(transparent)]
    File(#[from] crate::project::ProjectError),
    /// Its file says something that cannot be.
    #[error("{}: {why}", file.display())]
    Script {
        /// The file.
        file: PathBuf,
        /// What is wrong and where.
        why: String,
    },
    /// Its key is there and cannot be used.
    #[error("the model `{name}` cannot be asked: {source}")]
    Key {
        /// Its name in the project.
        name: String,
        /// Why.
        source: CredentialError,
    },
    /// It needs a key and there is none.
    #[error("the model `{name}` cannot be asked: there is no key for {provider}")]
    NoKey {
        /// Its name in the project.
        name: String,
        /// Who would need it.
        provider: Provider,
    },
    /// There is nothing that could ask it.
    #[error("the model `{name}` cannot be asked: {why}")]
    Client {
        /// Its name in the project, or its provider.
        name: String,
        /// Why.
        why: String,
    },
}

impl OpenError {
    /// What the person can do about it, when the message does not say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(_) => {
                Some("the model's `file` in config.toml names it, relative to that config.toml".to_owned())
            }
            Self::NoKey { provider, .. } => Some(format!(
                "set {}, or write the key to {} with mode 0600",
                provider.key_variable(),
                credentials::file_of(*provider).display()
            )),
            Self::Script { .. } | Self::Key { .. } | Self::Client { .. } => None,
        }
    }
}

/// Opens the models of these settings, of which there is at least one: the first is asked, and when it fails the next.
///
/// # Errors
/// [`OpenError`] when a script is missing or wrong, or a key; also of a model that would only be asked later, because
/// then it is too late to do something about it.
pub fn open(settings: &[ModelSettings]) -> Result<Box<dyn Model>, OpenError> {
    Ok(Box::new(Fallback::new(settings.iter().map(entry).collect::<Result<_, _>>()?)))
}

fn entry(settings: &ModelSettings) -> Result<Entry, OpenError> {
    let name = settings.name.clone();
    match &settings.source {
        ModelSource::Script { file } => {
            let model = open_script(file)?.named(&name);
            let identity = model.identity().to_owned();
            Ok(Entry { name, identity, model: Box::new(Retrying::new(model)), key: None })
        }
        ModelSource::Provider(wanted) => {
            let key = key(&name, wanted)?;
            let identity = format!("{}/{}", wanted.provider, wanted.model);
            let _ = (identity, key);
            Err(OpenError::Client { name, why: format!("this runner does not speak to {} yet", wanted.provider) })
        }
    }
}

/// The key that is sent to this provider. None goes in plain text over a network, whatever the environment holds.
fn key(name: &str, settings: &ProviderSettings) -> Result<Option<secrecy::SecretString>, OpenError> {
    let provider = settings.provider;
    if !settings.keeps_secrets() {
        return Ok(None);
    }
    let found = credentials::find(provider).map_err(|source| OpenError::Key { name: name.to_owned(), source })?;
    match found {
        Some(found) => {
            tracing::debug!(model = name, origin = %found.origin, "a key was found");
            Ok(Some(found.secret))
        }
        None if provider.needs_key() => Err(OpenError::NoKey { name: name.to_owned(), provider }),
        None => Ok(None),
    }
}

fn open_script(file: &Path) -> Result<ScriptModel, OpenError> {
    /// A recorded session with large results is megabytes; more than this is a mistake.
    const MAX_BYTES: u64 = 64 * 1024 * 1024;
    let text = crate::project::read_named(file, MAX_BYTES)?;
    ScriptModel::parse(&text).map_err(|why| OpenError::Script { file: file.to_owned(), why })
}
