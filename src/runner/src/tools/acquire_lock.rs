//! `acquire_lock`: a resource for one session alone.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scheduled::{answer_with, begin, holder, refusal, time};
use super::{Context, Order, Said, Tool, ToolResult};
use crate::fleet::resource;
use crate::store::{LockAnswer, StoreError};

/// Most seconds of a lock.
const MAX_TTL: f64 = 86_400.0;

pub(super) struct AcquireLock;

#[derive(Deserialize)]
struct Args {
    resource_key: String,
    ttl_seconds: Option<f64>,
}

impl Tool for AcquireLock {
    fn name(&self) -> &'static str {
        "acquire_lock"
    }

    fn description(&self) -> &'static str {
        "Locks a shared resource (an issue, a pull request, a deployment) before you work on it, so that no other session \
         does. You hold at most one lock: release it when you are done and before you take another. If the answer is not \
         `acquired: true`, for whatever reason, skip that resource: do not wait, do not try again, do not go on without \
         the lock. A lock expires by itself; ask for the same key again to renew it, and release it with `release_lock`. \
         `fencing_token` only grows: give it to systems that can refuse an older one."
    }

    fn schema(&self) -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "resource_key": {
                    "type": "string",
                    "description": "A URI that names the resource, such as github://acme/app/issues/42, \
                                    lock://repo/branch or file:///x."
                },
                "ttl_seconds": {
                    "type": "number",
                    "description": "Seconds until it expires, above 0 and at most 86400; the project's \
                                    resourceLockTimeout by default."
                }
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
            let (among, Args { resource_key, ttl_seconds }) = match begin(&context, args) {
                Ok(ready) => ready,
                Err(refused) => return Ok(Said::Result(*refused)),
            };
            let resource = match resource::normalise(&resource_key) {
                Ok(resource) => resource,
                Err(why) => {
                    return Ok(Said::Result(refusal("acquired", "invalid_key", json!({"message": why.to_string()}))));
                }
            };
            let Some(ttl) = milliseconds(ttl_seconds, among.member.rules.lock_timeout) else {
                let message = "ttl_seconds is above 0 and at most 86400";
                return Ok(Said::Result(refusal("acquired", "invalid_ttl", json!({"message": message}))));
            };
            let key = resource.clone();
            let lines = among.lines(move |answer| render(&key, answer));
            let given = among.member.store.acquire_lock(among.member.seat, resource.clone(), ttl, lines).await?;
            Ok(Said::Recorded(render(&resource, &given)))
        })
    }
}

/// The time of a lock; none when it is out of range.
fn milliseconds(seconds: Option<f64>, default: Duration) -> Option<i64> {
    let seconds = seconds.unwrap_or(default.as_secs_f64());
    let in_range = seconds > 0.0 && seconds <= MAX_TTL;
    #[expect(clippy::cast_possible_truncation, reason = "a day in milliseconds is far below the limits of both")]
    in_range.then(|| (seconds * 1000.0).ceil() as i64)
}

/// What the model is told (S-LOCK-2 to S-LOCK-4), and the journal of a lock that is held now.
fn render(resource: &str, given: &LockAnswer) -> ToolResult {
    match given {
        LockAnswer::Granted { fence, expires_at, renewed } => {
            let mut members = json!({
                "acquired": true,
                "resource_key": resource,
                "fencing_token": fence,
                "expires_at": time(*expires_at),
            });
            if *renewed {
                members["renewed"] = Value::Bool(true);
            }
            let lock = json!({"resource_key": resource, "fencing_token": fence, "expires_at": expires_at});
            answer_with(&members, json!({"lock": lock}))
        }
        LockAnswer::Conflict(lock) => {
            refusal("acquired", "conflict", json!({"resource_key": resource, "holder": holder(lock)}))
        }
        LockAnswer::AlreadyHolding { resource: held } => {
            refusal("acquired", "already_holding", json!({"holding": held}))
        }
        LockAnswer::Deadlock { lock, cycle } => {
            refusal("acquired", "deadlock", json!({"resource_key": resource, "holder": holder(lock), "cycle": cycle}))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fleet::lock;
    use super::*;

    fn said(given: &LockAnswer) -> String {
        let result = render("lock://repo/main", given);
        assert!(!result.is_error);
        result.text
    }

    /// S-LOCK-2, S-LOCK-3: what is granted has its token and its end.
    #[test]
    fn a_lock_that_is_granted() {
        let granted = LockAnswer::Granted { fence: 7, expires_at: 1_800_000, renewed: false };
        insta::assert_snapshot!(said(&granted), @r#"{"acquired":true,"resource_key":"lock://repo/main","fencing_token":7,"expires_at":"1970-01-01T00:30:00.000Z"}"#);
        let details =
            json!({"lock": {"resource_key": "lock://repo/main", "fencing_token": 7, "expires_at": 1_800_000}});
        assert_eq!(render("lock://repo/main", &granted).details, details);
        let renewed = LockAnswer::Granted { fence: 7, expires_at: 1_800_000, renewed: true };
        insta::assert_snapshot!(said(&renewed), @r#"{"acquired":true,"resource_key":"lock://repo/main","fencing_token":7,"expires_at":"1970-01-01T00:30:00.000Z","renewed":true}"#);
    }

    /// S-LOCK-4: every refusal is an answer with its reason.
    #[test]
    fn a_lock_that_is_refused() {
        insta::assert_snapshot!(said(&LockAnswer::Conflict(lock())), @r#"{"acquired":false,"reason":"conflict","resource_key":"lock://repo/main","holder":{"agent":"deployer","session":"s2","held_since":"1970-01-01T00:00:01.000Z","expires_at":"1970-01-01T00:01:01.000Z"}}"#);
        insta::assert_snapshot!(said(&LockAnswer::AlreadyHolding { resource: "lock://repo/a".to_owned() }), @r#"{"acquired":false,"reason":"already_holding","holding":"lock://repo/a"}"#);
        let cycle = ["s1", "s2", "s1"].map(str::to_owned).to_vec();
        insta::assert_snapshot!(said(&LockAnswer::Deadlock { lock: lock(), cycle }), @r#"{"acquired":false,"reason":"deadlock","resource_key":"lock://repo/main","holder":{"agent":"deployer","session":"s2","held_since":"1970-01-01T00:00:01.000Z","expires_at":"1970-01-01T00:01:01.000Z"},"cycle":["s1","s2","s1"]}"#);
        assert_eq!(render("x:y", &LockAnswer::Conflict(lock())).details, Value::Null);
    }

    /// S-LOCK-1: the time of a lock and its range.
    #[test]
    fn times_of_locks() {
        let default = Duration::from_mins(30);
        assert_eq!(milliseconds(None, default), Some(1_800_000));
        assert_eq!(milliseconds(Some(0.0001), default), Some(1));
        assert_eq!(milliseconds(Some(86_400.0), default), Some(86_400_000));
        for wrong in [0.0, -1.0, 86_400.1, f64::NAN, f64::INFINITY] {
            assert_eq!(milliseconds(Some(wrong), default), None, "{wrong}");
        }
    }
}
