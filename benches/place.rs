//! A state directory, an agent and an engine to measure on.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use protocol::{Outcome, Request};
use runner::sandbox::engine::Engine;
use runner::sandbox::limits::{Limits, Wanted};
use runner::sandbox::{Order, Reply, Sandbox, ToolCall};
use runner::state::State;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Where sandboxes are started.
pub(crate) struct Place {
    /// Holds the state directory and the agent; goes with the place.
    pub(crate) folder: TempDir,
    /// The engine.
    pub(crate) engine: Engine,
    state: State,
}

impl Place {
    /// Connects to the engine and makes a fresh state directory.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("runner-bench-").tempdir()?;
        let agent = folder.path().join("agent");
        std::fs::create_dir(&agent)?;
        std::fs::write(agent.join("SKILL.md"), "---\nname: agent\ndescription: Is measured.\n---\n\nRead it.\n")?;
        let state = State::open_at(&folder.path().join("state"))?;
        let engine = Engine::connect(None).await?;
        Ok(Self { folder, engine, state })
    }

    /// The agent's folder.
    fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Starts a sandbox.
    pub(crate) async fn sandbox(&self) -> anyhow::Result<Sandbox> {
        self.sandbox_of("runner/minimal", &Wanted::default()).await
    }

    /// Starts a sandbox of an image, with limits.
    pub(crate) async fn sandbox_of(&self, image: &str, wanted: &Wanted) -> anyhow::Result<Sandbox> {
        Ok(Sandbox::start(&self.engine, &self.state, self.order(image, wanted)?).await?)
    }

    /// Starts a sandbox that is taken up again by its order.
    pub(crate) async fn sandbox_and_order(&self) -> anyhow::Result<(Sandbox, Order)> {
        let order = self.order("runner/minimal", &Wanted::default())?;
        Ok((Sandbox::start(&self.engine, &self.state, order.clone()).await?, order))
    }

    fn order(&self, image: &str, wanted: &Wanted) -> anyhow::Result<Order> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("{error}"))?;
        let session = uuid::Uuid::now_v7().to_string();
        Ok(Order {
            session,
            name: format!("runner-bench-{}", hex::encode(random)),
            image: image.to_owned(),
            limits: Limits::resolve(wanted, self.engine.facts().ncpu)
                .map_err(|wrong| anyhow::anyhow!("limits: {wrong:?}"))?,
            runtime: None,
            orphan_grace: 600,
            agent: self.agent(),
        })
    }
}

/// Makes one call that must succeed.
pub(crate) async fn call(sandbox: &Sandbox, number: u64, request: Request, body: Bytes) -> anyhow::Result<Reply> {
    let call = ToolCall {
        key: format!("bench/0/{number}"),
        request,
        body,
        timeout: Duration::from_mins(1),
        cancel: CancellationToken::new(),
    };
    let control = matches!(call.request, Request::Bash { .. });
    let key = call.key.clone();
    let reply = sandbox.call(call).await?;
    if control {
        sandbox.forget(&key);
    }
    anyhow::ensure!(reply.is_success(), "{:?}", reply.outcome);
    Ok(reply)
}

/// Runs a command that must succeed.
pub(crate) async fn bash(sandbox: &Sandbox, number: u64, command: &str) -> anyhow::Result<Reply> {
    call(sandbox, number, Request::Bash { background: false }, Bytes::copy_from_slice(command.as_bytes())).await
}

/// Reads a file that must be text.
pub(crate) async fn read(sandbox: &Sandbox, number: u64, path: &str) -> anyhow::Result<Reply> {
    let request = Request::Read { path: path.to_owned(), offset: None, limit: None, images: true };
    let reply = call(sandbox, number, request, Bytes::new()).await?;
    anyhow::ensure!(matches!(reply.outcome, Outcome::Text(_)), "{:?}", reply.outcome);
    Ok(reply)
}

/// The host's process ids of PID 1 and the resident worker.
pub(crate) fn processes(sandbox: &Sandbox) -> anyhow::Result<[u32; 2]> {
    let path = format!("/containers/{}/json", sandbox.container_id());
    let found = super::engine::request("GET", &path, &serde_json::Value::Null)?;
    let init = found["State"]["Pid"].as_u64().context("the container runs")?;
    let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children"))?;
    let mut children = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    let worker = children.find(|pid| owner(*pid) == Some(sandbox.ids().worker)).context("the worker runs")?;
    Ok([u32::try_from(init)?, worker])
}

fn owner(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}
