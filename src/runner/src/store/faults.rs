//! What the store does when processes die, disks fill up and files are not what they should be.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::contract::{done, line, new_session, owner};
use super::{Blob, CallsAfter, Generation, Seat, SessionFilter, SqliteStore, Store, StoreError};

/// Says to a child process of this test binary what it is to do, and where.
const ROLE: &str = "RUNNER_TEST_STORE_ROLE";
const FOLDER: &str = "RUNNER_TEST_STORE_FOLDER";

const FIRST: Generation = Generation::FIRST;

pub(super) fn open(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder).unwrap())
}

pub(super) fn spawn(role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::faults::child", "--nocapture"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test of its own: the other process of the tests below.
#[tokio::test]
async fn child() {
    let (Ok(role), Some(folder)) = (std::env::var(ROLE), std::env::var_os(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    match role.split_once(':').unwrap() {
        ("append", id) => append_until_killed(&folder, id).await,
        ("fleet", id) => super::kills::work_until_killed(&folder, id).await,
        ("count", id) => {
            let store = open(&folder);
            let key = store.create_session(new_session(id), line("{}")).await.unwrap();
            for n in 0..300 {
                if n % 3 == 0 {
                    store.append(key, FIRST, line(&n.to_string())).await.unwrap();
                } else {
                    store.append_later(key, FIRST, line(&n.to_string())).await;
                }
            }
            store.end_session(Seat { key, generation: FIRST }, done(), CallsAfter::GoOn, line("end")).await.unwrap();
        }
        ("take", id) => {
            let store = open(&folder);
            let session = store.session("prize").await.unwrap();
            if store.take_over(session.key, FIRST, owner(id)).await.is_ok() {
                println!("won");
            }
        }
        other => panic!("no role {other:?}"),
    }
}

/// Prints the number of each line once the store has acknowledged it.
async fn append_until_killed(folder: &Path, id: &str) {
    let store = open(folder);
    let key = store.create_session(new_session(id), line("{}")).await.unwrap();
    println!("acknowledged 1");
    loop {
        store.append_later(key, FIRST, line("background")).await;
        let mut event = line("awaited");
        event.blobs = vec![Blob::new(vec![1; 20_000])];
        let seq = store.append(key, FIRST, event).await.unwrap();
        println!("acknowledged {seq}");
        std::io::stdout().flush().unwrap();
    }
}

/// bug 29, for the journal: whatever was acknowledged is there after `kill -9`, in order and without holes.
#[tokio::test]
async fn acknowledged_lines_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..12_u64 {
        let id = format!("s-{round}");
        let mut child = spawn(&format!("append:{id}"), folder.path());
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        // At any moment: after some lines, and at a point within what follows that differs from round to round.
        for _ in 0..(round * 7 + 3) {
            output.by_ref().map(Result::unwrap).find(|line| line.contains("acknowledged")).unwrap();
        }
        std::thread::sleep(Duration::from_micros(round * 177));
        child.kill().unwrap();
        child.wait().unwrap();
        let rest = output.map_while(Result::ok).filter(|line| line.contains("acknowledged "));
        // The last line may be cut off in the pipe; the number before it still counts.
        let acknowledged = rest.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).max().unwrap_or(0);

        let store = open(folder.path());
        let session = store.session(&id).await.unwrap();
        let rows = store.events(session.key, 0, usize::MAX).await.unwrap();
        assert!(rows.len() as u64 >= acknowledged, "{} of {acknowledged} lines are there", rows.len());
        assert!(rows.iter().zip(1..).all(|(row, seq)| row.seq == seq), "there is a hole");
        // The next driver goes on where it was.
        let generation = store.take_over(session.key, FIRST, owner("next")).await.unwrap();
        let next = store.append(session.key, generation, line("next")).await.unwrap();
        assert_eq!(next, rows.len() as u64 + 1);
    }
    assert_eq!(integrity(folder.path()), "ok");
}

#[tokio::test]
async fn processes_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    // Also the first opening is a race.
    let children: Vec<Child> = (0..6).map(|n| spawn(&format!("count:s-{n}"), folder.path())).collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let store = open(folder.path());
    let sessions = store.sessions(SessionFilter::default()).await.unwrap();
    assert_eq!(sessions.len(), 6);
    for session in sessions {
        assert!(session.end.is_some());
        let rows = store.events(session.key, 0, usize::MAX).await.unwrap();
        let bodies: Vec<String> = rows.into_iter().map(|row| row.body).collect();
        let numbers = (0..300).map(|n| n.to_string());
        let expected: Vec<String> = ["{}".to_owned()].into_iter().chain(numbers).chain(["end".to_owned()]).collect();
        assert_eq!(bodies, expected);
    }
}

#[tokio::test]
async fn one_of_many_processes_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.create_session(new_session("prize"), line("{}")).await.unwrap();
    let children: Vec<Child> = (0..8).map(|n| spawn(&format!("take:o-{n}"), folder.path())).collect();
    let won = |child: Child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().contains("won");
    assert_eq!(children.into_iter().map(won).filter(|&won| won).count(), 1);
    assert_eq!(store.session("prize").await.unwrap().generation, Generation(2));
}

#[tokio::test]
async fn a_full_disk_is_named_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(folder.path(), "size=1m") else {
        eprintln!("not root, or mounts are forbidden: there is no small disk to fill");
        return;
    };
    let store = open(disk.path());
    let key = store.create_session(new_session("s"), line("{}")).await.unwrap();
    let body = "x".repeat(50_000);
    let full = loop {
        match store.append(key, FIRST, line(&body)).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let path = disk.path().join("store.db");
    assert_eq!(full, StoreError::Full { path: path.clone() });
    assert!(full.to_string().contains(path.to_str().unwrap()) && full.to_string().contains("RUNNER_STATE"), "{full}");
    // In the background too, and whoever else is in the same group is not taken along when it fits.
    store.append_later(key, FIRST, line(&"x".repeat(2_000_000))).await;
    assert_eq!(store.flush(key).await, Err(full.clone()));
    let before = store.events(key, 0, usize::MAX).await.unwrap().len();
    drop(store);
    // A second disk's worth of room: it goes on where it was.
    disk.remount("size=8m");
    let store = open(disk.path());
    assert_eq!(store.events(key, 0, usize::MAX).await.unwrap().len(), before);
    store.append(key, FIRST, line(&body)).await.unwrap();
    store.end_session(Seat { key, generation: FIRST }, done(), CallsAfter::GoOn, line("{}")).await.unwrap();
    drop(store);
    assert_eq!(integrity(disk.path()), "ok");

    // Not even room to begin with.
    let empty = tempfile::tempdir().unwrap();
    let disk = Tmpfs::mount(empty.path(), "size=16k").unwrap();
    let path = disk.path().join("store.db");
    assert_eq!(SqliteStore::open(disk.path()).err(), Some(StoreError::Full { path }));
}

#[tokio::test]
async fn a_read_only_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let error = if nix::unistd::geteuid().is_root() {
        // Modes do not stop root.
        let disk = tempfile::tempdir().unwrap();
        let Some(disk) = Tmpfs::mount(disk.path(), "size=1m") else { return };
        drop(open(disk.path()));
        disk.remount("ro");
        SqliteStore::open(disk.path()).err()
    } else {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
        for file in ["store.db", "store.lock"] {
            std::fs::set_permissions(folder.path().join(file), std::fs::Permissions::from_mode(0o400)).unwrap();
        }
        SqliteStore::open(folder.path()).err()
    };
    let error = error.unwrap();
    assert!(matches!(&error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("store.") && error.to_string().contains("RUNNER_STATE"), "{error}");
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = SqliteStore::open(&folder.path().join("none")).err().unwrap();
    assert!(matches!(&error, StoreError::ReadOnly { .. }), "{error:?}");
}

#[tokio::test]
async fn a_store_of_a_newer_runner_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let path = folder.path().join("store.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let error = SqliteStore::open(folder.path()).err().unwrap();
    assert_eq!(error, StoreError::Newer { path: path.clone(), found: 99, known: 2 });
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn what_is_not_a_store_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::write(&path, "not a database at all, whatever its name says. ".repeat(100)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = SqliteStore::open(folder.path()).err().unwrap();
    assert!(matches!(&error, StoreError::Corrupt { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    std::fs::remove_file(&path).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE bookmarks (url)").unwrap();
    assert_eq!(SqliteStore::open(folder.path()).err(), Some(StoreError::Foreign { path }));
}

#[tokio::test]
async fn damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let key = store.create_session(new_session("s"), line("{}")).await.unwrap();
    for _ in 0..200 {
        store.append_later(key, FIRST, line(&"x".repeat(1000))).await;
    }
    drop(store);
    let path = folder.path().join("store.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let length = bytes.len();
    bytes[4096..length].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let found = match SqliteStore::open(folder.path()) {
        Ok(store) => store.session("s").await.err(),
        Err(error) => Some(error),
    };
    let error = found.unwrap();
    assert!(matches!(&error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn nobody_else_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.create_session(new_session("s"), line("{}")).await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", entry.file_name());
    }
}

#[tokio::test]
async fn the_log_does_not_grow_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let key = store.create_session(new_session("s"), line("{}")).await.unwrap();
    let mut largest = 0;
    for _ in 0..30 {
        for _ in 0..20 {
            store.append_later(key, FIRST, line(&"x".repeat(50_000))).await;
        }
        store.flush(key).await.unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        largest = largest.max(std::fs::metadata(folder.path().join("store.db-wal")).unwrap().len());
    }
    assert!(largest < 20_000_000, "30 MB were written and the log has {largest} bytes");
}

pub(super) fn integrity(folder: &Path) -> String {
    let db = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// A small disk of its own, unmounted when dropped.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    /// None without the right to mount.
    pub(crate) fn mount(path: &Path, options: &str) -> Option<Tmpfs> {
        let mounted = nix::unistd::geteuid().is_root() && run(&["-t", "tmpfs", "-o", options, "runner-test"], path);
        mounted.then(|| Tmpfs(path.to_owned()))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn remount(&self, options: &str) {
        assert!(run(&["-o", &format!("remount,{options}")], &self.0));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(args: &[&str], path: &Path) -> bool {
    Command::new("mount").args(args).arg(path).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
