//! `bash true` against a bare shell and against the engine's exec.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use runner::sandbox::Sandbox;
use runner::sandbox::limits::Wanted;
use serde_json::json;

use super::engine::{self, Container};
use super::place::{Place, bash};
use super::stats::{Bound, Figure, Pair, timed};

const SHELL: &str = "/bin/bash";

/// `bash true` against vfork, exec and wait of the same shell, as root and bare, in a container of the same order.
pub(crate) async fn against_twin(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    let mut twin = Twin::start(place.folder.path(), sandbox.container_id())?;
    let mut pair = Pair::default();
    let mut number = 0;
    for _ in 0..9 {
        let mut block = Vec::new();
        for _ in 0..200 {
            block.push(twin.run()?);
        }
        pair.floor(block);
        let mut block = Vec::new();
        for _ in 0..200 {
            number += 1;
            let (time, reply) = timed(bash(&sandbox, number, "true")).await;
            reply?;
            block.push(time);
        }
        pair.ours(block);
    }
    twin.container.end()?;
    sandbox.stop().await?;
    let detail = pair.detail("bare vfork+exec+wait in an equal container", "bash true");
    Ok(Figure::judge("bash_true", pair.ratio(), "ratio", Bound::AtMost(1.4), &detail))
}

/// The engine's exec of the same shell against `bash true`.
pub(crate) async fn against_exec(place: &Place) -> anyhow::Result<Figure> {
    exec_figure("bash_vs_exec", &place.sandbox().await?, 40.0).await
}

/// The same on runner/base, whose shell has libraries to load.
pub(crate) async fn against_exec_on_base(place: &Place) -> anyhow::Result<Figure> {
    exec_figure("bash_vs_exec_base", &place.sandbox_of("runner/base", &Wanted::default()).await?, 25.0).await
}

async fn exec_figure(name: &'static str, sandbox: &Sandbox, bound: f64) -> anyhow::Result<Figure> {
    let mut pair = Pair::default();
    let mut number = 0;
    for _ in 0..5 {
        let mut block = Vec::new();
        for _ in 0..20 {
            number += 1;
            let (time, reply) = timed(bash(sandbox, number, "true")).await;
            reply?;
            block.push(time);
        }
        pair.floor(block);
        let mut block = Vec::new();
        for _ in 0..8 {
            let begin = Instant::now();
            engine::exec_true(sandbox.container_id(), SHELL)?;
            block.push(begin.elapsed());
        }
        pair.ours(block);
    }
    sandbox.stop().await?;
    let detail = pair.detail("bash true", "engine exec of it");
    Ok(Figure::judge(name, pair.ratio(), "ratio", Bound::AtLeast(bound), &detail))
}

/// The twin at work.
struct Twin {
    container: Container,
    link: UnixStream,
}

impl Twin {
    /// Compiles the twin and starts it as PID 1 of a container ordered like `model`.
    fn start(folder: &Path, model: &str) -> anyhow::Result<Self> {
        let app = folder.join("twin");
        fs::create_dir_all(app.join("link"))?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/twin.c");
        let built = Command::new("gcc")
            .args(["-O2", "-static", "-o"])
            .arg(app.join("twin"))
            .arg(source)
            .status()
            .context("gcc is needed for the twin")?;
        anyhow::ensure!(built.success(), "the twin does not compile");
        let socket = app.join("link/twin.sock");
        let listener = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o666))?;

        let mut order = engine::order_of(model)?;
        order["Cmd"] = json!(["/app/twin", "/app/link/twin.sock", SHELL]);
        order["WorkingDir"] = json!("/");
        let mounts = order["HostConfig"]["Mounts"].as_array_mut().context("the model has mounts")?;
        mounts.retain(|mount| mount["Target"] == "/app");
        mounts[0]["Source"] = json!(app);
        let container = Container::start(&order)?;
        listener.set_nonblocking(true)?;
        let begin = Instant::now();
        let link = loop {
            match listener.accept() {
                Ok((link, _)) => break link,
                Err(_) if begin.elapsed() < Duration::from_secs(10) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error).context("the twin did not connect"),
            }
        };
        link.set_nonblocking(false)?;
        Ok(Self { container, link })
    }

    /// Runs `true` once.
    fn run(&mut self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.link.write_all(b"x")?;
        self.link.read_exact(&mut [0])?;
        Ok(begin.elapsed())
    }
}
