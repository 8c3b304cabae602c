//! `check_call`: how a call of another agent stands.

use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{answer, begin};
use super::{Context, Order, Said, Tool, ToolResult};
use crate::store::{CallRecord, CallStatus, StoreError};

pub(super) struct CheckCall;

#[derive(Deserialize)]
struct Args {
    call_id: String,
}

impl Tool for CheckCall {
    fn name(&self) -> &'static str {
        "check_call"
    }

    fn description(&self) -> &'static str {
        "Says how a call stands that you made with `call_agent`: `pending`, `running`, `completed` with its value, or \
         `error`. Do work between polls instead of asking again and again; if you have nothing else to do, \
         `wait_for_trigger` with type agent_trigger waits for the result without costing anything."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "call_id": {"type": "string", "minLength": 1, "description": "What `call_agent` returned."}
            },
            "required": ["call_id"],
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
            let (among, Args { call_id }) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            let lines = among.lines(|record: &Option<CallRecord>| render(record.as_ref()));
            let record = among.member.store.check_call(among.member.seat, call_id, lines).await?;
            Ok(Said::Recorded(render(record.as_ref())))
        })
    }
}

/// What the model is told (S-CHECK-1).
fn render(record: Option<&CallRecord>) -> ToolResult {
    let Some(record) = record else {
        let message = "this session made no such call";
        return answer(&json!({"reason": "unknown_call", "message": message}));
    };
    let going = |status: &str| {
        let mut members = json!({"status": status});
        if let Some(words) = &record.waiting_for {
            members["waiting_for"] = Value::String(words.clone());
        }
        answer(&members)
    };
    match &record.status {
        CallStatus::Pending => going("pending"),
        CallStatus::Running => going("running"),
        CallStatus::Over(outcome) => answer(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SessionKey;

    fn record(status: CallStatus, waiting_for: Option<&str>) -> CallRecord {
        CallRecord {
            call_id: "s1/2/0".to_owned(),
            caller: SessionKey(1),
            caller_session: "s1".to_owned(),
            caller_agent: "a".to_owned(),
            target_agent: "b".to_owned(),
            session: "s2".to_owned(),
            delivered: false,
            status,
            created_at: 0,
            waiting_for: waiting_for.map(str::to_owned),
        }
    }

    /// S-CHECK-1: every status, and the call of somebody else.
    #[test]
    fn a_call_is_told_as_it_stands() {
        let said = |status, waiting_for| render(Some(&record(status, waiting_for))).text;
        assert_eq!(said(CallStatus::Pending, None), r#"{"status":"pending"}"#);
        assert_eq!(said(CallStatus::Running, None), r#"{"status":"running"}"#);
        assert_eq!(
            said(CallStatus::Running, Some("push of github")),
            r#"{"status":"running","waiting_for":"push of github"}"#
        );
        let outcome = json!({"status": "completed", "value": {"n": 1}, "ended": "done"});
        assert_eq!(said(CallStatus::Over(outcome.clone()), None), outcome.to_string());
        let unknown = render(None);
        assert!(!unknown.is_error && unknown.text.contains(r#""reason":"unknown_call""#), "{}", unknown.text);
    }
}
