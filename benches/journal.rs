//! What the journal adds to calls: the same calls with and without their lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runner::sandbox::Sandbox;
use runner::session::journal::{Event, Journal, ToolFinished, ToolStarted};
use runner::store::{Generation, NewSession, OwnerId, SqliteStore, Store};
use serde_json::json;

use super::place::{self, Place};
use super::stats::{Bound, Figure, Pair};

const BLOCKS: usize = 9;

/// A `read` with its two lines in the background, against one without.
pub(crate) async fn read(place: &Place) -> anyhow::Result<Figure> {
    compare(place, Call::Read, "journal_read", 500).await
}

/// `bash true` with its intent awaited, against one without.
pub(crate) async fn bash(place: &Place) -> anyhow::Result<Figure> {
    compare(place, Call::Bash, "journal_bash", 200).await
}

#[derive(Clone, Copy)]
enum Call {
    Read,
    Bash,
}

async fn compare(place: &Place, call: Call, name: &'static str, count: usize) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    place::bash(&sandbox, 0, "printf '%1024s' x >/tmp/1k").await?;
    let journal = journal(place).await?;
    let mut pair = Pair::default();
    let mut number = 0;
    for _ in 0..BLOCKS {
        let mut bare = Vec::new();
        let mut journalled = Vec::new();
        // One of each in turn: the store's own thread works on between the calls, and must not burden only one side.
        for _ in 0..count {
            number += 2;
            bare.push(make(&sandbox, None, call, number).await?);
            journalled.push(make(&sandbox, Some(&journal), call, number + 1).await?);
        }
        pair.floor(bare);
        pair.ours(journalled);
    }
    sandbox.stop().await?;
    let detail = pair.detail("without", "with the journal");
    Ok(Figure::judge(name, pair.ratio() - 1.0, "fraction", Bound::AtMost(0.3), &detail))
}

/// Makes a call with the journal lines that a session writes for it.
async fn make(sandbox: &Sandbox, journal: Option<&Journal>, call: Call, number: u64) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let key = format!("bench/0/{number}");
    let name = match call {
        Call::Read => "read",
        Call::Bash => "bash",
    };
    if let Some(journal) = journal {
        let started = Event::ToolStarted(ToolStarted {
            key: key.clone(),
            name: name.to_owned(),
            args: Some(json!({"path": "/tmp/1k"})),
        });
        match call {
            Call::Read => journal.record_later(&started).await,
            Call::Bash => {
                journal.record(&started).await?;
            }
        }
    }
    let reply = match call {
        Call::Read => place::read(sandbox, number, "/tmp/1k").await?,
        Call::Bash => place::bash(sandbox, number, "true").await?,
    };
    if let Some(journal) = journal {
        let finished = Event::ToolFinished(ToolFinished {
            key,
            name: name.to_owned(),
            is_error: false,
            text: String::from_utf8_lossy(&reply.payload).into_owned(),
            image: None,
            cause: None,
            details: json!(null),
            duration_ms: 0,
        });
        journal.record_later(&finished).await;
    }
    Ok(begin.elapsed())
}

/// A journal in a store of its own.
async fn journal(place: &Place) -> anyhow::Result<Journal> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(place.state().root())?);
    let owner = OwnerId { id: "bench".to_owned(), host: place.state().token().to_owned() };
    let session = NewSession {
        id: uuid::Uuid::now_v7().to_string(),
        project: "bench".to_owned(),
        agent: "bench".to_owned(),
        owner,
        container: None,
        keep: false,
        place: runner::store::Place::default(),
    };
    let started = runner::store::NewEvent { kind: "started".into(), body: "{}".to_owned(), ..Default::default() };
    let key = store.create_session(session, started).await?;
    Ok(Journal::new(store, key, Generation::FIRST))
}
