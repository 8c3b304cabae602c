//! The model that needs no key and no network: a file of turns.
//!
//! Its place in the file is read from the conversation (`raw` of the last turn that is its own), so a recorded
//! conversation can be gone on with by a new process, and one that another model began. Only how often a `fail` turn has
//! failed is counted here.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::reference::{Reference, Step, Template, as_text, is_id, walk};
use super::{
    AssistantTurn, CallResult, FailKind, Message, Model, ModelError, ModelEvent, ToolCallRequest, TurnRequest, Usage,
};
use crate::project::near;

/// Names that a call cannot have because references use them.
const PROMPT_NAMES: [&str; 3] = ["task", "trigger", "params"];

/// What to do about a reference that was meant for a shell.
const LITERAL: &str = "write `$${` for a literal `${`";

/// Something in a script that is hardly meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The session would fail there.
    pub(crate) is_error: bool,
    /// What it is, naming the turn.
    pub(crate) what: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    turns: Vec<TurnText>,
}

/// One turn as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnText {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<CallText>,
    #[serde(default)]
    expect: BTreeMap<String, ExpectText>,
    repeat: Option<RepeatText>,
    fail: Option<FailText>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    id: Option<String>,
    tool: String,
    #[serde(default = "no_args")]
    args: Value,
}

fn no_args() -> Value {
    Value::Object(Map::new())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectText {
    is_error: Option<bool>,
    contains: Option<String>,
    matches: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RepeatText {
    until: BTreeMap<String, Value>,
    #[serde(default = "default_max")]
    max: u64,
    #[serde(default, rename = "everyMs")]
    every_ms: u64,
}

fn default_max() -> u64 {
    100
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct FailText {
    kind: FailKind,
    #[serde(default = "default_times")]
    times: u64,
}

fn default_times() -> u64 {
    1
}

/// One turn, checked.
#[derive(Debug)]
struct Turn {
    text: Template,
    calls: Vec<Call>,
    expect: Vec<(String, Expect)>,
    repeat: Option<Repeat>,
    fail: Option<FailText>,
    usage: Usage,
}

#[derive(Debug)]
struct Call {
    id: String,
    tool: String,
    args: Args,
}

/// Arguments with a template in the place of every string.
#[derive(Debug)]
enum Args {
    Text(Template),
    List(Vec<Args>),
    Object(Vec<(String, Args)>),
    Other(Value),
}

#[derive(Debug)]
struct Expect {
    is_error: Option<bool>,
    contains: Option<Template>,
    matches: Option<Regex>,
}

#[derive(Debug)]
struct Repeat {
    until: Vec<(Reference, Args)>,
    max: u64,
    every: Duration,
}

/// A scripted model.
#[derive(Debug)]
pub struct ScriptModel {
    /// What its turns say of who answered.
    identity: String,
    turns: Vec<Turn>,
    /// How often each `fail` turn has failed, by its index.
    failed: RefCell<BTreeMap<usize, u64>>,
}

impl ScriptModel {
    /// Reads a script.
    ///
    /// # Errors
    /// What is wrong, with line and column or the turn's number.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The parser would take a list for the members of the object, in their order.
        if text.trim_start().starts_with('[') {
            return Err("a script is an object with `turns`, not a list: {\"turns\": […]}".to_owned());
        }
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut turns = Vec::new();
        for (index, turn) in file.turns.into_iter().enumerate() {
            turns.push(Turn::check(index, turn).map_err(|why| format!("turn {}: {why}", index + 1))?);
        }
        Ok(Self { identity: "script".to_owned(), turns, failed: RefCell::default() })
    }

    /// What can be read and yet is hardly meant; `tools` are the names of those there are.
    pub(super) fn doubts(&self, tools: &[&str]) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if self.turns.is_empty() {
            let what = "has no turns: the agent is done before it has begun".to_owned();
            doubts.push(Doubt { is_error: false, what, hint: Some("write at least one turn".to_owned()) });
        }
        let ids: HashSet<&str> = self.turns.iter().flat_map(|turn| &turn.calls).map(|call| call.id.as_str()).collect();
        for (index, turn) in self.turns.iter().enumerate() {
            let at = index + 1;
            for call in turn.calls.iter().filter(|call| !tools.contains(&call.tool.as_str())) {
                let hint = match near(&call.tool, tools.iter().copied()).first() {
                    Some(best) => format!("did you mean `{best}`?"),
                    None => format!("there are {}", tools.join(", ")),
                };
                let what = format!("turn {at}: there is no tool {:?}", call.tool);
                doubts.push(Doubt { is_error: false, what, hint: Some(hint) });
            }
            let mut references: Vec<&Reference> = turn.text.references().collect();
            turn.calls.iter().for_each(|call| call.args.references(&mut references));
            references.extend(
                turn.expect.iter().filter_map(|(_, expect)| expect.contains.as_ref()).flat_map(Template::references),
            );
            for reference in references {
                let name = reference.name.as_str();
                if !ids.contains(name) && !PROMPT_NAMES.contains(&name) {
                    let what = format!("turn {at}: `${{{}}}` names no call of the script", reference.written);
                    doubts.push(Doubt { is_error: true, what, hint: Some(LITERAL.to_owned()) });
                }
            }
        }
        doubts
    }

    /// The same script under a name of its own, so that its turns are told from those of other scripts.
    pub(super) fn named(self, name: &str) -> Self {
        Self { identity: format!("script/{name}"), ..self }
    }

    /// What its turns say of who answered.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Turn and round of its last answer in the conversation; turns of other models do not count.
    fn place(&self, request: &TurnRequest) -> Result<Option<(usize, u64)>, ModelError> {
        let last = request.messages.iter().rev().find_map(|message| match message {
            Message::Assistant(turn) if turn.model == self.identity => Some(&turn.raw["script"]),
            _ => None,
        });
        let Some(raw) = last else { return Ok(None) };
        let turn = raw["turn"].as_u64().and_then(|turn| usize::try_from(turn).ok());
        match (turn, raw["round"].as_u64()) {
            (Some(turn), Some(round)) => Ok(Some((turn, round))),
            _ => Err(ModelError::new(FailKind::Script, "a turn of the script has lost its place in it")),
        }
    }

    async fn next(
        &self,
        request: &TurnRequest,
        events: &UnboundedSender<ModelEvent>,
        cancel: &CancellationToken,
    ) -> Result<AssistantTurn, ModelError> {
        let known = Known::of(request);
        let (mut index, mut round) = (0, 0);
        if let Some((last, last_round)) = self.place(request)? {
            let fault = |why: String| script_error(last, &why);
            let turn = self.turns.get(last).ok_or_else(|| fault("the conversation is of another script".to_owned()))?;
            (index, round) = (last + 1, 0);
            if let Some(repeat) = &turn.repeat
                && !repeat.is_over(&known).map_err(fault)?
            {
                if last_round + 1 >= repeat.max {
                    return Err(fault(format!("`until` does not hold after {} times", repeat.max)));
                }
                tokio::select! {
                    () = tokio::time::sleep(repeat.every) => {}
                    () = cancel.cancelled() => return Err(ModelError::cancelled()),
                }
                (index, round) = (last, last_round + 1);
            } else {
                turn.check_expectations(&known).map_err(fault)?;
            }
        }
        while let Some(fail) = self.turns.get(index).and_then(|turn| turn.fail) {
            let mut failed = self.failed.borrow_mut();
            let times = failed.entry(index).or_default();
            if *times < fail.times {
                *times += 1;
                return Err(ModelError::new(fail.kind, format!("turn {}: {}", index + 1, words(fail.kind))));
            }
            index += 1;
        }
        let raw = json!({"script": {"turn": index, "round": round}});
        let model = self.identity.clone();
        // A script that has run out has nothing more to ask for.
        let Some(turn) = self.turns.get(index) else {
            return Ok(AssistantTurn { model, raw, ..AssistantTurn::default() });
        };
        let fault = |why: String| script_error(index, &why);
        let value_of = |reference: &Reference| known.value(reference);
        let text = turn.text.render(&value_of).map_err(fault)?;
        let mut calls = Vec::new();
        for call in &turn.calls {
            let args = call.args.render(&value_of).map_err(fault)?;
            calls.push(ToolCallRequest { provider_id: call.id.clone(), name: call.tool.clone(), args });
        }
        if !text.is_empty() {
            let _ = events.send(ModelEvent::Text(text.clone()));
        }
        Ok(AssistantTurn { text, calls, model, raw, usage: turn.usage })
    }
}

impl Model for ScriptModel {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        Box::pin(self.next(request, events, cancel))
    }

    fn takes_images(&self) -> bool {
        true
    }
}

impl Turn {
    fn check(index: usize, written: TurnText) -> Result<Self, String> {
        if written.fail.is_some() && (!written.calls.is_empty() || !written.text.is_empty()) {
            return Err("`fail` stands alone: a failed turn has no text and no calls".to_owned());
        }
        let mut ids = HashSet::new();
        let mut calls = Vec::new();
        for (at, call) in written.calls.into_iter().enumerate() {
            let id = call.id.unwrap_or_else(|| format!("turn{}-{}", index + 1, at + 1));
            if !is_id(&id) || PROMPT_NAMES.contains(&id.as_str()) {
                return Err(format!(
                    "{id:?} cannot be a call's id (letters, digits, `_`, `-`; not task, trigger, params)"
                ));
            }
            if !ids.insert(id.clone()) {
                return Err(format!("two calls have the id {id:?}"));
            }
            calls.push(Call { id, tool: call.tool, args: Args::parse(call.args)? });
        }
        let mut expect = Vec::new();
        for (id, expected) in written.expect {
            if !ids.contains(&id) {
                return Err(format!("`expect` names {id:?}, which is no call of this turn"));
            }
            let contains = expected.contains.as_deref().map(Template::parse).transpose()?;
            let matches = expected
                .matches
                .map(|pattern| Regex::new(&pattern).map_err(|error| format!("`matches` of {id:?}: {}", reason(&error))))
                .transpose()?;
            expect.push((id, Expect { is_error: expected.is_error, contains, matches }));
        }
        let repeat = written.repeat.map(|repeat| Repeat::check(repeat, &ids)).transpose()?;
        Ok(Self {
            text: Template::parse(&written.text)?,
            calls,
            expect,
            repeat,
            fail: written.fail,
            usage: written.usage,
        })
    }

    fn check_expectations(&self, known: &Known<'_>) -> Result<(), String> {
        for (id, expect) in &self.expect {
            let result = known.result(id).ok_or_else(|| format!("{id:?} has no result"))?;
            let unmet = |what: &str| {
                let shown: String = result.text.chars().take(400).collect();
                let kind = if result.is_error { "error" } else { "result" };
                Err(format!("expected {id:?} {what}, but its {kind} is {shown:?}"))
            };
            if let Some(is_error) = expect.is_error.filter(|expected| *expected != result.is_error) {
                return unmet(if is_error { "to fail" } else { "to succeed" });
            }
            if let Some(contains) = &expect.contains {
                let contains = contains.render(&|reference| known.value(reference))?;
                if !result.text.contains(&contains) {
                    return unmet(&format!("to contain {contains:?}"));
                }
            }
            if let Some(matches) = expect.matches.as_ref().filter(|regex| !regex.is_match(&result.text)) {
                return unmet(&format!("to match {:?}", matches.as_str()));
            }
        }
        Ok(())
    }
}

/// The last line of a pattern's error says why; those before it draw the pattern.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().next_back().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl Repeat {
    fn check(written: RepeatText, ids: &HashSet<String>) -> Result<Self, String> {
        if written.until.is_empty() || written.max == 0 {
            return Err("`repeat` needs `until` with at least one condition, and `max` of at least 1".to_owned());
        }
        let mut until = Vec::new();
        for (path, value) in written.until {
            let reference = Reference::parse(&path)?;
            if !ids.contains(&reference.name) {
                return Err(format!("`until` names {:?}, which is no call of this turn", reference.name));
            }
            until.push((reference, Args::parse(value)?));
        }
        Ok(Self { until, max: written.max, every: Duration::from_millis(written.every_ms) })
    }

    /// A value that is not there yet is a condition that does not hold yet.
    fn is_over(&self, known: &Known<'_>) -> Result<bool, String> {
        for (reference, expected) in &self.until {
            let expected = expected.render(&|reference| known.value(reference))?;
            let holds = known.value(reference).is_ok_and(|value| match &expected {
                Value::String(text) => as_text(&value) == *text,
                other => value == *other,
            });
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Args {
    fn parse(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(&text)?),
            Value::Array(items) => Self::List(items.into_iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => Self::Object(
                members
                    .into_iter()
                    .map(|(key, value)| Ok((key, Self::parse(value)?)))
                    .collect::<Result<_, String>>()?,
            ),
            other => Self::Other(other),
        })
    }

    fn references<'a>(&'a self, found: &mut Vec<&'a Reference>) {
        match self {
            Self::Text(template) => found.extend(template.references()),
            Self::List(items) => items.iter().for_each(|item| item.references(found)),
            Self::Object(members) => members.iter().for_each(|(_, value)| value.references(found)),
            Self::Other(_) => {}
        }
    }

    fn render(&self, value_of: &dyn Fn(&Reference) -> Result<Value, String>) -> Result<Value, String> {
        Ok(match self {
            Self::Text(template) => Value::String(template.render(value_of)?),
            Self::List(items) => items.iter().map(|item| item.render(value_of)).collect::<Result<_, _>>()?,
            Self::Object(members) => members
                .iter()
                .map(|(key, value)| Ok((key.clone(), value.render(value_of)?)))
                .collect::<Result<_, String>>()?,
            Self::Other(value) => value.clone(),
        })
    }
}

/// What references can name.
struct Known<'a> {
    request: &'a TurnRequest,
    /// The latest result of each id.
    results: BTreeMap<&'a str, &'a CallResult>,
}

impl<'a> Known<'a> {
    fn of(request: &'a TurnRequest) -> Self {
        let mut results = BTreeMap::new();
        for message in &request.messages {
            if let Message::Results(all) = message {
                results.extend(all.iter().map(|result| (result.provider_id.as_str(), result)));
            }
        }
        Self { request, results }
    }

    fn result(&self, id: &str) -> Option<&CallResult> {
        self.results.get(id).copied()
    }

    fn value(&self, reference: &Reference) -> Result<Value, String> {
        let missing = |why: &str| format!("`${{{}}}` has no value: {why}", reference.written);
        let parts = &self.request.parts;
        let below = |root: &Value, what: &str| {
            walk(root, &reference.path).cloned().ok_or_else(|| missing(&format!("nothing is there in {what}")))
        };
        match reference.name.as_str() {
            "task" if !reference.path.is_empty() => Err(missing("the task is text")),
            "task" => parts.task.clone().map(Value::String).ok_or_else(|| missing("no task was given")),
            "trigger" => below(&parts.trigger, "the trigger"),
            "params" => below(&parts.params, "the agent's params"),
            id => {
                let result =
                    self.result(id).ok_or_else(|| missing(&format!("no earlier call has this id ({LITERAL})")))?;
                match reference.path.as_slice() {
                    [] => Ok(Value::String(result.text.clone())),
                    [Step::Key(key)] if key == "text" => Ok(Value::String(result.text.clone())),
                    [Step::Key(key)] if key == "is_error" => Ok(Value::Bool(result.is_error)),
                    _ => match serde_json::from_str::<Value>(&result.text) {
                        Ok(json) => below(&json, "the result"),
                        Err(_) => Err(missing("the result is not JSON")),
                    },
                }
            }
        }
    }
}

fn script_error(index: usize, why: &str) -> ModelError {
    ModelError::new(FailKind::Script, format!("turn {} of the script: {why}", index + 1))
}

/// What a provider would say.
fn words(kind: FailKind) -> &'static str {
    match kind {
        FailKind::RateLimit => "too many requests",
        FailKind::Overloaded => "the provider is overloaded",
        FailKind::Timeout => "the provider did not answer in time",
        FailKind::Network => "the provider cannot be reached",
        FailKind::Auth => "the provider does not accept the key",
        FailKind::Invalid => "the provider does not accept the request",
        FailKind::ContextLength => "the conversation is too long for the model",
        FailKind::Refused => "the provider refuses the request",
        FailKind::Script => "the script failed as it was told to",
        FailKind::Cancelled => "the request was cancelled",
    }
}
