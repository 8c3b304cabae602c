//! A file that nobody sees before it is whole.
//!
//! The bytes go to a file without a name (`O_TMPFILE`), so a server that is killed half-way leaves nothing behind. A new
//! file then gets its name in one step. To take the place of another it needs a second name for the moment between
//! `link` and `rename`; that one is derived from the file's own, so that a leftover is found by the next write there.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::fault::Fault;
use super::open::descriptor_path;

/// Attempts before a name that others keep taking is given up.
const ATTEMPTS: u32 = 200;

/// Attempts, a millisecond apart, after which a second name that is taken counts as left over by a killed server. One in
/// use is gone within microseconds.
const PATIENCE: u32 = 20;

/// A file being written.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    folder: BorrowedFd<'a>,
    file: File,
    shown: &'a str,
}

impl<'a> Draft<'a> {
    /// Begins a file in `folder` with these permissions; `shown` is its path in messages.
    pub(super) fn begin(folder: BorrowedFd<'a>, mode: u32, shown: &'a str) -> Result<Self, Fault> {
        let fault = |errno| Fault::of(errno, shown);
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let fd = openat(folder, c".", flags, Mode::from_bits_truncate(0o600)).map_err(fault)?;
        // Not by the mode of the open, which the umask would change.
        fchmod(&fd, Mode::from_bits_truncate(mode & 0o777)).map_err(fault)?;
        Ok(Self { folder, file: File::from(fd), shown })
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.file.write_all(bytes).map_err(|error| Fault::of_io(&error, self.shown))
    }

    /// Gives the file its name, in the place of whatever file or link has it.
    pub(super) fn publish(self, name: &CStr) -> Result<(), Fault> {
        let own = descriptor_path(&self.file);
        let give = |name: &CStr| linkat(AT_FDCWD, own.as_str(), self.folder, name, AtFlags::AT_SYMLINK_FOLLOW);
        match give(name) {
            Err(Errno::EEXIST) => replace(self.folder, name, give),
            other => other,
        }
        .map_err(|errno| Fault::of(errno, self.shown))
    }
}

/// Makes a symbolic link, in the place of whatever file or link has its name.
pub(super) fn publish_link(folder: impl AsFd, name: &CStr, target: &str) -> Result<(), Errno> {
    let folder = folder.as_fd();
    let give = |name: &CStr| symlinkat(target, folder, name);
    match give(name) {
        Err(Errno::EEXIST) => replace(folder, name, give),
        other => other,
    }
}

/// Puts what `give` names in the place of `name`. A second server that does the same at this moment is waited for.
fn replace(folder: BorrowedFd, name: &CStr, give: impl Fn(&CStr) -> Result<(), Errno>) -> Result<(), Errno> {
    let second = second_name(name);
    for attempt in 1..=ATTEMPTS {
        match give(&second) {
            Ok(()) => {}
            Err(Errno::EEXIST) if attempt % PATIENCE == 0 => {
                unlinkat(folder, second.as_c_str(), UnlinkatFlags::NoRemoveDir).or_else(absent)?;
                continue;
            }
            Err(Errno::EEXIST) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(errno) => return Err(errno),
        }
        match renameat(folder, second.as_c_str(), folder, name) {
            // Another took it for left over.
            Err(Errno::ENOENT) => {}
            Err(errno) => {
                let _ = unlinkat(folder, second.as_c_str(), UnlinkatFlags::NoRemoveDir);
                return Err(errno);
            }
            Ok(()) => return Ok(()),
        }
    }
    Err(Errno::EBUSY)
}

fn absent(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::ENOENT { Ok(()) } else { Err(errno) }
}

/// The name that a file has for the moment before it replaces `name`.
pub(super) fn second_name(name: &CStr) -> CString {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    CString::new(format!(".runner-{:016x}", hasher.finish())).expect("hexadecimal digits hold no NUL")
}
