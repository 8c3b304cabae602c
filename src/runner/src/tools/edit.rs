//! `edit`: replaces parts of a file that are named by what stands there.

use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Edited, Outcome, Replacement, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::text::{MAX_BYTES, fitting_head, note};
use super::{Context, Tool, ToolResult, unexpected};
use crate::sandbox::limits::show_size;

/// Largest file in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Most bytes of all edits of a call, as JSON.
const MAX_EDITS_BYTES: u64 = 16 * 1024 * 1024;

/// A file server holds the file once or twice, and the edits twice. With a file of this part of the memory and edits of
/// as much, and a /tmp of half the memory, there is room left for commands.
const MEMORY_PART: u64 = 16;

/// Most edits of a call.
const MAX_EDITS: usize = 10_000;

pub(super) struct Edit;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    path: String,
    edits: Option<Vec<One>>,
    old_text: Option<String>,
    new_text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    old_text: String,
    new_text: String,
}

impl From<One> for Replacement {
    fn from(One { old_text: old, new_text: new }: One) -> Self {
        Self { old, new }
    }
}

impl Args {
    /// The path and the edits, which come in one of two forms.
    fn edits(self) -> Result<(String, Vec<Replacement>), &'static str> {
        match (self.edits, self.old_text, self.new_text) {
            (Some(edits), None, None) => Ok((self.path, edits.into_iter().map(Replacement::from).collect())),
            (None, Some(old), Some(new)) => Ok((self.path, vec![Replacement { old, new }])),
            (Some(_), ..) => Err("`edits` stands alone: put `oldText` and `newText` into it, or leave it out"),
            (None, None, None) => Err("give `edits`, or `oldText` and `newText`"),
            (None, Some(_), None) => Err("`newText` is missing: give \"\" to remove what `oldText` names"),
            (None, None, Some(_)) => Err("`oldText` is missing: the text in the file that `newText` replaces"),
        }
    }
}

impl Tool for Edit {
    fn name(&self) -> &'static str {
        "edit"
    }

    fn description(&self) -> &'static str {
        "Replaces parts of a file under /tmp. Each `oldText` must stand in the file exactly once, as it was before any of \
         the edits, and edits may not overlap; all of them are made, or none. Line endings are those of the file: write \
         \\n for either. Everything else in the file stays byte for byte. The result is a unified diff. Give `edits`, or \
         `oldText` and `newText` for a single one. Relative paths start at the working directory, which is read-only."
    }

    fn schema(&self) -> Value {
        let old = json!({
            "type": "string", "minLength": 1,
            "description": "Text that stands in the file exactly once; with lines around it where it would stand there more often."
        });
        let new = json!({"type": "string", "description": "What replaces it."});
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "maxLength": protocol::MAX_PATH, "description": "The file, under /tmp."},
                "edits": {
                    "type": "array", "minItems": 1, "maxItems": MAX_EDITS,
                    "description": "The edits, in any order.",
                    "items": {
                        "type": "object",
                        "properties": {"oldText": old, "newText": new},
                        "required": ["oldText", "newText"],
                        "additionalProperties": false
                    }
                },
                "oldText": old,
                "newText": new
            },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let args: Args = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            let (path, edits) = match args.edits() {
                Ok(edits) => edits,
                Err(wrong) => return ToolResult::error(Cause::Invalid, wrong),
            };
            let body = match serde_json::to_vec(&edits) {
                Ok(body) => body,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            drop(edits);
            let part = context.session.limits.memory / MEMORY_PART;
            let room = MAX_EDITS_BYTES.min(part);
            if body.len() as u64 > room {
                let (length, room) = (body.len(), show_size(room));
                let message = format!(
                    "the edits have {length} bytes, more than the {room} there is room for: make fewer at once"
                );
                return ToolResult::error(Cause::Limit, message);
            }
            let request = Request::Edit { path, most: MAX_FILE.min(part) };
            let reply = match context.file_call(request, body).await {
                Ok(reply) => reply,
                Err(failed) => return failed,
            };
            match reply.outcome {
                Outcome::Edited(edited) => result(&edited, &reply.payload),
                other => unexpected(&other),
            }
        })
    }
}

/// The diff, with notes on what it does not show.
fn result(edited: &Edited, diff: &[u8]) -> ToolResult {
    let (mut text, _) = fitting_head(diff, MAX_BYTES);
    if edited.shown_lines < edited.diff_lines {
        let Edited { path, diff_lines, diff_bytes, shown_lines, .. } = edited;
        let cut = format!(
            "[diff cut: {diff_lines} lines, {diff_bytes} bytes in all; the first {shown_lines} lines are shown; \
             everything was changed: use read on {path} for the rest]"
        );
        note(&mut text, &cut);
    }
    if !edited.tolerant.is_empty() {
        let which = if edited.edits == 1 {
            "oldText was".to_owned()
        } else {
            let names = edited.tolerant.iter().take(20).map(|index| format!("edits[{index}]"));
            let dots = if edited.tolerant.len() > 20 { ", …" } else { "" };
            format!("{}{dots}: oldText was", names.collect::<Vec<_>>().join(", "))
        };
        let words =
            format!("[{which} there with other blanks at line ends, or other forms of quotes, dashes or blanks]");
        note(&mut text, &words);
    }
    ToolResult::ok(text, serde_json::to_value(edited).unwrap_or_default())
}
