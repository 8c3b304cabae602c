//! `find`: files and folders by name.

use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Found, Outcome, Partial, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::grep::{PARTIAL, left_out};
use super::text::{self, counted, note};
use super::{Context, Tool, ToolResult, unexpected};

/// Paths shown when the model names no number.
const DEFAULT_LIMIT: u64 = 1000;

pub(super) struct Find;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    pattern: String,
    path: Option<String>,
    limit: Option<u64>,
    #[serde(default)]
    include_ignored: bool,
}

impl Tool for Find {
    fn name(&self) -> &'static str {
        "find"
    }

    fn description(&self) -> &'static str {
        "Finds files and folders of the sandbox whose path below `path` fits a glob: `*.rs` at any depth, `src/*.ts`, \
         `**/test/*.{js,ts}`. Shows sorted paths, `/` after folders. Hidden names are found, links are not followed. Left \
         out are `.git` and what .gitignore and .ignore exclude, unless `includeIgnored` is true or the pattern is the path \
         of one file; the last line counts them. Without `path` it looks in the working directory."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "The glob; a final `/` means folders only."},
                "path": {"type": "string", "minLength": 1, "maxLength": protocol::MAX_PATH, "description": "The folder."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "Most paths, 1000 by default."},
                "includeIgnored": {"type": "boolean", "description": "Find what ignore files exclude, too."}
            },
            "required": ["pattern"],
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let Args { pattern, path, limit, include_ignored } = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            let limit = limit.unwrap_or(DEFAULT_LIMIT);
            let request = Request::Find { pattern, path, limit, include_ignored };
            let reply = match context.file_call(request, Vec::new()).await {
                Ok(reply) => reply,
                Err(failed) => return failed,
            };
            let Outcome::Found(found) = reply.outcome else { return unexpected(&reply.outcome) };
            let (mut text, _) = text::fitting_head(&reply.payload, text::MAX_BYTES);
            note(&mut text, &closing(&found, limit));
            ToolResult::ok(text, serde_json::to_value(&found).unwrap_or_default())
        })
    }
}

/// The last line: what was found, what was left out, and how to get the rest.
fn closing(found: &Found, limit: u64) -> String {
    let mut words = String::from("[");
    if found.partial == Some(Partial::Time) {
        words.push_str(PARTIAL);
    }
    let paths = counted(found.total, "path", "paths");
    let what = match (found.total, found.shown) {
        (0, _) => "no path fits".to_owned(),
        (all, shown) if shown < all => {
            let rest = if found.cut || shown < limit {
                "no more fit into a result, so narrow the pattern or path"
            } else {
                "ask for more with limit, or narrow the pattern or path"
            };
            format!("the first {shown} of {paths}; {rest}")
        }
        _ => paths,
    };
    words.push_str(&what);
    words.push_str(&left_out(&found.skipped));
    if found.total == 0 && found.skipped.ignored > 0 {
        words.push_str("; includeIgnored: true finds what is ignored");
    }
    words.push(']');
    words
}
