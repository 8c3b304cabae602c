//! Where the control socket is, for both ends.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::dispatch::seat::Seat;
use crate::exit::{Failure, USAGE};

/// Its name in the seat's folder.
const NAME: &str = "control.sock";

/// Longest path of a Unix socket in bytes: `sun_path` holds 108 with its final NUL (unix(7)).
const MAX_PATH: usize = 107;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} the control socket {path}: {source}")]
pub struct SocketError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        Failure::new(USAGE, &error)
    }
}

/// Binds the control socket of a project, for its user alone. Whatever has its place is of a process that serves no more,
/// because the seat is ours.
///
/// # Errors
/// Those of the file system.
pub fn bind(seat: &Seat) -> Result<UnixListener, SocketError> {
    let path = seat.folder().join(NAME);
    let failed = |step| {
        let path = path.clone();
        move |source| SocketError { step, path, source }
    };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("replace")(error)),
        _ => {}
    }
    let short = Short::of(seat.folder()).map_err(failed("reach"))?;
    let listener = UnixListener::bind(&short.path).map_err(failed("bind"))?;
    // Until here the folder's mode keeps others out.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed("close to others"))?;
    Ok(listener)
}

/// Connects to the control socket in a seat's folder; none when nobody listens.
pub(super) async fn connect(folder: &Path) -> io::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    let connected = async { UnixStream::connect(&Short::of(folder)?.path).await }.await;
    match connected {
        Ok(stream) => Ok(Some(stream)),
        // Reset: it was closed with us in its backlog.
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A path of the socket that is short enough for its address, while this lives.
struct Short {
    path: PathBuf,
    _folder: Option<File>,
}

impl Short {
    fn of(folder: &Path) -> io::Result<Short> {
        let path = folder.join(NAME);
        if path.as_os_str().len() <= MAX_PATH {
            return Ok(Short { path, _folder: None });
        }
        let flags = nix::libc::O_PATH | nix::libc::O_DIRECTORY;
        let folder = File::options().read(true).custom_flags(flags).open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()));
        Ok(Short { path, _folder: Some(folder) })
    }
}
