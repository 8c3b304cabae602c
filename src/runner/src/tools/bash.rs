//! `bash`: a command in a fresh shell, a job in the background, or the end of a job.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use protocol::{BashEnd, Cause, End, Outcome, Request, Space};
use serde::Deserialize;
use serde_json::{Value, json};

use super::text::{self, fitting_head, fitting_tail, note};
use super::{Context, Reply, Tool, ToolResult, ToolSession, unexpected};
use crate::sandbox::limits::show_size;

/// Longest name of a job in characters; those that jobs get are shorter.
const MAX_JOB: usize = 64;

/// Longest time that can be asked for, in seconds: a week.
const MAX_TIMEOUT: u32 = 604_800;

/// Bytes of text shown of a long output's beginning; the rest of the limit shows its end.
const HEAD: usize = 10 * 1024;

/// This part of the memory may be taken by the commands that are under way: PID 1 holds each until its shell runs, and
/// what PID 1 holds no kill gives back. With the smallest memory it is still 10 MiB.
const COMMANDS_PART: u64 = 6;

/// Bytes of a line from which on `read` would clip it.
const LONG_LINE: u64 = 2_000;

/// The time that ending a job may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Bash;

#[derive(Deserialize)]
struct Args {
    command: Option<String>,
    timeout: Option<f64>,
    background: Option<bool>,
    stop: Option<String>,
}

impl Tool for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn description(&self) -> &'static str {
        "Runs a command with `bash -c` in the sandbox and returns its output, stdout and stderr merged. Each call is a \
         fresh shell: working directory, variables and umask never carry over; files under /tmp do. stdin is empty and \
         there is no terminal. When the shell ends, every process it started is ended too, unless `background` is true. \
         Only /tmp can be written; there is no network. Long output is cut in the middle and kept in a file."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "description": "The command. Exactly one of `command` and `stop` is given."
                },
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": MAX_TIMEOUT,
                    "description": "Seconds after which the command is ended; 120 unless the agent is set up otherwise, \
                                    never more than the session has left. Does not apply to background jobs."
                },
                "background": {
                    "type": "boolean",
                    "description": "Start the command as a job and return {job, log} at once. The job runs until it \
                                    exits, is stopped or the session ends; read its log with `read`."
                },
                "stop": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_JOB,
                    "description": "Name of a job to end."
                }
            },
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let args: Args = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            match (args.command, args.stop) {
                (Some(command), None) => {
                    let background = args.background.unwrap_or(false);
                    run_command(context, command, args.timeout, background).await
                }
                (None, Some(job)) if args.background.is_none() && args.timeout.is_none() => {
                    stop_job(context, job).await
                }
                (None, Some(_)) => {
                    ToolResult::error(Cause::Invalid, "`stop` stands alone: it takes no `timeout` and no `background`")
                }
                (Some(_), Some(_)) => {
                    ToolResult::error(Cause::Invalid, "`command` and `stop` exclude each other: give exactly one")
                }
                (None, None) => ToolResult::error(Cause::Invalid, "give `command`, or `stop` with the name of a job"),
            }
        })
    }
}

/// Room for a command, given back when its call has ended.
struct Room<'a> {
    session: &'a ToolSession,
    bytes: u64,
}

impl<'a> Room<'a> {
    /// Takes it, or says why there is none.
    fn take(session: &'a ToolSession, command: &str) -> Result<Self, String> {
        let bytes = command.len() as u64;
        let (memory, taken) = (session.limits.memory, session.commands.get() + bytes);
        let most = memory / COMMANDS_PART / 1024 * 1024;
        let (memory, most_shown) = (show_size(memory), show_size(most));
        if bytes > protocol::MAX_BODY {
            let limit = show_size(protocol::MAX_BODY);
            return Err(format!("the command has {bytes} bytes, more than the {limit} that fit into a call"));
        }
        if taken > most {
            return Err(format!(
                "the command has {bytes} bytes; with {memory} of memory, the commands of calls that run at once may have \
                 {most_shown} together: write what is long to a file first, or make fewer calls at once"
            ));
        }
        session.commands.set(taken);
        Ok(Self { session, bytes })
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.session.commands.set(self.session.commands.get() - self.bytes);
    }
}

async fn run_command(context: Context<'_>, command: String, timeout: Option<f64>, background: bool) -> ToolResult {
    let _room = match Room::take(context.session, &command) {
        Ok(room) => room,
        Err(full) => return ToolResult::error(Cause::Limit, full),
    };
    let asked = timeout.map_or(context.session.bash_timeout, Duration::from_secs_f64);
    let timeout = asked.min(context.remaining);
    let reply = match context.call(Request::Bash { background }, command, timeout).await {
        Ok(reply) => reply,
        Err(mut failed) => {
            say_shell(context, &mut failed.text);
            return failed;
        }
    };
    let mut result = match reply.outcome {
        Outcome::Job { job, log } => {
            let answer = json!({"job": job, "log": log});
            ToolResult::ok(answer.to_string(), answer)
        }
        Outcome::Bash(ref end) => {
            let capped = if timeout < asked { " (all that the session had left)" } else { "" };
            finished(context, end, &reply, &format!("{} s{capped}", seconds(timeout)))
        }
        other => return unexpected(&other),
    };
    say_shell(context, &mut result.text);
    result
}

/// The result of a command that ended.
fn finished(context: Context<'_>, end: &BashEnd, reply: &Reply, timeout: &str) -> ToolResult {
    let mut text = output(end, &reply.payload);
    let limits = &context.session.limits;
    let failed = end.end != End::Exited(0);
    // The most telling cause comes first; every limit that a failed command hit is named.
    let mut causes = Vec::new();
    match end.end {
        End::TimedOut => causes.push((Cause::Timeout, format!("timed out after {timeout}"))),
        End::Cancelled => causes.push((Cause::Cancelled, "cancelled".to_owned())),
        _ => {}
    }
    if reply.oom {
        let limit = show_size(limits.memory);
        causes.push((Cause::Oom, format!("out of memory: the limit of {limit} was hit and a process was killed")));
    }
    if reply.pids {
        causes.push((Cause::Pids, format!("the limit of {} processes was hit", limits.pids)));
    }
    if let Some(space) = &end.full {
        causes.push((Cause::NoSpace, full(space)));
    }
    match end.end {
        End::Exited(0) | End::TimedOut | End::Cancelled => {}
        End::Exited(code) => causes.push((Cause::Exit, format!("exit code {code}"))),
        End::Signalled(signal) => causes.push((Cause::Signal, format!("killed by {}", signal_name(signal)))),
        End::SweptAway => causes.push((
            Cause::Signal,
            "killed: another command left processes that only a kill of every process could end".to_owned(),
        )),
    }
    for (_, words) in &causes {
        note(&mut text, &format!("[{words}]"));
    }
    ToolResult {
        is_error: failed,
        text,
        image: None,
        cause: if failed { causes.first().map(|(cause, _)| *cause) } else { None },
        details: serde_json::to_value(end).unwrap_or_default(),
    }
}

/// The shown output: everything, or head and tail with the count of what is between.
fn output(end: &BashEnd, payload: &[u8]) -> String {
    let head_length = usize::try_from(end.head).unwrap_or(usize::MAX).min(payload.len());
    let (head, tail) = payload.split_at(head_length);
    let whole = end.omitted_bytes == 0 && end.kept.is_none();
    if payload.is_empty() && whole {
        return "(no output)".to_owned();
    }
    if whole {
        let all = text::lossy(payload);
        if all.len() <= text::MAX_BYTES {
            return all;
        }
    }
    // Invalid bytes take three each as text, so that what came may still be too long.
    let (head, tail) = if whole { payload.split_at(payload.len().min(HEAD)) } else { (head, tail) };
    let (shown_head, taken) = fitting_head(head, HEAD);
    let (shown_tail, skipped) = fitting_tail(tail, text::MAX_BYTES - HEAD);
    let left_out = [&head[taken..], &tail[..skipped]];
    let bytes = end.omitted_bytes + left_out.iter().map(|part| part.len() as u64).sum::<u64>();
    let lines = end.omitted_lines + left_out.iter().map(|part| line_ends(part)).sum::<u64>();
    let mut text = shown_head;
    // `read` pages by lines and clips long ones, so it would not show these.
    let way =
        if bytes / (lines + 1) > LONG_LINE { "use bash with tail -c and head -c" } else { "use read with offset" };
    let rest = match &end.kept {
        Some(path) if end.kept_is_cut => format!("its beginning and end are in {path}: {way}"),
        Some(path) => format!("all of it is in {path}: {way}"),
        None => "it was not kept: redirect it to a file under /tmp and use read".to_owned(),
    };
    note(
        &mut text,
        &format!(
            "[output cut: {} lines, {} bytes in all; {lines} lines, {bytes} bytes left out here; {rest}]\n",
            end.total_lines, end.total_bytes
        ),
    );
    text.push_str(&shown_tail);
    text
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

async fn stop_job(context: Context<'_>, job: String) -> ToolResult {
    let request = Request::StopJob { job: job.clone() };
    let reply = match context.call(request, Vec::new(), STOP_TIMEOUT.min(context.remaining)).await {
        Ok(reply) => reply,
        Err(failed) => return failed,
    };
    let Outcome::JobEnded { end, before } = reply.outcome else { return unexpected(&reply.outcome) };
    let how = match end {
        End::Exited(code) => format!("exit code {code}"),
        End::Signalled(signal) => format!("killed by {}", signal_name(signal)),
        End::TimedOut => "timed out".to_owned(),
        End::Cancelled => "stopped".to_owned(),
        End::SweptAway => "killed with every other process of the sandbox".to_owned(),
    };
    let when = if before { "had ended before" } else { "ended" };
    ToolResult::ok(format!("job {job} {when}: {how}"), json!({"job": job, "end": end, "before": before}))
}

/// Says once a session that commands run under another shell than bash.
fn say_shell(context: Context<'_>, text: &mut String) {
    if let Some(shell) = context.hands.other_shell()
        && !context.session.shell_said.replace(true)
    {
        note(text, &format!("[this image has no bash: commands run under {shell}]"));
    }
}

fn full(space: &Space) -> String {
    format!(
        "/tmp is full: {} of {} bytes and {} of {} inodes are in use; delete something",
        space.bytes_used, space.bytes, space.inodes_used, space.inodes
    )
}

/// Seconds without needless digits.
fn seconds(time: Duration) -> String {
    let text = format!("{:.2}", time.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn signal_name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(known) => format!("signal {signal} ({known})"),
        Err(_) => format!("signal {signal}"),
    }
}
