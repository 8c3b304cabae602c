//! The socket that PID 1 connects to, and who may.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, chown};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::warn;

/// Longest path of a Unix socket in bytes: `sun_path` holds 108 with its final NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Most connections that may be waiting or shaking hands at once. PID 1 opens one for itself and one per file server.
const MAX_WAITING: usize = 32;

/// Binds `<folder>/sock`, mode 0660 and group `group`, replacing what a dead runner left there.
///
/// # Errors
/// Those of the file system.
pub(in crate::sandbox) fn bind(folder: &Path, group: Gid) -> io::Result<UnixListener> {
    let path = folder.join("sock");
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let handle = open(folder, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}/sock", handle.as_raw_fd()));
    let listener = UnixListener::bind(if path.as_os_str().len() > MAX_SOCKET_PATH { &short } else { &path })?;
    // A setgid parent gives the socket its own group, and the umask takes bits away: set both explicitly.
    chown(&path, None, Some(group))?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660))?;
    Ok(listener)
}

/// Accepts connections for ever and hands those of the process `init` to `accepted`. PID 1 connects before the engine
/// has told its pid, so connections wait until `init` is known.
pub(in crate::sandbox) async fn serve(
    listener: UnixListener,
    init: watch::Receiver<Option<i32>>,
    accepted: mpsc::Sender<(UnixStream, tokio::sync::OwnedSemaphorePermit)>,
) {
    let places = Arc::new(Semaphore::new(MAX_WAITING));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: the connection stays in the backlog meanwhile.
                warn!(%error, "accepting on a sandbox's socket");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            warn!("closed a connection to a sandbox's socket: {MAX_WAITING} others have not said hello yet");
            continue;
        };
        let (mut init, accepted) = (init.clone(), accepted.clone());
        tokio::spawn(async move {
            let Ok(expected) = init.wait_for(Option::is_some).await.map(|pid| *pid) else { return };
            let peer = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
            if peer.is_some() && peer == expected {
                let _ = accepted.send((stream, place)).await;
            } else {
                warn!(?peer, ?expected, "closed a connection to a sandbox's socket that is not from its PID 1");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use tokio::io::AsyncReadExt;

    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[tokio::test]
    async fn the_socket_has_its_mode_also_under_a_long_path() {
        let root = tempfile::tempdir().unwrap();
        for folder in [root.path().join("short"), root.path().join("x".repeat(120)).join("y".repeat(120))] {
            std::fs::create_dir_all(&folder).unwrap();
            let listener = bind(&folder, Gid::effective()).unwrap();
            let seen = std::fs::metadata(folder.join("sock")).unwrap();
            assert_eq!((seen.mode() & 0o7777, seen.gid()), (0o660, Gid::effective().as_raw()));
            drop(listener);
            bind(&folder, Gid::effective()).unwrap();
        }
    }

    #[tokio::test]
    async fn connections_wait_for_the_pid_and_others_are_closed() {
        let root = tempfile::tempdir().unwrap();
        let (init, known) = watch::channel(None);
        let (send, mut accepted) = mpsc::channel(4);
        let task = tokio::spawn(serve(bind(root.path(), Gid::effective()).unwrap(), known, send));
        let mut early = UnixStream::connect(root.path().join("sock")).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(30), accepted.recv()).await.is_err());
        init.send(Some(own_pid() + 1)).unwrap();
        assert_eq!(early.read(&mut [0]).await.unwrap(), 0);
        init.send(Some(own_pid())).unwrap();
        let _late = UnixStream::connect(root.path().join("sock")).await.unwrap();
        assert!(accepted.recv().await.is_some());
        task.abort();
    }
}
