//! `runner start`: an agent from its first turn to its end.

use std::path::PathBuf;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::agent::AgentArgs;
use super::driving::{self, Screen};
use super::follow::follow;
use super::{means, output, progress, signals};
use crate::dispatch::seat;
use crate::exit::{self, Failure};
use crate::gateway::{Client, CopyIn, CopyOut, NewStart};
use crate::model::{self, PromptParts};
use crate::project::Agent;
use crate::session::begin;
use crate::session::journal::EndCause;
use crate::session::owner::Owner;
use crate::session::progress::Watcher;
use crate::state::State;
use crate::store::{Session, SqliteStore, Store};

/// Longest task in bytes.
const MAX_TASK: u64 = 1024 * 1024;

/// Arguments of `runner start`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner start --agent hello
  runner start --agent review --task 'look at the newest change' --in ./repo --out /tmp/report:.
  runner start --agent nightly --detach
  runner start --agent hello --json | jq -r 'select(.event == \"ended\").cause'

With `runner serve` at work for the project, the session is handed over to it and followed here; else this process drives
it, with the agents that it calls. The first Ctrl-C cancels and cleans up, the second ends the program at once.")]
pub struct StartArgs {
    /// The agent and its files
    #[command(flatten)]
    pub agent: AgentArgs,
    /// What the agent is to do
    #[arg(long, value_name = "TEXT", conflicts_with = "task_file")]
    pub task: Option<String>,
    /// A file that says what the agent is to do; - is standard input
    #[arg(long, value_name = "FILE")]
    pub task_file: Option<PathBuf>,
    /// Think with this model of the project and not with the agent's; given again: ask that one when the first fails
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
    /// Only queue the session and print its id: `runner serve` or `runner resume` goes on with it
    #[arg(long)]
    pub detach: bool,
    /// Print what happens as one JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl StartArgs {
    fn task(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.task_file else { return Ok(self.task.clone()) };
        let failed = |error: std::io::Error| {
            Failure::usage(
                format!("--task-file {}: {error}", file.display()),
                "name a text file, or - for standard input",
            )
        };
        if file.as_os_str() == "-" {
            let mut text = String::new();
            let mut input = std::io::Read::take(std::io::stdin().lock(), MAX_TASK);
            std::io::Read::read_to_string(&mut input, &mut text).map_err(failed)?;
            return Ok(Some(text));
        }
        let read = crate::project::read_named(file, MAX_TASK);
        read.map(Some).map_err(|error| Failure::usage(error.to_string(), "name a text file, or - for standard input"))
    }
}

/// Runs the agent; the exit code says how it ended.
///
/// The session is queued in the store first, whoever drives it then: the process that serves the project, or this one.
///
/// # Errors
/// Nothing was begun, or the end could not be recorded.
pub async fn run(args: StartArgs) -> Result<u8, Failure> {
    let (project, agent) = args.agent.load(&args.models)?;
    let task = args.task()?;
    // What is wrong is said here, and not by whoever drives it.
    admit(&agent)?;
    let identity = project.root.display().to_string();
    let state = State::open()?;
    let served = seat::is_served(&state, &identity)?;
    if !args.detach
        && let Some(client) = Client::find(&state, &identity).await?
    {
        let id = client.start(&handed_over(&args, task)?).await?;
        return followed(&state, &id, &*progress::watcher(args.json)).await;
    }
    let parts = PromptParts { task, trigger: json!({"type": "manual"}), params: agent.params.clone() };
    let order = begin::Order {
        parts,
        copy_in: args.agent.copies_in(),
        copy_out: args.agent.copies_out(),
        keep: args.agent.keep,
        models: args.models.clone(),
    };
    let watcher = progress::watcher(args.json);
    if args.detach || served {
        let store = SqliteStore::open(state.root())?;
        let owner = Owner::claim(&state)?;
        let (session, started) = begin::begin(&project, &agent, order, owner.id())?;
        let id = session.id.clone();
        store.create_session(session, started).await?;
        if args.detach {
            return detached(&args, &id, served);
        }
        drop(store);
        return followed(&state, &id, &*watcher).await;
    }
    let means = means::open(&*watcher).await?;
    means.engine.image(&agent.settings.image).await?;
    let interrupt = signals::interrupt();
    let (session, started) = begin::begin(&project, &agent, order, means.owner.id())?;
    let id = session.id.clone();
    means.store.create_session(session, started).await?;
    let session = means.store.session(&id).await?;
    driving::drive_here(means, project, &session, Screen::new(watcher), &interrupt).await
}

/// An agent that can be started: its models can be opened, and it is not disabled.
pub(super) fn admit(agent: &Agent) -> Result<(), Failure> {
    model::open(&agent.models)?;
    if agent.settings.scale == 0 {
        let hint = "give it a `scale` of 1 or more in its config.toml";
        return Err(Failure::usage(format!("agent {} is disabled: its `scale` is 0", agent.name), hint));
    }
    Ok(())
}

/// What whoever serves is asked to start. It has another working directory, so paths are whole.
fn handed_over(args: &StartArgs, task: Option<String>) -> Result<NewStart, Failure> {
    let whole = |path: PathBuf| {
        std::path::absolute(&path)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display()), "name a path that can be resolved"))
    };
    let agent = match args.agent.agent.as_str() {
        path if path.contains('/') || path == "." || path == ".." => {
            whole(PathBuf::from(path))?.to_str().map(str::to_owned).ok_or_else(|| {
                Failure::usage(format!("the path {path:?} is no text"), "give the agent's folder a name in UTF-8")
            })?
        }
        name => name.to_owned(),
    };
    let copy_in = args.agent.copies_in().into_iter().map(|(from, to)| Ok(CopyIn { from: whole(from)?, to }));
    let copy_out = args.agent.copies_out().into_iter().map(|(from, to)| Ok(CopyOut { from, to: whole(to)? }));
    Ok(NewStart {
        agent,
        task,
        models: args.models.clone(),
        copy_in: copy_in.collect::<Result<_, Failure>>()?,
        copy_out: copy_out.collect::<Result<_, Failure>>()?,
        keep: args.agent.keep,
    })
}

/// Follows a session that another process drives, to its end.
async fn followed(state: &State, id: &str, watcher: &dyn Watcher) -> Result<u8, Failure> {
    let store = SqliteStore::open(state.root())?;
    let interrupt = signals::interrupt();
    Ok(code(&follow(&store, state, id, 0, watcher, &interrupt).await?, &interrupt))
}

/// The exit code for a session that was followed: its own, and that of Ctrl-C when it ended for that.
pub(super) fn code(ended: &Session, interrupt: &CancellationToken) -> u8 {
    match &ended.end {
        Some((end, _)) if end.cause == EndCause::Stopped.as_str() && interrupt.is_cancelled() => exit::INTERRUPTED,
        Some((end, _)) => end.exit_code,
        None => 0,
    }
}

/// Says which session was queued.
fn detached(args: &StartArgs, id: &str, served: bool) -> Result<u8, Failure> {
    let printed = if args.json {
        output::json(&json!({"event": "detached", "session": id, "served": served}))
    } else {
        output::line(id)
    };
    output::check(printed)?;
    if !served && !args.json {
        eprintln!("note: nobody serves this project; `runner serve` or `runner resume {id}` goes on with it");
    }
    Ok(0)
}
