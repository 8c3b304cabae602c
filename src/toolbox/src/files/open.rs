//! Opening what an agent names: regular files and folders to read (T-4), and places below /tmp to write (T-11).
//!
//! Every open resolves in the kernel with `RESOLVE_NO_MAGICLINKS`: the links of /proc/PID/{fd,exe,cwd,root} lead past
//! every check of a path, so they are never followed. What was opened is then judged by its descriptor, never again by
//! its name, which the agent can change at any time.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat, stat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::fault::Fault;
use super::path::{Resolved, split};

/// Links followed at the end of a path before it counts as a loop; the kernel's own limit.
const MAX_LINKS: usize = 40;

/// Words for a file type that is not regular.
pub(super) fn what(mode: libc::mode_t) -> &'static str {
    match SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => "a regular file",
        SFlag::S_IFDIR => "a folder",
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFIFO => "a FIFO (named pipe)",
        SFlag::S_IFSOCK => "a Unix socket",
        SFlag::S_IFCHR => "a character device",
        SFlag::S_IFBLK => "a block device",
        _ => "of an unknown type",
    }
}

pub(super) fn is(found: &FileStat, kind: SFlag) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

fn must_be_regular(found: &FileStat, path: &str) -> Result<(), Fault> {
    if is(found, SFlag::S_IFREG) {
        Ok(())
    } else if is(found, SFlag::S_IFDIR) {
        Err(Fault::Folder(path.to_owned()))
    } else {
        Err(Fault::Special { path: path.to_owned(), what: what(found.st_mode) })
    }
}

fn how(flags: OFlag) -> OpenHow {
    OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS)
}

/// Opens the regular file at `path` for reading, links followed. Never waits: a FIFO is recognised before it is opened,
/// and one that takes the file's place in between is opened without blocking and then refused.
pub(super) fn regular(path: &str, proc_device: u64) -> Result<(File, FileStat), Fault> {
    let before = stat(path).map_err(|errno| Fault::of(errno, path))?;
    must_be_regular(&before, path)?;
    let fd = openat2(AT_FDCWD, path, how(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY))
        .map_err(|errno| Fault::of(errno, path))?;
    let found = fstat(&fd).map_err(|errno| Fault::of(errno, path))?;
    must_be_regular(&found, path)?;
    if found.st_dev == proc_device {
        not_our_own(&fd, path)?;
    }
    Ok((File::from(fd), found))
}

/// Opens the folder at `path` for listing, links followed.
pub(super) fn folder(path: &str, proc_device: u64) -> Result<OwnedFd, Fault> {
    let fd =
        openat2(AT_FDCWD, path, how(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK)).map_err(|errno| {
            match stat(path) {
                Ok(found) if errno == Errno::ENOTDIR => {
                    Fault::NotFolder { path: path.to_owned(), what: what(found.st_mode) }
                }
                _ => Fault::of(errno, path),
            }
        })?;
    if fstat(&fd).map_err(|errno| Fault::of(errno, path))?.st_dev == proc_device {
        not_our_own(&fd, path)?;
    }
    Ok(fd)
}

/// What a path below `folder` names, links at its end not followed; none when it names nothing.
pub(super) fn named_below(folder: &OwnedFd, path: &str) -> Option<FileStat> {
    if path.is_empty() {
        return None;
    }
    let fd = openat2(folder, path, how(OFlag::O_PATH | OFlag::O_NOFOLLOW)).ok()?;
    fstat(&fd).ok()
}

/// The device number of /proc, to recognise files on it by.
pub(super) fn proc_device() -> u64 {
    stat("/proc").map_or(0, |found| found.st_dev)
}

/// Refuses /proc/self and the like: they would show this process, which was forked from PID 1, not anything of the
/// agent's. (The kernel refuses the secret ones too, as the process is not dumpable; this one does not count on it.)
fn not_our_own(fd: &OwnedFd, path: &str) -> Result<(), Fault> {
    let real = real_path(fd).map_err(|errno| Fault::of(errno, path))?;
    let process = real.strip_prefix(b"/proc/").and_then(|rest| rest.split(|byte| *byte == b'/').next());
    if process == Some(std::process::id().to_string().as_bytes()) {
        return Err(Fault::OwnProcess(path.to_owned()));
    }
    Ok(())
}

/// Where what is open at `fd` stands now.
pub(super) fn real_path(fd: impl AsFd) -> Result<Vec<u8>, Errno> {
    readlink(descriptor_path(fd).as_str()).map(OsStringExt::into_vec)
}

/// The path under which this process can name an open file of its own.
pub(super) fn descriptor_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// True when what is open at `fd` is /tmp or lies below it. It cannot leave again: /tmp is a mount of its own.
pub(super) fn is_below_tmp(fd: impl AsFd) -> Result<bool, Errno> {
    let real = real_path(fd)?;
    Ok(real == b"/tmp" || real.starts_with(b"/tmp/"))
}

/// Opens what `path` names, links followed, below /tmp, without reading from it (`O_PATH`).
pub(super) fn below_tmp(path: &str) -> Result<(OwnedFd, FileStat), Fault> {
    let fault = |errno| Fault::of(errno, path);
    let fd = openat2(AT_FDCWD, path, how(OFlag::O_PATH)).map_err(fault)?;
    if !is_below_tmp(&fd).map_err(fault)? {
        return Err(Fault::OutsideCopy(path.to_owned()));
    }
    let found = fstat(&fd).map_err(fault)?;
    Ok((fd, found))
}

/// Folders made on the way to a place; removed again on drop unless kept, so that a call that failed changed nothing.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<(OwnedFd, CString)>);

impl Made {
    /// Keeps the folders.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for (parent, name) in self.0.iter().rev() {
            // One that is in use by now stays.
            let _ = unlinkat(parent, name.as_c_str(), UnlinkatFlags::RemoveDir);
        }
    }
}

/// Where a file is to be written: a folder below /tmp, held open, and a name in it that is no link.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder, opened with `O_PATH`.
    pub(super) folder: OwnedFd,
    /// The name in it.
    pub(super) name: CString,
    /// What has the name now.
    pub(super) existing: Option<FileStat>,
    /// Folders made on the way.
    pub(super) made: Made,
}

impl Place {
    /// Finds the place that `target` means: makes missing folders, follows links (also one at the end) and refuses
    /// whatever lies outside /tmp.
    pub(super) fn find(target: &Resolved) -> Result<Self, Fault> {
        let shown = target.path.as_str();
        if target.folder {
            return Err(Fault::FolderInTheWay(shown.to_owned()));
        }
        let mut made = Made::default();
        let mut base: Option<OwnedFd> = None;
        let mut rest = target.path.clone().into_bytes();
        for _ in 0..=MAX_LINKS {
            let trimmed = rest.len() - rest.iter().rev().take_while(|byte| **byte == b'/').count();
            let (parent, name) = split(&rest[..trimmed]);
            if matches!(name, b"" | b"." | b"..") {
                return Err(Fault::FolderInTheWay(shown.to_owned()));
            }
            let folder = open_folder(base.as_ref(), parent, shown, &mut made)?;
            let name = CString::new(name).map_err(|_| Fault::of(Errno::EINVAL, shown))?;
            match fstatat(&folder, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => return Ok(Self { folder, name, existing: None, made }),
                Err(errno) => return Err(Fault::of(errno, shown)),
                Ok(found) if is(&found, SFlag::S_IFLNK) => {
                    rest = nix::fcntl::readlinkat(&folder, name.as_c_str())
                        .map_err(|errno| Fault::of(errno, shown))?
                        .into_vec();
                    base = Some(folder);
                }
                Ok(found) => return Ok(Self { folder, name, existing: Some(found), made }),
            }
        }
        Err(Fault::Links(shown.to_owned()))
    }
}

/// Opens the folder at `path`, from `base` when it is relative, making what is missing; it and every folder made must lie
/// below /tmp.
pub(super) fn open_folder(base: Option<&OwnedFd>, path: &[u8], shown: &str, made: &mut Made) -> Result<OwnedFd, Fault> {
    let base = base.map_or(AT_FDCWD, AsFd::as_fd);
    let how = how(OFlag::O_PATH | OFlag::O_DIRECTORY);
    let fault = |errno| {
        // Whatever keeps a path outside /tmp from being opened, this is what the model has to know.
        if shown.starts_with("/tmp/") || shown == "/tmp" || matches!(errno, Errno::ENOSPC | Errno::EDQUOT) {
            Fault::of(errno, shown)
        } else {
            Fault::OutsideWrite(shown.to_owned())
        }
    };
    let contained = |fd: &OwnedFd| match is_below_tmp(fd) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::OutsideWrite(shown.to_owned())),
        Err(errno) => Err(fault(errno)),
    };
    let mut missing = Vec::new();
    let mut here = path;
    let mut folder = loop {
        match openat2(base, here, how) {
            Ok(fd) => break fd,
            Err(Errno::ENOENT) if !matches!(here, b"/" | b"." | b"") => {
                let (up, name) = split(here);
                missing.push(name);
                here = up;
            }
            Err(errno) => return Err(fault(errno)),
        }
    };
    contained(&folder)?;
    for name in missing.into_iter().rev() {
        let name = CString::new(name).map_err(|_| fault(Errno::EINVAL))?;
        match mkdirat(&folder, name.as_c_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) => made.0.push((folder.try_clone().map_err(|error| Fault::of_io(&error, shown))?, name.clone())),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(fault(errno)),
        }
        let next = openat2(&folder, name.as_c_str(), how).map_err(fault)?;
        contained(&next)?;
        folder = next;
    }
    Ok(folder)
}
