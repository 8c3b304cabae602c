//! The link and small file calls against bare sockets. Both sides' peers are on the last processor, this program on the
//! first.

use std::time::Duration;

use runner::sandbox::Sandbox;

use super::floor::{Apart, Echo};
use super::place::{Place, bash, processes, read};
use super::stats::{Bound, Figure, Pair, timed};

const BLOCKS: usize = 7;

/// A round trip to PID 1 against one to an echo process that nothing confines.
pub(crate) async fn ping(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    let mut echo = Echo::start(place.folder.path())?;
    let _apart = apart(&sandbox, Some(&echo))?;
    let mut pair = Pair::default();
    for _ in 0..BLOCKS {
        pair.floor(bare(&mut echo, 1000, 32)?);
        let mut block = Vec::new();
        for _ in 0..1000 {
            block.push(sandbox.ping().await?);
        }
        pair.ours(block);
    }
    sandbox.stop().await?;
    let detail = pair.detail("bare socket", "link");
    Ok(Figure::judge("link_ping", pair.ratio(), "ratio", Bound::AtMost(1.5), &detail))
}

/// `read` of 1 KiB against that round trip.
pub(crate) async fn read_1k(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    bash(&sandbox, 0, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do printf '%63s\\n' x; done >/tmp/1k").await?;
    let _apart = apart(&sandbox, None)?;
    let mut pair = Pair::default();
    let mut number = 0;
    for _ in 0..BLOCKS {
        let mut block = Vec::new();
        for _ in 0..500 {
            block.push(sandbox.ping().await?);
        }
        pair.floor(block);
        let mut block = Vec::new();
        for _ in 0..500 {
            number += 1;
            let (time, reply) = timed(read(&sandbox, number, "/tmp/1k")).await;
            anyhow::ensure!(reply?.payload.len() == 1024, "not the whole file");
            block.push(time);
        }
        pair.ours(block);
    }
    sandbox.stop().await?;
    let detail = pair.detail("link ping", "read of 1 KiB");
    Ok(Figure::judge("read_1k", pair.ratio(), "ratio", Bound::AtMost(2.0), &detail))
}

/// `read` of a file of 1 MiB against 1 MiB through a bare socket.
pub(crate) async fn read_1m(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    bash(&sandbox, 0, "yes 'a line of thirty-two characters' | head -c 1048576 >/tmp/1m").await?;
    let mut echo = Echo::start(place.folder.path())?;
    let _apart = apart(&sandbox, Some(&echo))?;
    let mut pair = Pair::default();
    let mut number = 0;
    for _ in 0..BLOCKS {
        pair.floor(bare(&mut echo, 100, 1 << 20)?);
        let mut block = Vec::new();
        for _ in 0..100 {
            number += 1;
            let (time, reply) = timed(read(&sandbox, number, "/tmp/1m")).await;
            reply?;
            block.push(time);
        }
        pair.ours(block);
    }
    sandbox.stop().await?;
    let detail = pair.detail("bare socket, 1 MiB", "read of a 1 MiB file (all of it scanned, 50 KiB shown)");
    Ok(Figure::judge("read_1m", pair.ratio(), "ratio", Bound::AtMost(2.0), &detail))
}

/// Puts this program on one processor and all that it talks to on another.
fn apart(sandbox: &Sandbox, echo: Option<&Echo>) -> anyhow::Result<Apart> {
    let apart = Apart::new();
    let peers = processes(sandbox)?.into_iter().chain(echo.map(Echo::pid));
    peers.for_each(|peer| apart.place(peer));
    Ok(apart)
}

/// A block of round trips through the bare socket with answers of this many bytes.
fn bare(echo: &mut Echo, count: usize, bytes: usize) -> anyhow::Result<Vec<Duration>> {
    let mut answer = vec![0; bytes];
    let mut block = Vec::new();
    for _ in 0..count {
        block.push(echo.round_trip(&[0; 32], &mut answer)?);
    }
    Ok(block)
}
