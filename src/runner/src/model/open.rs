//! From settings to a model that can be asked: files read, keys found, retries and fallback around it.

use std::path::{Path, PathBuf};

use super::credentials::{self, CredentialError};
use super::fallback::{Entry, Fallback};
use super::retry::Retrying;
use super::script::{Doubt, ScriptModel};
use super::{Model, provider};
use crate::project::{ModelSettings, ModelSource, Provider, ProviderSettings};

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its file cannot be read.
    #[error(transparent)]
    File(#[from] crate::project::ProjectError),
    /// Its file says something that cannot be.
    #[error("{}{}: {why}", file.display(), position.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default())]
    Script {
        /// The file.
        file: PathBuf,
        /// Line and column, both from 1, when it is no JSON or not that of a script.
        position: Option<(usize, usize)>,
        /// What is wrong, else with the turn's number.
        why: String,
    },
    /// A provider's model cannot be asked.
    #[error("the model `{name}` cannot be asked: {source}")]
    Model {
        /// Its name in the project.
        name: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// A key that is there cannot be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The provider wants a key and there is none.
    #[error("there is no key for {provider}")]
    NoKey {
        /// The provider.
        provider: Provider,
    },
    /// The key cannot be sent.
    #[error("the key of {provider} holds characters that no header can; was it copied whole?")]
    KeyCharacters {
        /// The provider.
        provider: Provider,
    },
    /// The provider's address cannot be used.
    #[error("`baseUrl` of a model of {provider} cannot be used: {why}")]
    BaseUrl {
        /// The provider.
        provider: Provider,
        /// What is wrong with it.
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
            Self::Model { source, .. } => source.hint(),
            Self::NoKey { provider } => Some(format!(
                "set {}, or write the key to {} with mode 0600",
                provider.key_variable(),
                credentials::file_of(*provider).display()
            )),
            Self::Script { .. } | Self::Credential(_) | Self::KeyCharacters { .. } | Self::BaseUrl { .. } => None,
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
            provider_entry(&name, wanted).map_err(|source| OpenError::Model { name, source: Box::new(source) })
        }
    }
}

fn provider_entry(name: &str, settings: &ProviderSettings) -> Result<Entry, OpenError> {
    // No key goes in plain text over a network, whatever the environment holds.
    let found = if settings.keeps_secrets() { credentials::find(settings.provider)? } else { None };
    if let Some(found) = &found {
        tracing::debug!(model = name, origin = %found.origin, "a key was found");
    }
    let key = found.map(|found| found.secret);
    let model = provider::open(settings, key.clone())?;
    let identity = format!("{}/{}", settings.provider, settings.model);
    Ok(Entry { name: name.to_owned(), identity, model: Box::new(Retrying::new(model)), key })
}

fn open_script(file: &Path) -> Result<ScriptModel, OpenError> {
    /// A recorded session with large results is megabytes; more than this is a mistake.
    const MAX_BYTES: u64 = 64 * 1024 * 1024;
    let text = crate::project::read_named(file, MAX_BYTES)?;
    ScriptModel::parse(&text).map_err(|why| {
        let (why, position) = split_position(&why);
        OpenError::Script { file: file.to_owned(), position, why: why.to_owned() }
    })
}

/// What the script in `file` says that is hardly meant; `tools` are the names of those there are.
///
/// # Errors
/// [`OpenError`] when it is missing or wrong.
pub(crate) fn doubts(file: &Path, tools: &[&str]) -> Result<Vec<Doubt>, OpenError> {
    Ok(open_script(file)?.doubts(tools))
}

/// Takes the place off a message of the JSON parser, which ends in ` at line 1 column 17`.
fn split_position(why: &str) -> (&str, Option<(usize, usize)>) {
    let split = || {
        let (message, place) = why.rsplit_once(" at line ")?;
        let (line, column) = place.split_once(" column ")?;
        Some((message, (line.parse().ok()?, column.parse().ok()?)))
    };
    split().map_or((why, None), |(message, position)| (message, Some(position)))
}

#[cfg(test)]
mod tests {
    use super::split_position;

    #[test]
    fn a_place_at_the_end_is_a_position() {
        assert_eq!(split_position("unknown field `x` at line 3 column 17"), ("unknown field `x`", Some((3, 17))));
        for plain in ["turn 2: no", "odd at line x column 1", "odd at line 1", ""] {
            assert_eq!(split_position(plain), (plain, None));
        }
    }
}
