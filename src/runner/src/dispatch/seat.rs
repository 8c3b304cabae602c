//! Which process serves a project: it holds an flock in a folder that the project's path gives, beside its control socket.
//!
//! As with owners of sessions, the kernel frees the lock with its process, so a free one means that nobody serves.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use crate::state::{State, StateError};

/// How long a seat may still be held by a process that is going.
const PATIENCE: Duration = Duration::from_secs(1);

/// The right to serve a project, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    folder: PathBuf,
    _lock: Flock<File>,
}

/// Why a project cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another process serves it.
    #[error("{project} is served already{}; end that one first, or ask it to finish with `runner serve --drain`", by(*pid))]
    Taken {
        /// The project's path.
        project: String,
        /// The process, if it has said so.
        pid: Option<u32>,
    },
    /// The lock's file cannot be used.
    #[error("cannot {step} {path}: {source}")]
    File {
        /// What was tried.
        step: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Seat {
    /// Takes the seat of a project.
    pub fn claim(state: &State, project: &str) -> Result<Seat, SeatError> {
        state.folder("serve")?;
        let folder = folder(state, project);
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder);
        made.map_err(|source| SeatError::File { step: "make", path: folder.clone(), source })?;
        let path = folder.join("lock");
        let failed = |step| {
            let path = path.clone();
            move |source| SeatError::File { step, path, source }
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let file = open(&path, true).map_err(failed("open"))?;
            let errno = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut lock) => {
                    lock.set_len(0).map_err(failed("write"))?;
                    writeln!(lock, "{}", std::process::id()).map_err(failed("write"))?;
                    return Ok(Seat { folder, _lock: lock });
                }
                Err((_, errno)) => errno,
            };
            match errno {
                // Somebody may only be looking, for a moment, and a process that was killed is not gone at once.
                Errno::EWOULDBLOCK if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Errno::EWOULDBLOCK => {
                    let pid = served_by(state, project)?;
                    return Err(SeatError::Taken { project: project.to_owned(), pid });
                }
                errno => return Err(failed("lock")(errno.into())),
            }
        }
    }

    /// Its folder, also the control socket's.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The folder of whoever serves a project: below `serve` in the state directory, named by the project's path.
pub fn folder(state: &State, project: &str) -> PathBuf {
    let name = hex::encode(&Sha256::digest(project.as_bytes())[..8]);
    state.root().join("serve").join(name)
}

/// True when a process serves the project.
pub fn is_served(state: &State, project: &str) -> Result<bool, SeatError> {
    let path = folder(state, project).join("lock");
    let failed = |step, source| SeatError::File { step, path: path.clone(), source };
    let file = match open(&path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("open", error)),
    };
    // Shared, so that two who look at once do not take each other for the one that serves.
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, errno)) => Err(failed("lock", errno.into())),
    }
}

/// The process that serves the project, as it wrote when it began; none when nobody does.
pub fn served_by(state: &State, project: &str) -> Result<Option<u32>, SeatError> {
    let path = folder(state, project).join("lock");
    Ok(if is_served(state, project)? { open(&path, false).ok().and_then(pid) } else { None })
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    // A named pipe in its place would otherwise never open.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    OpenOptions::new().read(true).write(true).create(create).truncate(false).mode(0o600).custom_flags(flags).open(path)
}

fn pid(mut file: File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_one_seat() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        assert!(!is_served(&state, "/p").unwrap());
        let seat = Seat::claim(&state, "/p").unwrap();
        assert!(is_served(&state, "/p").unwrap() && !is_served(&state, "/q").unwrap());
        assert_eq!(served_by(&state, "/p").unwrap(), Some(std::process::id()));
        let error = Seat::claim(&state, "/p").unwrap_err().to_string();
        let pid = std::process::id();
        assert!(error.starts_with(&format!("/p is served already by process {pid}; ")), "{error}");
        Seat::claim(&state, "/q").unwrap();
        drop(seat);
        assert!(!is_served(&state, "/p").unwrap());
        Seat::claim(&state, "/p").unwrap();
    }
}
