//! The lock under which blocks of ids are chosen, one for the whole host.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg, OFlag};

use super::IdsError;

const PATH: &str = "/run/lock/runner-ids";
const PATIENCE: Duration = Duration::from_secs(10);

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct IdsLock {
    /// Closing the file releases the lock.
    _held: Flock<File>,
}

impl IdsLock {
    /// Waits for the lock, at most ten seconds.
    pub(crate) async fn take() -> Result<IdsLock, IdsError> {
        tokio::task::spawn_blocking(|| IdsLock::wait(Path::new(PATH), PATIENCE))
            .await
            .expect("waiting for a lock does not panic, and the runtime outlives its callers")
    }

    /// Takes the lock and gives it back, and says where it is.
    pub(crate) async fn try_out() -> Result<PathBuf, IdsError> {
        IdsLock::take().await.map(|_lock| PathBuf::from(PATH))
    }

    fn wait(path: &Path, patience: Duration) -> Result<IdsLock, IdsError> {
        let started = Instant::now();
        let mut file = open(path)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // Someone may have removed the file while we waited; a lock on a removed file excludes nobody.
                Ok(held) if is_in_place(&held, path) => return Ok(IdsLock { _held: held }),
                Ok(_) => file = open(path)?,
                Err((same, nix::Error::EWOULDBLOCK)) if started.elapsed() < patience => {
                    file = same;
                    // flock(2) has no deadline of its own, and a thread blocked in it could not be taken back.
                    sleep(Duration::from_millis(3));
                }
                Err((_, nix::Error::EWOULDBLOCK)) => return Err(IdsError::Busy(path.to_owned())),
                Err((same, nix::Error::EINTR)) => file = same,
                Err((_, error)) => return Err(refused(path, &error.desc())),
            }
        }
    }
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> IdsError {
    IdsError::Lock { path: PathBuf::from(path), why: why.to_string() }
}

/// Opens the lock file, and makes it when it is missing.
///
/// In a sticky directory like /run/lock, `fs.protected_regular` denies `O_CREAT` on a file of another user even when
/// the file could be opened, so the first try goes without.
fn open(path: &Path) -> Result<File, IdsError> {
    loop {
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => {
                let found = file.metadata().map_err(|error| refused(path, &error))?;
                return if found.is_file() { Ok(file) } else { Err(refused(path, &"it is not a regular file")) };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(path, &error)),
        }
        match OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path) {
            // flock needs no right to write, so nobody gets one.
            Ok(file) => file.set_permissions(Permissions::from_mode(0o444)).map_err(|error| refused(path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused(path, &error)),
        }
    }
}

fn is_in_place(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_holder_at_a_time_also_when_the_file_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lock");
        let (inside, rounds) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for n in 0..6 {
                let (path, inside, rounds) = (&path, &inside, &rounds);
                scope.spawn(move || {
                    for round in 0..30 {
                        let held = IdsLock::wait(path, Duration::from_secs(30)).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        rounds.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        if n == 0 && round % 10 == 0 {
                            fs::remove_file(path).unwrap();
                        }
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(rounds.into_inner(), 180);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o444);
    }

    #[test]
    fn a_held_lock_and_a_strange_file_are_errors_with_the_remedy() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lock");
        let _held = IdsLock::wait(&path, Duration::ZERO).unwrap();
        let busy = IdsLock::wait(&path, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(busy.contains("another runner") && busy.contains("lock"), "{busy}");
        std::os::unix::fs::symlink("/etc/passwd", base.path().join("link")).unwrap();
        for strange in [base.path().to_owned(), base.path().join("link"), base.path().join("no/such")] {
            let message = IdsLock::wait(&strange, Duration::ZERO).unwrap_err().to_string();
            assert!(message.contains(strange.to_str().unwrap()), "{message}");
        }
    }
}
