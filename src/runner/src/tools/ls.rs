//! `ls`: the names in a folder.

use futures_util::future::LocalBoxFuture;
use protocol::{Cause, ListEntry, ListKind, Outcome, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::text::note;
use super::{Context, Tool, ToolResult, unexpected};

/// Entries shown when the model names no number.
const DEFAULT_LIMIT: u64 = 500;

pub(super) struct Ls;

#[derive(Deserialize)]
struct Args {
    path: Option<String>,
    limit: Option<u64>,
}

impl Tool for Ls {
    fn name(&self) -> &'static str {
        "ls"
    }

    fn description(&self) -> &'static str {
        "Lists a folder of the sandbox: one entry a line, names that begin with a dot included, sorted without regard to \
         case, `/` after folders, `@ -> target` after links. Without `path` it lists the working directory."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "maxLength": protocol::MAX_PATH, "description": "The folder."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "Most entries, 500 by default."}
            },
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let Args { path, limit } = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            let limit = limit.unwrap_or(DEFAULT_LIMIT);
            let request = Request::Ls { path, limit };
            let reply = match context.file_call(request, Vec::new()).await {
                Ok(reply) => reply,
                Err(failed) => return failed,
            };
            let Outcome::Listing { path, shown, total } = reply.outcome else { return unexpected(&reply.outcome) };
            let entries: Vec<ListEntry> = match serde_json::from_slice(&reply.payload) {
                Ok(entries) => entries,
                Err(error) => return ToolResult::error(Cause::Invalid, format!("the listing is broken: {error}")),
            };
            let details = json!({"path": path, "shown": shown, "total": total});
            if entries.is_empty() && total == 0 {
                return ToolResult::ok("(empty directory)", details);
            }
            let mut text = String::new();
            for entry in &entries {
                text.push_str(&one_line(&entry.name));
                match &entry.kind {
                    ListKind::File => {}
                    ListKind::Folder => text.push('/'),
                    ListKind::Link(target) => {
                        text.push_str("@ -> ");
                        text.push_str(&one_line(target));
                    }
                }
                text.push('\n');
            }
            if total > shown {
                let rest = if shown < limit {
                    "no more fit into a result, use bash for the rest"
                } else {
                    "ask for more with limit"
                };
                note(&mut text, &format!("[the first {shown} of {total} entries; {rest}]"));
            }
            ToolResult::ok(text, details)
        })
    }
}

/// A name on one line: control characters and backslashes are escaped, as `\n`.
fn one_line(name: &str) -> String {
    if !name.contains(|c: char| c.is_control() || c == '\\') {
        return name.to_owned();
    }
    name.chars()
        .map(|c| if c.is_control() || c == '\\' { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}
