//! What must be there before the first command: HOME and the runner's own folder, made by a child with the agent's
//! rights.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::lockdown;
use crate::session::Session;

/// Makes the folders and waits for that. Nothing of the agent's runs yet, so the child cannot be held up.
pub(super) fn run(session: &Session, ruleset: Option<&OwnedFd>) -> io::Result<()> {
    let nothing = std::fs::File::open("/dev/null")?;
    let folders = [session.home.as_path(), Path::new("/tmp/.runner")];
    let child = lockdown::start(session.ids, ruleset, nothing.into(), |_| {
        folders.into_iter().find_map(|folder| make(folder).err()).map_or(0, |error| error.raw_os_error().unwrap_or(255))
    })?;
    match waitpid(Pid::from_raw(child), None)? {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
        other => Err(io::Error::other(format!("the child ended with {other:?}"))),
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
