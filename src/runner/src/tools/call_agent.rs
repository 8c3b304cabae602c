//! `call_agent`: work for another agent.

use futures_util::future::LocalBoxFuture;
use protocol::Cause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{MAX_VALUE, answer_with, begin, failure, refusal};
use super::{Context, Order, Said, Tool, ToolResult};
use crate::fleet::NoNewcomer;
use crate::store::{CallAnswer, CallRequest, StoreError};
use crate::trigger;

pub(super) struct CallAgent;

#[derive(Deserialize)]
struct Args {
    target_agent: String,
    context: Value,
}

impl Tool for CallAgent {
    fn name(&self) -> &'static str {
        "call_agent"
    }

    fn description(&self) -> &'static str {
        "Calls another agent of the project to do something, and returns a `call_id` at once. It works in a session and a \
         sandbox of its own and knows only the `context` that you give it. Make several calls if you need them, go on with \
         your own work, and ask for results with `check_call`, or wait for one with `wait_for_trigger`. You cannot call \
         yourself or an agent that you were called by."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "target_agent": {"type": "string", "minLength": 1, "description": "The agent's name."},
                "context": {
                    "description": "What it is to do and all that it has to know: text, or any JSON of at most 1 MiB."
                }
            },
            "required": ["target_agent", "context"],
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn order(&self) -> Order {
        Order::OneByOne
    }

    fn say<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, Result<Said, StoreError>> {
        Box::pin(async move {
            let (among, Args { target_agent, context: told }) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            let bytes = told.to_string().len();
            if bytes > MAX_VALUE {
                let message = format!("the context has {bytes} bytes; at most {MAX_VALUE} are passed on");
                return Ok(Said::Result(failure(Cause::Limit, "too_large", &message, Value::Null)));
            }
            let member = among.member;
            let trigger = trigger::call(&member.agent, context.key, &told);
            let (child, started) = match member.newcomers.session(&target_agent, trigger) {
                Ok(newcomer) => newcomer,
                Err(why) => return Ok(Said::Result(nobody(&target_agent, &why))),
            };
            let call = CallRequest {
                call_id: context.key.to_owned(),
                target_agent: target_agent.clone(),
                context: told,
                child,
                started,
                max_depth: member.rules.max_call_depth,
            };
            let made = Made { call_id: context.key.to_owned(), target_agent };
            let lines = among.lines({
                let made = made.clone();
                move |answer| render(&made, answer)
            });
            let given = member.store.call_agent(member.seat, call, lines).await?;
            Ok(Said::Recorded(render(&made, &given)))
        })
    }
}

/// The call that was answered.
#[derive(Clone)]
struct Made {
    call_id: String,
    target_agent: String,
}

/// What the model is told of an agent that cannot be called.
fn nobody(target: &str, why: &NoNewcomer) -> ToolResult {
    match why {
        NoNewcomer::Unknown(known) => refusal("accepted", "unknown_agent", json!({"known_agents": known})),
        NoNewcomer::Disabled => {
            refusal("accepted", "disabled", json!({"message": format!("the scale of {target} is 0")}))
        }
        NoNewcomer::Invalid(message) => refusal("accepted", "invalid_agent", json!({"message": message})),
    }
}

/// What the model is told (S-CALL-1), and the journal of a call that is under way.
fn render(made: &Made, given: &CallAnswer) -> ToolResult {
    match given {
        CallAnswer::Accepted { session, delivered, pending } => {
            let status = if *pending { "pending" } else { "running" };
            let call = json!({
                "call_id": made.call_id,
                "target_agent": made.target_agent,
                "session": session,
                "delivered": delivered,
            });
            answer_with(&json!({"call_id": made.call_id, "status": status}), json!({"call": call}))
        }
        CallAnswer::SelfCall => refusal("accepted", "self_call", Value::Null),
        CallAnswer::Cycle(agents) => refusal("accepted", "cycle", json!({"cycle": agents})),
        CallAnswer::MaxDepth(most) => refusal("accepted", "max_depth", json!({"max_call_depth": most})),
        CallAnswer::QueueFull(most) => refusal("accepted", "queue_full", json!({"work_queue_size": most})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Made {
        Made { call_id: "s1/2/0".to_owned(), target_agent: "review".to_owned() }
    }

    /// S-CALL-1: what is accepted has an id, and says whether it runs already.
    #[test]
    fn a_call_that_is_accepted() {
        let said = |pending, delivered| {
            render(&made(), &CallAnswer::Accepted { session: "s2".to_owned(), delivered, pending })
        };
        assert_eq!(said(true, false).text, r#"{"call_id":"s1/2/0","status":"pending"}"#);
        assert_eq!(said(false, true).text, r#"{"call_id":"s1/2/0","status":"running"}"#);
        let call = json!({"call_id": "s1/2/0", "target_agent": "review", "session": "s2", "delivered": true});
        assert_eq!(said(false, true).details, json!({"call": call}));
    }

    /// S-CALL-1: every refusal is an answer with its reason.
    #[test]
    fn a_call_that_is_refused() {
        let said = |given: CallAnswer| render(&made(), &given).text;
        assert_eq!(said(CallAnswer::SelfCall), r#"{"accepted":false,"reason":"self_call"}"#);
        let cycle = ["a", "b", "a"].map(str::to_owned).to_vec();
        assert_eq!(said(CallAnswer::Cycle(cycle)), r#"{"accepted":false,"reason":"cycle","cycle":["a","b","a"]}"#);
        assert_eq!(said(CallAnswer::MaxDepth(3)), r#"{"accepted":false,"reason":"max_depth","max_call_depth":3}"#);
        assert_eq!(said(CallAnswer::QueueFull(9)), r#"{"accepted":false,"reason":"queue_full","work_queue_size":9}"#);
        let said = |why: NoNewcomer| nobody("review", &why).text;
        let known = ["a", "b"].map(str::to_owned).into();
        assert_eq!(
            said(NoNewcomer::Unknown(known)),
            r#"{"accepted":false,"reason":"unknown_agent","known_agents":["a","b"]}"#
        );
        assert_eq!(
            said(NoNewcomer::Disabled),
            r#"{"accepted":false,"reason":"disabled","message":"the scale of review is 0"}"#
        );
        assert_eq!(
            said(NoNewcomer::Invalid("x".to_owned())),
            r#"{"accepted":false,"reason":"invalid_agent","message":"x"}"#
        );
    }
}
