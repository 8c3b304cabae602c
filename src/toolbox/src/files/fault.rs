//! Why a file call failed, in words for the model and a cause for the journal.

use nix::errno::Errno;
use nix::sys::statvfs::Statvfs;
use protocol::{Cause, FrameError, Outcome, Space};

/// Most characters of a message.
const MAX_MESSAGE: usize = 6_000;

/// The connection cannot be used any more; nobody is left to tell.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The host closed it.
    #[error("the host closed the connection")]
    Closed,
    /// A read or write failed.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
    /// A frame that is none.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The host broke a rule of the protocol.
    #[error("protocol: {0}")]
    Rule(&'static str),
}

/// Why a call could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{0} does not exist")]
    Missing(String),
    #[error("{0}: a part of this path is a file, not a folder")]
    ThroughFile(String),
    #[error("{0} is a folder: use ls")]
    Folder(String),
    #[error("{0} is a folder, so no file can be written there: name a file")]
    FolderInTheWay(String),
    #[error("{path} is {what}, not a folder: use read for a regular file")]
    NotFolder { path: String, what: &'static str },
    #[error("{path} is {what}, not a regular file: only regular files can be read, written or copied")]
    Special { path: String, what: &'static str },
    #[error("{0} leads through a loop of links or through a link of /proc to an open file; neither is followed")]
    Links(String),
    #[error("{0} is the file server's own entry in /proc, which is not shown: use bash to look at a command's own")]
    OwnProcess(String),
    #[error("{0} holds what the kernel makes up, which is not searched: name a single file of it")]
    MadeUp(String),
    #[error("{0}: permission denied")]
    Denied(String),
    #[error("{path} is read-only (mode {mode:04o}): chmod it first")]
    ReadOnly { path: String, mode: u32 },
    #[error("{0} is outside /tmp: the root file system is read-only; write below /tmp, the only place for files")]
    OutsideWrite(String),
    #[error("{0} is outside /tmp: only what lies below /tmp can be copied out")]
    OutsideCopy(String),
    #[error(
        "no space: /tmp uses {:.1} of {:.1} MiB and {} of {} files; delete something below /tmp \
         (replacing a file needs room for the old and the new one)",
        mebibytes(.0.bytes_used), mebibytes(.0.bytes), .0.inodes_used, .0.inodes
    )]
    NoSpace(Space),
    #[error("offset {offset} is past the end: {path} has {lines} {}", if *.lines == 1 { "line" } else { "lines" })]
    PastEnd { path: String, offset: u64, lines: u64 },
    #[error("{0}")]
    Argument(String),
    #[error("{0}")]
    Limit(String),
    #[error("{0} changed while it was being copied: copy it again when nothing writes to it")]
    Changed(String),
    #[error("{0} changed while it was being edited; nothing was changed: read it again")]
    ChangedUnderEdit(String),
    #[error("cancelled")]
    Cancelled,
    #[error("the time limit of the call passed")]
    Timeout,
    #[error("{path}: {errno}", errno = .errno.desc().to_lowercase())]
    System { path: String, errno: Errno },
}

impl Fault {
    /// What an error number of a system call on `path` means.
    pub(super) fn of(errno: Errno, path: &str) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::ENOENT => Self::Missing(path),
            Errno::ENOTDIR => Self::ThroughFile(path),
            Errno::EISDIR => Self::FolderInTheWay(path),
            Errno::ELOOP => Self::Links(path),
            Errno::EACCES | Errno::EPERM => Self::Denied(path),
            Errno::EROFS => Self::OutsideWrite(path),
            Errno::ENOSPC | Errno::EDQUOT => Self::NoSpace(space()),
            _ => Self::System { path, errno },
        }
    }

    /// The same for an error of the standard library's file functions.
    pub(super) fn of_io(error: &std::io::Error, path: &str) -> Self {
        Self::of(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw), path)
    }

    /// The cause for the journal.
    fn cause(&self) -> Cause {
        match self {
            Self::Link(_) => Cause::SandboxGone,
            Self::Missing(_) => Cause::NotFound,
            Self::Links(_)
            | Self::OwnProcess(_)
            | Self::MadeUp(_)
            | Self::Denied(_)
            | Self::ReadOnly { .. }
            | Self::OutsideWrite(_)
            | Self::OutsideCopy(_) => Cause::Denied,
            Self::NoSpace(_) => Cause::NoSpace,
            Self::Limit(_)
            | Self::System { errno: Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EFBIG, .. } => Cause::Limit,
            Self::Cancelled => Cause::Cancelled,
            Self::Timeout => Cause::Timeout,
            _ => Cause::Invalid,
        }
    }

    /// The end of the call that this fault was met in.
    pub(super) fn outcome(&self) -> Outcome {
        // Paths are long and may need escapes; the header of a frame is not.
        let message = self.to_string().chars().take(MAX_MESSAGE).collect();
        Outcome::Failed { cause: self.cause(), message }
    }
}

/// Size and use of /tmp, zeros when even that cannot be asked.
pub(super) fn space() -> Space {
    nix::sys::statvfs::statvfs("/tmp")
        .map_or(Space { bytes: 0, bytes_used: 0, inodes: 0, inodes_used: 0 }, |found| measured(&found))
}

fn measured(found: &Statvfs) -> Space {
    let unit = found.fragment_size();
    Space {
        bytes: found.blocks() * unit,
        bytes_used: found.blocks().saturating_sub(found.blocks_free()) * unit,
        inodes: found.files(),
        inodes_used: found.files().saturating_sub(found.files_free()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
