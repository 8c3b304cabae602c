//! `read`: a window of a text file, or an image.

use std::collections::HashMap;

use futures_util::future::LocalBoxFuture;
use protocol::{Cause, Outcome, Request, TextWindow};
use serde::Deserialize;
use serde_json::{Value, json};

use super::text::{self, note};
use super::{Context, Tool, ToolResult, unexpected};

/// Up to here every reader of JSON knows a number exactly.
const MOST_LINES: u64 = (1 << 53) - 1;

pub(super) struct Read;

#[derive(Deserialize)]
struct Args {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

impl Tool for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn description(&self) -> &'static str {
        "Reads a text file of the sandbox: at most 2000 lines or 50 KiB at once, `offset` and `limit` choose the lines. \
         Lines longer than 2000 characters are clipped. PNG, JPEG, GIF and WebP files come back as images, other binary \
         files as their type and size. Relative paths start at the working directory, `~` is the home directory."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "maxLength": protocol::MAX_PATH, "description": "The file."},
                "offset": {"type": "integer", "minimum": 1, "maximum": MOST_LINES, "description": "First line, counted from 1."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_LINES, "description": "Most lines."}
            },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn run<'a>(&'a self, context: Context<'a>, args: Value) -> LocalBoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let Args { path, offset, limit } = match serde_json::from_value(args) {
                Ok(args) => args,
                Err(error) => return ToolResult::error(Cause::Invalid, error.to_string()),
            };
            let request = Request::Read { path: path.clone(), offset, limit, images: true };
            let reply = match context.file_call(request, Vec::new()).await {
                Ok(reply) => reply,
                Err(failed) => return failed,
            };
            match reply.outcome {
                Outcome::Text(window) => text_result(&window, &reply.payload),
                Outcome::Binary { kind, bytes } => {
                    let details = json!({"kind": kind, "bytes": bytes});
                    ToolResult::ok(format!("{path} is not text: {kind}, {bytes} bytes"), details)
                }
                Outcome::Image { media_type, size, scaled_from, bytes } => {
                    let mut words = format!("{media_type}, {}×{} pixels, {bytes} bytes", size.0, size.1);
                    if let Some((width, height)) = scaled_from {
                        let from = format!(", scaled down from {width}×{height}");
                        words.push_str(&from);
                    }
                    let details =
                        json!({"media_type": media_type, "size": size, "scaled_from": scaled_from, "bytes": bytes});
                    if !context.session.images {
                        return ToolResult::ok(format!("{path}: {words}; this model takes no images"), details);
                    }
                    ToolResult { image: Some((media_type, reply.streamed)), ..ToolResult::ok(words, details) }
                }
                other => unexpected(&other),
            }
        })
    }
}

/// The window as text, with notes on what it does not show.
fn text_result(window: &TextWindow, payload: &[u8]) -> ToolResult {
    let details = serde_json::to_value(window).unwrap_or_default();
    if window.total_bytes == 0 {
        return ToolResult::ok("(file is empty)", details);
    }
    let clipped: HashMap<u64, u64> = window.clipped.iter().copied().collect();
    let mut shown = String::new();
    let mut last = window.last;
    for (number, line) in (window.first..).zip(payload.split_inclusive(|byte| *byte == b'\n')) {
        let mut line = text::lossy(line);
        if let Some(length) = clipped.get(&number) {
            let ended = line.ends_with('\n');
            line.truncate(line.trim_end_matches('\n').len());
            let mark = format!("… [line {number} has {length} characters, clipped]");
            line.push_str(&mark);
            line.push_str(if ended { "\n" } else { "" });
        }
        // Invalid bytes take three each as text: a window that fitted as bytes may be too long now.
        if shown.len() + line.len() > text::MAX_BYTES && number > window.first {
            last = number - 1;
            break;
        }
        shown.push_str(&line);
    }
    if last < window.total_lines {
        let all = format!("{} ({} bytes in all)", window.total_lines, window.total_bytes);
        note(&mut shown, &format!("[lines {}–{last} of {all}; continue with offset {}]", window.first, last + 1));
    }
    ToolResult::ok(shown, details)
}
