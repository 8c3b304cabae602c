//! What a hundred waiting sessions cost a daemon, and a start among many sessions.

use std::time::{Duration, Instant};

use runner::store::{CallsAfter, End, NewEvent};
use serde_json::{Value, json};

use super::daemon::{Daemon, Fleet};
use super::engine;
use super::place::Place;
use super::stats::{Bound, Figure};
use super::store::session;

const WAITING: usize = 100;
const ENDED: usize = 1000;

/// How long the daemon is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// The figures of the same hundred sessions, which are made once.
#[derive(Default)]
pub(crate) struct Measured(Vec<Figure>);

impl Measured {
    /// A figure that was measured with another one.
    pub(crate) fn take(&mut self, name: &str) -> Option<Figure> {
        self.0.iter().position(|figure| figure.name == name).map(|at| self.0.swap_remove(at))
    }

    /// Measures all of them, and gives one.
    pub(crate) async fn measure(&mut self, place: &Place, name: &str) -> anyhow::Result<Figure> {
        self.0 = all(place).await?;
        self.take(name).ok_or_else(|| anyhow::anyhow!("{name} is none of them"))
    }
}

/// `waiting_cpu`, `waiting_rss` and `startup`.
async fn all(place: &Place) -> anyhow::Result<Vec<Figure>> {
    let wait = json!({"type": "webhook", "source": "github", "match": {"repo": "acme/app"}, "timeout": "2h"});
    let turns = json!([{"calls": [{"id": "w", "tool": "wait_for_trigger", "args": wait}]}, {"text": "done"}]);
    let fleet = Fleet::new(place, "maxSuspended = 1000", 8, &turns)?;
    let (daemon, _) = fleet.serve()?;
    fleet.detach(WAITING)?;
    fleet.paused(WAITING).await?;
    // A daemon that has just been started has made no containers: what is measured is what waiting costs.
    daemon.stop()?;
    for _ in 0..ENDED {
        let seat = session(place, &*fleet.store).await?;
        let end = End {
            cause: "done".to_owned(),
            exit_code: 0,
            message: "the agent is done".to_owned(),
            sandbox_removed: true,
            text: None,
        };
        let line = NewEvent {
            kind: "ended".into(),
            body: json!({"cause": "done", "message": ""}).to_string(),
            ..NewEvent::default()
        };
        fleet.store.end_session(seat, end, CallsAfter::GoOn, line).await?;
    }
    let begin = Instant::now();
    engine::request("GET", "/containers/json?all=1", &Value::Null)?;
    let list = begin.elapsed();
    let (daemon, start) = fleet.serve()?;
    fleet.paused(WAITING).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = processor_time(&daemon)?;
    tokio::time::sleep(WATCHED).await;
    let used = processor_time(&daemon)?.saturating_sub(before);
    let (memory, threads) = (status(&daemon, "VmRSS:")? / 1024.0, status(&daemon, "Threads:")?);
    fleet.clear().await?;
    daemon.stop()?;
    let of = format!("{WAITING} sessions wait in paused containers");
    let start_detail =
        format!("{start:.1?} with {ENDED} ended and {WAITING} waiting sessions, the engine's list {list:.1?}");
    Ok(vec![
        Figure::judge("waiting_cpu", used.as_secs_f64(), "s", Bound::AtMost(0.02), &format!("{of}, in {WATCHED:?}")),
        Figure::judge("waiting_rss", memory, "MiB", Bound::AtMost(40.0), &format!("{of}, {threads} threads")),
        Figure::judge("startup", start.saturating_sub(list).as_secs_f64(), "s", Bound::AtMost(1.5), &start_detail),
    ])
}

/// Processor time that all threads of the daemon have used, to the nanosecond.
fn processor_time(daemon: &Daemon) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", daemon.pid()))? {
        let times = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        sum += times.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

/// A number of `/proc/PID/status`.
fn status(daemon: &Daemon, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
