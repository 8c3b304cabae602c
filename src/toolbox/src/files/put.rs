//! `put`: files, folders and links from the host into the sandbox.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use protocol::{Entry, EntryKind, Outcome};

use super::connection::{Exchange, Inbound};
use super::draft::{Draft, publish_link};
use super::fault::{Fault, LinkError};
use super::open::{Made, Place, is, open_folder, what};
use super::path::{Resolved, is_entry_path, split, stays_below};

/// Copies what the host sends to `target`. A folder that is there already is merged into, a file or link replaced; each
/// file appears whole or not at all. What was copied before a fault stays.
pub(super) fn put(exchange: &mut Exchange, target: &Resolved) -> Result<Outcome, Fault> {
    let mut copy = Copy { exchange, target, files: 0, bytes: 0 };
    let Inbound::Entry(first) = copy.exchange.receive(true)? else {
        return Err(LinkError::Rule("a copy must begin with an entry").into());
    };
    if !first.path.is_empty() {
        return Err(LinkError::Rule("the first entry of a copy must be its root").into());
    }
    match first.kind {
        EntryKind::File { size, executable } => {
            let place = Place::find(target)?;
            refuse_in_the_way(place.existing.as_ref().map(|found| found.st_mode), &target.path)?;
            copy.file(&place.folder, &place.name, size, executable, &target.path)?;
            place.made.keep();
            match copy.exchange.receive(false)? {
                Inbound::End => {}
                _ => return Err(LinkError::Rule("more than one entry in the copy of a file").into()),
            }
        }
        EntryKind::Folder => {
            let mut made = Made::default();
            let root = open_folder(None, target.path.as_bytes(), &target.path, &mut made)?;
            made.keep();
            while copy.next(&root)? {}
        }
        EntryKind::Link { .. } => {
            return Err(Fault::Argument("the root of a copy must be a file or a folder, not a link".to_owned()));
        }
    }
    Ok(Outcome::Copied { files: copy.files, bytes: copy.bytes, skipped: Vec::new() })
}

/// Refuses to put a file where something stands that is neither a file nor a link.
fn refuse_in_the_way(mode: Option<libc::mode_t>, shown: &str) -> Result<(), Fault> {
    match mode.map(|mode| (mode, SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()))) {
        None | Some((_, SFlag::S_IFREG | SFlag::S_IFLNK)) => Ok(()),
        Some((_, SFlag::S_IFDIR)) => Err(Fault::FolderInTheWay(shown.to_owned())),
        Some((mode, _)) => Err(Fault::Special { path: shown.to_owned(), what: what(mode) }),
    }
}

struct Copy<'a, 'b> {
    exchange: &'a mut Exchange<'b>,
    target: &'a Resolved,
    files: u64,
    bytes: u64,
}

impl Copy<'_, '_> {
    /// Takes the next entry below `root`; false when there is none.
    fn next(&mut self, root: &OwnedFd) -> Result<bool, Fault> {
        let Entry { path, kind } = match self.exchange.receive(true)? {
            Inbound::Entry(entry) => entry,
            Inbound::End => return Ok(false),
            Inbound::Chunk(_) => return Err(LinkError::Rule("a chunk without a file").into()),
        };
        let shown = format!("{}/{path}", self.target.path);
        if !is_entry_path(&path) {
            return Err(Fault::Argument(format!("{path:?} cannot be the path of an entry")));
        }
        let (above, name) = split(path.as_bytes());
        let above = beneath(root, above).map_err(|errno| Fault::of(errno, &shown))?;
        let name = CString::new(name).map_err(|_| Fault::of(Errno::EINVAL, &shown))?;
        match kind {
            EntryKind::File { size, executable } => {
                let existing = fstatat(&above, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok();
                refuse_in_the_way(existing.map(|found| found.st_mode), &shown)?;
                self.file(&above, &name, size, executable, &shown)?;
            }
            EntryKind::Folder => match mkdirat(&above, name.as_c_str(), Mode::from_bits_truncate(0o755)) {
                Err(Errno::EEXIST) => {
                    let found = fstatat(&above, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
                        .map_err(|errno| Fault::of(errno, &shown))?;
                    if !is(&found, SFlag::S_IFDIR) {
                        return Err(Fault::NotFolder { path: shown, what: what(found.st_mode) });
                    }
                }
                other => other.map_err(|errno| Fault::of(errno, &shown))?,
            },
            EntryKind::Link { target } => {
                if !stays_below(&target, path.matches('/').count()) {
                    return Err(Fault::Argument(format!(
                        "{shown} is a link to {target:?}, which leaves the copied folder"
                    )));
                }
                publish_link(&above, &name, &target).map_err(|errno| Fault::of(errno, &shown))?;
            }
        }
        Ok(true)
    }

    fn file(&mut self, folder: &OwnedFd, name: &CString, size: u64, run: bool, shown: &str) -> Result<(), Fault> {
        let mut draft = Draft::begin(folder.as_fd(), if run { 0o755 } else { 0o644 }, shown)?;
        let mut left = size;
        while left > 0 {
            let Inbound::Chunk(bytes) = self.exchange.receive(true)? else {
                return Err(LinkError::Rule("a file shorter than announced").into());
            };
            left = left.checked_sub(bytes.len() as u64).ok_or(LinkError::Rule("a file longer than announced"))?;
            draft.write(&bytes)?;
        }
        draft.publish(name)?;
        self.files += 1;
        self.bytes += size;
        Ok(())
    }
}

/// Opens the folder at `path` below `root` without following any link: the agent may be changing the tree.
pub(super) fn beneath(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat2(root, path, OpenHow::new().flags(flags).resolve(stay))
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
