//! What scheduler tools have in common: who asks, and results in JSON.

use jiff::Timestamp;
use protocol::Cause;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Among, Context, Note, ToolResult};
use crate::store::{Lines, Lock};

/// Most bytes of what one session tells another.
pub(super) const MAX_VALUE: usize = 1 << 20;

/// The caller among the others, and the arguments.
pub(super) fn begin<'a, A: DeserializeOwned>(
    context: &Context<'a>,
    args: Value,
) -> Result<(Among<'a>, A), Box<ToolResult>> {
    let among = context.fleet.ok_or_else(|| Box::new(alone()))?;
    let args = serde_json::from_value(args);
    Ok((among, args.map_err(|error| Box::new(ToolResult::error(Cause::Invalid, error.to_string())))?))
}

/// The answer to whoever is no member of a fleet.
pub(super) fn alone() -> ToolResult {
    ToolResult::error(
        Cause::Invalid,
        "only an agent's session has this tool: it has nobody to share anything with here",
    )
}

/// An answer: its members in JSON, whether it grants or refuses.
pub(super) fn answer(members: &Value) -> ToolResult {
    ToolResult::ok(members.to_string(), Value::Null)
}

/// An answer that tells the journal more.
pub(super) fn answer_with(members: &Value, details: Value) -> ToolResult {
    ToolResult::ok(members.to_string(), details)
}

/// A refusal: `done` is what was not done, such as `acquired`; it is an answer, and no failure.
pub(super) fn refusal(done: &str, reason: &str, more: Value) -> ToolResult {
    answer(&joined(json!({done: false, "reason": reason}), more))
}

/// A failure that has a machine-readable reason beside its words.
pub(super) fn failure(cause: Cause, reason: &str, message: &str, more: Value) -> ToolResult {
    ToolResult::error(cause, joined(json!({"reason": reason, "message": message}), more).to_string())
}

/// One object with the members of both.
pub(super) fn joined(mut members: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut members, more) {
        members.extend(more);
    }
    members
}

/// Milliseconds since 1970 as RFC 3339.
pub(super) fn time(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| at.to_string(), |at| format!("{at:.3}"))
}

/// Who holds a lock, since when and until when.
pub(super) fn holder(lock: &Lock) -> Value {
    json!({
        "agent": lock.agent,
        "session": lock.session,
        "held_since": time(lock.held_since),
        "expires_at": time(lock.expires_at),
    })
}

impl Among<'_> {
    /// The line of the result that `render` makes of the answer.
    pub(super) fn lines<A: 'static>(&self, render: impl Fn(&A) -> ToolResult + Send + Sync + 'static) -> Lines<A> {
        self.lines_with(render, |_| None)
    }

    /// That line after the one of a note, if there is one for this answer.
    pub(super) fn lines_with<A: 'static>(
        &self,
        render: impl Fn(&A) -> ToolResult + Send + Sync + 'static,
        noted: impl Fn(&A) -> Option<Note> + Send + Sync + 'static,
    ) -> Lines<A> {
        let (finish, note) = (self.finish.clone(), self.note.clone());
        Lines::new(move |answer| {
            let noted = noted(answer).map(|noted| note(&noted));
            noted.into_iter().chain([finish(&render(answer))]).collect()
        })
    }
}
