//! Copies a file or folder of the host into a sandbox.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use protocol::{Entry, EntryKind, Outcome, Request};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::connection::{Closed, Connection, Outgoing};
use super::files::server_died;
use super::slot::Answer;
use crate::sandbox::copy::{
    Copied, CopyError, IDLE, LONGEST, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, PIECE, PIECES, stays_inside,
};

/// What the walker hands to the link.
#[derive(Debug)]
enum Piece {
    Entry(Entry),
    Chunk(Vec<u8>),
}

impl Shared {
    /// Copies `from` on the host to `to` in the sandbox.
    pub(in crate::sandbox) async fn put(
        self: &Arc<Self>,
        key: &str,
        from: &Path,
        to: &str,
    ) -> Result<Copied, CopyError> {
        let path = from.to_owned();
        // First a look at all of it: a folder that may not be copied leaves nothing half copied.
        blocking(move || Walk::new(path, |_| Ok(())).run(false)).await?;
        let server = match self.open_server(&CancellationToken::new()).await? {
            Ok(server) => server,
            Err(refusal) => return Err(failure(refusal.outcome)),
        };
        let request = Request::Put { path: to.to_owned() };
        let outgoing = Outgoing { key, request: &request, body: b"", timeout: LONGEST };
        let Ok((id, ears)) = server.connection.start(outgoing).await else {
            server.check_gone()?;
            return Err(failure(server_died().outcome));
        };
        let (give, pieces) = mpsc::channel(PIECES);
        let path = from.to_owned();
        let walking = blocking(move || {
            // A closed channel means that the sandbox has ended the copy; its answer says why.
            Walk::new(path, |piece| give.blocking_send(piece).map_err(|_| Stop)).run(true)
        });
        let (walked, sent) = tokio::join!(walking, send_all(&server.connection, id, pieces));
        walked?;
        if sent? && server.connection.send_entry(id, None).await.is_err() {
            server.check_gone()?;
        }
        let answer = timeout(IDLE, ears.answer).await.map_err(|_| CopyError::stalled())?;
        server.check_gone()?;
        match answer {
            Ok(Answer::Done { outcome: Outcome::Copied { files, bytes, skipped }, .. }) => {
                Ok(Copied { files, bytes, skipped })
            }
            Ok(Answer::Done { outcome, .. }) => Err(failure(outcome)),
            _ => Err(failure(server_died().outcome)),
        }
    }
}

/// Sends what the walker finds; false when the sandbox has ended the call before.
async fn send_all(connection: &Connection, id: u64, mut pieces: mpsc::Receiver<Piece>) -> Result<bool, CopyError> {
    while let Some(piece) = pieces.recv().await {
        let sending = async {
            match piece {
                Piece::Entry(entry) => connection.send_entry(id, Some(entry)).await,
                Piece::Chunk(bytes) => connection.send_chunk(id, &bytes).await,
            }
        };
        match timeout(IDLE, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(Closed)) => return Ok(false),
            Err(_) => return Err(CopyError::stalled()),
        }
    }
    Ok(true)
}

/// The error of a call that ended otherwise than a copy should.
pub(super) fn failure(outcome: Outcome) -> CopyError {
    match outcome {
        Outcome::Failed { cause, message } => CopyError::Sandbox { cause, message },
        _ => CopyError::Sandbox { cause: protocol::Cause::Invalid, message: "the copy had no end".to_owned() },
    }
}

/// Runs work on files in a thread for such work.
pub(super) async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// The reader of the pieces wants no more.
#[derive(Debug, Clone, Copy)]
struct Stop;

/// A walk over what is copied. Each name is opened without following links and looked at through its handle, so nothing
/// can be exchanged between the look and the use.
struct Walk<F> {
    root: PathBuf,
    give: F,
    entries: u64,
    bytes: u64,
    stopped: bool,
}

impl<F: FnMut(Piece) -> Result<(), Stop>> Walk<F> {
    fn new(root: PathBuf, give: F) -> Self {
        Self { root, give, entries: 0, bytes: 0, stopped: false }
    }

    fn run(mut self, contents: bool) -> Result<(), CopyError> {
        let root = self.root.clone();
        // The one who asks names this path; a link there is his own.
        let handle = openat(AT_FDCWD, &root, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|error| CopyError::host(&root, error))?;
        self.visit(&handle, "", 0, contents)
    }

    fn visit(&mut self, handle: &OwnedFd, path: &str, depth: usize, contents: bool) -> Result<(), CopyError> {
        let failed = |error: nix::Error, root: &Path| CopyError::host(&root.join(path), error);
        let stat = fstat(handle).map_err(|error| failed(error, &self.root))?;
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(CopyError::refused(path, format!("more than {MAX_ENTRIES} files and folders")));
        }
        if depth > MAX_DEPTH {
            return Err(CopyError::refused(path, format!("more than {MAX_DEPTH} folders inside one another")));
        }
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        match kind {
            SFlag::S_IFREG => self.file(handle, path, &stat, contents),
            SFlag::S_IFDIR => {
                self.give(Piece::Entry(Entry { path: path.to_owned(), kind: EntryKind::Folder }));
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                let mut folder = Dir::openat(handle, ".", flags, Mode::empty()).map_err(|e| failed(e, &self.root))?;
                let mut names = Vec::new();
                for entry in folder.iter() {
                    let entry = entry.map_err(|error| failed(error, &self.root))?;
                    let name = entry.file_name().to_bytes();
                    if name == b"." || name == b".." {
                        continue;
                    }
                    let Ok(name) = std::str::from_utf8(name) else {
                        let name = format!("{path}/{}", String::from_utf8_lossy(name));
                        return Err(CopyError::refused(&name, "its name is not UTF-8; rename it"));
                    };
                    names.push(name.to_owned());
                    if names.len() as u64 > MAX_ENTRIES {
                        return Err(CopyError::refused(path, format!("more than {MAX_ENTRIES} files and folders")));
                    }
                }
                names.sort_unstable();
                for name in names {
                    if self.stopped {
                        break;
                    }
                    let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                    let child = openat(handle.as_fd(), name.as_str(), flags, Mode::empty())
                        .map_err(|error| CopyError::host(&self.root.join(&below), error))?;
                    self.visit(&child, &below, depth + 1, contents)?;
                }
                Ok(())
            }
            SFlag::S_IFLNK => {
                // With an empty path it reads the link that the handle stands for.
                let target = readlinkat(handle, "").map_err(|error| failed(error, &self.root))?;
                match target.to_str() {
                    Some(target) if stays_inside(path, target) => {
                        let kind = EntryKind::Link { target: target.to_owned() };
                        self.give(Piece::Entry(Entry { path: path.to_owned(), kind }));
                        Ok(())
                    }
                    _ => {
                        let target = String::from_utf8_lossy(target.as_bytes()).escape_debug().to_string();
                        Err(CopyError::refused(path, format!("a link that leaves what is copied (to {target})")))
                    }
                }
            }
            other => {
                let what = match other {
                    SFlag::S_IFIFO => "a named pipe",
                    SFlag::S_IFSOCK => "a socket",
                    SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
                    _ => "a special file",
                };
                let name = if path.is_empty() { self.root.to_string_lossy().into_owned() } else { path.to_owned() };
                Err(CopyError::refused(&name, format!("{what}; only files, folders and links are copied")))
            }
        }
    }

    fn file(&mut self, handle: &OwnedFd, path: &str, stat: &FileStat, contents: bool) -> Result<(), CopyError> {
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        self.bytes += size;
        if self.bytes > MAX_BYTES {
            return Err(CopyError::refused(path, format!("more than {} GiB in all", MAX_BYTES >> 30)));
        }
        let failed = |error: std::io::Error, root: &Path| CopyError::host(&root.join(path), error);
        // Through the handle, which is known to be a regular file: opening cannot hang or reach another.
        let mut file =
            File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(|e| failed(e, &self.root))?;
        let executable = stat.st_mode & 0o111 != 0;
        self.give(Piece::Entry(Entry { path: path.to_owned(), kind: EntryKind::File { size, executable } }));
        let mut left = size;
        while contents && left > 0 && !self.stopped {
            let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
            let count = file.read(&mut piece).map_err(|error| failed(error, &self.root))?;
            if count == 0 {
                return Err(CopyError::refused(path, "it became shorter while it was copied"));
            }
            piece.truncate(count);
            left -= count as u64;
            self.give(Piece::Chunk(piece));
        }
        Ok(())
    }

    fn give(&mut self, piece: Piece) {
        self.stopped = self.stopped || (self.give)(piece).is_err();
    }
}
