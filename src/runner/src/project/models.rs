//! The project's models, and which of them an agent thinks with.

use std::path::{Path, PathBuf};

use super::base_url;
use super::error::{Place, ProjectError};
use super::near::near;
use super::provider::{Provider, ProviderSettings, ThinkingLevel};
use super::section::{Found, Keys, Known, Section};

/// The keys of a model. Which of them mean something depends on the provider.
pub(super) const MODEL: Keys = &[
    ("provider", Known::Read),
    ("model", Known::Read),
    ("file", Known::Read),
    ("authType", Known::Read),
    ("thinkingLevel", Known::Read),
    ("baseUrl", Known::Read),
    ("apiKey", Known::Never),
    ("api_key", Known::Never),
    ("token", Known::Never),
    ("key", Known::Never),
];

/// The provider whose turns are in a file.
const SCRIPT: &str = "script";

/// Other products' names of providers, and ours.
const ALIASES: [(&str, &str); 6] = [
    ("claude", "anthropic"),
    ("gemini", "google"),
    ("vertex", "google"),
    ("grok", "xai"),
    ("openai-compatible", "custom"),
    ("local", "ollama"),
];

/// Longest name of a model in characters.
const MODEL_LENGTH: usize = 200;

/// A model of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Its name in `[models.<name>]`.
    pub name: String,
    /// Where its turns come from.
    pub source: ModelSource,
}

impl ModelSettings {
    /// In place of a model whose settings are wrong: a script without a file.
    pub(super) fn broken(name: &str) -> Self {
        Self { name: name.to_owned(), source: ModelSource::Script { file: PathBuf::new() } }
    }

    /// True for what [`ModelSettings::broken`] made.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(&self.source, ModelSource::Script { file } if file.as_os_str().is_empty())
    }
}

/// Where a model's turns come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// `provider = "script"`: a file of turns.
    Script {
        /// The file.
        file: PathBuf,
    },
    /// A language model.
    Provider(ProviderSettings),
}

/// Reads `[models.<name>]` of the file `path`; none when something was put among the mistakes that leaves no model.
pub(super) fn read(
    path: &Path,
    name: Found<String>,
    section: &Section<'_>,
) -> Result<Option<ModelSettings>, ProjectError> {
    let written = section.string("provider")?;
    refuse_keys(&name.value, written.as_ref(), section)?;
    let Some(written) = written else {
        missing(section, &name, "provider", "provider = \"anthropic\", or another of the providers")?;
        return Ok(None);
    };
    let source = if written.value == SCRIPT {
        script(path, &name, section)?
    } else if let Some(provider) = section.keep(find_provider(&written))? {
        language_model(&name, provider, section)?.map(ModelSource::Provider)
    } else {
        None
    };
    Ok(source.map(|source| ModelSettings { name: name.value, source }))
}

/// Refuses a provider's key that stands in the project, and never repeats it.
fn refuse_keys(name: &str, written: Option<&Found<String>>, section: &Section<'_>) -> Result<(), ProjectError> {
    let provider = written.and_then(|written| find_provider(written).ok());
    let (variable, folder) = match provider {
        Some(provider) => (provider.key_variable().to_owned(), provider.name()),
        None => ("the provider's variable, such as ANTHROPIC_API_KEY,".to_owned(), "<provider>"),
    };
    for (key, _) in MODEL.iter().filter(|(_, known)| *known == Known::Never) {
        let Some(place) = section.place_of_key(key) else { continue };
        let what = format!("`models.{name}.{key}`: keys never stand in a project");
        let file = format!("~/.config/runner/credentials/{folder}_key/default/token");
        let hint = Some(format!("remove it, and put the key into {variable} or into {file} (mode 0600)"));
        section.note(ProjectError::Content { place, what, hint })?;
    }
    Ok(())
}

/// Says that a key is missing, unless what was written in its place is a mistake already.
fn missing(section: &Section<'_>, name: &Found<String>, key: &str, hint: &str) -> Result<(), ProjectError> {
    if section.was_meant(key) {
        return Ok(());
    }
    section.note(ProjectError::Content {
        place: name.place.clone(),
        what: format!("`models.{}` has no `{key}`", name.value),
        hint: Some(hint.to_owned()),
    })
}

/// Refuses keys that mean nothing for this provider.
fn refuse(section: &Section<'_>, name: &str, keys: &[&str], provider: &str) -> Result<(), ProjectError> {
    for key in keys {
        if let Some(place) = section.place_of(key) {
            let what = format!("`models.{name}.{key}` means nothing for the provider `{provider}`");
            section.note(ProjectError::Content { place, what, hint: Some("remove it".to_owned()) })?;
        }
    }
    Ok(())
}

fn script(path: &Path, name: &Found<String>, section: &Section<'_>) -> Result<Option<ModelSource>, ProjectError> {
    refuse(section, &name.value, &["model", "authType", "thinkingLevel", "baseUrl"], SCRIPT)?;
    let Some(file) = section.string("file")? else {
        missing(section, name, "file", "file = \"script.json\", relative to this config.toml")?;
        return Ok(None);
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(Some(ModelSource::Script { file: folder.join(file.value) }))
}

fn find_provider(written: &Found<String>) -> Result<Provider, ProjectError> {
    let names = || Provider::ALL.into_iter().map(Provider::name).chain([SCRIPT]);
    if let Some(provider) = Provider::ALL.into_iter().find(|provider| provider.name() == written.value) {
        return Ok(provider);
    }
    let alias = ALIASES.iter().find(|(other, _)| *other == written.value.to_lowercase());
    let meant = match alias {
        Some((_, ours)) => Some((*ours).to_owned()),
        None => near(&written.value, names()).into_iter().next(),
    };
    Err(ProjectError::Content {
        place: written.place.clone(),
        what: format!("unknown provider {:?}", short(&written.value)),
        hint: Some(match meant {
            Some(best) => format!("did you mean `{best}`?"),
            None => format!("known: {}", names().collect::<Vec<_>>().join(", ")),
        }),
    })
}

fn language_model(
    name: &Found<String>,
    provider: Provider,
    section: &Section<'_>,
) -> Result<Option<ProviderSettings>, ProjectError> {
    refuse(section, &name.value, &["file"], provider.name())?;
    section.keep(check_auth_type(name, provider, section))?;
    let level = section.string("thinkingLevel")?.map(|level| find_level(name, &level)).transpose();
    let thinking = section.keep(level)?.flatten();
    let url = section.string("baseUrl")?.map(|url| base_url::check(&name.value, provider, &url)).transpose();
    let base_url = section.keep(url)?.flatten();
    if provider == Provider::Custom && base_url.is_none() {
        let hint = "baseUrl = \"https://…/v1\", where the server answers OpenAI's chat format";
        missing(section, name, "baseUrl", hint)?;
    }
    let Some(model) = section.string("model")? else {
        missing(section, name, "model", &format!("model = \"…\", {provider}'s own name of it"))?;
        return Ok(None);
    };
    // It goes into URLs and request bodies: one word without what has a meaning in a URL.
    let harmless = |c: char| c.is_ascii_graphic() && !"?#%\\\"<>".contains(c);
    let length = model.value.chars().count();
    if length == 0 || length > MODEL_LENGTH || !model.value.chars().all(harmless) || model.value.contains("..") {
        let what = format!("`models.{}.model` is not a usable name: {:?}", name.value, short(&model.value));
        let hint = format!("1–{MODEL_LENGTH} characters as {provider} lists it, without spaces");
        section.note(ProjectError::Content { place: model.place.clone(), what, hint: Some(hint) })?;
    }
    Ok(Some(ProviderSettings { provider, model: model.value, thinking, base_url }))
}

fn check_auth_type(name: &Found<String>, provider: Provider, section: &Section<'_>) -> Result<(), ProjectError> {
    const KEY: &str = "api_key";
    const UNSUPPORTED: [&str; 2] = ["pi_auth", "oauth_token"];
    let Some(written) = section.string("authType")? else { return Ok(()) };
    let value = written.value.as_str();
    if value == KEY {
        return Ok(());
    }
    let (what, hint) = if UNSUPPORTED.contains(&value) {
        (
            format!("`models.{}.authType` {value:?} is not supported", name.value),
            format!("use authType = \"{KEY}\" with a key in {}", provider.key_variable()),
        )
    } else {
        let hint = match near(value, UNSUPPORTED.into_iter().chain([KEY])).first() {
            Some(best) if best == KEY => format!("did you mean `{KEY}`?"),
            _ => format!("known: {KEY}"),
        };
        (format!("`models.{}.authType` must be \"{KEY}\", not {:?}", name.value, short(value)), hint)
    };
    Err(ProjectError::Content { place: written.place, what, hint: Some(hint) })
}

fn find_level(name: &Found<String>, written: &Found<String>) -> Result<ThinkingLevel, ProjectError> {
    if let Some(level) = ThinkingLevel::ALL.into_iter().find(|level| level.name() == written.value) {
        return Ok(level);
    }
    let names = || ThinkingLevel::ALL.into_iter().map(ThinkingLevel::name);
    let all = names().collect::<Vec<_>>().join(", ");
    Err(ProjectError::Content {
        place: written.place.clone(),
        what: format!("`models.{}.thinkingLevel` must be one of {all}, not {:?}", name.value, short(&written.value)),
        hint: near(&written.value, names()).first().map(|best| format!("did you mean `{best}`?")),
    })
}

/// The models of an agent that wrote `list` in the file `path`: the first is asked, the others are for when it fails. An
/// agent without a list takes the project's only model.
pub(super) fn choose(
    known: &[ModelSettings],
    project: &Path,
    list: Option<Found<Vec<Found<String>>>>,
    path: &Path,
) -> Result<Vec<ModelSettings>, ProjectError> {
    let Some(list) = list else {
        return match known {
            [only] => Ok(vec![only.clone()]),
            [] => Err(ProjectError::Content {
                place: Place::file(project.join("config.toml")),
                what: "no model: there is no [models.<name>]".to_owned(),
                hint: Some(
                    "add one with a `provider` and its `model`, or `provider = \"script\"` and a `file`".to_owned(),
                ),
            }),
            _ => Err(ProjectError::Content {
                place: Place::file(path),
                what: format!("`models` is missing and the project has several: {}", names(known)),
                hint: Some(format!("name at least one, such as models = [{:?}]", known[0].name)),
            }),
        };
    };
    if list.value.is_empty() {
        let hint = "name at least one, or remove `models` to take the project's only model".to_owned();
        return Err(ProjectError::Content {
            place: list.place,
            what: "`models` is empty".to_owned(),
            hint: Some(hint),
        });
    }
    let written: Vec<&str> = list.value.iter().map(|name| name.value.as_str()).collect();
    named(known, &written).map_err(|(at, what, hint)| ProjectError::Content {
        place: list.value[at].place.clone(),
        what: format!("`models` {what}"),
        hint: Some(hint),
    })
}

/// The models that a command line names instead of the agent's.
pub(super) fn override_with(known: &[ModelSettings], list: &[String]) -> Result<Vec<ModelSettings>, ProjectError> {
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    named(known, &list).map_err(|(_, what, hint)| ProjectError::Model { what: format!("--model {what}"), hint })
}

/// The models with these names, each once; else which name is wrong, why, and what to do.
fn named(known: &[ModelSettings], list: &[&str]) -> Result<Vec<ModelSettings>, (usize, String, String)> {
    let mut chosen = Vec::new();
    for (at, name) in list.iter().enumerate() {
        if list[..at].contains(name) {
            let hint = "name each once: a model that failed is not asked again in the same turn".to_owned();
            return Err((at, format!("names {name:?} twice"), hint));
        }
        let Some(model) = known.iter().find(|model| model.name == *name) else {
            let hint = match near(name, known.iter().map(|model| model.name.as_str())).first() {
                Some(best) => format!("did you mean `{best}`?"),
                None if known.is_empty() => "the project's config.toml has no [models.<name>]".to_owned(),
                None => format!("it has {}", names(known)),
            };
            return Err((at, format!("names {:?}, which the project does not have", short(name)), hint));
        };
        chosen.push(model.clone());
    }
    Ok(chosen)
}

fn names(known: &[ModelSettings]) -> String {
    known.iter().map(|model| format!("`{}`", model.name)).collect::<Vec<_>>().join(", ")
}

/// What was written, for a message.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
