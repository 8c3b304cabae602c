//! The thread that reports what other processes change, and journal lines of this one.
//!
//! The kernel says when somebody writes to the log of the database, and only then the thread looks at it: a process that
//! waits costs nothing. The change is visible a little after the write, when it is durable, so the thread goes on looking
//! for a while after the last write.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::watch;

use super::schema::{connect, pragma};

/// Time between the first write and the first look; the following looks are each three times as far apart.
const FIRST: Duration = Duration::from_millis(1);

/// Time between two looks while somebody writes all the time, or when the kernel does not say when.
const EVERY: Duration = Duration::from_millis(100);

/// How long after the last write the thread goes on looking: a write that takes longer to become durable is seen when the
/// thread looks without a reason.
const LINGER: Duration = Duration::from_secs(2);

/// Time between two looks without a reason, in milliseconds; also how soon a thread ends that nobody listens to.
const WITHOUT_REASON: u16 = 5_000;

/// Reports changes as long as somebody listens.
pub(super) struct Poller {
    path: PathBuf,
    changed: watch::Sender<u64>,
    running: Arc<Mutex<bool>>,
}

impl Poller {
    pub(super) fn new(path: PathBuf, changed: watch::Sender<u64>) -> Poller {
        Poller { path, changed, running: Arc::default() }
    }

    /// Adds a listener and makes sure that the thread runs.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.changed.subscribe();
        if !*running {
            let (path, changed, flag) = (self.path.clone(), self.changed.clone(), Arc::clone(&self.running));
            *running = std::thread::Builder::new()
                .name("store-watch".into())
                .spawn(move || report(&path, &changed, &flag))
                .is_ok();
        }
        receiver
    }
}

fn report(path: &Path, changed: &watch::Sender<u64>, running: &Mutex<bool>) {
    let db = connect(path).ok();
    let version = || db.as_ref().and_then(|db| pragma(db, "data_version").ok());
    // The first look also makes sure that there is a log to be watched.
    let mut seen = version();
    let mut writes = Writes::of(path);
    // Somebody may have written while the thread started.
    changed.send_modify(|changes| *changes += 1);
    loop {
        writes.wait();
        // Under the lock, so that a new listener either is seen here or finds the thread gone.
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.receiver_count() == 0 {
            *running = false;
            return;
        }
        drop(running);
        let version = version();
        // Without an answer the listeners look for themselves.
        if version.is_none() || version != seen {
            changed.send_modify(|changes| *changes += 1);
            seen = version;
        }
    }
}

/// When to look at the database.
struct Writes {
    /// Tells of writes to the log; absent when the kernel cannot.
    heard: Option<Inotify>,
    last: Option<Instant>,
    pause: Duration,
}

impl Writes {
    fn of(database: &Path) -> Writes {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let heard = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok();
        let heard = heard.filter(|heard| heard.add_watch(Path::new(&log), AddWatchFlags::IN_MODIFY).is_ok());
        Writes { heard, last: None, pause: EVERY }
    }

    /// Sleeps until it is time for the next look.
    fn wait(&mut self) {
        let Some(heard) = &self.heard else { return std::thread::sleep(EVERY) };
        if self.last.is_some_and(|last| last.elapsed() < LINGER) {
            std::thread::sleep(self.pause);
            self.pause = EVERY.min(self.pause * 3);
        } else {
            let mut fds = [PollFd::new(heard.as_fd(), PollFlags::POLLIN)];
            // Woken for another reason, it looks in vain.
            let _ = poll(&mut fds, PollTimeout::from(WITHOUT_REASON));
            self.pause = FIRST;
        }
        // All that there is is one reason.
        while heard.read_events().is_ok_and(|events| !events.is_empty()) {
            self.last = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of another connection is reported soon, also when nothing has happened for a while.
    #[test]
    fn a_change_is_reported_soon() {
        let folder = tempfile::tempdir().unwrap();
        let store = super::super::SqliteStore::open(folder.path()).unwrap();
        let path = folder.path().join("store.db");
        let poller = Poller::new(path.clone(), watch::Sender::new(0));
        let mut listener = poller.subscribe();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let writer = connect(&path).unwrap();
        writer.execute_batch("CREATE TABLE scratch (n)").unwrap();
        for n in 0..3 {
            // Past the time in which it looks anyway.
            std::thread::sleep(LINGER + 2 * EVERY);
            listener.mark_unchanged();
            let begun = Instant::now();
            writer.execute("INSERT INTO scratch VALUES (?1)", [n]).unwrap();
            let seen =
                runtime.block_on(async { tokio::time::timeout(Duration::from_secs(3), listener.changed()).await });
            seen.expect("it is reported before the thread looks without a reason").unwrap();
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        }
        drop(store);
    }
}
