//! `grep`: lines that match, in a file or a tree.

use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Matches, Outcome, Partial, Request, Skipped};
use serde::Deserialize;
use serde_json::{Value, json};

use super::text::{self, counted, note};
use super::{Context, Tool, ToolResult, unexpected};

/// Matches shown when the model names no number.
const DEFAULT_LIMIT: u64 = 100;

pub(super) struct Grep;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    context: u64,
    limit: Option<u64>,
    #[serde(default)]
    include_ignored: bool,
}

impl Tool for Grep {
    fn name(&self) -> &'static str {
        "grep"
    }

    fn description(&self) -> &'static str {
        "Searches a file of the sandbox, or all files of a folder, line by line for a regular expression in Rust's syntax \
         (ripgrep's engine). Shows `path:line: text`, and lines of context as `path-line- text`; long lines are clipped at \
         500 characters around the match. Hidden files are searched. Not searched are `.git`, links, binary files, in \
         folders files over 64 MiB, and what .gitignore and .ignore exclude unless `includeIgnored` is true or the path \
         itself is named; the last line counts them. Without `path` it searches the working directory."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "What to search for, within one line."},
                "path": {"type": "string", "minLength": 1, "maxLength": protocol::MAX_PATH, "description": "The file or folder."},
                "glob": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Only files that this fits: `*.rs` at any depth, `src/**/*.ts` from path on, `!*.md` for all others."},
                "ignoreCase": {"type": "boolean", "description": "Letters match in either case."},
                "literal": {"type": "boolean", "description": "The pattern is plain text."},
                "context": {"type": "integer", "minimum": 0, "maximum": 100, "description": "Lines shown before and after each match, 0 by default."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "Most matching lines, 100 by default."},
                "includeIgnored": {"type": "boolean", "description": "Search what ignore files exclude, too."}
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
            let args: Args = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
            let request = Request::Grep {
                pattern: args.pattern,
                path: args.path,
                glob: args.glob,
                ignore_case: args.ignore_case,
                literal: args.literal,
                context: args.context,
                limit,
                include_ignored: args.include_ignored,
            };
            let reply = match context.file_call(request, Vec::new()).await {
                Ok(reply) => reply,
                Err(failed) => return failed,
            };
            let Outcome::Matches(matches) = reply.outcome else { return unexpected(&reply.outcome) };
            let (mut text, _) = text::fitting_head(&reply.payload, text::MAX_BYTES);
            note(&mut text, &closing(&matches));
            ToolResult::ok(text, serde_json::to_value(&matches).unwrap_or_default())
        })
    }
}

/// The last line: what was found, what was left out, and how to get the rest.
fn closing(found: &Matches) -> String {
    let mut words = String::from("[");
    if found.partial == Some(Partial::Time) {
        words.push_str(PARTIAL);
    }
    let files = counted(found.files, "file", "files");
    let matches = counted(found.matches, "match", "matches");
    let more = if found.partial == Some(Partial::Counting) { "at least " } else { "" };
    let what = match (found.matches, found.shown) {
        (0, _) => format!("no match in {files}"),
        (all, shown) if shown < all || found.partial == Some(Partial::Counting) => {
            let rest = if found.cut {
                "no more fit into a result, so narrow pattern, glob or path"
            } else {
                "ask for more with limit, or narrow pattern, glob or path"
            };
            format!("the first {shown} of {more}{matches}, which are in {} of {files}; {rest}", found.matched_files)
        }
        _ => format!("{matches} in {} of {files}", found.matched_files),
    };
    words.push_str(&what);
    words.push_str(&left_out(&found.skipped));
    if found.matches == 0 && found.skipped.ignored > 0 {
        words.push_str("; includeIgnored: true searches what is ignored");
    }
    words.push(']');
    words
}

/// How the closing line of a search begins that ran out of time.
pub(super) const PARTIAL: &str = "partial result, the time limit of 30 s passed; so far ";

/// What a search did not look at, in words.
pub(super) fn left_out(skipped: &Skipped) -> String {
    let parts: Vec<String> = [
        (skipped.ignored, "ignored"),
        (skipped.binary, "binary"),
        (skipped.unreadable, "unreadable"),
        (skipped.too_large, "over the size limit"),
        (skipped.special, "special"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if parts.is_empty() { "; nothing was left out".to_owned() } else { format!("; not searched: {}", parts.join(", ")) }
}
