//! What the runner itself needs for a turn of a model.
//!
//! The whole program drives a session against a provider on this machine that answers at once. The provider notes when
//! each request has come, so a turn is the time from one request to the next: its answer read, the call made, both
//! journalled, the next request written. From that two things are taken off that are not the runner's own, each measured
//! in the same run: the call, made straight through a sandbox of its own, and the exchange with the provider, which a
//! bare HTTP client has with the very bodies that the runner sent (the provider's time grows with them). What is left
//! has all of the loop in it: JSON both ways, the journal's lines, the checks of arguments, what is shown.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::place::{self, Place};
use super::provider::{KEY, Provider, Turn, Wire};
use super::stats::{Bound, Figure, percentile};

/// Sessions, and turns of each.
const SESSIONS: usize = 7;
const TURNS: usize = 60;

/// The file that each turn reads: the agent's own instructions, which every sandbox has.
const FILE: &str = "/app/static/SKILL.md";

/// The program's own time for a turn, in milliseconds.
pub(crate) async fn turn(place: &Place) -> anyhow::Result<Figure> {
    let project = place.folder.path();
    let (mut whole, mut calls, mut exchanges) = (Vec::new(), Vec::new(), Vec::new());
    let sandbox = place.sandbox().await?;
    let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).tls_certs_only([]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = client.build()?;
    for session in 0..SESSIONS {
        let provider = Provider::start(Wire::Openai);
        for turn in 0..TURNS {
            provider.push(Turn::new().say("I read.").call(&format!("call_{turn}"), "read", &json!({"path": FILE})));
        }
        provider.push(Turn::new().say("Done."));
        std::fs::write(project.join("config.toml"), provider.config())?;
        run(place, &provider)?;
        let requests = provider.requests();
        anyhow::ensure!(requests.len() == TURNS + 1 && provider.refused().is_empty(), "{:?}", provider.refused());
        // The first turn opens the connection.
        let times = requests.windows(2).skip(1).map(|pair| pair[1].at - pair[0].at);
        whole.extend(times);

        provider.always(Turn::new().say("I read.").call("call", "read", &json!({"path": FILE})));
        // The sandbox's calls are numbered through.
        let first = (session * (TURNS + 1)) as u64;
        let url = format!("{}chat/completions", provider.base_url());
        for (number, request) in (first..).zip(&requests) {
            let bytes = serde_json::to_vec(&request.body)?;
            let begin = Instant::now();
            let sent = client.post(&url).bearer_auth(KEY).body(bytes).send().await?;
            anyhow::ensure!(sent.status().is_success(), "{}", sent.status());
            sent.bytes().await?;
            exchanges.push(begin.elapsed());
            let begin = Instant::now();
            place::read(&sandbox, number, FILE).await?;
            calls.push(begin.elapsed());
        }
    }
    sandbox.stop().await?;
    // A slow floor is not to our credit: of what is taken off, the lower quartile counts.
    let quick = |times: &[Duration]| percentile(times, 25);
    let own = percentile(&whole, 50).saturating_sub(quick(&calls)).saturating_sub(quick(&exchanges));
    let detail = format!(
        "turn p50 {:.1?} p99 {:.1?}, of it the call {:.1?} and the exchange {:.1?}, {SESSIONS} sessions of {TURNS} turns",
        percentile(&whole, 50),
        percentile(&whole, 99),
        quick(&calls),
        quick(&exchanges),
    );
    Ok(Figure::judge("model_loop", own.as_secs_f64() * 1000.0, "ms", Bound::AtMost(2.0), &detail))
}

/// Runs a session of the whole program to its end.
fn run(place: &Place, provider: &Provider) -> anyhow::Result<()> {
    let ran = Command::new(env!("CARGO_BIN_EXE_runner"))
        .args(["start", "--json", "--agent"])
        .arg(place.folder.path().join("agent"))
        .current_dir(place.folder.path())
        .env("RUNNER_STATE", place.state().root())
        .env(provider.variable(), KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("starting the program")?;
    anyhow::ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Ok(())
}
