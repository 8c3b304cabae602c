//! The folder that is staged, opened so that no path can leave it.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::StageError;

/// The folder.
pub(super) struct Source {
    path: PathBuf,
    root: OwnedFd,
    /// Where the root is now, to see below it where a link has led.
    real: PathBuf,
}

/// A folder in it.
pub(super) struct Folder {
    /// The path by which it was reached, below the source.
    pub(super) path: PathBuf,
    /// Device and inode.
    pub(super) identity: (u64, u64),
    fd: OwnedFd,
}

/// A regular file, open for reading.
pub(super) struct OpenFile {
    pub(super) file: File,
    /// The source has an x bit.
    pub(super) executable: bool,
}

/// What a path is.
pub(super) enum Found {
    File(OpenFile),
    Folder(Folder),
    Refused(&'static str),
    /// It went away since its name was read.
    Gone,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Source, StageError> {
        let failed = |source| StageError::Read { path: path.to_owned(), source };
        let real = fs::canonicalize(path).map_err(failed)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(&real, flags, nix::sys::stat::Mode::empty()).map_err(|e| failed(e.into()))?;
        Ok(Source { path: path.to_owned(), root, real })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn top(&self) -> Result<Folder, StageError> {
        let fd = self.root.try_clone().map_err(|source| self.failed(Path::new(""), source))?;
        self.folder(PathBuf::new(), fd)
    }

    fn folder(&self, path: PathBuf, fd: OwnedFd) -> Result<Folder, StageError> {
        let file = File::from(fd);
        let found = file.metadata().map_err(|source| self.failed(&path, source))?;
        Ok(Folder { path, identity: (found.dev(), found.ino()), fd: file.into() })
    }

    fn failed(&self, path: &Path, source: io::Error) -> StageError {
        StageError::Read { path: self.path.join(path), source }
    }

    /// Names in a folder, sorted, so that the hash does not depend on the file system's order.
    pub(super) fn names(&self, folder: &Folder, most: u64) -> Result<Vec<OsString>, StageError> {
        let failed = |source| self.failed(&folder.path, source);
        // Through the descriptor: the path may mean another folder by now.
        let list = fs::read_dir(format!("/proc/self/fd/{}", folder.fd.as_raw_fd())).map_err(failed)?;
        let mut names = Vec::new();
        for entry in list {
            names.push(entry.map_err(failed)?.file_name());
            // Enough to be over the limit; a folder with millions of names is not read to its end.
            if names.len() as u64 > most {
                break;
            }
        }
        names.sort();
        Ok(names)
    }

    fn below(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        loop {
            match openat2(self.root.as_fd(), path, how) {
                // The kernel saw a rename beside the path and cannot say that it stayed below: ask again.
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                other => return other,
            }
        }
    }

    /// Looks at a path and opens what it is. Links are followed as long as they stay in the folder.
    pub(super) fn look(&self, path: &Path, stays_behind: fn(&[u8]) -> bool) -> Result<Found, StageError> {
        // O_PATH opens nothing yet: a FIFO would hang us, a device might act.
        let seen = match self.below(path, OFlag::O_PATH) {
            Ok(fd) => File::from(fd),
            Err(nix::Error::EXDEV) => return Ok(Found::Refused("it is a link out of the folder")),
            Err(nix::Error::ELOOP) => return Ok(Found::Refused("it is a link that leads in a circle")),
            Err(nix::Error::ENOENT) => return Ok(self.absent(path)),
            Err(nix::Error::ENOTDIR) => return Ok(Found::Refused("it is a link that leads nowhere")),
            Err(error) => return Err(self.failed(path, error.into())),
        };
        let found = seen.metadata().map_err(|source| self.failed(path, source))?;
        if self.led_to(&seen, stays_behind).map_err(|source| self.failed(path, source))? {
            return Ok(Found::Refused("it is a link to a file that is never staged (.git, .env*)"));
        }
        let flags = if found.is_dir() {
            OFlag::O_RDONLY | OFlag::O_DIRECTORY
        } else if !found.is_file() {
            return Ok(Found::Refused("it is not a regular file, folder or link"));
        } else if found.mode() & 0o6000 != 0 {
            return Ok(Found::Refused("it is setuid or setgid"));
        } else if found.nlink() > 1 {
            return Ok(Found::Refused("it has a second hard link, maybe outside the folder; copy it"));
        } else {
            OFlag::O_RDONLY | OFlag::O_NONBLOCK
        };
        let fd = match self.below(path, flags) {
            Ok(fd) => fd,
            Err(nix::Error::ENOENT) => return Ok(Found::Gone),
            Err(error) => return Err(self.failed(path, error.into())),
        };
        let file = File::from(fd);
        let opened = file.metadata().map_err(|source| self.failed(path, source))?;
        if (opened.dev(), opened.ino(), opened.mode()) != (found.dev(), found.ino(), found.mode()) {
            return Ok(Found::Refused("it was replaced while it was read"));
        }
        if found.is_dir() {
            return self.folder(path.to_owned(), file.into()).map(Found::Folder);
        }
        Ok(Found::File(OpenFile { file, executable: found.mode() & 0o111 != 0 }))
    }

    /// Tells a link that leads nowhere from a name that went away.
    fn absent(&self, path: &Path) -> Found {
        match self.below(path, OFlag::O_PATH | OFlag::O_NOFOLLOW) {
            Ok(_) => Found::Refused("it is a link that leads nowhere"),
            Err(_) => Found::Gone,
        }
    }

    /// A link has led to a place whose path has a name that stays behind.
    fn led_to(&self, seen: &File, stays_behind: fn(&[u8]) -> bool) -> io::Result<bool> {
        let real = fs::read_link(format!("/proc/self/fd/{}", seen.as_raw_fd()))?;
        let below = real.strip_prefix(&self.real).unwrap_or(Path::new(""));
        Ok(below.iter().any(|name| stays_behind(name.as_encoded_bytes())))
    }
}
