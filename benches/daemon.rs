//! A fleet to measure: a project of script agents, `runner serve` as people start it, and the store that it writes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use runner::store::{Session, SessionFilter, SqliteStore, Status, StopHow, Store};
use serde_json::{Value, json};

use super::place::Place;

/// Longest time that anything here takes.
const PATIENCE: Duration = Duration::from_mins(5);

/// A project in a place's folder, with the place's state directory.
pub(crate) struct Fleet {
    folder: PathBuf,
    state: PathBuf,
    /// The store, which the daemon writes too.
    pub(crate) store: Arc<dyn Store>,
}

/// A running `runner serve`.
pub(crate) struct Daemon(Child);

impl Fleet {
    /// A project with one agent, `agent`, that plays these turns.
    pub(crate) fn new(place: &Place, config: &str, scale: u32, turns: &Value) -> anyhow::Result<Self> {
        let folder = place.folder.path().join("fleet");
        std::fs::create_dir_all(folder.join("agents/agent"))?;
        let written = format!(
            "{config}\n[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n[webhooks.github]\ntype = \"github\"\n\
             [local]\nmemory = \"64m\"\ncpus = 1\npids = 64\ntmpSize = \"8m\"\n"
        );
        std::fs::write(folder.join("config.toml"), written)?;
        std::fs::write(folder.join("script.json"), json!({"turns": turns}).to_string())?;
        let skill = "---\nname: agent\ndescription: Is measured.\n---\n\nDo what the script says.\n";
        std::fs::write(folder.join("agents/agent/SKILL.md"), skill)?;
        std::fs::write(folder.join("agents/agent/config.toml"), format!("scale = {scale}\n"))?;
        let state = place.state().root().to_owned();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&state)?);
        Ok(Self { folder, state, store })
    }

    /// The project's folder, by which the store knows it.
    pub(crate) fn project(&self) -> &Path {
        &self.folder
    }

    /// The program in this project.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runner"));
        command.args(arguments).current_dir(&self.folder).env("RUNNER_STATE", &self.state).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end, which must be good.
    pub(crate) fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let ran = self.command(arguments).output()?;
        anyhow::ensure!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        Ok(())
    }

    /// Leaves so many sessions to the daemon.
    pub(crate) fn detach(&self, count: usize) -> anyhow::Result<()> {
        (0..count).try_for_each(|_| self.run(&["start", "--agent", "agent", "--detach"]))
    }

    /// Starts the daemon and waits until it serves; the time that this took.
    pub(crate) fn serve(&self) -> anyhow::Result<(Daemon, Duration)> {
        let begin = Instant::now();
        let mut child =
            self.command(&["serve"]).env("RUNNER_LOG", "warn").stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it is piped")?).read_line(&mut line)?;
        let time = begin.elapsed();
        anyhow::ensure!(line.starts_with("serving"), "the daemon said {line:?}");
        Ok((Daemon(child), time))
    }

    /// Sessions of this condition, oldest first.
    pub(crate) async fn sessions(&self, status: Status) -> anyhow::Result<Vec<Session>> {
        let mut sessions = self.store.sessions(SessionFilter { status, ..SessionFilter::default() }).await?;
        sessions.reverse();
        Ok(sessions)
    }

    /// Waits until so many sessions wait in paused containers.
    pub(crate) async fn paused(&self, count: usize) -> anyhow::Result<()> {
        until(|| async {
            let waits = self.store.waits(None, 0).await?;
            Ok(waits.iter().filter(|wait| wait.paused && wait.woken.is_none()).count() >= count)
        })
        .await
    }

    /// Waits until all sessions are over.
    pub(crate) async fn over(&self) -> anyhow::Result<()> {
        until(|| async { Ok(self.sessions(Status::Unfinished).await?.is_empty()) }).await
    }

    /// Kills all sessions, and waits until nothing of them is left.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        for session in self.sessions(Status::Live).await? {
            self.store.request_stop(session.key, "bench".to_owned(), StopHow::Kill).await?;
        }
        self.over().await
    }
}

impl Daemon {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to leave and waits for its end.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid())?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let status = self.0.wait()?;
        anyhow::ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Waits until it is so.
async fn until<F: Future<Output = anyhow::Result<bool>>>(mut so: impl FnMut() -> F) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !so().await? {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "nothing has come of it in {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
