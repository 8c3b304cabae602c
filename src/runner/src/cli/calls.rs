//! `runner calls`: which agent has called which, and has no answer yet.

use std::io::Write;

use serde_json::json;

use super::overview::{self, OverviewArgs};
use super::ps::short;
use super::records::{Records, RecordsError};
use super::table::{self, Cell, Style};
use crate::store::{CallRecord, CallStatus};

/// Arguments of `runner calls`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner calls
  runner calls --all --json | jq 'group_by(.target_agent)'

A call is listed until it is answered: by `return_value` or by the end of the session that serves it.")]
pub struct CallsArgs {
    /// Of what, and how
    #[command(flatten)]
    pub overview: OverviewArgs,
}

/// Lists them, oldest first.
pub async fn run(args: CallsArgs) -> Result<u8, RecordsError> {
    overview::show(&args.overview, list).await
}

async fn list(
    records: &Records,
    project: Option<String>,
    json: bool,
    style: Style,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    let calls = records.store.calls(project).await?;
    let now = records.store.now().await?;
    let entry = |call: &CallRecord| {
        let row = vec![
            Cell::new(&call.caller_agent),
            Cell::new(short(&call.caller_session)),
            Cell::new(&call.target_agent),
            Cell::new(short(&call.session)),
            Cell::painted(&words(call), Style::busy),
            Cell::new(&table::duration(now - call.created_at)),
        ];
        (row, object(call))
    };
    let entries = calls.iter().map(entry).collect();
    overview::print(entries, &["CALLER", "SESSION", "CALLS", "SESSION", "STATE", "AGE"], json, style, out)
}

/// How a call stands, for people.
pub(super) fn words(call: &CallRecord) -> String {
    match (&call.waiting_for, call.delivered) {
        (Some(words), _) => format!("waiting for {words}"),
        (None, true) => format!("{}, delivered", status(call)),
        (None, false) => status(call).to_owned(),
    }
}

fn status(call: &CallRecord) -> &'static str {
    match call.status {
        CallStatus::Pending => "pending",
        CallStatus::Running => "running",
        CallStatus::Over(_) => "over",
    }
}

/// A call as `calls --json` and `show --json` print it.
pub(super) fn object(call: &CallRecord) -> serde_json::Value {
    json!({
        "call_id": call.call_id,
        "caller_session": call.caller_session,
        "caller_agent": call.caller_agent,
        "target_agent": call.target_agent,
        "session": call.session,
        "delivered": call.delivered,
        "status": status(call),
        "created_at": table::rfc3339(call.created_at),
        "waiting_for": call.waiting_for,
    })
}

#[cfg(test)]
mod tests;
