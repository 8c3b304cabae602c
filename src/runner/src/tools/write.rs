//! `write`: replaces a file by new content.

use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Outcome, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Tool, ToolResult, unexpected};
use crate::sandbox::limits::show_size;

pub(super) struct Write;

#[derive(Deserialize)]
struct Args {
    path: String,
    content: String,
}

impl Tool for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn description(&self) -> &'static str {
        "Writes a file of the sandbox: creates its folders, replaces what was there in one step and keeps its mode. Only \
         paths under /tmp can be written. Relative paths start at the working directory, which is read-only."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "maxLength": protocol::MAX_PATH, "description": "The file, under /tmp."},
                "content": {"type": "string", "description": "The whole new content."}
            },
            "required": ["path", "content"],
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let Args { path, content } = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            if content.len() as u64 > protocol::MAX_BODY {
                let limit = show_size(protocol::MAX_BODY);
                let message =
                    format!("the content has {} bytes, more than the {limit} that fit into a call", content.len());
                return ToolResult::error(Cause::Limit, message);
            }
            let reply = match context.file_call(Request::Write { path }, content).await {
                Ok(reply) => reply,
                Err(failed) => return failed,
            };
            let Outcome::Written { path, bytes, replaced } = reply.outcome else { return unexpected(&reply.outcome) };
            let how = if replaced { "replaced" } else { "wrote" };
            let details = json!({"path": path, "bytes": bytes, "replaced": replaced});
            ToolResult::ok(format!("{how} {path}: {bytes} bytes"), details)
        })
    }
}
