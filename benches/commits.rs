//! The floor of the store: one thread that commits rows in groups and knows nothing of sessions.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

/// What is committed as one.
#[derive(Debug)]
pub(crate) enum Rows {
    /// A journal line.
    Line(String),
    /// A lock's row and a journal line.
    Lock(String, String),
    /// The lock's row goes, and a journal line.
    Unlock(String, String),
}

/// When a commit is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Durable {
    /// After a power cut.
    Full,
    /// After the end of the process.
    Normal,
}

/// The thread; it ends with the last of its senders.
pub(crate) struct Commits {
    rows: Option<Sender<(Rows, oneshot::Sender<()>)>>,
    thread: Option<JoinHandle<rusqlite::Result<()>>>,
}

impl Commits {
    /// Starts it on a file of its own in this folder.
    pub(crate) fn start(folder: &Path, durable: Durable) -> anyhow::Result<Self> {
        let path = folder.join(format!("bare-{durable:?}.db"));
        let db = Connection::open(path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", if matches!(durable, Durable::Full) { "FULL" } else { "NORMAL" })?;
        db.execute_batch(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL) STRICT;
             CREATE TABLE locks (fence INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL UNIQUE,
                 session INTEGER NOT NULL, held_since INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT;
             CREATE INDEX locks_session ON locks (session);",
        )?;
        let (rows, asked) = channel();
        let thread = std::thread::spawn(move || commit(&db, &asked));
        Ok(Self { rows: Some(rows), thread: Some(thread) })
    }

    /// Commits these and waits for it.
    pub(crate) async fn commit(&self, rows: Rows) -> anyhow::Result<()> {
        let (done, committed) = oneshot::channel();
        self.rows.as_ref().and_then(|to| to.send((rows, done)).ok());
        Ok(committed.await?)
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        drop(self.rows.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Commits all that is there at once, again and again.
fn commit(db: &Connection, asked: &Receiver<(Rows, oneshot::Sender<()>)>) -> rusqlite::Result<()> {
    let mut line = db.prepare("INSERT INTO events (at, kind, body) VALUES (?1, 'tool_finished', ?2)")?;
    let mut lock = db.prepare("INSERT INTO locks (resource, session, held_since, expires_at) VALUES (?1, 1, 1, 2)")?;
    let mut unlock = db.prepare("DELETE FROM locks WHERE resource = ?1")?;
    while let Ok(first) = asked.recv() {
        let group: Vec<_> = std::iter::once(first).chain(asked.try_iter()).collect();
        db.execute_batch("BEGIN IMMEDIATE")?;
        for (rows, _) in &group {
            let body = match rows {
                Rows::Line(body) => body,
                Rows::Lock(resource, body) => {
                    lock.execute([resource])?;
                    body
                }
                Rows::Unlock(resource, body) => {
                    unlock.execute([resource])?;
                    body
                }
            };
            line.execute(params![1, body])?;
        }
        db.execute_batch("COMMIT")?;
        for (_, done) in group {
            let _ = done.send(());
        }
    }
    Ok(())
}
