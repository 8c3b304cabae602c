//! `runner emit`: an event from outside, by hand.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::agent::find_project;
use super::output;
use crate::exit::Failure;
use crate::fleet::WaitIndex;
use crate::fleet::events::{deliver, incoming};
use crate::observe::sanitise;
use crate::project::{Project, WebhookSource, near};
use crate::state::State;
use crate::store::{SqliteStore, Store, StoreError};

pub(crate) const AFTER: &str = "\
Examples:
  runner emit webhook --source github --event pull_request payload.json";

/// What is emitted.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum EmitCommand {
    /// Give the project an event as one of its sources of webhooks would
    Webhook(WebhookArgs),
}

/// Arguments of `runner emit webhook`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner emit webhook --source github --event pull_request payload.json
  curl -s $URL | runner emit webhook --source ours --event push - --json

Once its id is printed the event is kept: it wakes every session that waits for it, once, whether or not a runner is at
work. FILE has the payload as the provider sends it: a JSON object of at most 25 MiB.")]
pub struct WebhookArgs {
    /// A source of the project: its name in config.toml, `[webhooks.NAME]`
    #[arg(long, value_name = "NAME")]
    pub source: String,
    /// The provider's event, such as pull_request
    #[arg(long, value_name = "EVENT")]
    pub event: String,
    /// The payload; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The project's folder; else it is found upward from the working directory
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Largest payload in bytes: what GitHub sends at most.
const MAX_PAYLOAD: u64 = 25 * 1024 * 1024;

/// Emits the event, and says whom it woke.
///
/// # Errors
/// The source or the payload is not what it must be, or the event could not be kept.
pub async fn run(command: EmitCommand) -> Result<u8, Failure> {
    let EmitCommand::Webhook(args) = command;
    let project = find_project(args.project.as_deref())?;
    // Looked up before anything is read: standard input may be a person.
    source(&project, &args.source)?;
    let payload = payload(&args.file)?;
    let state = State::open()?;
    let store = SqliteStore::open(state.root())?;
    let mut said = Vec::new();
    emit(&store, &project, &args, payload, &mut said).await?;
    output::check(io::stdout().lock().write_all(&said))?;
    Ok(0)
}

async fn emit(
    store: &dyn Store,
    project: &Project,
    args: &WebhookArgs,
    payload: Value,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let identity = project.root.display().to_string();
    let event = incoming(&identity, source(project, &args.source)?, &args.event, payload);
    let id = store.accept(event).await?;
    deliver(store, &identity, &mut WaitIndex::default()).await?;
    let woke = woken_by(store, &identity, id).await?;
    let said = if args.json {
        sanitise::json(&json!({"id": id, "woke": woke}).to_string()).into_owned()
    } else if woke.is_empty() {
        format!("event {id} is kept; no session waited for it")
    } else {
        format!("event {id} woke {}", woke.join(", "))
    };
    out.extend_from_slice(said.as_bytes());
    out.push(b'\n');
    Ok(())
}

/// The source of this name.
fn source<'a>(project: &'a Project, name: &str) -> Result<&'a WebhookSource, Failure> {
    let sources = &project.fleet().sources;
    sources.iter().find(|source| source.name == name).ok_or_else(|| {
        let known: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let hint = match (near(name, known.iter().copied()).first(), known.as_slice()) {
            (_, []) => "the project has none; add a [webhooks.NAME] with its `type` to config.toml".to_owned(),
            (Some(close), known) => format!("did you mean {close}? the project has {}", known.join(", ")),
            (None, known) => format!("the project has {}", known.join(", ")),
        };
        Failure::usage(format!("no source of webhooks is named {name:?}"), hint)
    })
}

/// Reads the payload.
fn payload(file: &Path) -> Result<Value, Failure> {
    let piped = file.as_os_str() == "-";
    let name = if piped { "standard input".to_owned() } else { file.display().to_string() };
    let hint = "give the payload as the provider sends it: a JSON object of at most 25 MiB";
    let wrong = |why: &str| Failure::usage(format!("{name}: {why}"), hint);
    let unread = |error: io::Error| wrong(&error.to_string());
    let reader: Box<dyn Read> =
        if piped { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file).map_err(unread)?) };
    let mut text = Vec::new();
    reader.take(MAX_PAYLOAD + 1).read_to_end(&mut text).map_err(unread)?;
    if text.len() as u64 > MAX_PAYLOAD {
        return Err(wrong("it is larger than 25 MiB"));
    }
    match serde_json::from_slice(&text) {
        Ok(payload @ Value::Object(_)) => Ok(payload),
        Ok(_) => Err(wrong("it is JSON, but no object")),
        Err(error) => Err(wrong(&format!("it is no JSON: {error}"))),
    }
}

/// Ids of the sessions that an event woke, whoever matched it. It is among the newest, and payloads are large: so few are
/// asked for first.
async fn woken_by(store: &dyn Store, project: &str, id: i64) -> Result<Vec<String>, StoreError> {
    for limit in [1, 16, 256] {
        let newest = store.inbox(project.to_owned(), limit).await?;
        if let Some(event) = newest.into_iter().find(|event| event.id == id) {
            return Ok(event.woke.unwrap_or_default());
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests;
