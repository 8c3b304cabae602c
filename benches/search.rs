//! `grep` and `find` against the `rg` of the image `runner/base`, in the same container and on the same tree in its /tmp.
//!
//! Both sides are confined by the same filter and the same Landlock rules and read the same pages. The shell takes the time
//! of `rg` itself, from its fork to its end, so that neither the shell's start nor our link counts for it; both count
//! for us. Large trees are searched by one thread on both sides: a file server has no more. Commands are nice and file
//! servers are not, so a machine that does other work gives these figures away; they are for one that is at rest.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use protocol::{Outcome, Request};
use runner::sandbox::Sandbox;
use runner::sandbox::limits::Wanted;

use super::floor::Apart;
use super::place::{Place, bash, call, processes};
use super::stats::{Bound, Figure, Pair, timed};

const BLOCKS: usize = 5;

/// What is searched for; some files have it in their last line.
const PATTERN: &str = "needle [0-9]+ is";

/// Makes trees of text: 16 KB a file, which is the mean of Linux's sources, and a hundred files a folder. The arguments are the root and the number of files.
const TREE: &str = r#"
import os, random, sys
random.seed(1)
root, count = sys.argv[1], int(sys.argv[2])
words = ["".join(random.choice("abcdefghijklmnopqrstuvwxyz_") for _ in range(random.randint(2, 11))) for _ in range(4000)]
def text():
    lines, size = [], 0
    while size < 16000:
        line = "    " * random.randint(0, 4) + " ".join(random.choice(words) for _ in range(random.randint(0, 11)))
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines) + "\n"
texts = [text() for _ in range(40)]
for number in range(count):
    folder = "%s/d%03d" % (root, number // 100)
    if number % 100 == 0:
        os.makedirs(folder)
    with open("%s/f%05d.txt" % (folder, number), "w") as file:
        file.write(texts[number % 40])
        if number % 1000 == 0:
            file.write("the needle 42 is here\n")
"#;

/// `grep` of 1 GB in 62,500 files against `rg -j1`; both must find the same.
pub(crate) async fn grep_big(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = roomy(place).await?;
    plant(&sandbox, 62_500).await?;
    let mut bench = Bench { sandbox: &sandbox, number: 10 };
    let pair = bench.against("rg -j1 -n", BLOCKS, 1).await?;
    sandbox.stop().await?;
    let detail = pair.detail("rg -j1, 1 GB in 62500 files", "grep of them");
    Ok(Figure::judge("grep_big", pair.ratio(), "ratio", Bound::AtMost(0.8), &detail))
}

/// `grep` of a hundred files against starting `rg` for them, with as many threads as it likes.
pub(crate) async fn grep_small(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = roomy(place).await?;
    plant(&sandbox, 100).await?;
    bash(&sandbox, 2, "cd /tmp/tree/d000 && truncate -s 2000 * && echo 'the needle 42 is here' >>f00050.txt").await?;
    let apart = Apart::new();
    apart.place(processes(&sandbox)?[1]);
    let mut bench = Bench { sandbox: &sandbox, number: 10 };
    let pair = bench.against("rg -n", BLOCKS, 100).await?;
    drop(apart);
    sandbox.stop().await?;
    let detail = pair.detail("rg, 100 files of 2 KB", "grep of them");
    Ok(Figure::judge("grep_small", 1.0 / pair.ratio(), "ratio", Bound::AtLeast(15.0), &detail))
}

/// `find` in 100,000 files against `rg --files`, by one thread each; both must find as many.
pub(crate) async fn find_big(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = roomy(place).await?;
    let make =
        "for d in $(seq 100 199); do mkdir -p /tmp/tree/$d; (cd /tmp/tree/$d; seq 100000 100999 | xargs touch); done";
    bash(&sandbox, 1, make).await?;
    let mut bench = Bench { sandbox: &sandbox, number: 10 };
    let mut pair = Pair::default();
    for _ in 0..BLOCKS {
        let mut block = Vec::new();
        for _ in 0..5 {
            block.push(bench.shell("rg --no-config -j1 --hidden --files /tmp/tree", 1).await?);
        }
        pair.floor(block);
        let mut block = Vec::new();
        for _ in 0..5 {
            let request = Request::Find {
                pattern: "1*[0-9]".to_owned(),
                path: Some("/tmp/tree".to_owned()),
                limit: 1000,
                include_ignored: false,
            };
            bench.number += 1;
            let (time, reply) = timed(call(&sandbox, bench.number, request, Bytes::new())).await;
            let Outcome::Found(found) = reply?.outcome else { anyhow::bail!("no names") };
            // The files and their folders.
            anyhow::ensure!(found.total == 100_100 && found.partial.is_none(), "{found:?}");
            block.push(time);
        }
        pair.ours(block);
    }
    sandbox.stop().await?;
    let detail = pair.detail("rg --files -j1, 100000 files", "find of them");
    Ok(Figure::judge("find_big", pair.ratio(), "ratio", Bound::AtMost(1.0), &detail))
}

/// A sandbox of the image that has `rg`, with room for the trees.
async fn roomy(place: &Place) -> anyhow::Result<Sandbox> {
    let wanted = Wanted {
        memory: Some("6g".to_owned()),
        tmp_size: Some("2g".to_owned()),
        tmp_inodes: Some(250_000),
        ..Wanted::default()
    };
    place.sandbox_of("runner/base", &wanted).await.context("runner/base is needed: runner image build --base debian")
}

/// Makes the tree of text.
async fn plant(sandbox: &Sandbox, files: usize) -> anyhow::Result<()> {
    let command = format!("python3 - /tmp/tree {files} <<'END'\n{TREE}END");
    bash(sandbox, 1, &command).await?;
    Ok(())
}

/// Measures in one sandbox.
struct Bench<'a> {
    sandbox: &'a Sandbox,
    number: u64,
}

impl Bench<'_> {
    /// Blocks of `rg` and of `grep` in turn, each of so many calls.
    async fn against(&mut self, rg: &str, blocks: usize, calls: usize) -> anyhow::Result<Pair> {
        let command = format!("{rg} --no-config --no-heading --hidden '{PATTERN}' /tmp/tree");
        let theirs =
            bash(self.sandbox, 9, &format!("{command} | LC_ALL=C sort | sed 's/:\\([0-9]*\\):/:\\1: /'")).await?;
        let mut pair = Pair::default();
        for _ in 0..blocks {
            let each = self.shell(&command, calls).await?;
            pair.floor(vec![each; calls]);
            let mut block = Vec::new();
            for _ in 0..calls {
                let request = Request::Grep {
                    pattern: PATTERN.to_owned(),
                    path: Some("/tmp/tree".to_owned()),
                    glob: None,
                    ignore_case: false,
                    literal: false,
                    context: 0,
                    limit: 100,
                    include_ignored: false,
                };
                self.number += 1;
                let (time, reply) = timed(call(self.sandbox, self.number, request, Bytes::new())).await;
                anyhow::ensure!(reply?.payload == theirs.payload, "grep and rg find different lines");
                block.push(time);
            }
            pair.ours(block);
        }
        Ok(pair)
    }

    /// The time that a command takes, as the shell sees it, on average over so many.
    async fn shell(&mut self, command: &str, times: usize) -> anyhow::Result<Duration> {
        self.number += 1;
        let script =
            format!("TIMEFORMAT=%6R; time for ((i = 0; i < {times}; i++)); do {command} >/dev/null || exit; done");
        let reply = bash(self.sandbox, self.number, &script).await?;
        let text = String::from_utf8(reply.payload)?;
        let seconds: f64 = text.trim().parse().with_context(|| text.clone())?;
        Ok(Duration::from_secs_f64(seconds / f64::from(u32::try_from(times)?)))
    }
}
