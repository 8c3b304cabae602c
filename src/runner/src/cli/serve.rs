//! `runner serve`: the process that drives a project's sessions for as long as it runs.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::agent::find_project;
use super::control::Steward;
use super::{driving, output, signals};
use crate::dispatch::seat::{self, Seat};
use crate::exit::Failure;
use crate::gateway::{self, Client};
use crate::observe::logging::{self, Destination};
use crate::observe::sanitise;
use crate::project::Project;
use crate::sandbox::engine::{Engine, EngineError};
use crate::session::life::Means;
use crate::session::owner::Owner;
use crate::state::State;
use crate::store::{Scope, SqliteStore, Store};

/// Arguments of `runner serve`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner serve
  runner serve --project ./mine 2>> serve.log
  runner serve --drain                   let the one that serves finish and end

A project is served by one process. The first Ctrl-C (or SIGTERM) leaves its sessions where they are, and the next
`runner serve` goes on with them; the second ends the program at once. What config.toml says is read when it begins.")]
pub struct ServeArgs {
    /// The project's folder; else it is found upward from the working directory
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
    /// Take no new work, and end when the sessions at work have ended; one that serves already is asked to
    #[arg(long)]
    pub drain: bool,
    /// Say as JSON that it serves
    #[arg(long)]
    pub json: bool,
}

/// How often whoever waits for the end of another process looks.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Longest time between two tries to reach an engine that is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Serves the project until a signal comes or it is drained.
///
/// # Errors
/// Another process serves it, or what it needs on this host cannot be used.
pub async fn run(args: ServeArgs) -> Result<u8, Failure> {
    let project = find_project(args.project.as_deref())?;
    let identity = project.root.display().to_string();
    let state = State::open()?;
    if args.drain && seat::is_served(&state, &identity)? {
        return drain_other(&state, &identity).await;
    }
    let seat = Seat::claim(&state, &identity)?;
    let filter = std::env::var(logging::VARIABLE).ok();
    logging::init(Destination::Stderr, filter.as_deref()).map_err(|error| Failure::new(crate::exit::USAGE, &error))?;
    let leave = signals::interrupt_or("the next runner goes on with its sessions");
    for (name, error) in project.agent_names().iter().filter_map(|name| Some((name, project.agent(name).err()?))) {
        tracing::warn!(agent = name, %error, "an agent cannot be started as it is");
    }
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state.root())?);
    let owner = Arc::new(Owner::claim(&state)?);
    let Some(engine) = engine(&leave).await else { return Ok(0) };
    let means = Means { state, store, owner, engine };
    LocalSet::new().run_until(serve(&args, Rc::new(means), Rc::new(project), &seat, &leave)).await?;
    Ok(0)
}

async fn serve(
    args: &ServeArgs,
    means: Rc<Means>,
    project: Rc<Project>,
    seat: &Seat,
    leave: &CancellationToken,
) -> Result<(), Failure> {
    let schedules = driving::schedules(&project);
    let dispatch = driving::dispatch(&means, &project, Scope::Project, schedules, None);
    let taken_up = dispatch.take_up().await?;
    if args.drain {
        dispatch.drain();
    }
    let listener = gateway::bind(seat).map_err(|error| Failure::new(crate::exit::USAGE, &error))?;
    let (store, served) = (Arc::clone(&means.store), (*project).clone());
    ready(args, &project, seat, taken_up)?;
    let control = Rc::new(Steward { dispatch: Rc::clone(&dispatch), means, project });
    let closing = CancellationToken::new();
    let answering = tokio::task::spawn_local({
        let closing = closing.clone();
        async move { gateway::serve(listener, control, store, served, closing.cancelled_owned()).await }
    });
    let mut running = {
        let dispatch = Rc::clone(&dispatch);
        tokio::task::spawn_local(async move { dispatch.run().await })
    };
    let bug = |error: tokio::task::JoinError| Failure::new(crate::exit::BUG, &error);
    tokio::select! {
        done = &mut running => done.map_err(bug)?,
        () = leave.cancelled() => {
            tracing::info!(sessions = dispatch.at_work(), "leaving; the next runner goes on with its sessions");
            dispatch.leave();
            running.await.map_err(bug)?;
            tracing::info!("all sessions are left");
        }
    }
    closing.cancel();
    answering.await.map_err(bug)
}

/// Says that work can come.
fn ready(args: &ServeArgs, project: &Project, seat: &Seat, taken_up: usize) -> Result<(), Failure> {
    let agents = project.agent_names().len();
    let written = if args.json {
        output::json(&json!({
            "event": "serving",
            "project": project.root,
            "agents": agents,
            "taken_up": taken_up,
            "folder": seat.folder(),
        }))
    } else {
        let root = project.root.display().to_string();
        output::line(&format!("serving {}; {agents} agents, {taken_up} sessions taken up", sanitise::line(&root)))
    };
    written.map_err(|error| Failure::new(1, &error))
}

/// The engine, once it answers; none when the signal to leave comes first.
async fn engine(leave: &CancellationToken) -> Option<Engine> {
    let mut pause = Duration::from_secs(1);
    let mut said: Option<String> = None;
    loop {
        let error: EngineError = match Engine::connect(None).await {
            Ok(engine) => return Some(engine),
            Err(error) => error,
        };
        let words = error.to_string();
        // Said once, it need not be said again.
        if said.as_ref() != Some(&words) {
            tracing::error!(error = words, "waiting for the container engine");
            said = Some(words);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = leave.cancelled() => return None,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks the process that serves the project to finish, and waits until it has.
async fn drain_other(state: &State, project: &str) -> Result<u8, Failure> {
    let mut asked = false;
    while seat::is_served(state, project)? {
        // It may be beginning, and have no socket yet.
        if !asked && let Some(client) = Client::find(state, project).await? {
            client.drain().await?;
            asked = true;
        }
        tokio::time::sleep(LOOK_AFTER).await;
    }
    Ok(0)
}
