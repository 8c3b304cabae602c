//! `runner tool`: tool calls in a fresh sandbox, without a model: one, or as many as standard input asks for.

use std::io;
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use protocol::Cause;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::agent::AgentArgs;
use super::progress::Notes;
use super::unique::Unique;
use super::{means, output, signals};
use crate::exit::Failure;
use crate::session::calls::{CallOrder, Caller};
use crate::session::driver::{Conclusion, LoopLimits, interruption};
use crate::session::journal::EndCause;
use crate::session::life::{Plan, live};
use crate::tools::ToolResult;

/// When the sandbox is gone, calls that were asked for by then are answered: the input counts as read when it has been
/// silent for this long.
const SILENCE: Duration = Duration::from_millis(100);

/// How long that may take in all.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Longest line of NDJSON in bytes: a call's largest body, with room for JSON's escapes.
const MAX_LINE: u64 = 2 * protocol::MAX_BODY + 1024 * 1024;

/// Arguments of `runner tool`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner tool --agent hello bash '{\"command\": \"id\"}'
  runner tool --agent hello read '{\"path\": \"SKILL.md\"}' --json
  printf '%s\\n' '{\"id\": 1, \"tool\": \"ls\", \"args\": {}}' | runner tool --agent hello -

With -, each line of standard input is a call {\"id\", \"tool\", \"args\"}; each gives a
line {\"id\", \"is_error\", \"text\", …}, in the order asked. One call ends before the next
begins unless --parallel says otherwise.

Exit code: 1 when the one result is an error; with -, 0 when every line was answered.")]
pub struct ToolArgs {
    /// The agent and its files
    #[command(flatten)]
    pub agent: AgentArgs,
    /// The tool (see `runner tools`), or - to read calls from standard input
    #[arg(value_name = "TOOL|-")]
    pub tool: String,
    /// Its arguments, a JSON object
    #[arg(value_name = "JSON")]
    pub args: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// With -, begin up to this many calls before the first of them has ended
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=62))]
    pub parallel: u8,
}

/// A call as a line of NDJSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    id: Value,
    tool: String,
    #[serde(default)]
    args: Unique,
}

/// A result as a line of NDJSON.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    id: &'a Value,
    is_error: bool,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    #[serde(skip_serializing_if = "Value::is_null")]
    details: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<Image<'a>>,
}

#[derive(Debug, Serialize)]
struct Image<'a> {
    media_type: &'a str,
    base64: String,
}

impl<'a> Answer<'a> {
    fn new(id: &'a Value, result: &'a ToolResult) -> Self {
        let image =
            result.image.as_ref().map(|(media_type, bytes)| Image { media_type, base64: STANDARD.encode(bytes) });
        let ToolResult { is_error, text, cause, details, .. } = result;
        Self { id, is_error: *is_error, text, cause: *cause, details, image }
    }
}

/// Makes the calls.
///
/// # Errors
/// Nothing was begun, or the end could not be recorded.
pub async fn run(args: ToolArgs) -> Result<u8, Failure> {
    let single = args.single()?;
    let (project, agent) = args.agent.load(&[])?;
    let means = means::open(&Notes).await?;
    let interrupt = signals::interrupt();
    let plan = Plan {
        project: &project,
        agent: &agent,
        keep: args.agent.keep,
        copy_in: args.agent.copies_in(),
        copy_out: args.agent.copies_out(),
        trigger: serde_json::json!({"type": "tool"}),
    };
    let mut failed = false;
    let ended = live(&means, plan, &Notes, &interrupt, async |caller, limits| {
        let work = Work { caller, limits, interrupt: &interrupt };
        match single {
            Some((tool, call_args)) => work.one(&tool, &call_args, args.json, &mut failed).await,
            None => work.all(tokio::io::stdin(), args.parallel.into()).await,
        }
    })
    .await?;
    if ended.cause != EndCause::Done {
        return Err(Failure { code: ended.cause.exit_code(), message: ended.message, hint: None });
    }
    Ok(u8::from(failed))
}

impl ToolArgs {
    /// The one call, or none when they come from standard input.
    fn single(&self) -> Result<Option<(String, Value)>, Failure> {
        if self.tool == "-" {
            if self.args.is_some() {
                return Err(Failure::usage("with -, calls come from standard input", "leave the JSON argument out"));
            }
            return Ok(None);
        }
        let text = self.args.as_deref().unwrap_or("{}");
        let Unique(args) = serde_json::from_str(text).map_err(|error| {
            Failure::usage(
                format!("the arguments are not JSON: {error}"),
                "such as '{\"command\": \"id\"}', in single quotes",
            )
        })?;
        Ok(Some((self.tool.clone(), args)))
    }
}

/// What the calls are made with.
pub(super) struct Work<'a> {
    pub(super) caller: Caller<'a>,
    pub(super) limits: LoopLimits,
    pub(super) interrupt: &'a CancellationToken,
}

/// One call read from standard input: its id, and the call or what is wrong with its line.
type Asked = (Value, Result<(String, Value), ToolResult>);

impl Work<'_> {
    async fn one(&self, tool: &str, args: &Value, json: bool, failed: &mut bool) -> Conclusion {
        let asked = stream::iter([(Value::Null, Ok((tool.to_owned(), args.clone())))]);
        let show = |id: &Value, result: &ToolResult| {
            *failed = result.is_error;
            output::unless_closed(if json {
                output::json(&Answer::new(id, result))
            } else {
                output::text(&result.text)
            })
        };
        self.answer(asked, &CancellationToken::new(), 1, show).await
    }

    /// Makes one call and keeps its result.
    pub(super) async fn ask(&self, tool: &str, args: Value, kept: &mut Option<ToolResult>) -> Conclusion {
        let asked = stream::iter([(Value::Null, Ok((tool.to_owned(), args)))]);
        let keep = |_: &Value, result: &ToolResult| {
            *kept = Some(result.clone());
            Ok(())
        };
        self.answer(asked, &CancellationToken::new(), 1, keep).await
    }

    async fn all(&self, input: impl AsyncRead + Unpin, parallel: usize) -> Conclusion {
        let lost = &CancellationToken::new();
        let calls = stream::unfold((BufReader::new(input), 0), |(mut input, mut number)| async move {
            let asked = unless_silent(next_call(&mut input, &mut number), lost).await;
            asked.map(|asked| (asked, (input, number)))
        });
        self.answer(calls, lost, parallel, |id, result| output::json(&Answer::new(id, result))).await
    }

    /// Makes the calls, at most `parallel` at once, and shows their results in the order asked. `lost` is cancelled when
    /// the sandbox is gone.
    async fn answer(
        &self,
        asked: impl stream::Stream<Item = Asked>,
        lost: &CancellationToken,
        parallel: usize,
        mut show: impl FnMut(&Value, &ToolResult) -> io::Result<()>,
    ) -> Conclusion {
        let (cancel, enough) = (CancellationToken::new(), CancellationToken::new());
        let numbered = asked.take_until(enough.cancelled()).enumerate();
        let results = numbered.map(|(index, (id, call))| {
            let cancel = &cancel;
            async move {
                let (tool, args) = match call {
                    Ok(call) => call,
                    Err(wrong) => return Ok((id, wrong)),
                };
                let order = CallOrder {
                    turn: 1,
                    index,
                    name: &tool,
                    args: &args,
                    journal_args: true,
                    begun: false,
                    remaining: self.limits.remaining(),
                    active_ms: self.limits.used(),
                    since: 0,
                    cancel,
                };
                self.caller.call(order).await.map(|result| (id, result))
            }
        });
        let mut results = pin!(results.buffered(parallel));
        let mut interruption = pin!(interruption(self.caller, self.interrupt));
        let mut end: Option<Conclusion> = None;
        let mut last_answers: Option<Instant> = None;
        loop {
            // Once it is enough, no more calls are asked for; those that run end first and say that they were cancelled.
            tokio::select! {
                biased;
                result = results.next() => match result {
                    Some(Ok((id, result))) => if let Err(error) = show(&id, &result) && end.is_none() {
                        // Whoever asked is not told: what he asked for next may rest on it.
                        cancel.cancel();
                        enough.cancel();
                        end = Some(Conclusion::new(EndCause::Failed, format!("cannot write a result: {error}")));
                    },
                    Some(Err(error)) => return error.into(),
                    None => break,
                },
                why = &mut interruption, if end.is_none() => {
                    cancel.cancel();
                    if matches!(why.cause, EndCause::Interrupted | EndCause::Stopped | EndCause::Killed) {
                        enough.cancel();
                    } else {
                        // What else was asked for learns that the sandbox is gone.
                        lost.cancel();
                        last_answers = Some(Instant::now() + LAST_ANSWERS);
                    }
                    end = Some(why);
                }
                () = sleep_until(last_answers.unwrap_or_else(Instant::now)), if last_answers.is_some() => {
                    // Whoever asks without end does not hold us.
                    last_answers = None;
                    enough.cancel();
                }
                () = sleep_until(self.limits.last_moment()), if end.is_none() => {
                    cancel.cancel();
                    enough.cancel();
                    end = Some(self.limits.timed_out());
                }
            }
        }
        // A sandbox that died under the last call ends the session as lost, although that call was answered.
        end.or_else(|| interruption.now_or_never())
            .unwrap_or_else(|| Conclusion::new(EndCause::Done, "every call was answered"))
    }
}

/// What is read next, or none when there is silence after the sandbox was lost: nobody else says that the input is over.
async fn unless_silent(next: impl Future<Output = Option<Asked>>, lost: &CancellationToken) -> Option<Asked> {
    let mut next = pin!(next);
    tokio::select! {
        biased;
        asked = &mut next => return asked,
        () = lost.cancelled() => {}
    }
    timeout(SILENCE, next).await.ok().flatten()
}

/// The next call of standard input; blank lines are passed over, none at its end.
async fn next_call(input: &mut (impl AsyncBufRead + Unpin), number: &mut u64) -> Option<Asked> {
    let mut line = Vec::new();
    loop {
        line.clear();
        *number += 1;
        let wrong = |why: String| {
            Some((Value::Null, Err(ToolResult::error(Cause::Invalid, format!("line {number} of the input {why}")))))
        };
        match (&mut *input).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) => return None,
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(_) => {}
            Err(error) => return wrong(format!("cannot be read: {error}")),
        }
        if line.len() as u64 >= MAX_LINE && line.last() != Some(&b'\n') {
            skip_line(input).await;
            return wrong(format!("is longer than {MAX_LINE} bytes"));
        }
        return match serde_json::from_slice::<Line>(&line) {
            Ok(call) => {
                let Unique(args) = call.args;
                let args = if args.is_null() { Value::Object(serde_json::Map::new()) } else { args };
                Some((call.id, Ok((call.tool, args))))
            }
            Err(error) => {
                wrong(format!("is not a call such as {{\"id\": 1, \"tool\": \"ls\", \"args\": {{}}}}: {error}"))
            }
        };
    }
}

/// Passes over the rest of a line without keeping it. An error comes again with the next read.
async fn skip_line(input: &mut (impl AsyncBufRead + Unpin)) {
    while let Ok(buffer) = input.fill_buf().await {
        if buffer.is_empty() {
            return;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |at| at + 1);
        input.consume(length);
        if end.is_some() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(input: &str) -> Vec<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut input, mut number) = (input.as_bytes(), 0);
            let mut all = Vec::new();
            while let Some((id, call)) = next_call(&mut input, &mut number).await {
                all.push(match call {
                    Ok((tool, args)) => json!([id, tool, args]),
                    Err(wrong) => json!([id, wrong.text]),
                });
            }
            all
        })
    }

    #[test]
    fn each_line_is_a_call_or_says_what_is_wrong() {
        let input = "{\"id\": 1, \"tool\": \"ls\"}\n\n{\"id\": \"x\", \"tool\": \"bash\", \"args\": {\"command\": \"a\"}}\nnonsense\n{\"tool\": \"ls\", \"extra\": 1}\n{\"tool\": \"ls\", \"args\": {\"path\": \"a\", \"path\": \"b\"}}";
        let form = "is not a call such as {\"id\": 1, \"tool\": \"ls\", \"args\": {}}";
        assert_eq!(
            calls(input),
            [
                json!([1, "ls", {}]),
                json!(["x", "bash", {"command": "a"}]),
                json!([null, format!("line 4 of the input {form}: expected ident at line 1 column 2")]),
                json!([
                    null,
                    format!(
                        "line 5 of the input {form}: unknown field `extra`, expected one of `id`, `tool`, `args` at line 1 column 22"
                    )
                ]),
                json!([null, format!("line 6 of the input {form}: \"path\" is given twice at line 1 column 43")]),
            ]
        );
    }
}
