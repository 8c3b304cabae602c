//! The machine: room on its disks, and its clock.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Finding, NO_ENGINE, Usable};
use crate::state::State;

const MIB: u64 = 1 << 20;

/// Below this much free space sessions begin to fail.
const TOO_LITTLE: u64 = 64 * MIB;
/// Below this much an image or a busy day fills it.
const LITTLE: u64 = 1024 * MIB;

/// 2025-01-01, before any release of this program.
const TOO_EARLY: u64 = 1_735_689_600;

/// How far the clock of the file system may be from ours: file systems stamp with the tick before.
const APART: Duration = Duration::from_secs(2);

pub(super) async fn examine(state: Option<&State>, engine: Option<&Usable>) -> Vec<Finding> {
    let root = state.map(|state| state.root().to_owned());
    let of_engine = engine.map(|usable| usable.root.clone());
    // A network file system may hang in statfs; a thread that waits for it holds nobody up.
    let work = tokio::task::spawn_blocking(move || {
        vec![
            root.as_deref().map_or_else(
                || Finding::skipped("disk-state", "not looked at: the state directory cannot be used"),
                |root| disk("disk-state", root),
            ),
            of_engine.map_or_else(|| Finding::skipped("disk-engine", NO_ENGINE), |root| disk("disk-engine", &root)),
            clock(root.as_ref()),
        ]
    });
    match tokio::time::timeout(Duration::from_secs(5), work).await {
        Ok(Ok(findings)) => findings,
        _ => ["disk-state", "disk-engine", "clock"]
            .map(|check| Finding::error(check, "a file system did not answer in 5 s", "see `df` and the kernel's log"))
            .into(),
    }
}

fn disk(check: &'static str, path: &Path) -> Finding {
    let disk = match nix::sys::statvfs::statvfs(path) {
        Ok(disk) => disk,
        Err(error) => {
            let seen = format!("{} cannot be looked at: {}", path.display(), error.desc());
            return Finding::warning(check, seen, "look at it as root: `df -h`");
        }
    };
    let free = disk.blocks_available() * disk.fragment_size();
    // Some file systems have no fixed number of inodes and say 0.
    let inodes = (disk.files() > 0).then(|| disk.files_available());
    judge(check, path, free, inodes)
}

fn judge(check: &'static str, path: &Path, free: u64, inodes: Option<u64>) -> Finding {
    let of_inodes = inodes.map(|count| format!(" and {count} inodes")).unwrap_or_default();
    let seen = format!("{} has {} MiB{of_inodes} free", path.display(), free / MIB);
    let remedy = if check == "disk-engine" {
        "make room: `docker system df` says what takes it"
    } else {
        "make room, or set RUNNER_STATE to a path on another disk"
    };
    if free < TOO_LITTLE || inodes.is_some_and(|count| count < 200) {
        Finding::error(check, seen, remedy)
    } else if free < LITTLE || inodes.is_some_and(|count| count < 20_000) {
        Finding::warning(check, seen, remedy)
    } else {
        Finding::fine(check, seen)
    }
}

fn clock(root: Option<&PathBuf>) -> Finding {
    const CHECK: &str = "clock";
    let now = SystemTime::now();
    let remedy = "set the clock: `timedatectl set-ntp true`, and see that a virtual machine has its host's time";
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let shown = jiff::Timestamp::try_from(now).map_or_else(|_| seconds.to_string(), |at| format!("{at:.0}"));
    if seconds < TOO_EARLY {
        return Finding::error(CHECK, format!("it is {shown} here, which cannot be"), remedy);
    }
    let Some(root) = root else { return Finding::fine(CHECK, shown) };
    if let Some(apart) = stamp(root).and_then(|(stamp, now)| apart(stamp, now)).filter(|apart| *apart > APART) {
        let seen = format!("{shown}; the file system of {} is {} s away from that", root.display(), apart.as_secs());
        return Finding::warning(CHECK, seen, remedy);
    }
    // Written later than now: the clock went back since.
    let newest =
        ["store.db", "runner.log", "token"].iter().filter_map(|name| root.join(name).metadata().ok()?.modified().ok());
    if newest.max().is_some_and(|at| at > now + Duration::from_mins(1)) {
        let seen = format!("{shown}; files of {} are from later than that, so the clock went back", root.display());
        return Finding::warning(CHECK, seen, remedy);
    }
    Finding::fine(CHECK, shown)
}

/// What time the file system gives a new file, and ours then.
fn stamp(root: &Path) -> Option<(SystemTime, SystemTime)> {
    let file = tempfile::Builder::new().prefix(".new-").tempfile_in(root).ok()?;
    Some((file.as_file().metadata().ok()?.modified().ok()?, SystemTime::now()))
}

fn apart(one: SystemTime, other: SystemTime) -> Option<Duration> {
    one.duration_since(other).or_else(|_| other.duration_since(one)).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn room_is_judged_by_bytes_and_by_inodes() {
        let level = |free, inodes| judge("disk-state", Path::new("/x"), free, inodes).level;
        assert_eq!(level(2048 * MIB, Some(1_000_000)), Level::Fine);
        assert_eq!(level(2048 * MIB, None), Level::Fine);
        assert_eq!(level(500 * MIB, None), Level::Warning);
        assert_eq!(level(2048 * MIB, Some(10_000)), Level::Warning);
        assert_eq!(level(10 * MIB, None), Level::Error);
        assert_eq!(level(2048 * MIB, Some(3)), Level::Error);
    }

    #[test]
    fn a_clock_that_went_back_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_owned();
        assert_eq!(clock(Some(&root)).level, Level::Fine);
        let file = std::fs::File::create(root.join("store.db")).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_hours(2)).unwrap();
        assert_eq!(clock(Some(&root)).level, Level::Warning);
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1, "nothing of the look is left");
    }
}
