//! Memory of the toolbox, and of the runner while sandboxes flood it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::place::{Place, bash, call, processes, read};
use super::stats::{Bound, Figure};
use anyhow::Context;
use bytes::Bytes;
use futures_util::future::try_join_all;
use protocol::Request;
use runner::sandbox::Sandbox;

const MIB: f64 = 1024.0 * 1024.0;

/// PID 1 and the resident worker after some calls.
pub(crate) async fn idle(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    for number in 0..20 {
        bash(&sandbox, 2 * number, "echo some output").await?;
        read(&sandbox, 2 * number + 1, "/app/static/SKILL.md").await?;
    }
    let (value, detail) = toolbox(&sandbox)?;
    sandbox.stop().await?;
    Ok(Figure::judge("toolbox_rss", value, "MiB", Bound::AtMost(4.0), &detail))
}

/// The same after 64 MiB went through in each direction.
pub(crate) async fn after_64m(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    bash(&sandbox, 0, "head -c 67108864 /dev/zero | tr '\\0' x").await?;
    let content = Bytes::from(vec![b'x'; 64 * 1024 * 1024]);
    call(&sandbox, 1, Request::Write { path: "/tmp/large".to_owned() }, content.clone()).await?;
    let mut command = b"true '".to_vec();
    command.resize(32 * 1024 * 1024, b'x');
    command.push(b'\'');
    call(&sandbox, 2, Request::Bash { background: false }, command.into()).await?;
    read(&sandbox, 3, "/tmp/large").await?;
    let (value, detail) = toolbox(&sandbox)?;
    sandbox.stop().await?;
    let detail = format!("after 64 MiB of output, a write of 64 MiB, a command of 32 MiB, a read of 64 MiB: {detail}");
    Ok(Figure::judge("toolbox_rss_after_64m", value, "MiB", Bound::AtMost(10.0), &detail))
}

/// Growth of this process, which is the runner here, while eight sandboxes print without end.
pub(crate) async fn flood(place: &Place) -> anyhow::Result<Figure> {
    let sandboxes = try_join_all((0..8).map(|_| place.sandbox())).await?;
    for (number, sandbox) in sandboxes.iter().enumerate() {
        bash(sandbox, number as u64, "true").await?;
    }
    let before = own_rss()?;
    let peak = Arc::new(AtomicU64::new(before));
    let done = Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (peak, done) = (Arc::clone(&peak), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(own_rss().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let floods = sandboxes.iter().map(|sandbox| bash(sandbox, 100, "head -c 268435456 /dev/zero | tr '\\0' x"));
    let flooded = try_join_all(floods).await;
    done.store(true, Ordering::Relaxed);
    watcher.join().expect("the watcher does not panic");
    flooded?;
    for sandbox in &sandboxes {
        sandbox.stop().await?;
    }
    #[allow(clippy::cast_precision_loss)]
    let value = (peak.load(Ordering::Relaxed) - before) as f64 / MIB;
    let detail = format!("8 sandboxes print 256 MiB each; resident before {:.1} MiB", mib(before));
    Ok(Figure::judge("flood_rss", value, "MiB", Bound::AtMost(32.0), &detail))
}

/// Resident memory of PID 1 and the worker in MiB: the sum of their proportional shares, so that pages both use are
/// counted once, with both plain sums in words.
fn toolbox(sandbox: &Sandbox) -> anyhow::Result<(f64, String)> {
    let both = processes(sandbox)?;
    let sum = |field: &str| -> anyhow::Result<u64> { both.iter().map(|pid| smaps(*pid, field)).sum() };
    let (shared, resident) = (sum("Pss:")?, sum("Rss:")?);
    Ok((mib(shared), format!("PID 1 and worker; counting pages that both share twice: {:.2} MiB", mib(resident))))
}

fn smaps(pid: u32, field: &str) -> anyhow::Result<u64> {
    kib(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?, field)
}

fn own_rss() -> anyhow::Result<u64> {
    kib(&fs::read_to_string("/proc/self/status")?, "VmRSS:")
}

/// Bytes in a line such as `VmRSS:     1234 kB`.
fn kib(text: &str, field: &str) -> anyhow::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).context("the field is there")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

#[allow(clippy::cast_precision_loss)]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
