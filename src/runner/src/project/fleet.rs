//! What a project says of its sessions together: how many, how deep, how long, and where events come from.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::error::{Place, ProjectError};
use super::near::near;
use super::schedule;
use super::section::{Found, Keys, Known, Section};
use crate::duration;

/// Most seconds of a wait: 30 days.
pub const MAX_WAIT: Duration = Duration::from_hours(30 * 24);

/// The keys of a source of webhooks.
const SOURCE: Keys =
    &[("type", Known::Read), ("credential", Known::Later), ("allowUnsigned", Known::Later), ("path", Known::Later)];

/// What sessions of a project share, with every default.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetSettings {
    /// `scale`: call trees that may run at once; no limit when absent.
    pub scale: Option<u32>,
    /// `defaultAgentScale`: sessions of an agent that may run at once, when it does not say.
    pub agent_scale: u32,
    /// `maxCallDepth`: calls below a root.
    pub max_call_depth: u32,
    /// `resourceLockTimeout`: time of a lock that names none.
    pub lock_timeout: Duration,
    /// `maxSuspended`: most waiting sessions.
    pub max_suspended: u32,
    /// `historyRetentionDays`: how long what is over is kept.
    pub history: Duration,
    /// `webhooks`: where events come from, by name.
    pub sources: Vec<WebhookSource>,
    /// `timezone`: of schedules whose agent names none.
    pub(super) zone: TimeZone,
}

/// A source of events from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSource {
    /// Its name in `[webhooks.<name>]`.
    pub name: String,
    /// What its events look like.
    pub provider: WebhookProvider,
}

/// Who sends events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WebhookProvider {
    /// GitHub.
    Github,
    /// Sentry.
    Sentry,
    /// Linear.
    Linear,
    /// Mintlify.
    Mintlify,
    /// Anybody else: a JSON object whose members are taken as they are named.
    Generic,
}

impl WebhookProvider {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Github, Self::Sentry, Self::Linear, Self::Mintlify, Self::Generic];

    /// Its name in files and in `source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Sentry => "sentry",
            Self::Linear => "linear",
            Self::Mintlify => "mintlify",
            Self::Generic => "generic",
        }
    }

    /// The provider of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == name)
    }
}

/// What happens to the running calls of a session that fails or is ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnCallerExit {
    /// They are stopped too.
    #[default]
    Cancel,
    /// They go on.
    Detach,
}

/// What happens to a session whose container is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnSandboxLost {
    /// It ends.
    #[default]
    Fail,
    /// It begins again in a new container.
    Restart,
}

/// Reads what stands at the root of a project's file.
pub(super) fn read(root: &Section<'_>) -> Result<FleetSettings, ProjectError> {
    let count = |key: &str, from: u64, to: u64, default: u32| -> Result<u32, ProjectError> {
        Ok(root.integer(key, from..=to, "")?.map_or(default, |found| small(found.value)))
    };
    let max = u64::from(u32::MAX);
    let days = root.integer("historyRetentionDays", 1..=36_500, "days")?.map_or(14, |found| found.value);
    Ok(FleetSettings {
        scale: root.integer("scale", 0..=max, "")?.map(|found| small(found.value)),
        agent_scale: count("defaultAgentScale", 0, max, 1)?,
        max_call_depth: count("maxCallDepth", 0, 32, 3)?,
        lock_timeout: Duration::from_secs(
            root.integer("resourceLockTimeout", 1..=86_400, "seconds")?.map_or(1_800, |found| found.value),
        ),
        max_suspended: count("maxSuspended", 1, max, 50)?,
        history: Duration::from_hours(24 * days),
        sources: sources(root)?,
        zone: read_zone(root)?.unwrap_or_else(TimeZone::system),
    })
}

/// A whole number whose range was checked.
pub(super) fn small(value: u64) -> u32 {
    u32::try_from(value).expect("the range was checked")
}

/// A length of time for waits: text such as `"30m"`, or a whole number of seconds.
pub(super) fn read_wait(root: &Section<'_>, key: &str) -> Result<Option<Found<Duration>>, ProjectError> {
    let Some(found) = root.text_or_whole(key)? else { return Ok(None) };
    let seconds = || found.value.parse().ok().map(Duration::from_secs);
    let value = duration::parse(&found.value)
        .or_else(seconds)
        .filter(|time| (Duration::from_secs(1)..=MAX_WAIT).contains(time));
    if let Some(value) = value {
        return Ok(Some(Found { value, place: found.place }));
    }
    root.note(ProjectError::Content {
        what: format!("`{key}` must be a time from 1s to 30d, not {:?}", found.value),
        hint: Some(format!("{}, or a whole number of seconds", duration::GRAMMAR)),
        place: found.place,
    })?;
    Ok(None)
}

/// A word that is one of a few.
pub(super) fn read_choice<T: Copy>(
    root: &Section<'_>,
    key: &str,
    choices: &[(&str, T)],
) -> Result<Option<Found<T>>, ProjectError> {
    let Some(found) = root.string(key)? else { return Ok(None) };
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == found.value) {
        return Ok(Some(Found { value: *value, place: found.place }));
    }
    let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
    let what = format!("`{key}` must be {}, not {:?}", names.join(" or "), found.value);
    root.note(ProjectError::content(found.place, what))?;
    Ok(None)
}

/// `timezone`.
pub(super) fn read_zone(root: &Section<'_>) -> Result<Option<TimeZone>, ProjectError> {
    let Some(found) = root.string("timezone")? else { return Ok(None) };
    let zone = schedule::zone(&found.value);
    if zone.is_none() {
        root.note(ProjectError::Content {
            what: format!("no time zone is called {:?}", found.value),
            hint: Some("name one of the tz database, such as \"UTC\" or \"Europe/Berlin\"".to_owned()),
            place: found.place,
        })?;
    }
    Ok(zone)
}

fn sources(root: &Section<'_>) -> Result<Vec<WebhookSource>, ProjectError> {
    let mut sources = Vec::new();
    for (name, section) in root.tables("webhooks", SOURCE)? {
        if let Some(source) = root.keep(source(name, &section))?.flatten() {
            sources.push(source);
        }
    }
    Ok(sources)
}

fn source(name: Found<String>, section: &Section<'_>) -> Result<Option<WebhookSource>, ProjectError> {
    let Found { value: name, place } = name;
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    // What the runner itself puts into the inbox comes from a source of that name.
    if name == "schedule" || name.is_empty() || name.len() > 64 || !name.chars().all(harmless) {
        return Err(ProjectError::Content {
            what: format!("{name:?} cannot be the name of a source"),
            hint: Some("letters, digits, hyphens and underscores, at most 64, and not \"schedule\"".to_owned()),
            place,
        });
    }
    let Some(kind) = section.string("type")? else {
        if section.was_meant("type") {
            return Ok(None);
        }
        return Err(missing_type(&name, place));
    };
    let Some(provider) = WebhookProvider::named(&kind.value) else {
        return Err(unknown_type(&kind));
    };
    match WebhookProvider::named(&name) {
        // `source` may be a name or a type: a name must not mean something else as a type.
        Some(other) if other != provider => Err(ProjectError::Content {
            what: format!("a source called {name:?} must be of that type, not {:?}", kind.value),
            hint: Some("choose another name".to_owned()),
            place,
        }),
        _ => Ok(Some(WebhookSource { name, provider })),
    }
}

fn missing_type(name: &str, place: Place) -> ProjectError {
    ProjectError::Content {
        what: format!("`webhooks.{name}.type` is missing"),
        hint: Some(format!("one of {}", types())),
        place,
    }
}

fn unknown_type(kind: &Found<String>) -> ProjectError {
    let hint = match near(&kind.value, WebhookProvider::ALL.map(WebhookProvider::as_str)).first() {
        Some(best) => format!("did you mean {best:?}?"),
        None => format!("one of {}; \"generic\" takes any JSON object", types()),
    };
    ProjectError::Content {
        what: format!("unknown type of webhooks {:?}", kind.value),
        hint: Some(hint),
        place: kind.place.clone(),
    }
}

fn types() -> String {
    WebhookProvider::ALL.map(|provider| format!("{:?}", provider.as_str())).join(", ")
}
