//! `set_status`: what the agent is doing, for people who watch.

use futures_util::future::LocalBoxFuture;
use protocol::Cause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{answer, begin, failure};
use super::{Context, Note, Order, Said, Tool, ToolResult};
use crate::store::StoreError;

pub(super) struct SetStatus;

#[derive(Deserialize)]
struct Args {
    text: String,
}

impl Tool for SetStatus {
    fn name(&self) -> &'static str {
        "set_status"
    }

    fn description(&self) -> &'static str {
        "Tells the people who watch what you are doing, in a few words, such as \"reviewing PR 42\". Set it when you begin \
         something new."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "text": {"type": "string", "minLength": 1, "maxLength": 500, "description": "What you are doing, in one line."}
            },
            "required": ["text"],
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
            let (among, Args { text }) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            let Some(status) = stripped(&text) else {
                let message = "nothing is left of the status without its control characters";
                return Ok(Said::Result(failure(Cause::Invalid, "empty", message, Value::Null)));
            };
            let lines = among.lines_with(
                {
                    let status = status.clone();
                    move |()| render(&status)
                },
                {
                    let status = status.clone();
                    move |()| Some(Note::Status(status.clone()))
                },
            );
            among.member.store.set_status(among.member.seat, status.clone(), lines).await?;
            Ok(Said::Recorded(render(&status)))
        })
    }
}

/// One line without control characters; none when that is empty. What separated words still does.
fn stripped(text: &str) -> Option<String> {
    let spaced = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
    let kept: String = spaced.filter(|c| !c.is_control()).collect();
    let kept = kept.trim();
    (!kept.is_empty()).then(|| kept.to_owned())
}

fn render(status: &str) -> ToolResult {
    answer(&json!({"status": status}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-STATUS-1: control characters are stripped.
    #[test]
    fn a_status_is_one_line() {
        assert_eq!(stripped("reviewing PR 42").as_deref(), Some("reviewing PR 42"));
        assert_eq!(stripped(" a\u{1b}[31m\nb\tc\u{9b}\0 ").as_deref(), Some("a[31m b c"));
        assert_eq!(stripped("\u{7}\n\t"), None);
        assert_eq!(render("a").text, r#"{"status":"a"}"#);
    }
}
