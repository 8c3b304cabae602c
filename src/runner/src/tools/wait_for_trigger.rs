//! `wait_for_trigger`: the session suspended until something happens.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use protocol::Cause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{self, begin, failure, joined};
use super::{Context, Note, Order, Said, Tool, ToolResult};
use crate::duration;
use crate::fleet::Rules;
use crate::project::MAX_WAIT;
use crate::store::{Lines, StoreError, WaitAnswer, WaitOn, WaitRequest, Waited, Woken};
use crate::trigger::Filter;

pub(super) struct WaitForTrigger;

#[derive(Deserialize)]
struct Args {
    r#type: Kind,
    source: Option<String>,
    event: Option<String>,
    #[serde(default)]
    r#match: Value,
    source_agent: Option<String>,
    timeout: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Webhook,
    AgentTrigger,
}

impl Tool for WaitForTrigger {
    fn name(&self) -> &'static str {
        "wait_for_trigger"
    }

    fn description(&self) -> &'static str {
        "Suspends you until something happens, and returns the whole trigger: an event from outside (type webhook), or a \
         call of another agent or the result of a call that you made (type agent_trigger). While you wait your sandbox is \
         paused and nothing is used. Files and background jobs are as you left them afterwards, but their clocks went on, \
         and so do locks: what you hold may expire. If nothing comes in time, the result is an error with the reason \
         `timeout` and you go on."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["webhook", "agent_trigger"], "description": "What to wait for."},
                "source": {
                    "type": "string",
                    "description": "Webhook: name of a source, or a type such as github; any source by default."
                },
                "event": {"type": "string", "description": "Webhook: the provider's event, such as pull_request."},
                "match": {
                    "type": "object",
                    "description": "Dot paths and the values that they must lead to, such as {\"repo\": \"acme/app\", \
                                    \"action\": \"closed\", \"labels.0.name\": \"bug\"}. A dot inside a key is written \\."
                },
                "source_agent": {
                    "type": "string",
                    "description": "Agent trigger: only calls of this agent, and results of calls to it."
                },
                "timeout": {
                    "type": "string",
                    "description": "How long to wait at most: 45s, 30m, 1h30m, 2d; at most 30d."
                }
            },
            "required": ["type"],
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn order(&self) -> Order {
        Order::Last
    }

    fn say<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, Result<Said, StoreError>> {
        Box::pin(async move {
            let (among, args) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            let member = among.member;
            let (on, timeout) = match understood(args, &member.rules) {
                Ok(understood) => understood,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            let words = in_words(&on);
            let wait = WaitRequest {
                call: context.key.to_owned(),
                on: on.clone(),
                timeout: i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX),
                since: among.since,
                most: member.rules.max_suspended,
                words: words.clone(),
            };
            let (finish, note, active_ms) = (among.finish.clone(), among.note.clone(), among.active_ms);
            let lines = Lines::new(move |given: &WaitAnswer| match given {
                WaitAnswer::Suspended { deadline } => {
                    let (on, words) = (described(&on), words.clone());
                    vec![note(&Note::Suspended { on, words, deadline: *deadline, active_ms })]
                }
                WaitAnswer::Now(trigger) => vec![finish(&at_once(trigger))],
                WaitAnswer::TooMany(most) => vec![finish(&too_many(*most))],
            });
            Ok(match member.store.wait(member.seat, wait, lines).await? {
                WaitAnswer::Suspended { .. } => Said::Suspended,
                WaitAnswer::Now(trigger) => Said::Recorded(at_once(&trigger)),
                WaitAnswer::TooMany(most) => Said::Recorded(too_many(most)),
            })
        })
    }
}

/// What the model is told when a wait is over (S-WAIT-9, S-WAIT-10).
pub fn answer(waited: &Waited) -> ToolResult {
    let mut more = json!({"waited_seconds": seconds(waited.waited)});
    if let Some(lock) = &waited.lost_lock {
        more["lost_lock"] = Value::String(lock.clone());
    }
    match &waited.woken {
        Woken::Trigger(trigger) => scheduled::answer(&joined(trigger.clone(), more)),
        Woken::Timeout => failure(Cause::Timeout, "timeout", "nothing that was waited for came in time", more),
    }
}

/// What the model is told of a trigger that was there already.
fn at_once(trigger: &Value) -> ToolResult {
    answer(&Waited { woken: Woken::Trigger(trigger.clone()), waited: 0, lost_lock: None })
}

fn too_many(most: u32) -> ToolResult {
    let message = format!("{most} sessions of this project wait already; go on without, or try again later");
    failure(Cause::Limit, "too_many_waiting", &message, json!({"max_suspended": most}))
}

/// Whole seconds as such, others with their fraction.
fn seconds(milliseconds: i64) -> Value {
    if milliseconds % 1000 == 0 {
        return Value::from(milliseconds / 1000);
    }
    #[expect(clippy::cast_precision_loss, reason = "a wait is at most thirty days")]
    Value::from(milliseconds as f64 / 1000.0)
}

/// What is waited for and how long, or why not (S-WAIT-1 to S-WAIT-3).
fn understood(args: Args, rules: &Rules) -> Result<(WaitOn, Duration), Box<ToolResult>> {
    let wrong = |reason: &str, message: &str| Box::new(failure(Cause::Invalid, reason, message, Value::Null));
    let timeout = match &args.timeout {
        None => rules.wait_timeout,
        Some(text) => duration::parse(text)
            .filter(|timeout| (Duration::from_secs(1)..=MAX_WAIT).contains(timeout))
            .ok_or_else(|| {
                let message = format!("timeout is {text:?}; it is from 1s to 30d: {}", duration::GRAMMAR);
                wrong("invalid_timeout", &message)
            })?,
    };
    let filter = Filter::parse(&args.r#match).map_err(|why| wrong("invalid_match", &why.to_string()))?;
    let on = match args.r#type {
        Kind::Webhook if args.source_agent.is_some() => {
            return Err(wrong("invalid_arguments", "`source_agent` belongs to the type agent_trigger"));
        }
        Kind::Webhook => {
            WaitOn::Webhook { sources: sources(args.source.as_deref(), rules)?, event: args.event, filter }
        }
        Kind::AgentTrigger if args.source.is_some() || args.event.is_some() => {
            return Err(wrong("invalid_arguments", "`source` and `event` belong to the type webhook"));
        }
        Kind::AgentTrigger => WaitOn::Agent { source_agent: args.source_agent, filter },
    };
    Ok((on, timeout))
}

/// Names of the sources that a name or a provider's type stands for; none stands for any.
fn sources(asked: Option<&str>, rules: &Rules) -> Result<Vec<String>, Box<ToolResult>> {
    let Some(asked) = asked else { return Ok(Vec::new()) };
    let named = |by_type: bool| {
        let fits = move |(name, kind): &&(String, String)| if by_type { kind == asked } else { name == asked };
        rules.sources.iter().filter(fits).map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    // A source that is called like a type has that type, so the type includes it.
    let found = match named(true) {
        of_type if !of_type.is_empty() => of_type,
        _ => named(false),
    };
    if !found.is_empty() {
        return Ok(found);
    }
    let known: Vec<&str> = rules.sources.iter().map(|(name, _)| name.as_str()).collect();
    let message = format!("the project has no source of webhooks that is called {asked:?} or is of that type");
    Err(Box::new(failure(Cause::NotFound, "unknown_source", &message, json!({"known_sources": known}))))
}

/// A wait for people, in one line.
fn in_words(on: &WaitOn) -> String {
    let (mut words, filter) = match on {
        WaitOn::Webhook { sources, event, filter } => {
            let event = event.as_deref().unwrap_or("any event");
            let from = if sources.is_empty() { "any source".to_owned() } else { sources.join(", ") };
            (format!("{event} from {from}"), filter)
        }
        WaitOn::Agent { source_agent: Some(agent), filter } => (format!("agent {agent}"), filter),
        WaitOn::Agent { source_agent: None, filter } => ("any agent".to_owned(), filter),
    };
    if let Value::Object(members) = filter.to_json() {
        for (at, (path, value)) in members.iter().enumerate() {
            let value = value.as_str().unwrap_or("null");
            let joint = if at == 0 { ", " } else { " and " };
            words.extend([joint, path, " = ", value]);
        }
    }
    super::text::shorten(&words, 200)
}

/// A wait in JSON, for the journal.
fn described(on: &WaitOn) -> Value {
    match on {
        WaitOn::Webhook { sources, event, filter } => {
            json!({"type": "webhook", "sources": sources, "event": event, "match": filter.to_json()})
        }
        WaitOn::Agent { source_agent, filter } => {
            json!({"type": "agent_trigger", "source_agent": source_agent, "match": filter.to_json()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fleet::rules;
    use super::*;
    use crate::trigger;

    fn asked(args: Value) -> Result<(WaitOn, Duration), String> {
        understood(serde_json::from_value(args).unwrap(), &rules()).map_err(|refused| {
            assert!(refused.is_error);
            refused.text
        })
    }

    fn webhook(sources: &[&str], event: Option<&str>, filter: &Value) -> WaitOn {
        WaitOn::Webhook {
            sources: sources.iter().map(|name| (*name).to_owned()).collect(),
            event: event.map(str::to_owned),
            filter: Filter::parse(filter).unwrap(),
        }
    }

    /// S-WAIT-1, S-WAIT-2: a source is a name or a type, and what is left out has its default.
    #[test]
    fn waits_that_are_understood() {
        let default = Duration::from_mins(30);
        assert_eq!(asked(json!({"type": "webhook"})), Ok((webhook(&[], None, &json!({})), default)));
        let one =
            json!({"type": "webhook", "source": "ours", "event": "push", "match": {"repo": "a/b"}, "timeout": "1h30m"});
        assert_eq!(
            asked(one),
            Ok((webhook(&["ours"], Some("push"), &json!({"repo": "a/b"})), Duration::from_mins(90)))
        );
        let by_type = json!({"type": "webhook", "source": "github", "timeout": "30d"});
        assert_eq!(asked(by_type), Ok((webhook(&["github", "ours"], None, &json!({})), MAX_WAIT)));
        let agent = WaitOn::Agent { source_agent: Some("b".to_owned()), filter: Filter::default() };
        assert_eq!(asked(json!({"type": "agent_trigger", "source_agent": "b"})), Ok((agent, default)));
    }

    /// S-WAIT-1, S-WAIT-2, S-WAIT-3: what cannot be waited for is refused at once, with its reason.
    #[test]
    fn waits_that_are_refused() {
        let refused = |args: Value| asked(args).unwrap_err();
        insta::assert_snapshot!(refused(json!({"type": "webhook", "timeout": "soon"})), @r#"{"reason":"invalid_timeout","message":"timeout is \"soon\"; it is from 1s to 30d: whole numbers with the units d, h, m and s, each at most once and the larger first: \"45s\", \"30m\", \"1h30m\", \"2d\""}"#);
        insta::assert_snapshot!(refused(json!({"type": "webhook", "timeout": "31d"})), @r#"{"reason":"invalid_timeout","message":"timeout is \"31d\"; it is from 1s to 30d: whole numbers with the units d, h, m and s, each at most once and the larger first: \"45s\", \"30m\", \"1h30m\", \"2d\""}"#);
        insta::assert_snapshot!(refused(json!({"type": "webhook", "source": "gitlab"})), @r#"{"reason":"unknown_source","message":"the project has no source of webhooks that is called \"gitlab\" or is of that type","known_sources":["github","ours","errors"]}"#);
        insta::assert_snapshot!(refused(json!({"type": "webhook", "match": {"a": [1]}})), @r#"{"reason":"invalid_match","message":"`match` compares \"a\" with a list or an object; only strings, numbers, booleans and null can be compared"}"#);
        insta::assert_snapshot!(refused(json!({"type": "webhook", "match": {"a..b": 1}})), @r#"{"reason":"invalid_match","message":"`match` has a path that leads nowhere: \"a..b\""}"#);
        insta::assert_snapshot!(refused(json!({"type": "webhook", "source_agent": "b"})), @r#"{"reason":"invalid_arguments","message":"`source_agent` belongs to the type agent_trigger"}"#);
        insta::assert_snapshot!(refused(json!({"type": "agent_trigger", "event": "push"})), @r#"{"reason":"invalid_arguments","message":"`source` and `event` belong to the type webhook"}"#);
        let many = too_many(50);
        assert!(many.is_error && many.text.contains(r#""reason":"too_many_waiting""#), "{}", many.text);
    }

    /// S-WAIT-9: the result is the full trigger, how long it took, and a lock that was lost.
    #[test]
    fn a_wait_that_was_woken() {
        let fields = json!({"source": "ours", "event": "push", "repo": "a/b"});
        let trigger = trigger::webhook(&fields, &json!({"ref": "refs/heads/main"}));
        let waited = Waited { woken: Woken::Trigger(trigger), waited: 1_500, lost_lock: Some("lock://x/y".to_owned()) };
        insta::assert_snapshot!(answer(&waited).text, @r#"{"type":"webhook","source":"ours","event":"push","repo":"a/b","payload":{"ref":"refs/heads/main"},"waited_seconds":1.5,"lost_lock":"lock://x/y"}"#);
        assert!(!answer(&waited).is_error);
        let trigger = trigger::result("b", "s1/2/0", &json!({"status": "completed", "value": 5}));
        insta::assert_snapshot!(at_once(&trigger).text, @r#"{"type":"agent_trigger","kind":"result","source_agent":"b","call_id":"s1/2/0","status":"completed","value":5,"waited_seconds":0}"#);
    }

    /// S-WAIT-10: a wait that nothing ended is an error that the model can handle.
    #[test]
    fn a_wait_that_was_too_long() {
        let result = answer(&Waited { woken: Woken::Timeout, waited: 60_000, lost_lock: None });
        assert_eq!((result.is_error, result.cause), (true, Some(Cause::Timeout)));
        insta::assert_snapshot!(result.text, @r#"{"reason":"timeout","message":"nothing that was waited for came in time","waited_seconds":60}"#);
    }

    #[test]
    fn waits_in_words() {
        let filter = json!({"repo": "a/b", "action": "closed"});
        assert_eq!(
            in_words(&webhook(&["ours"], Some("push"), &filter)),
            "push from ours, action = closed and repo = a/b"
        );
        assert_eq!(in_words(&webhook(&[], None, &json!({}))), "any event from any source");
        assert_eq!(in_words(&WaitOn::Agent { source_agent: None, filter: Filter::default() }), "any agent");
        let described = described(&webhook(&["ours"], None, &json!({"n": null})));
        assert_eq!(described, json!({"type": "webhook", "sources": ["ours"], "event": null, "match": {"n": null}}));
    }
}
