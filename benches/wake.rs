//! How soon a fleet acts: a wake, and a slot that has become free. Both are read from the rows' times, by the store's clock.

use std::time::{Duration, Instant};

use anyhow::Context;
use runner::store::{EventRow, SessionKey, Status};
use serde_json::{Value, json};

use super::daemon::Fleet;
use super::engine::{self, Container};
use super::place::{Place, read};
use super::stats::{Bound, Figure, percentile};

const WAKES: usize = 30;
const QUEUED: usize = 30;

/// From an event that was accepted to the first tool's answer of the session that it woke, against a bare unpause and one
/// call.
pub(crate) async fn wake(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    let bare = Container::start(&engine::order_of(sandbox.container_id())?)?;
    let mut turns = Vec::new();
    for round in 0..WAKES {
        let wait = json!({"type": "webhook", "source": "github", "timeout": "1h"});
        turns.push(json!({"calls": [{"id": format!("w{round}"), "tool": "wait_for_trigger", "args": wait}]}));
        let ls = json!({"path": "/tmp"});
        turns.push(json!({"calls": [{"id": format!("l{round}"), "tool": "ls", "args": ls}]}));
    }
    let fleet = Fleet::new(place, "", 1, &Value::Array(turns))?;
    let event = fleet.project().join("event.json");
    std::fs::write(&event, json!({"repository": {"full_name": "acme/app"}}).to_string())?;
    let event = event.to_str().context("a temporary path is UTF-8")?;
    let (daemon, _) = fleet.serve()?;
    fleet.detach(1)?;
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for round in 0..WAKES {
        fleet.paused(1).await?;
        engine::request("POST", &format!("/containers/{}/pause", bare.id), &Value::Null)?;
        let begin = Instant::now();
        engine::request("POST", &format!("/containers/{}/unpause", bare.id), &Value::Null)?;
        read(&sandbox, u64::try_from(round)?, "/app/static/SKILL.md").await?;
        floor.push(begin.elapsed());
        fleet.run(&["emit", "webhook", "--source", "github", "--event", "push", event])?;
        ours.push(answered(&fleet, round + 1).await?);
    }
    fleet.over().await?;
    daemon.stop()?;
    bare.end()?;
    sandbox.stop().await?;
    // Rows have milliseconds, so the mean says more than the median.
    let (bare, own) = (mean(&floor), mean(&ours));
    let detail = format!("unpause and a call {bare:.1?}, accepted to the first answer {own:.1?}, means of {WAKES}");
    Ok(Figure::judge("wake", own.as_secs_f64() / bare.as_secs_f64(), "ratio", Bound::AtMost(1.05), &detail))
}

/// Waits for the answer of the nth `ls`; the time from the newest event of the inbox to it.
async fn answered(fleet: &Fleet, nth: usize) -> anyhow::Result<Duration> {
    let project = fleet.project().canonicalize()?.display().to_string();
    let session = fleet.sessions(Status::Any).await?.pop().context("a session")?;
    loop {
        let rows = rows(fleet, session.key).await?;
        let answers: Vec<&EventRow> =
            rows.iter().filter(|row| row.kind == "tool_finished" && row.body.contains("\"name\":\"ls\"")).collect();
        if let Some(answer) = answers.get(nth - 1) {
            let event = fleet.store.inbox(project, 1).await?.pop().context("an event")?;
            return Ok(Duration::from_millis(u64::try_from(answer.at - event.at)?));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// From the end of the session that held the only slot to the grant of the next one.
pub(crate) async fn admission(place: &Place) -> anyhow::Result<Figure> {
    let fleet = Fleet::new(place, "", 1, &json!([{"text": "done"}]))?;
    fleet.detach(QUEUED)?;
    let (daemon, _) = fleet.serve()?;
    fleet.over().await?;
    daemon.stop()?;
    let (mut ends, mut grants) = (Vec::new(), Vec::new());
    for session in fleet.sessions(Status::Any).await? {
        for row in rows(&fleet, session.key).await? {
            match row.kind.as_str() {
                "informed" if row.body.contains("\"slot\"") => grants.push(row.at),
                "ended" => ends.push(row.at),
                _ => {}
            }
        }
    }
    ends.sort_unstable();
    grants.sort_unstable();
    anyhow::ensure!((ends.len(), grants.len()) == (QUEUED, QUEUED), "{} ends, {} grants", ends.len(), grants.len());
    let times: Vec<Duration> = ends
        .iter()
        .zip(&grants[1..])
        .map(|(end, grant)| Duration::from_millis(u64::try_from(grant - end).unwrap_or_default()))
        .collect();
    let (half, slow) = (percentile(&times, 50), percentile(&times, 99));
    let detail = format!("p50 {half:.1?}, p99 {slow:.1?}, {} grants", times.len());
    Ok(Figure::judge("admission", half.as_secs_f64() * 1000.0, "ms", Bound::AtMost(5.0), &detail))
}

async fn rows(fleet: &Fleet, key: SessionKey) -> anyhow::Result<Vec<EventRow>> {
    Ok(fleet.store.events(key, 0, 10_000).await?)
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len()).expect("few")
}
