//! Events survive the way into the store and back, whatever is in them.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::payload::INLINE;
use super::*;
use crate::store::faults::Tmpfs;
use crate::store::{Blob, NewSession, OwnerId, SqliteStore};

fn value() -> impl Strategy<Value = Value> {
    let name = prop_oneof!["[a-z$]{0,4}", Just("$blob".to_owned()), Just("$$blob".to_owned()), "\\PC{0,8}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        (INLINE - 2..INLINE + 40).prop_map(|length| Value::from("é".repeat(length / 2))),
        Just(json!({"$blob": "0".repeat(64)})),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn event() -> impl Strategy<Value = Event> {
    let text = prop_oneof![any::<String>(), (0..3 * INLINE).prop_map(|length| "\u{1b}x".repeat(length / 2))];
    prop_oneof![
        (text.clone(), value(), value()).prop_map(|(text, args, raw)| {
            let call = Call { key: "s/1/0".into(), provider_id: "p".into(), name: text.clone(), args };
            let usage = Usage { input: 3, cached: 1, output: u64::MAX };
            Event::Assistant(Assistant {
                turn: 1,
                text,
                calls: vec![call],
                model: "anthropic/x".into(),
                raw,
                usage,
                since: 7,
            })
        }),
        (text.clone(), value(), any::<bool>()).prop_map(|(text, details, is_error)| {
            let image = is_error.then(|| Image { media_type: "image/png".into(), base64: text.clone() });
            let (key, name, cause) = ("s/1/0".into(), "bash".into(), is_error.then(|| "oom".into()));
            Event::ToolFinished(ToolFinished { key, name, is_error, text, image, cause, details, duration_ms: 7 })
        }),
        (text.clone(), value()).prop_map(|(task, params)| {
            Event::Started(Started { agent: "a".into(), task: Some(task), params, ..Started::default() })
        }),
        (text.clone(), value()).prop_map(|(source, content)| Event::Informed(Informed { source, content })),
        value().prop_map(|args| {
            // Null arguments and absent ones are the same.
            let args = (!args.is_null()).then_some(args);
            Event::ToolStarted(ToolStarted { key: "k".into(), name: "ls".into(), args })
        }),
        value().prop_map(|on| Event::Suspended(Suspended { on, ..Suspended::default() })),
        value().prop_map(|by| Event::Resumed(Resumed { by })),
        value().prop_map(|value| Event::Returned(Returned { value })),
        text.clone().prop_map(|text| Event::Status(Status { text })),
        text.prop_map(|message| Event::Ended(Ended { cause: EndCause::MaxTurns, message })),
    ]
}

async fn journal(folder: &tempfile::TempDir) -> Journal {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path()).unwrap());
    let session = NewSession {
        id: "s".into(),
        project: "/p".into(),
        agent: "a".into(),
        owner: OwnerId { id: "o".into(), host: "h".into() },
        container: None,
        keep: false,
        place: crate::store::Place::default(),
    };
    let started = Event::Started(Started::default()).to_row();
    let key = store.create_session(session, started).await.unwrap();
    Journal::new(store, key, Generation::FIRST)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn events_come_back_as_they_went(events in prop::collection::vec(event(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let journal = journal(&folder).await;
            for (n, event) in events.iter().enumerate() {
                let row = event.to_row();
                assert!(row.blobs.iter().all(|blob| blob.bytes().len() > INLINE));
                if n % 2 == 0 { journal.record_later(event).await } else { journal.record(event).await.map(drop).unwrap() }
            }
            let loaded = load(&**journal.store(), journal.key()).await.unwrap();
            assert_eq!(loaded[1..], events);
        });
    }
}

#[tokio::test]
async fn what_a_model_writes_cannot_name_a_payload() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(&folder).await;
    let secret = Blob::new("somebody else's".repeat(2000).into_bytes());
    let id = journal.store().put_blob(secret).await.unwrap();
    let forged = Event::Returned(Returned { value: json!({"$blob": id.to_string(), "$$blob": 1}) });
    journal.record(&forged).await.unwrap();
    assert_eq!(load(&**journal.store(), journal.key()).await.unwrap()[1], forged);
}

#[tokio::test]
async fn values_as_deep_as_the_parser_allows_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(&folder).await;
    let deep: Value = serde_json::from_str(&format!("{}\"$blob\"{}", "[".repeat(127), "]".repeat(127))).unwrap();
    let call = Call { args: deep.clone(), ..Call::default() };
    let event = Event::Assistant(Assistant { calls: vec![call], raw: deep, ..Assistant::default() });
    journal.record(&event).await.unwrap();
    assert_eq!(load(&**journal.store(), journal.key()).await.unwrap()[1], event);
}

#[tokio::test]
async fn a_line_of_a_newer_runner_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(&folder).await;
    let unknown = NewEvent { kind: "dreamt".into(), body: "{}".into(), ..NewEvent::default() };
    journal.store().append(journal.key(), journal.generation(), unknown).await.unwrap();
    let error = load(&**journal.store(), journal.key()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2 of the journal (dreamt) cannot be understood by this runner: its kind is not known"
    );
}

#[tokio::test]
async fn a_session_whose_journal_lacks_a_line_does_not_end_well() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(&folder).await;
    // A line that the store refuses: another generation's.
    let other = Journal { generation: Generation(7), ..journal.clone() };
    other.record_later(&Event::Status(Status { text: "lost".into() })).await;
    let failure = journal.end(EndCause::Done, "done".into(), true).await.unwrap_err();
    assert_eq!(failure, StoreError::Fenced { session: "s".into() });
    // That one says that we no longer drive it, so it is left to who does; anything else ends it.
    assert_eq!(journal.store().session("s").await.unwrap().end, None);
    journal.record_later(&Event::Status(Status { text: "x".into() })).await;
    journal.end(EndCause::Done, "done".into(), true).await.unwrap();
    assert_eq!(journal.store().session("s").await.unwrap().end.unwrap().0.cause, "done");
}

#[tokio::test]
async fn a_session_whose_journal_ran_out_of_disk_ends_for_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = Tmpfs::mount(folder.path(), "size=1m") else {
        eprintln!("not root, or mounts are forbidden: there is no small disk to fill");
        return;
    };
    let journal = journal(&folder).await;
    journal.record_later(&Event::Status(Status { text: "x".repeat(2_000_000) })).await;
    let failure = journal.end(EndCause::Done, "done".into(), true).await.unwrap_err();
    assert!(matches!(failure, StoreError::Full { .. }), "{failure:?}");
    let (end, _) = journal.store().session("s").await.unwrap().end.unwrap();
    assert_eq!((end.cause.as_str(), end.exit_code), ("store", 1));
    assert!(end.message.starts_with("its journal could not be written: no space left for "), "{}", end.message);
}

#[test]
fn every_cause_is_called_the_same_everywhere() {
    for cause in [
        "done",
        "failed",
        "config",
        "engine",
        "model",
        "sandbox_lost",
        "protocol",
        "policy",
        "max_turns",
        "max_tokens",
        "bug",
        "timeout",
        "stopped",
        "interrupted",
        "runner_died",
        "store",
    ] {
        let parsed: EndCause = serde_json::from_value(json!(cause)).unwrap();
        assert_eq!(parsed.as_str(), cause);
    }
}
