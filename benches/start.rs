//! The life of a sandbox against the engine's raw calls.

use std::time::Instant;

use super::engine::{self, Container};
use super::place::{Place, read};
use super::stats::{Bound, Figure, Pair, timed};

const BLOCKS: usize = 7;
const ROUNDS: usize = 3;

/// From the order to the first tool reply, against create and start of the same order.
pub(crate) async fn start(place: &Place) -> anyhow::Result<Figure> {
    let model = place.sandbox().await?;
    let order = engine::order_of(model.container_id())?;
    let mut pair = Pair::default();
    for _ in 0..BLOCKS {
        let mut block = Vec::new();
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let container = Container::start(&order)?;
            block.push(begin.elapsed());
            container.end()?;
        }
        pair.floor(block);
        let mut block = Vec::new();
        for round in 0..ROUNDS {
            let (time, sandbox) = timed(async {
                let sandbox = place.sandbox().await?;
                read(&sandbox, round as u64, "/app/static/SKILL.md").await?;
                anyhow::Ok(sandbox)
            })
            .await;
            block.push(time);
            sandbox?.stop().await?;
        }
        pair.ours(block);
    }
    model.stop().await?;
    let detail = pair.detail("raw create and start", "order to first reply");
    Ok(Figure::judge("session_start", pair.ratio(), "ratio", Bound::AtMost(1.15), &detail))
}

/// The end of a sandbox against kill and remove of the same order.
pub(crate) async fn stop(place: &Place) -> anyhow::Result<Figure> {
    let model = place.sandbox().await?;
    let order = engine::order_of(model.container_id())?;
    let mut pair = Pair::default();
    for _ in 0..BLOCKS {
        let mut block = Vec::new();
        for _ in 0..ROUNDS {
            let container = Container::start(&order)?;
            let begin = Instant::now();
            container.end()?;
            block.push(begin.elapsed());
        }
        pair.floor(block);
        let mut block = Vec::new();
        for round in 0..ROUNDS {
            let sandbox = place.sandbox().await?;
            read(&sandbox, round as u64, "/app/static/SKILL.md").await?;
            let (time, stopped) = timed(sandbox.stop()).await;
            stopped?;
            block.push(time);
        }
        pair.ours(block);
    }
    model.stop().await?;
    let detail = pair.detail("raw kill and remove", "stop");
    Ok(Figure::judge("session_stop", pair.ratio(), "ratio", Bound::AtMost(1.2), &detail))
}
