//! Tools as the model sees them: names, schemas, and results in words. One file a tool.
//!
//! Transport tools reach into the sandbox. Scheduler tools reach what sessions share: each makes one verb of the store,
//! and its effect and the line of its result are one transaction.
//!
//! A tool never raises into the session (T-2): whatever happens becomes a [`ToolResult`].

mod acquire_lock;
mod bash;
mod call_agent;
mod check;
mod check_call;
mod edit;
mod find;
mod grep;
mod hands;
mod ls;
mod read;
mod release_lock;
mod return_value;
mod scheduled;
mod set_status;
#[cfg(test)]
pub(crate) mod tests;
mod text;
pub mod wait_for_trigger;
mod write;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Outcome, Request};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::fleet::Member;
use crate::model::ToolDefinition;
use crate::project::near;
use crate::sandbox::limits::Limits;
use crate::sandbox::{CallError, Reply, ToolCall};
use crate::store::{NewEvent, StoreError};

pub use hands::Hands;

/// The time that a file call may take; a healthy one takes milliseconds.
const FILE_TIMEOUT: Duration = Duration::from_mins(1);

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// It failed.
    pub is_error: bool,
    /// For the model.
    pub text: String,
    /// An image for the model: its media type and bytes.
    pub image: Option<(String, Vec<u8>)>,
    /// Why it failed, for the journal.
    pub cause: Option<Cause>,
    /// What else the journal keeps; null when there is nothing.
    pub details: Value,
}

impl ToolResult {
    fn ok(text: impl Into<String>, details: Value) -> Self {
        Self { text: text.into(), details, ..Self::default() }
    }

    pub(crate) fn error(cause: Cause, text: impl Into<String>) -> Self {
        Self { is_error: true, text: text.into(), cause: Some(cause), ..Self::default() }
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// This, which is not in the journal yet.
    Result(ToolResult),
    /// This, which is in the journal: its line and its effect were one transaction.
    Recorded(ToolResult),
    /// The session waits; the answer comes when it is woken.
    Suspended,
}

/// Makes the `tool_finished` line of a call from its result.
pub type Finish = Arc<dyn Fn(&ToolResult) -> NewEvent + Send + Sync>;

/// What else a call has the journal say, in the same transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// The agent says what it is doing (`status`).
    Status(String),
    /// It set its return value (`returned`).
    Returned(Value),
    /// It waits (`suspended`); nothing else of the call is said then.
    Suspended {
        /// For what.
        on: Value,
        /// In words.
        words: String,
        /// When it gives up, in milliseconds since 1970.
        deadline: i64,
        /// Active time that the session has used, in milliseconds.
        active_ms: i64,
    },
}

/// Makes the line of a [`Note`].
pub type Noter = Arc<dyn Fn(&Note) -> NewEvent + Send + Sync>;

impl From<CallError> for ToolResult {
    fn from(error: CallError) -> Self {
        Self::error(error.cause(), error.to_string())
    }
}

/// What a session's tools share.
#[derive(Debug)]
pub struct ToolSession {
    /// The time of a `bash` call that names none.
    pub bash_timeout: Duration,
    /// The sandbox's limits, for messages.
    pub limits: Limits,
    /// The model takes images.
    pub images: bool,
    /// The model was told that there is no bash.
    shell_said: Cell<bool>,
    /// Bytes of the commands that are under way.
    commands: Cell<u64>,
}

impl ToolSession {
    /// A new session's.
    pub fn new(bash_timeout: Duration, limits: Limits, images: bool) -> Self {
        Self { bash_timeout, limits, images, shell_said: Cell::new(false), commands: Cell::new(0) }
    }
}

/// What one call is made with.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The sandbox.
    pub hands: &'a dyn Hands,
    /// What the session's tools share.
    pub session: &'a ToolSession,
    /// `session/turn/index`.
    pub key: &'a str,
    /// The session's remaining time.
    pub remaining: Duration,
    /// Ends the call early.
    pub cancel: &'a CancellationToken,
    /// What the session shares with others; none for `runner tool`, which offers no scheduler tools.
    pub fleet: Option<Among<'a>>,
}

/// What a call of a scheduler tool is made with.
#[derive(Clone, Copy)]
pub struct Among<'a> {
    /// The session among the others.
    pub member: &'a Member,
    /// Makes the line that goes into the transaction of the call's effect.
    pub finish: &'a Finish,
    /// Makes the lines that some calls add to it.
    pub note: &'a Noter,
    /// The inbox's position when the model was asked for this turn.
    pub since: i64,
    /// Active time that the session has used, in milliseconds.
    pub active_ms: i64,
}

impl Context<'_> {
    /// Makes a call to the sandbox.
    async fn call(&self, request: Request, body: impl Into<Bytes>, timeout: Duration) -> Result<Reply, ToolResult> {
        let call =
            ToolCall { key: self.key.to_owned(), request, body: body.into(), timeout, cancel: self.cancel.clone() };
        let reply = self.hands.call(call).await?;
        match reply.outcome {
            Outcome::Failed { cause, message } => Err(ToolResult::error(cause, message)),
            _ => Ok(reply),
        }
    }

    /// Makes a call about files.
    async fn file_call(&self, request: Request, body: impl Into<Bytes>) -> Result<Reply, ToolResult> {
        self.call(request, body, FILE_TIMEOUT.min(self.remaining)).await
    }
}

/// One tool.
trait Tool {
    /// What the model calls it by.
    fn name(&self) -> &'static str;

    /// What the model is told of it.
    fn description(&self) -> &'static str;

    /// JSON Schema (2020-12) of its arguments: no `$ref`, no unknown keys.
    fn schema(&self) -> Value;

    /// True when a call may change something in the sandbox: its intent is then durable before it begins. Others are
    /// made again after a restart that came in between; a scheduler tool without its line had no effect.
    fn has_effects(&self) -> bool;

    /// When a call is made in its turn.
    fn order(&self) -> Order {
        Order::AtOnce
    }

    /// Makes a call whose arguments fit the schema. Tools that need others to act have only [`Tool::say`].
    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        let _ = (context, args);
        Box::pin(async { scheduled::alone() })
    }

    /// Makes a call that may write its own line, or suspend the session.
    ///
    /// # Errors
    /// The store failed or fenced the driver: nothing may be done any more.
    fn say<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, Result<Said, StoreError>> {
        Box::pin(async move { Ok(Said::Result(self.run(context, args).await)) })
    }
}

/// When a call is made in its turn (S-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// With all others (T-8).
    AtOnce,
    /// After those of its kind that were asked for before it.
    OneByOne,
    /// When every other call has ended: it may suspend the session.
    Last,
}

/// An answer that makes no sense for what was asked.
fn unexpected(outcome: &Outcome) -> ToolResult {
    let kind = serde_json::to_value(outcome).ok().and_then(|value| match value {
        Value::Object(members) => members.keys().next().cloned(),
        Value::String(name) => Some(name),
        _ => None,
    });
    ToolResult::error(
        Cause::Invalid,
        format!("the sandbox gave an answer of another kind ({})", kind.unwrap_or_default()),
    )
}

/// The tools that a session offers.
pub struct Registry {
    tools: Vec<Entry>,
}

struct Entry {
    tool: Box<dyn Tool>,
    schema: Value,
    validator: jsonschema::Validator,
}

/// A call whose tool is known and whose arguments fit.
pub struct Ready<'a> {
    tool: &'a dyn Tool,
    args: Value,
}

impl Registry {
    /// The transport tools: what can be done without an agent (`runner tool`).
    pub fn transport() -> Self {
        Self::of(vec![
            Box::new(bash::Bash),
            Box::new(edit::Edit),
            Box::new(find::Find),
            Box::new(grep::Grep),
            Box::new(ls::Ls),
            Box::new(read::Read),
            Box::new(write::Write),
        ])
    }

    /// All tools of an agent's session.
    pub fn session() -> Self {
        Self::of(vec![
            Box::new(acquire_lock::AcquireLock),
            Box::new(bash::Bash),
            Box::new(call_agent::CallAgent),
            Box::new(check_call::CheckCall),
            Box::new(edit::Edit),
            Box::new(find::Find),
            Box::new(grep::Grep),
            Box::new(ls::Ls),
            Box::new(read::Read),
            Box::new(release_lock::ReleaseLock),
            Box::new(return_value::ReturnValue),
            Box::new(set_status::SetStatus),
            Box::new(wait_for_trigger::WaitForTrigger),
            Box::new(write::Write),
        ])
    }

    fn of(tools: Vec<Box<dyn Tool>>) -> Self {
        let entry = |tool: Box<dyn Tool>| {
            let schema = tool.schema();
            let validator = jsonschema::draft202012::new(&schema).expect("our schemas are valid; a test holds that");
            Entry { tool, schema, validator }
        };
        Self { tools: tools.into_iter().map(entry).collect() }
    }

    /// What a model is told of the tools, sorted by name.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        let definition = |entry: &Entry| ToolDefinition {
            name: entry.tool.name().to_owned(),
            description: entry.tool.description().to_owned(),
            schema: entry.schema.clone(),
        };
        self.tools.iter().map(definition).collect()
    }

    /// The names of the tools, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        self.tools.iter().map(|entry| entry.tool.name()).collect()
    }

    /// When a call of this tool is made in its turn.
    pub fn order(&self, name: &str) -> Order {
        let found = self.tools.iter().find(|entry| entry.tool.name() == name);
        found.map_or(Order::AtOnce, |entry| entry.tool.order())
    }

    /// Finds the tool and checks the arguments; numbers given as strings become numbers (T-1).
    ///
    /// # Errors
    /// The result to give back to the model.
    pub fn prepare(&self, name: &str, mut args: Value) -> Result<Ready<'_>, Box<ToolResult>> {
        let Some(entry) = self.tools.iter().find(|entry| entry.tool.name() == name) else {
            let names = || self.tools.iter().map(|entry| entry.tool.name());
            let list = names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let hint = match near(name, names()).first() {
                Some(best) => format!("did you mean `{best}`? "),
                None => String::new(),
            };
            let short = text::shorten(name, 100);
            let words = format!("there is no tool {short:?}; {hint}There are {list}.");
            return Err(Box::new(ToolResult::error(Cause::NotFound, words)));
        };
        check::coerce(&entry.schema, &mut args);
        let faults = match &args {
            Value::String(text) => Some(check::not_json(text)),
            args => check::faults(&entry.schema, &entry.validator, args),
        };
        match faults {
            Some(faults) => {
                let words = format!("the arguments of `{name}` do not fit:{faults}");
                Err(Box::new(ToolResult::error(Cause::Invalid, words)))
            }
            None => Ok(Ready { tool: entry.tool.as_ref(), args }),
        }
    }
}

impl Ready<'_> {
    /// True when the call may change something.
    pub fn has_effects(&self) -> bool {
        self.tool.has_effects()
    }

    /// Makes a call of a tool that needs no fleet.
    pub async fn result(self, context: Context<'_>) -> ToolResult {
        self.tool.run(context, self.args).await
    }

    /// Makes the call.
    ///
    /// # Errors
    /// The store failed or fenced the driver: nothing may be done any more.
    pub async fn run(self, context: Context<'_>) -> Result<Said, StoreError> {
        self.tool.say(context, self.args).await
    }
}
