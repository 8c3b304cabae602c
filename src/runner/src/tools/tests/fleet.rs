//! Scheduler tools: what all of them keep, and what tests of them begin with.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Among, Context, Finish, Note, Noter, Order, Registry, Said, ToolResult};
use super::{Arc, CancellationToken, Scripted, run, session};
use crate::fleet::WaitIndex;
use crate::fleet::{Member, Newcomers, NoNewcomer, Rules, events};
use crate::project::{WebhookProvider, WebhookSource};
use crate::store::{Generation, Lock, NewEvent, NewSession, OwnerId, Place, Seat, SessionKey, SqliteStore, Store};

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
        assert_eq!(registry.order(name), if last { Order::Last } else { Order::OneByOne }, "{name}");
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
    let (registry, cancel, hands, session) =
        (Registry::session(), CancellationToken::new(), Scripted::new(Vec::new()), session());
    let remaining = Duration::from_secs(9);
    let context = Context { hands: &hands, session: &session, key: "s/1/0", remaining, cancel: &cancel, fleet: None };
    let ready = registry.prepare("set_status", json!({"text": "x"})).unwrap();
    let result = run(ready.result(context));
    assert!(result.is_error && result.text.contains("only an agent's session has this tool"), "{}", result.text);
}

/// A project's agents `a`, `b` and `off` in a real store.
struct Fleet {
    store: Arc<dyn Store>,
    _place: tempfile::TempDir,
}

struct Agents;

impl Newcomers for Agents {
    fn session(&self, agent: &str, trigger: Value) -> Result<(NewSession, NewEvent), NoNewcomer> {
        match agent {
            "a" | "b" => Ok((newcomer(&format!("{agent}-called"), agent), event("started", trigger.to_string()))),
            "off" => Err(NoNewcomer::Disabled),
            _ => Err(NoNewcomer::Unknown(["a", "b", "off"].map(str::to_owned).into())),
        }
    }
}

fn newcomer(id: &str, agent: &str) -> NewSession {
    NewSession {
        id: id.to_owned(),
        project: "/p".to_owned(),
        agent: agent.to_owned(),
        owner: OwnerId { id: "o".to_owned(), host: "h".to_owned() },
        container: None,
        keep: false,
        place: Place::default(),
    }
}

fn event(kind: &'static str, body: String) -> NewEvent {
    NewEvent { kind: kind.into(), body, ..NewEvent::default() }
}

impl Fleet {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        Self { store: Arc::new(SqliteStore::open(place.path()).unwrap()), _place: place }
    }

    async fn member(&self, id: &str, agent: &str) -> Member {
        let key = self.store.create_session(newcomer(id, agent), event("started", "{}".to_owned())).await.unwrap();
        self.seated(key, id, agent)
    }

    fn seated(&self, key: SessionKey, id: &str, agent: &str) -> Member {
        Member {
            store: self.store.clone(),
            seat: Seat { key, generation: Generation::FIRST },
            session: id.to_owned(),
            agent: agent.to_owned(),
            project: "/p".to_owned(),
            rules: rules(),
            newcomers: Arc::new(Agents),
        }
    }

    /// The kinds and bodies of a session's lines after the first.
    async fn lines(&self, member: &Member) -> Vec<(String, String)> {
        let rows = self.store.events(member.seat.key, 1, 100).await.unwrap();
        rows.into_iter().map(|row| (row.kind, row.body)).collect()
    }
}

/// Makes a call of a member that saw the inbox at this position.
async fn say_after(member: &Member, since: i64, key: &str, name: &str, args: Value) -> Said {
    let registry = Registry::session();
    let (cancel, hands, session) = (CancellationToken::new(), Scripted::new(Vec::new()), session());
    let finish: Finish = Arc::new(|result: &ToolResult| event("tool_finished", result.text.clone()));
    let note: Noter = Arc::new(|note: &Note| event("note", format!("{note:?}")));
    let among = Among { member, finish: &finish, note: &note, since, active_ms: 77 };
    let remaining = Duration::from_secs(100);
    let context = Context { hands: &hands, session: &session, key, remaining, cancel: &cancel, fleet: Some(among) };
    registry.prepare(name, args).unwrap().run(context).await.unwrap()
}

async fn say(member: &Member, key: &str, name: &str, args: Value) -> Said {
    say_after(member, 0, key, name, args).await
}

/// The text of an answer that is in the journal.
fn recorded(said: Said) -> String {
    match said {
        Said::Recorded(result) => result.text,
        other => panic!("{other:?}"),
    }
}

fn finished(text: &str) -> (String, String) {
    ("tool_finished".to_owned(), text.to_owned())
}

/// S-1, S-2: the line of a result is written with its effect, in the journal of the session that asked.
#[tokio::test]
async fn a_lock_and_its_line_are_one_thing() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.member("s1", "a").await, fleet.member("s2", "b").await);
    let granted = recorded(say(&one, "s1/1/0", "acquire_lock", json!({"resource_key": "lock://Repo/x/../main"})).await);
    assert!(granted.starts_with(r#"{"acquired":true,"resource_key":"lock://repo/main","fencing_token":"#), "{granted}");
    assert_eq!(fleet.lines(&one).await, [finished(&granted)]);
    let refused = recorded(say(&two, "s2/1/0", "acquire_lock", json!({"resource_key": "lock://repo/main"})).await);
    assert!(
        refused.contains(r#""reason":"conflict","#) && refused.contains(r#""agent":"a","session":"s1""#),
        "{refused}"
    );
    let other = recorded(say(&two, "s2/1/1", "release_lock", json!({"resource_key": "lock://repo/main"})).await);
    assert_eq!(other, r#"{"released":false,"reason":"held_by_other"}"#);
    assert_eq!(fleet.lines(&two).await, [finished(&refused), finished(&other)]);
    let released = recorded(say(&one, "s1/1/1", "release_lock", json!({"resource_key": "LOCK://repo/main"})).await);
    assert_eq!(released, r#"{"released":true}"#);
    assert!(fleet.store.locks(None).await.unwrap().is_empty());
    let invalid = say(&one, "s1/2/0", "acquire_lock", json!({"resource_key": "main"})).await;
    assert!(
        matches!(&invalid, Said::Result(told) if told.text.contains("\"invalid_key\"") && !told.is_error),
        "{invalid:?}"
    );
    let invalid = say(&one, "s1/2/1", "acquire_lock", json!({"resource_key": "lock://a", "ttl_seconds": 0})).await;
    assert!(
        matches!(&invalid, Said::Result(told) if told.text.contains("\"invalid_ttl\"") && !told.is_error),
        "{invalid:?}"
    );
}

/// S-CALL-1, S-CHECK-1, S-RETURN-1: a call, who may ask for it, and its answer.
#[tokio::test]
async fn a_call_goes_there_and_back() {
    let fleet = Fleet::new();
    let (caller, stranger) = (fleet.member("s1", "a").await, fleet.member("s2", "b").await);
    let call = |target: &str| json!({"target_agent": target, "context": {"n": 1}});
    for (target, reason) in [("off", "disabled"), ("c", "unknown_agent")] {
        let said = say(&caller, "s1/1/0", "call_agent", call(target)).await;
        assert!(matches!(&said, Said::Result(told) if told.text.contains(reason)), "{said:?}");
    }
    let said = recorded(say(&caller, "s1/1/1", "call_agent", call("a")).await);
    assert_eq!(said, r#"{"accepted":false,"reason":"self_call"}"#);
    let said = recorded(say(&caller, "s1/1/2", "call_agent", call("b")).await);
    assert!(said.starts_with(r#"{"call_id":"s1/1/2","status":"#), "{said}");
    let child = fleet.store.session("b-called").await.unwrap();
    let started = fleet.store.events(child.key, 0, 1).await.unwrap().remove(0).body;
    let trigger = json!({
        "type": "agent_trigger", "kind": "call", "source_agent": "a", "call_id": "s1/1/2", "context": {"n": 1},
    });
    assert_eq!(started, trigger.to_string());
    let said = recorded(say(&stranger, "s2/1/0", "check_call", json!({"call_id": "s1/1/2"})).await);
    assert!(said.contains("unknown_call"), "{said}");

    let said = recorded(say(&stranger, "s2/1/1", "return_value", json!({"value": 5})).await);
    assert_eq!(said, r#"{"accepted":false,"reason":"not_called"}"#);
    assert!(fleet.lines(&stranger).await.iter().all(|(kind, _)| kind == "tool_finished"));
    let child = fleet.seated(child.key, "b-called", "b");
    let said = recorded(say(&child, "b-called/1/0", "return_value", json!({"value": [5]})).await);
    assert_eq!(said, r#"{"accepted":true,"call_id":"s1/1/2"}"#);
    let noted = ("note".to_owned(), "Returned(Array [Number(5)])".to_owned());
    assert_eq!(fleet.lines(&child).await, [noted, finished(&said)]);
}

/// S-STATUS-1: a status is in the store at once, and in the journal.
#[tokio::test]
async fn a_status_is_seen_at_once() {
    let fleet = Fleet::new();
    let member = fleet.member("s1", "a").await;
    let said = recorded(say(&member, "s1/1/0", "set_status", json!({"text": "reviewing\nPR 42\u{7}"})).await);
    assert_eq!(fleet.store.session("s1").await.unwrap().status.as_deref(), Some("reviewing PR 42"));
    let noted = ("note".to_owned(), "Status(\"reviewing PR 42\")".to_owned());
    assert_eq!(fleet.lines(&member).await, [noted, finished(&said)]);
    let said = say(&member, "s1/1/1", "set_status", json!({"text": "\u{7}"})).await;
    assert!(matches!(&said, Said::Result(told) if told.is_error), "{said:?}");
}

/// S-WAIT-5, S-WAIT-9: a wait is suspended and woken by what matches it, once, or answered by what came before it.
#[tokio::test]
async fn a_wait_is_woken_once() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.member("s1", "a").await, fleet.member("s2", "b").await);
    let source = WebhookSource { name: "ours".to_owned(), provider: WebhookProvider::Github };
    let push = |repo: &str| json!({"ref": "refs/heads/main", "repository": {"full_name": repo}});
    let args =
        json!({"type": "webhook", "source": "github", "event": "push", "match": {"repo": "a/b"}, "timeout": "1h"});
    assert_eq!(say(&one, "s1/1/0", "wait_for_trigger", args.clone()).await, Said::Suspended);
    let lines = fleet.lines(&one).await;
    assert!(lines.len() == 1 && lines[0].0 == "note" && lines[0].1.starts_with("Suspended"), "{lines:?}");
    assert!(lines[0].1.contains("push from github, ours, repo = a/b") && lines[0].1.contains("active_ms: 77"));

    let mut index = WaitIndex::default();
    for repo in ["x/y", "a/b", "a/b"] {
        fleet.store.accept(events::incoming("/p", &source, "push", push(repo))).await.unwrap();
    }
    assert_eq!(events::deliver(&*fleet.store, "/p", &mut index).await.unwrap(), ["s1"]);
    assert!(events::deliver(&*fleet.store, "/p", &mut index).await.unwrap().is_empty());
    let woke: Vec<usize> = fleet
        .store
        .inbox("/p".to_owned(), 9)
        .await
        .unwrap()
        .into_iter()
        .map(|event| event.woke.unwrap().len())
        .collect();
    assert_eq!(woke, [0, 1, 0]);

    // The model was asked before they came, so the first that fits is the answer.
    let now = recorded(say_after(&two, 0, "s2/1/0", "wait_for_trigger", args).await);
    assert!(now.contains(r#""repo":"a/b""#) && now.ends_with(r#""waited_seconds":0}"#), "{now}");
    assert_eq!(fleet.lines(&two).await, [finished(&now)]);
}
