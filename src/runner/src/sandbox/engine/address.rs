//! Which socket is the engine's.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Group};
use tokio::net::UnixStream;

use super::errors::EngineError;

const DEFAULT: &str = "/var/run/docker.sock";

/// Reads an address as `DOCKER_HOST` gives it; none or an empty one is the usual socket.
pub(super) fn socket(docker_host: Option<&str>) -> Result<PathBuf, EngineError> {
    let Some(host) = docker_host.map(str::trim).filter(|host| !host.is_empty()) else {
        return Ok(PathBuf::from(DEFAULT));
    };
    match host.split_once("://") {
        Some(("unix", path)) if path.starts_with('/') && !path.contains('\0') => Ok(PathBuf::from(path)),
        Some(("tcp" | "http" | "https" | "ssh", _)) => Err(EngineError::Remote(host.to_owned())),
        _ => Err(EngineError::BadAddress(host.to_owned())),
    }
}

/// Tries the socket, to say exactly what is wrong with it: the client library says "client error" for all of it.
pub(super) async fn knock(socket: &Path) -> Result<(), EngineError> {
    let not_running = |error: &io::Error| EngineError::NotRunning { socket: socket.to_owned(), why: error.to_string() };
    let denied = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            EngineError::NoPermission { socket: socket.to_owned(), group: group_of(socket) }
        }
        _ => not_running(&error),
    };
    let found = fs::metadata(socket).map_err(denied)?;
    if !found.file_type().is_socket() {
        return Err(EngineError::NotASocket(socket.to_owned()));
    }
    UnixStream::connect(socket).await.map(drop).map_err(denied)
}

/// The group of the socket, or of the folder that hides it; a number when it has no name.
fn group_of(socket: &Path) -> String {
    let gid = socket.ancestors().find_map(|path| fs::metadata(path).ok()).map_or(0, |found| found.gid());
    match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => group.name,
        _ => gid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// bug 39: a wrong `DOCKER_HOST` is one line with the fix.
    #[test]
    fn addresses() {
        assert_eq!(socket(None).unwrap(), Path::new(DEFAULT));
        assert_eq!(socket(Some("")).unwrap(), Path::new(DEFAULT));
        assert_eq!(socket(Some("unix:///run/d.sock")).unwrap(), Path::new("/run/d.sock"));
        for remote in ["tcp://10.0.0.1:2375", "ssh://root@host", "https://docker:2376"] {
            let message = socket(Some(remote)).unwrap_err().to_string();
            assert!(message.contains(remote) && message.contains("another machine"), "{message}");
        }
        for bad in ["/var/run/docker.sock", "unix://relative", "unix://", "npipe:////./pipe/x", "fd://", "nonsense"] {
            let message = socket(Some(bad)).unwrap_err().to_string();
            assert!(message.contains(bad) && message.contains("unix:///var/run/docker.sock"), "{message}");
            assert!(!message.contains('\n'));
        }
    }
}
