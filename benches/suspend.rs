//! Suspending and resuming a sandbox, against the engine's bare pause and unpause of an equal container.

use std::time::Instant;

use runner::sandbox::Sandbox;
use runner::store::{Lines, SqliteStore, Store, WaitAnswer, WaitOn, WaitRequest};
use runner::trigger::Filter;
use serde_json::Value;

use super::engine::{self, Container};
use super::place::{Place, bash, read};
use super::stats::{Bound, Figure, Pair};
use super::store::session;

const BLOCKS: usize = 9;
const ROUNDS: usize = 5;

/// The two halves of a cycle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Suspend,
    Resume,
}

/// The wait in the store and the container paused, its state read back: against a pause.
pub(crate) async fn suspend(place: &Place) -> anyhow::Result<Figure> {
    measure(place, Half::Suspend, "suspend").await
}

/// From the order to go on to the link that is up: against an unpause.
pub(crate) async fn resume(place: &Place) -> anyhow::Result<Figure> {
    measure(place, Half::Resume, "resume").await
}

async fn measure(place: &Place, half: Half, name: &'static str) -> anyhow::Result<Figure> {
    let store = SqliteStore::open(place.state().root())?;
    let (mut sandbox, order) = place.sandbox_and_order().await?;
    bash(&sandbox, 0, "true").await?;
    let bare = Container::start(&engine::order_of(sandbox.container_id())?)?;
    let mut pair = Pair::default();
    for block in 0..BLOCKS {
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            for (verb, wanted) in [("pause", Half::Suspend), ("unpause", Half::Resume)] {
                let begin = Instant::now();
                engine::request("POST", &format!("/containers/{}/{verb}", bare.id), &Value::Null)?;
                if half == wanted {
                    floor.push(begin.elapsed());
                }
            }
            // A session waits once at a time, so each round has one of its own; only its rows are new.
            let seat = session(place, &store).await?;
            let begin = Instant::now();
            let answer = store.wait(seat, request(block * ROUNDS + round), Lines::none()).await?;
            anyhow::ensure!(matches!(answer, WaitAnswer::Suspended { .. }), "{answer:?}");
            anyhow::ensure!(sandbox.pause().await, "the engine cannot pause");
            store.set_paused(seat, true).await?;
            if half == Half::Suspend {
                ours.push(begin.elapsed());
            }
            drop(sandbox);
            let begin = Instant::now();
            sandbox =
                Sandbox::resume(&place.engine, place.state(), &order.session, &order.name, order.orphan_grace, &[])
                    .await?;
            if half == Half::Resume {
                ours.push(begin.elapsed());
            }
            read(&sandbox, u64::try_from(block * ROUNDS + round)? + 1, "/app/static/SKILL.md").await?;
        }
        pair.floor(floor);
        pair.ours(ours);
    }
    bare.end()?;
    sandbox.stop().await?;
    let (bare, own) = match half {
        Half::Suspend => ("bare pause", "wait and pause"),
        Half::Resume => ("bare unpause", "taken up"),
    };
    Ok(Figure::judge(name, pair.ratio(), "ratio", Bound::AtMost(1.15), &pair.detail(bare, own)))
}

fn request(number: usize) -> WaitRequest {
    WaitRequest {
        call: format!("bench/{number}/0"),
        on: WaitOn::Webhook { sources: vec!["github".to_owned()], event: None, filter: Filter::default() },
        timeout: 3_600_000,
        since: 0,
        most: u32::MAX,
        words: "an event".to_owned(),
    }
}
