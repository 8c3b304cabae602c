//! A session that another process drives, shown by its journal as if this one drove it.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::records::RecordsError;
use super::waiting::{self, Queue};
use crate::session::journal::{Event, JournalError, Started, ToolFinished};
use crate::session::owner;
use crate::session::progress::{Progress, Watcher};
use crate::state::State;
use crate::store::{EventRow, Session, SessionKey, SessionState, StopHow, Store, StoreError};

/// Lines read at once.
const PAGE: usize = 256;

/// How often a follower makes sure that somebody drives the session.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How long the removal of an ended session's sandbox is waited for.
const REMOVAL: Duration = Duration::from_mins(1);

/// Shows a session from the line after `after` until it has ended; returns it. When `interrupt` is cancelled, it is asked
/// to stop.
pub(super) async fn follow(
    store: &dyn Store,
    state: &State,
    id: &str,
    after: u64,
    watcher: &dyn Watcher,
    interrupt: &CancellationToken,
) -> Result<Session, RecordsError> {
    let mut changes = store.watch();
    let mut view = View::new(id, watcher, after);
    let mut queue = Queue::default();
    let (mut asked, mut deserted) = (false, false);
    loop {
        changes.mark_unchanged();
        // Read before the lines: what was written before the end is shown before we stop.
        let session = store.session(id).await?;
        queue.show(store, &session, watcher).await?;
        if session.state != SessionState::Queued {
            view.catch_up(store, session.key).await?;
        }
        if session.end.is_some() {
            let session = removed(store, session).await?;
            view.end(&session);
            return Ok(session);
        }
        let dead = session.state == SessionState::Active && !owner::is_alive(state, &session.owner)?;
        if dead && !deserted {
            let message = format!(
                "the runner that drove it has died or left; `runner serve` or `runner resume {id}` goes on with it"
            );
            watcher.see(&Progress::Note { message: &message });
        }
        deserted = dead;
        if interrupt.is_cancelled() && !asked {
            store.request_stop(session.key, waiting::who(), StopHow::Orderly).await?;
            asked = true;
        }
        tokio::select! {
            // Looked at again either way.
            _ = timeout(LOOK_AFTER, changes.changed()) => {}
            () = interrupt.cancelled(), if !asked => {}
        }
    }
}

/// Waits until the sandbox of an ended session is gone, if it is to go.
async fn removed(store: &dyn Store, mut session: Session) -> Result<Session, StoreError> {
    let deadline = Instant::now() + REMOVAL;
    let gone = |session: &Session| session.end.as_ref().is_some_and(|(end, _)| end.sandbox_removed);
    while !session.keep && !gone(&session) && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
        session = store.session(&session.id).await?;
    }
    Ok(session)
}

/// What was shown, and what the next lines need of it.
struct View<'a> {
    id: &'a str,
    watcher: &'a dyn Watcher,
    after: u64,
    /// When the line before was written.
    at: i64,
    /// Arguments of calls that the model asked for, by key.
    asked: HashMap<String, Value>,
    /// What the model said last.
    text: String,
}

impl<'a> View<'a> {
    fn new(id: &'a str, watcher: &'a dyn Watcher, after: u64) -> Self {
        Self { id, watcher, after, at: 0, asked: HashMap::new(), text: String::new() }
    }

    async fn catch_up(&mut self, store: &dyn Store, key: SessionKey) -> Result<(), RecordsError> {
        loop {
            let rows = store.events(key, self.after, PAGE).await?;
            for row in &rows {
                match Event::from_row(store, row).await {
                    Ok(event) => self.show(store, key, row, event).await?,
                    // A newer runner may write what this one does not know.
                    Err(JournalError::Row { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                (self.after, self.at) = (row.seq, row.at);
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn show(
        &mut self,
        store: &dyn Store,
        key: SessionKey,
        row: &EventRow,
        event: Event,
    ) -> Result<(), StoreError> {
        match event {
            Event::Started(Started { agent, image, .. }) => {
                self.watcher.see(&Progress::Started { session: self.id, agent: &agent, image: &image });
            }
            Event::Informed(informed) => {
                if let Some(container) = informed.content.get("container").and_then(Value::as_str) {
                    let duration_ms = row.at.saturating_sub(self.at).unsigned_abs();
                    self.watcher.see(&Progress::SandboxReady { container, duration_ms });
                }
            }
            Event::Assistant(turn) => {
                self.watcher.see(&Progress::Thinking { turn: turn.turn });
                if !turn.text.is_empty() {
                    self.watcher.see(&Progress::Text { text: &turn.text });
                }
                self.asked.extend(turn.calls.into_iter().map(|call| (call.key, call.args)));
                self.text = turn.text;
            }
            Event::ToolStarted(call) => {
                let args = call.args.or_else(|| self.asked.remove(&call.key)).unwrap_or_default();
                self.watcher.see(&Progress::ToolStarted { key: &call.key, name: &call.name, args: &args });
            }
            Event::ToolFinished(ToolFinished { key, name, is_error, cause, text, duration_ms, .. }) => {
                // A cause that only a newer runner knows is left out.
                let cause = cause.and_then(|cause| serde_json::from_value(Value::String(cause)).ok());
                self.watcher.see(&Progress::ToolFinished {
                    key: &key,
                    name: &name,
                    is_error,
                    cause,
                    text: &text,
                    duration_ms,
                });
            }
            Event::Suspended(suspended) => match store.wait_of(key).await? {
                Some(wait) if suspended.on["type"] != "runner_left" => {
                    waiting::show_wait(self.id, &wait, self.watcher);
                }
                _ => {}
            },
            Event::Resumed(resumed) => {
                let by = waiting::words(&resumed.by);
                self.watcher.see(&Progress::Resumed { session: self.id, by: &by });
            }
            Event::Status(_) | Event::Returned(_) | Event::Ended(_) => {}
        }
        Ok(())
    }

    fn end(&self, session: &Session) {
        waiting::show_end(session, &self.text, self.watcher);
    }
}

/// The number of the newest line of a journal.
pub(super) async fn newest_line(store: &dyn Store, key: SessionKey) -> Result<u64, StoreError> {
    let mut after = 0;
    loop {
        let rows = store.events(key, after, PAGE).await?;
        match rows.last() {
            Some(row) => after = row.seq,
            None => return Ok(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::session::journal::{Assistant, Call, EndCause, Informed, Journal, ToolStarted};
    use crate::session::owner::Owner;
    use crate::store::{Lines, NewSession, Place, Scope, Slots, SqliteStore};

    /// Keeps what it sees as JSON, without what differs each time.
    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl Watcher for Seen {
        fn see(&self, progress: &Progress<'_>) {
            let mut value = serde_json::to_value(progress).unwrap();
            for varying in ["session", "duration_ms", "message", "why"] {
                value.as_object_mut().unwrap().remove(varying);
            }
            self.0.lock().unwrap().push(value.to_string());
        }
    }

    struct Stage {
        _folder: tempfile::TempDir,
        state: State,
        store: Arc<dyn Store>,
        owner: Owner,
        session: Session,
    }

    /// A project with one queued session.
    async fn queued() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state.root()).unwrap());
        let owner = Owner::claim(&state).unwrap();
        let new = NewSession {
            id: uuid::Uuid::now_v7().to_string(),
            project: "/p".to_owned(),
            agent: "one".to_owned(),
            owner: owner.id().clone(),
            container: None,
            keep: false,
            place: Place { queue: Some(9), max_tokens: None },
        };
        let id = new.id.clone();
        let started = Started { agent: "one".to_owned(), image: "runner/minimal".to_owned(), ..Started::default() };
        store.create_session(new, Event::Started(started).to_row()).await.unwrap();
        let session = store.session(&id).await.unwrap();
        Stage { _folder: folder, state, store, owner, session }
    }

    impl Stage {
        async fn claimed(&self) -> Journal {
            let slots = Slots { others: 1, ..Slots::default() };
            let claim = self.store.claim(
                "/p".to_owned(),
                slots,
                Scope::Project,
                self.owner.id().clone(),
                "name".to_owned(),
                Lines::none(),
            );
            let claimed = claim.await.unwrap().unwrap().session;
            Journal::new(Arc::clone(&self.store), claimed.key, claimed.generation)
        }
    }

    fn on_runtime(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn a_journal_is_shown_like_a_session_of_this_process() {
        on_runtime(async {
            let place = queued().await;
            let journal = place.claimed().await;
            let call = Call {
                key: "k/1/0".into(),
                provider_id: String::new(),
                name: "bash".into(),
                args: json!({"command": "id"}),
            };
            let text = || "Look.".to_owned();
            for event in [
                Event::Informed(Informed { source: "runner".into(), content: json!({"slot": {"waited_ms": 1}}) }),
                Event::Informed(Informed { source: "runner".into(), content: json!({"container": "c0ffee"}) }),
                Event::Assistant(Assistant { turn: 1, text: text(), calls: vec![call], ..Assistant::default() }),
                Event::ToolStarted(ToolStarted { key: "k/1/0".into(), name: "bash".into(), args: None }),
                Event::ToolFinished(ToolFinished {
                    key: "k/1/0".into(),
                    name: "bash".into(),
                    is_error: true,
                    text: "[exit code 1]".into(),
                    cause: Some("exit".into()),
                    ..ToolFinished::default()
                }),
            ] {
                journal.record(&event).await.unwrap();
            }
            journal.end(EndCause::Done, "the agent is done".to_owned(), true).await.unwrap();
            let seen = Seen::default();
            let id = &place.session.id;
            let ended = follow(&*place.store, &place.state, id, 0, &seen, &CancellationToken::new()).await.unwrap();
            assert_eq!(ended.end.unwrap().0.exit_code, 0);
            insta::assert_snapshot!(seen.0.into_inner().unwrap().join("\n"), @r#"
            {"event":"started","image":"runner/minimal","agent":"one"}
            {"event":"sandbox_ready","container":"c0ffee"}
            {"event":"thinking","turn":1}
            {"event":"text","text":"Look."}
            {"event":"tool_started","key":"k/1/0","name":"bash","args":{"command":"id"}}
            {"event":"tool_finished","key":"k/1/0","name":"bash","is_error":true,"cause":"exit","text":"[exit code 1]"}
            {"event":"ended","sandbox_removed":true,"cause":"done","exit_code":0,"text":"Look."}
            "#);
        });
    }

    #[test]
    fn an_interruption_stops_a_session_of_another_process() {
        on_runtime(async {
            let place = queued().await;
            let (seen, interrupt) = (Seen::default(), CancellationToken::new());
            let id = &place.session.id;
            let follower = follow(&*place.store, &place.state, id, 0, &seen, &interrupt);
            let driver = async {
                let journal = place.claimed().await;
                interrupt.cancel();
                let mut changes = place.store.watch();
                while place.store.stop_requested(journal.key()).await.unwrap().is_none() {
                    changes.changed().await.unwrap();
                }
                journal.end(EndCause::Stopped, "stopped".to_owned(), true).await.unwrap();
            };
            let (ended, ()) = tokio::join!(follower, driver);
            assert_eq!(ended.unwrap().end.unwrap().0.exit_code, 125);
        });
    }
}
