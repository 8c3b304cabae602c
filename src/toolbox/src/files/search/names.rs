//! The names in a folder, as the kernel gives them, and what they stand for.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag};

use crate::files::open;

/// Flags of every open of a walk.
pub(super) const FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOFOLLOW).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum ItemKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Special,
}

impl ItemKind {
    /// What a file is by its state.
    pub(in crate::files) fn of(found: &FileStat) -> Self {
        if open::is(found, SFlag::S_IFREG) {
            Self::File
        } else if open::is(found, SFlag::S_IFDIR) {
            Self::Folder
        } else if open::is(found, SFlag::S_IFLNK) {
            Self::Link
        } else {
            Self::Special
        }
    }
}

/// A name that the walk has come to.
#[derive(Debug, Clone, Copy)]
pub(in crate::files) struct Item<'a> {
    /// The folder that it is in.
    pub(in crate::files) folder: BorrowedFd<'a>,
    /// The name.
    pub(in crate::files) name: &'a [u8],
    /// Its path from the folder that the walk began in.
    pub(in crate::files) path: &'a [u8],
    /// What it is.
    pub(in crate::files) kind: ItemKind,
}

impl Item<'_> {
    /// Opens it for reading, if it is not a link by now; what it is has to be looked at again.
    pub(in crate::files) fn open(&self) -> Result<OwnedFd, Errno> {
        openat(self.folder, self.name, FLAGS, Mode::empty())
    }
}

/// Reads records of a folder; 0 when there are no more.
pub(super) fn read_folder(folder: &OwnedFd, block: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most the block's length into the block, which lives through the call.
    let length = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            folder.as_raw_fd(),
            block.as_mut_ptr(),
            libc::c_uint::try_from(block.len()).unwrap_or(0),
        )
    };
    usize::try_from(length).map_err(|_| Errno::last())
}

/// The first record of `block`, which is the kernel's `struct linux_dirent64`: the name, what it is if that is known, and
/// the record's length.
pub(super) fn record(block: &[u8]) -> Option<(&[u8], Option<ItemKind>, usize)> {
    let length = usize::from(u16::from_ne_bytes(block.get(16..18)?.try_into().ok()?));
    let kind = match *block.get(18)? {
        libc::DT_REG => Some(ItemKind::File),
        libc::DT_DIR => Some(ItemKind::Folder),
        libc::DT_LNK => Some(ItemKind::Link),
        libc::DT_UNKNOWN => None,
        _ => Some(ItemKind::Special),
    };
    let name = block.get(19..length)?;
    let end = memchr::memchr(0, name)?;
    Some((&name[..end], kind, length))
}
