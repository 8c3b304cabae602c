//! Who drives sessions: each such process holds an flock on a file of its own in `owners/` of the state directory.
//!
//! The kernel frees an flock with its process, however that ends, so a free one (or none) means that nobody drives the
//! owner's sessions any more. Pid files lie after a reboot or when a pid comes again; this does not.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::state::{State, StateError, random_hex};
use crate::store::OwnerId;

/// This process as an owner of sessions, from [`Owner::claim`] until it is dropped.
#[derive(Debug)]
pub struct Owner {
    id: OwnerId,
    path: PathBuf,
    _lock: Flock<File>,
}

/// Why owners cannot be told from the dead.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The folder of owners cannot be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file in it cannot be used.
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

impl Owner {
    /// Makes this process an owner under a new random id.
    pub fn claim(state: &State) -> Result<Owner, OwnerError> {
        let folder = state.folder("owners")?;
        loop {
            let id = random_hex();
            let path = folder.join(&id);
            let failed = |step| {
                let path = path.clone();
                move |source| OwnerError::File { step, path, source }
            };
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed("make"))?;
            // Between making and locking it, somebody may have taken it for one that was left behind.
            let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => lock,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let _ = std::fs::remove_file(&path);
                    continue;
                }
                Err((_, errno)) => return Err(failed("lock")(errno.into())),
            };
            if lock.metadata().map_err(failed("look at"))?.nlink() == 0 {
                continue;
            }
            // For people who look; nothing reads it.
            writeln!(lock, "{}", std::process::id()).map_err(failed("write"))?;
            let id = OwnerId { id, host: state.token().to_owned() };
            return Ok(Owner { id, path, _lock: lock });
        }
    }

    /// What to record in the sessions it drives.
    pub fn id(&self) -> &OwnerId {
        &self.id
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // While the lock is still held; a file that stays is a free one, which [`sweep`] removes.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// True when this owner's process lives, or when only another state directory can tell.
pub fn is_alive(state: &State, owner: &OwnerId) -> Result<bool, OwnerError> {
    if owner.host != state.token() || owner.id.contains(['/', '\0']) {
        return Ok(true);
    }
    // Shared, so that two who look at once do not take each other for the owner.
    let path = state.root().join("owners").join(&owner.id);
    Ok(probe(&path, FlockArg::LockSharedNonblock)?.is_held)
}

/// Removes the files that dead owners left behind.
pub fn sweep(state: &State) -> Result<(), OwnerError> {
    let folder = state.folder("owners")?;
    let failed = |source| OwnerError::File { step: "list", path: folder.clone(), source };
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let found = probe(&path, FlockArg::LockExclusiveNonblock)?;
        if found.lock.is_some() {
            // Under the lock, so that who made it a moment ago sees that it is gone. It may be gone already.
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(())
}

struct Found {
    is_held: bool,
    /// Ours for as long as this lives.
    lock: Option<Flock<File>>,
}

fn probe(path: &Path, how: FlockArg) -> Result<Found, OwnerError> {
    let failed = |step, source| OwnerError::File { step, path: path.to_owned(), source };
    // Whatever lies there: a named pipe without a writer would never open.
    let file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found { is_held: false, lock: None }),
        Err(e) => return Err(failed("open", e)),
    };
    match Flock::lock(file, how) {
        Ok(lock) => Ok(Found { is_held: false, lock: Some(lock) }),
        Err((_, Errno::EWOULDBLOCK)) => Ok(Found { is_held: true, lock: None }),
        Err((_, errno)) => Err(failed("lock", errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, State) {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        (folder, state)
    }

    #[test]
    fn an_owner_lives_until_it_is_dropped() {
        let (_folder, state) = state();
        let owner = Owner::claim(&state).unwrap();
        let id = owner.id().clone();
        assert!(is_alive(&state, &id).unwrap());
        sweep(&state).unwrap();
        assert!(is_alive(&state, &id).unwrap());
        drop(owner);
        assert!(!is_alive(&state, &id).unwrap());
        assert_eq!(std::fs::read_dir(state.root().join("owners")).unwrap().count(), 0);
    }

    #[test]
    fn another_state_directorys_owner_is_not_ours_to_judge() {
        let (_folder, state) = state();
        let owner = OwnerId { id: "gone".into(), host: "elsewhere".into() };
        assert!(is_alive(&state, &owner).unwrap());
        let strange = OwnerId { id: "../token".into(), host: state.token().into() };
        assert!(is_alive(&state, &strange).unwrap());
    }

    /// security.md 6: what else may lie there keeps nobody waiting.
    #[test]
    fn what_is_no_owner_does_no_harm() {
        let (_folder, state) = state();
        let owners = state.folder("owners").unwrap();
        nix::unistd::mkfifo(&owners.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/dev/zero", owners.join("device")).unwrap();
        std::fs::create_dir(owners.join("folder")).unwrap();
        assert!(!is_alive(&state, &OwnerId { id: "pipe".into(), host: state.token().into() }).unwrap());
        sweep(&state).unwrap();
        let left: Vec<_> = std::fs::read_dir(&owners).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["folder"]);
    }

    #[test]
    fn what_the_dead_left_is_swept_while_others_claim() {
        let (_folder, state) = state();
        let owners = state.folder("owners").unwrap();
        for n in 0..20 {
            std::fs::write(owners.join(format!("dead-{n}")), "1\n").unwrap();
        }
        let held: Vec<Owner> = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..50).map(|_| Owner::claim(&state).unwrap()).collect::<Vec<_>>()))
                .collect();
            for _ in 0..50 {
                sweep(&state).unwrap();
            }
            claims.into_iter().flat_map(|claim| claim.join().unwrap()).collect()
        });
        sweep(&state).unwrap();
        assert_eq!(held.len(), 200);
        assert!(held.iter().all(|owner| is_alive(&state, owner.id()).unwrap()));
        assert_eq!(std::fs::read_dir(&owners).unwrap().count(), 200);
    }
}
