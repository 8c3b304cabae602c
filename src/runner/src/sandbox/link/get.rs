//! Copies a file or folder of a sandbox out to the host.
//!
//! Every name comes from the sandbox. The parent of each is opened below the target folder with openat2(2), which
//! follows no link on the way; files are written under another name and moved to theirs, which never follows a link
//! either. What stands in the way is replaced only if it is a regular file.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use protocol::{Entry, EntryKind, Outcome, Request};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::connection::{Connection, Outgoing};
use super::files::server_died;
use super::put::{blocking, failure};
use super::slot::{Answer, Item};
use crate::sandbox::copy::{
    Copied, CopyError, IDLE, LONGEST, MAX_BYTES, MAX_ENTRIES, MAX_SKIPPED, PIECES, is_inside, stays_inside,
};

impl Shared {
    /// Copies `from` in the sandbox into the folder `to` on the host, under its last component.
    pub(in crate::sandbox) async fn get(
        self: &Arc<Self>,
        key: &str,
        from: &str,
        to: &Path,
    ) -> Result<Copied, CopyError> {
        let name = from.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        if name.is_empty() || !is_inside(&name) || name.chars().any(char::is_control) {
            return Err(CopyError::refused(from, "name a file or folder below /tmp"));
        }
        let folder = to.to_owned();
        let place = blocking(move || Place::open(&folder, name)).await?;
        let server = match self.open_server(&CancellationToken::new()).await? {
            Ok(server) => server,
            Err(refusal) => return Err(failure(refusal.outcome)),
        };
        let request = Request::Get { path: from.to_owned(), max_bytes: MAX_BYTES, max_entries: MAX_ENTRIES };
        let outgoing = Outgoing { key, request: &request, body: b"", timeout: LONGEST };
        let connection = Arc::clone(&server.connection);
        let Ok((id, ears)) = connection.start(outgoing).await else {
            server.check_gone()?;
            return Err(failure(server_died().outcome));
        };
        let stream = ears.stream.expect("a get streams");
        let (send, receive) = mpsc::channel(PIECES);
        let writing = blocking(move || Writer::new(place).run(receive));
        // Owns the sender: the writer must not wait for more when the stream has ended.
        let passing = pass(&connection, id, stream, send);
        let (written, passed) = tokio::join!(writing, passing);
        server.check_gone()?;
        let written = written.map_err(|stop| match stop {
            Stop::Rule(rule) => server.violated(rule).into(),
            Stop::Copy(error) => error,
        })?;
        passed?;
        let answer = timeout(IDLE, ears.answer).await.map_err(|_| CopyError::stalled())?;
        server.check_gone()?;
        match answer {
            Ok(Answer::Done { outcome: Outcome::Copied { skipped, .. }, .. }) => {
                if !written.whole {
                    return Err(server.violated("a copy that ended inside a file").into());
                }
                let mut copied = written.copied;
                copied.skipped.extend(skipped);
                copied.skipped.truncate(MAX_SKIPPED);
                Ok(copied)
            }
            Ok(Answer::Done { outcome, .. }) => Err(failure(outcome)),
            _ => Err(failure(server_died().outcome)),
        }
    }
}

/// Hands what comes to the writer, and gives credit back as it takes it.
async fn pass(
    connection: &Connection,
    id: u64,
    mut stream: mpsc::Receiver<Item>,
    writer: mpsc::Sender<Item>,
) -> Result<(), CopyError> {
    while let Some(item) = timeout(IDLE, stream.recv()).await.map_err(|_| CopyError::stalled())? {
        let bytes = if let Item::Chunk(bytes) = &item { bytes.len() } else { 0 };
        // The writer stops at what it may not write; its own error says more.
        if writer.send(item).await.is_err() {
            break;
        }
        if let Ok(bytes @ 1..) = u32::try_from(bytes) {
            connection.grant(id, bytes);
        }
    }
    Ok(())
}

/// Where a copy goes.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    handle: OwnedFd,
    name: String,
}

impl Place {
    /// Opens the folder that the user named, and makes it when it is missing.
    fn open(folder: &Path, name: String) -> Result<Self, CopyError> {
        std::fs::create_dir_all(folder).map_err(|error| CopyError::host(folder, error))?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let handle = openat(AT_FDCWD, folder, flags, Mode::empty()).map_err(|e| CopyError::host(folder, e))?;
        Ok(Self { folder: folder.to_owned(), handle, name })
    }
}

/// What a writer has done.
#[derive(Debug)]
struct Written {
    copied: Copied,
    /// The last file has all its bytes.
    whole: bool,
}

/// The file that is being written, under a name of its own until it is whole.
#[derive(Debug)]
struct Open {
    file: File,
    parent: OwnedFd,
    draft: String,
    name: String,
    path: String,
    left: u64,
}

/// Writes what comes out of a sandbox.
#[derive(Debug)]
struct Writer {
    place: Place,
    open: Option<Open>,
    /// Bytes to come of a file that is left out.
    left_out: u64,
    entries: u64,
    /// Bytes announced so far.
    bytes: u64,
    copied: Copied,
}

/// What stops a writer.
#[derive(Debug)]
enum Stop {
    /// The sandbox broke this rule.
    Rule(&'static str),
    /// Something may not be written, or cannot.
    Copy(CopyError),
}

impl From<CopyError> for Stop {
    fn from(error: CopyError) -> Self {
        Self::Copy(error)
    }
}

impl Writer {
    fn new(place: Place) -> Self {
        Self { place, open: None, left_out: 0, entries: 0, bytes: 0, copied: Copied::default() }
    }

    fn run(mut self, mut items: mpsc::Receiver<Item>) -> Result<Written, Stop> {
        while let Some(item) = items.blocking_recv() {
            match item {
                Item::Entry(entry) => self.entry(&entry)?,
                Item::Chunk(bytes) => self.chunk(&bytes)?,
            }
        }
        let whole = self.open.is_none() && self.left_out == 0;
        Ok(Written { copied: std::mem::take(&mut self.copied), whole })
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), Stop> {
        if self.open.is_some() || self.left_out > 0 {
            return Err(Stop::Rule("an entry inside a file of a copy"));
        }
        if !is_inside(&entry.path) || entry.path.is_empty() != (self.entries == 0) {
            return Err(Stop::Rule("a copy's entry with a path that is none"));
        }
        self.entries += 1;
        if let EntryKind::File { size, .. } = &entry.kind {
            self.bytes = self.bytes.saturating_add(*size);
        }
        if self.entries > MAX_ENTRIES || self.bytes > MAX_BYTES {
            return Err(Stop::Rule("a copy that is larger than was asked for"));
        }
        let path =
            if entry.path.is_empty() { self.place.name.clone() } else { format!("{}/{}", self.place.name, entry.path) };
        if path.chars().any(char::is_control) {
            self.leave_out(&path, "its name has control characters", &entry.kind);
            return Ok(());
        }
        match &entry.kind {
            EntryKind::Folder => self.folder(&path)?,
            EntryKind::File { size, executable } => self.file(path, *size, *executable)?,
            EntryKind::Link { target } if stays_inside(&entry.path, target) => self.link(&path, target)?,
            EntryKind::Link { .. } => self.leave_out(&path, "a link that may leave what is copied", &entry.kind),
        }
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let length = bytes.len() as u64;
        if let Some(left) = self.left_out.checked_sub(length).filter(|_| self.left_out > 0) {
            self.left_out = left;
            return Ok(());
        }
        let Some(open) = self.open.as_mut().filter(|open| length <= open.left) else {
            return Err(Stop::Rule("more bytes than a copied file has"));
        };
        open.file.write_all(bytes).map_err(|error| CopyError::host(&self.place.folder.join(&open.path), error))?;
        open.left -= length;
        if open.left == 0 {
            self.finish()?;
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &str, why: &str, kind: &EntryKind) {
        if let EntryKind::File { size, .. } = kind {
            self.left_out = *size;
        }
        if self.copied.skipped.len() < MAX_SKIPPED {
            self.copied.skipped.push(format!("{}: {why}", path.escape_debug()));
        }
    }

    fn folder(&mut self, path: &str) -> Result<(), CopyError> {
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::from_bits_truncate(0o777)) {
            Err(Errno::EEXIST) if self.kind(&parent, name, path)? == Some(SFlag::S_IFDIR) => Ok(()),
            Err(Errno::EEXIST) => Err(CopyError::refused(path, "something else than a folder is in its place")),
            other => other.map_err(|error| self.failed(path, error)),
        }
    }

    fn file(&mut self, path: String, size: u64, executable: bool) -> Result<(), CopyError> {
        let (parent, name) = self.parent(&path)?;
        if !matches!(self.kind(&parent, name, &path)?, None | Some(SFlag::S_IFREG)) {
            return Err(CopyError::refused(&path, "something else than a file is in its place"));
        }
        let name = name.to_owned();
        let draft = format!(".runner-{}", uuid::Uuid::now_v7().simple());
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // The user's umask takes its part, as with cp(1).
        let mode = Mode::from_bits_truncate(if executable { 0o777 } else { 0o666 });
        let file = openat(&parent, draft.as_str(), flags, mode).map_err(|error| self.failed(&path, error))?;
        self.open = Some(Open { file: file.into(), parent, draft, name, path, left: size });
        if size == 0 { self.finish() } else { Ok(()) }
    }

    /// Moves the whole file to its name.
    fn finish(&mut self) -> Result<(), CopyError> {
        let Some(open) = &self.open else { return Ok(()) };
        renameat(&open.parent, open.draft.as_str(), &open.parent, open.name.as_str())
            .map_err(|error| self.failed(&open.path, error))?;
        self.open = None;
        self.copied.files += 1;
        self.copied.bytes = self.bytes;
        Ok(())
    }

    fn link(&mut self, path: &str, target: &str) -> Result<(), CopyError> {
        let (parent, name) = self.parent(path)?;
        match symlinkat(target, &parent, name) {
            Err(Errno::EEXIST) if readlinkat(&parent, name).is_ok_and(|there| there == target) => Ok(()),
            Err(Errno::EEXIST) => Err(CopyError::refused(path, "something else than this link is in its place")),
            other => other.map_err(|error| self.failed(path, error)),
        }
    }

    /// Opens the folder that holds `path`, below the target folder and through no link.
    fn parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), CopyError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let resolve =
            ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(resolve);
        match openat2(&self.place.handle, parent, how) {
            Ok(handle) => Ok((handle, name)),
            Err(Errno::ELOOP | Errno::EXDEV | Errno::ENOTDIR) => {
                Err(CopyError::refused(path, "a link or file is in the place of its folder"))
            }
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// What stands at a name, without following links.
    fn kind(&self, parent: &OwnedFd, name: &str, path: &str) -> Result<Option<SFlag>, CopyError> {
        match fstatat(parent.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    fn failed(&self, path: &str, error: Errno) -> CopyError {
        CopyError::host(&self.place.folder.join(path), error)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            let _ = unlinkat(&open.parent, open.draft.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
