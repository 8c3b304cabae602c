//! `return_value`: the answer to whoever called this session.

use futures_util::future::LocalBoxFuture;
use protocol::Cause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{MAX_VALUE, answer, begin, failure, refusal};
use super::{Context, Note, Order, Said, Tool, ToolResult};
use crate::store::{ReturnAnswer, StoreError};

pub(super) struct ReturnValue;

#[derive(Deserialize)]
struct Args {
    value: Value,
}

impl Tool for ReturnValue {
    fn name(&self) -> &'static str {
        "return_value"
    }

    fn description(&self) -> &'static str {
        "Returns a value to the agent that called you: use it when <trigger> says that you were called, or when a call woke \
         you. The last value wins. It does not end your session: when you are done, say so and call no more tools."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "value": {"description": "The value: text, or any JSON of at most 1 MiB."}
            },
            "required": ["value"],
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
            let (among, Args { value }) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            if let Some(refused) = too_large(&value) {
                return Ok(Said::Result(refused));
            }
            let noted = value.clone();
            let lines = among.lines_with(render, move |given| match given {
                ReturnAnswer::Accepted { .. } => Some(Note::Returned(noted.clone())),
                ReturnAnswer::NotCalled => None,
            });
            let given = among.member.store.return_value(among.member.seat, value, lines).await?;
            Ok(Said::Recorded(render(&given)))
        })
    }
}

/// The answer to a value that is above the limit.
fn too_large(value: &Value) -> Option<ToolResult> {
    let bytes = value.to_string().len();
    let message = format!("the value has {bytes} bytes; at most {MAX_VALUE} are passed on");
    (bytes > MAX_VALUE).then(|| failure(Cause::Limit, "too_large", &message, Value::Null))
}

/// What the model is told (S-RETURN-1).
fn render(given: &ReturnAnswer) -> ToolResult {
    match given {
        ReturnAnswer::Accepted { call_id } => answer(&json!({"accepted": true, "call_id": call_id})),
        ReturnAnswer::NotCalled => refusal("accepted", "not_called", Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-RETURN-1: what is answered, and the limit.
    #[test]
    fn a_value_is_returned_or_not() {
        let accepted = render(&ReturnAnswer::Accepted { call_id: "s1/2/0".to_owned() });
        assert_eq!(accepted.text, r#"{"accepted":true,"call_id":"s1/2/0"}"#);
        assert_eq!(render(&ReturnAnswer::NotCalled).text, r#"{"accepted":false,"reason":"not_called"}"#);
        assert_eq!(too_large(&Value::String("x".repeat(MAX_VALUE - 2))), None);
        let refused = too_large(&Value::String("x".repeat(MAX_VALUE - 1))).unwrap();
        assert!(refused.is_error && refused.text.contains(r#""reason":"too_large""#), "{}", refused.text);
    }
}
