//! One edit in a long file against reading and writing it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use protocol::{Outcome, Replacement, Request};

use super::floor::Apart;
use super::place::{Place, bash, call, processes};
use super::stats::{Bound, Figure, Pair, timed};

const BLOCKS: usize = 7;
const CALLS: u64 = 60;

/// `edit` of one line in the middle of a file of 1 MiB.
///
/// The floor is what a plain program takes to read such a file and to write it anew in the place of the old one: it lies on
/// a tmpfs like the sandbox's, and nothing is searched, checked or sent. Both sides replace the file by a second one,
/// because whoever wrote over the old one would not do what `edit` promises.
pub(crate) async fn one_in_1m(place: &Place) -> anyhow::Result<Figure> {
    let sandbox = place.sandbox().await?;
    let make = "yes 'a line of thirty-two characters' | head -c 524288 >/tmp/1m; echo '<0>' >>/tmp/1m; \
                yes 'a line of thirty-two characters' | head -c 524284 >>/tmp/1m";
    bash(&sandbox, 0, make).await?;
    let folder = Tmpfs::new()?;
    let file = folder.0.join("1m");
    fs::write(&file, vec![b'x'; 1 << 20])?;
    let apart = Apart::new();
    processes(&sandbox)?.into_iter().for_each(|peer| apart.place(peer));

    let mut pair = Pair::default();
    let mut number = 0;
    for _ in 0..BLOCKS {
        let floor: anyhow::Result<Vec<Duration>> = (0..CALLS).map(|_| read_and_write(&file)).collect();
        pair.floor(floor?);
        let mut block = Vec::new();
        for _ in 0..CALLS {
            let edit = Replacement { old: format!("<{number}>\n"), new: format!("<{}>\n", number + 1) };
            let body = serde_json::to_vec(&[edit])?;
            number += 1;
            let request = Request::Edit { path: "/tmp/1m".to_owned(), most: 64 << 20 };
            let (time, reply) = timed(call(&sandbox, number, request, body.into())).await;
            anyhow::ensure!(matches!(reply?.outcome, Outcome::Edited(_)), "no edit");
            block.push(time);
        }
        pair.ours(block);
    }
    sandbox.stop().await?;
    let detail = pair.detail("reading and writing 1 MiB on a tmpfs", "edit of one line in 1 MiB");
    Ok(Figure::judge("edit_1m", pair.ratio(), "ratio", Bound::AtMost(3.0), &detail))
}

/// Reads the file and puts a copy in its place.
fn read_and_write(file: &Path) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let content = fs::read(file)?;
    let second = file.with_extension("new");
    fs::write(&second, &content)?;
    fs::rename(&second, file)?;
    Ok(start.elapsed())
}

/// A folder on a tmpfs that goes with it.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new() -> anyhow::Result<Self> {
        let folder = Path::new("/dev/shm").join(format!("runner-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let made = Self(folder);
        // Where it is no mount of its own it is not the tmpfs that the floor wants.
        let devices = (fs::metadata("/dev/shm")?.dev(), fs::metadata("/")?.dev());
        anyhow::ensure!(devices.0 != devices.1, "/dev/shm is no tmpfs here");
        Ok(made)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
