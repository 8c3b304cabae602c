//! `release_lock`: a resource for others again.

use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{answer_with, begin, refusal};
use super::{Context, Order, Said, Tool, ToolResult};
use crate::fleet::resource;
use crate::store::{ReleaseAnswer, StoreError};

pub(super) struct ReleaseLock;

#[derive(Deserialize)]
struct Args {
    resource_key: String,
}

impl Tool for ReleaseLock {
    fn name(&self) -> &'static str {
        "release_lock"
    }

    fn description(&self) -> &'static str {
        "Releases the lock that you hold, as soon as you are done with its resource. What you still hold when your session \
         ends is released then."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "resource_key": {"type": "string", "description": "The URI that you locked."}
            },
            "required": ["resource_key"],
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
            let (among, Args { resource_key }) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            // What is no key is held by nobody.
            let Ok(resource) = resource::normalise(&resource_key) else {
                return Ok(Said::Result(render(&resource_key, &ReleaseAnswer::NotHeld)));
            };
            let key = resource.clone();
            let lines = among.lines(move |answer| render(&key, answer));
            let given = among.member.store.release_lock(among.member.seat, resource.clone(), lines).await?;
            Ok(Said::Recorded(render(&resource, &given)))
        })
    }
}

/// What the model is told (S-UNLOCK-1), and the journal of a lock that is free now.
fn render(resource: &str, given: &ReleaseAnswer) -> ToolResult {
    let refused = |reason: &str| refusal("released", reason, Value::Null);
    match given {
        ReleaseAnswer::Released => answer_with(&json!({"released": true}), json!({"released": resource})),
        ReleaseAnswer::NotHeld => refused("not_held"),
        ReleaseAnswer::HeldByOther(_) => refused("held_by_other"),
        ReleaseAnswer::Expired => refused("expired"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fleet::lock;
    use super::*;

    /// S-UNLOCK-1: what is answered, and what the journal keeps of it.
    #[test]
    fn a_lock_is_released_or_not() {
        let said = |given: ReleaseAnswer| {
            let result = render("lock://repo/main", &given);
            assert!(!result.is_error);
            (result.text, result.details)
        };
        let released = (r#"{"released":true}"#.to_owned(), json!({"released": "lock://repo/main"}));
        assert_eq!(said(ReleaseAnswer::Released), released);
        let refused = |reason: &str| (format!(r#"{{"released":false,"reason":"{reason}"}}"#), Value::Null);
        assert_eq!(said(ReleaseAnswer::NotHeld), refused("not_held"));
        assert_eq!(said(ReleaseAnswer::HeldByOther(lock())), refused("held_by_other"));
        assert_eq!(said(ReleaseAnswer::Expired), refused("expired"));
    }
}
