//! What people type. One file a subcommand; below this room nobody sees the command line.

mod agent;
pub mod calls;
pub mod completions;
mod control;
mod copies;
pub mod doctor;
mod driving;
pub mod emit;
mod follow;
pub mod image;
pub mod init;
pub mod kill;
pub mod locks;
pub mod logs;
mod means;
pub mod new;
mod output;
mod overview;
pub mod pause;
pub mod progress;
pub mod ps;
pub mod queue;
mod recording;
pub mod records;
pub mod render;
pub mod resume;
pub mod serve;
pub mod show;
mod signals;
mod speech;
pub mod start;
pub mod stop;
mod surroundings;
pub mod table;
pub mod tool;
pub mod tools;
mod unique;
pub mod validate;
mod waiting;
pub mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use self::records::RecordsError;
use crate::exit::{self, Failure};
use crate::observe::sanitise;

/// Runs AI agents safely on this machine.
///
/// An agent thinks on the host and acts in a locked-down container: read-only root, writable /tmp, no network, no
/// privileges.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true, after_help = AFTER)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
Examples:
  runner image build                     make runner/minimal, without a registry
  runner init mine && cd mine            make a project with an agent
  runner start --agent hello             run an agent of this project
  runner tool --agent hello bash '{\"command\": \"id\"}'
  runner ps --all                        what ran and how it ended
  runner doctor                          is this machine fit, and what is to be done

Exit codes:
  0 done · 1 the agent failed · 2 usage or configuration · 3 engine · 4 model
  5 sandbox lost · 6 refused by policy · 7 turn limit · 8 token limit
  70 a bug of ours · 124 timeout · 125 stopped by someone · 130 interrupted

Environment:
  RUNNER_STATE  the state directory          DOCKER_HOST  the engine's socket
  RUNNER_LOG    what is logged (info)        NO_COLOR     no colours";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an agent from its first turn to its end
    Start(start::StartArgs),
    /// Go on with a session that nobody drives, and follow it
    Resume(resume::ResumeArgs),
    /// Drive a project's sessions: queue, schedules, waits
    Serve(serve::ServeArgs),
    /// Make tool calls in a fresh sandbox, without a model
    Tool(tool::ToolArgs),
    /// List the tools and their schemas
    Tools(tools::ToolsArgs),
    /// List sessions
    Ps(ps::PsArgs),
    /// Show a session
    Show(show::ShowArgs),
    /// Show a session's journal
    Logs(logs::LogsArgs),
    /// Stop sessions
    Stop(stop::StopArgs),
    /// End sessions at once, with all that they called
    Kill(kill::KillArgs),
    /// List the sessions that wait for a slot
    Queue(queue::QueueArgs),
    /// List the locks that are held
    Locks(locks::LocksArgs),
    /// List the sessions that wait for a trigger
    Waits(waits::WaitsArgs),
    /// List the calls between agents that have no answer yet
    Calls(calls::CallsArgs),
    /// Give a project an event from outside
    #[command(subcommand, after_help = emit::AFTER)]
    Emit(emit::EmitCommand),
    /// Start no new session of an agent, or of the project
    Pause(pause::PauseArgs),
    /// Start sessions again
    Unpause(pause::UnpauseArgs),
    /// Make, list, check and remove images
    #[command(subcommand, after_help = image::AFTER)]
    Image(image::ImageCommand),
    /// Make a project with an agent that works at once
    Init(init::InitArgs),
    /// Make an agent in this project
    New(new::NewArgs),
    /// Check a project, or one of its agents, and name every mistake
    Validate(validate::ValidateArgs),
    /// Check this machine, the engine and the state directory
    Doctor(doctor::DoctorArgs),
    /// Print what a shell needs to complete the command line
    Completions(completions::CompletionsArgs),
}

/// Reads what was typed; a mistake in it, or a question for help, ends the program.
///
/// What is wrong comes back in the message, and whoever types may have it from elsewhere: it is sanitised like any other
/// text, for the price of colours.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        if !error.use_stderr() {
            error.exit()
        }
        let typed: Vec<(ContextKind, String)> = error
            .context()
            .filter_map(|(kind, value)| match value {
                ContextValue::String(text) => Some((kind, sanitise::line(text).into_owned())),
                _ => None,
            })
            .collect();
        for (kind, text) in typed {
            error.insert(kind, ContextValue::String(text));
        }
        eprint!("{}", sanitise::block(&error.render().to_string()));
        std::process::exit(error.exit_code())
    })
}

/// Runs a command on a runtime of one thread, prints what went wrong, and turns it into the exit code. A panic is a bug
/// of ours and has a code of its own.
pub fn run(command: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::new(1, &error)),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(command)));
    // A thread that waits for standard input cannot be woken; nothing else is left to wait for.
    runtime.shutdown_background();
    match ended {
        Ok(Ok(code)) => code.into(),
        Ok(Err(failure)) => report(&failure),
        // The panic's message is on standard error already.
        Err(_) => {
            eprintln!("error: this is a bug of runner; please report it with the lines above");
            exit::BUG.into()
        }
    }
}

fn report(failure: &Failure) -> ExitCode {
    complain(failure);
    failure.code.into()
}

/// Says on standard error what failed.
fn complain(failure: &Failure) {
    eprintln!("error: {}", sanitise::line(&without_numbers(&failure.message)));
    if let Some(hint) = &failure.hint {
        eprintln!("hint: {}", sanitise::line(hint));
    }
}

/// Leaves out the system's numbers for errors, which stand behind their words: `(os error 2)`.
fn without_numbers(message: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = message.split(BEFORE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => text.push_str(rest),
            _ => text.extend([BEFORE, part]),
        }
    }
    text
}

impl From<RecordsError> for Failure {
    fn from(error: RecordsError) -> Self {
        let hint = match &error {
            RecordsError::Project(error) => error.hint(),
            _ => None,
        };
        Self { hint, ..Self::new(error.exit_code(), &error) }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let said = "a: No such file (os error 2); b (Refused (os error 111)) (os error x) (os error ";
        assert_eq!(without_numbers(said), "a: No such file; b (Refused) (os error x) (os error ");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
