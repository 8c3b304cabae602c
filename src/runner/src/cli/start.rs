//! `runner start`: an agent from its first turn to its end.

use std::path::PathBuf;

use serde_json::json;

use super::agent::AgentArgs;
use super::{means, progress, signals};
use crate::exit::Failure;
use crate::fleet;
use crate::model::{self, PromptParts};
use crate::session::begin;
use crate::session::drive::{Outcome, Signals, drive};
use crate::state::random_hex;
use crate::store::{Lines, Scope};

/// Longest task in bytes.
const MAX_TASK: u64 = 1024 * 1024;

/// Arguments of `runner start`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner start --agent hello
  runner start --agent review --task 'look at the newest change' --in ./repo --out /tmp/report:.
  runner start --agent hello --json | jq -r 'select(.event == \"ended\").cause'

The first Ctrl-C cancels and cleans up, the second ends the program at once.")]
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
/// # Errors
/// Nothing was begun, or the end could not be recorded.
pub async fn run(args: StartArgs) -> Result<u8, Failure> {
    let (project, agent) = args.agent.load(&args.models)?;
    let task = args.task()?;
    model::open(&agent.models)?;
    let watcher = progress::watcher(args.json);
    let means = means::open(&*watcher).await?;
    let interrupt = signals::interrupt();

    let order = begin::Order {
        parts: PromptParts { task, trigger: json!({"type": "manual"}), params: agent.params.clone() },
        copy_in: args.agent.copies_in(),
        copy_out: args.agent.copies_out(),
        keep: args.agent.keep,
        models: args.models.clone(),
    };
    means.engine.image(&agent.settings.image).await?;
    let (session, started) = begin::begin(&project, &agent, order, means.owner.id())?;
    let identity = session.project.clone();
    let root = means.store.create_session(session, started).await?;
    let signals = Signals { interrupt, ..Signals::default() };
    loop {
        let scope = Scope::Trees(vec![root]);
        let (owner, container) = (means.owner.id().clone(), random_hex());
        let slots = fleet::slots(&project);
        let claimed = means.store.claim(identity.clone(), slots, scope, owner, container, Lines::none()).await?;
        if let Some(claimed) = claimed
            && let Outcome::Ended(ended) = drive(&means, &project, claimed.session, &*watcher, &signals).await?
        {
            return Ok(ended.cause.exit_code());
        }
    }
}
