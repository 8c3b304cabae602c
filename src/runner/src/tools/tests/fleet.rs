//! Scheduler tools: what all of them keep, and what tests of them begin with.

use std::time::Duration;

use serde_json::json;

use super::super::{Order, Registry};
use super::{Scripted, call_with, session};
use crate::fleet::Rules;
use crate::store::{Lock, SessionKey};

const SCHEDULER: [&str; 7] =
    ["acquire_lock", "call_agent", "check_call", "release_lock", "return_value", "set_status", "wait_for_trigger"];

/// A lock that somebody holds.
pub(crate) fn lock() -> Lock {
    Lock {
        resource: "lock://repo/main".to_owned(),
        key: SessionKey(2),
        session: "s2".to_owned(),
        agent: "deployer".to_owned(),
        project: "/p".to_owned(),
        fence: 6,
        held_since: 1_000,
        expires_at: 61_000,
    }
}

/// The rules of a project with three sources.
pub(crate) fn rules() -> Rules {
    let sources = [("github", "github"), ("ours", "github"), ("errors", "sentry")];
    Rules {
        lock_timeout: Duration::from_mins(30),
        wait_timeout: Duration::from_mins(30),
        max_suspended: 50,
        max_call_depth: 3,
        sources: sources.map(|(name, kind)| (name.to_owned(), kind.to_owned())).to_vec(),
    }
}

/// S-4: what an agent has to know stands in the descriptions.
#[test]
fn descriptions_carry_the_guidance() {
    let definitions = Registry::session().definitions();
    let of = |name: &str| &definitions.iter().find(|definition| definition.name == name).unwrap().description;
    let lock = of("acquire_lock");
    assert!(lock.contains("for whatever reason, skip that resource") && lock.contains("release it when you are done"));
    assert!(of("release_lock").contains("as soon as you are done"));
    assert!(of("check_call").contains("Do work between polls"));
}

/// S-1, S-3: nobody says who it is, and what may suspend a session comes last.
#[test]
fn the_order_of_calls_and_who_makes_them() {
    let registry = Registry::session();
    let args = |name: &str| match name {
        "acquire_lock" | "release_lock" => json!({"resource_key": "lock://a"}),
        "call_agent" => json!({"target_agent": "b", "context": "x"}),
        "check_call" => json!({"call_id": "s/1/0"}),
        "return_value" => json!({"value": {"any": ["JSON"]}}),
        "set_status" => json!({"text": "x"}),
        _ => json!({"type": "webhook"}),
    };
    for name in SCHEDULER {
        let ready = registry.prepare(name, args(name)).unwrap();
        let last = name == "wait_for_trigger";
        assert_eq!(ready.order(), if last { Order::Last } else { Order::OneByOne }, "{name}");
        assert!(!ready.has_effects(), "{name}: its line is in the transaction of its effect");
        for identity in ["session", "agent", "caller", "owner", "holder"] {
            let mut forged = args(name);
            forged[identity] = json!("somebody else");
            assert!(registry.prepare(name, forged).is_err(), "{name} takes {identity}");
        }
    }
    for name in Registry::transport().names() {
        assert!(!SCHEDULER.contains(&name));
    }
}

/// Where there is no fleet, scheduler tools say so.
#[test]
fn without_a_fleet_there_is_nobody_to_share_with() {
    let result = call_with(&Scripted::new(Vec::new()), &session(), "set_status", json!({"text": "x"}));
    assert!(result.is_error && result.text.contains("there is no tool"), "{}", result.text);
}
