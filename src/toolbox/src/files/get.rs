//! `get`: files, folders and links out of the sandbox to the host.
//!
//! The agent may change the tree while it is copied, so nothing is opened by a path that could lead elsewhere: folders by
//! `RESOLVE_BENEATH` without links, files by name in an open folder, and what was opened is judged, not what was listed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use protocol::{Entry, EntryKind, MAX_PATH, Outcome};

use super::connection::Exchange;
use super::fault::Fault;
use super::open::{below_tmp, descriptor_path, is, what};
use super::path::{Resolved, stays_below};
use super::put::beneath;

/// Lines about what was left out; the last one counts the others when there are more.
const MAX_SKIPPED: usize = 20;

/// Characters of a path or target in such a line: all of them have to fit into one header.
const MAX_SHOWN: usize = 200;

/// Copies `target` to the host, refusing more than the given bytes and entries. Special files, links that lead out of the
/// copied folder, names that are not UTF-8 and what may not be read are left out and named.
pub(super) fn get(
    exchange: &mut Exchange,
    block: &mut [u8],
    target: &Resolved,
    max_bytes: u64,
    max_entries: u64,
) -> Result<Outcome, Fault> {
    let mut copy =
        Copy { exchange, block, max_bytes, max_entries, entries: 0, files: 0, bytes: 0, skipped: Vec::new(), more: 0 };
    let shown = target.path.as_str();
    let (root, found) = below_tmp(shown)?;
    if is(&found, SFlag::S_IFDIR) {
        copy.entry(String::new(), EntryKind::Folder)?;
        copy.tree(&root)?;
    } else if is(&found, SFlag::S_IFREG) && !target.folder {
        // Known to be a regular file; opening it by its descriptor cannot open another.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd =
            open(descriptor_path(&root).as_str(), flags, Mode::empty()).map_err(|errno| Fault::of(errno, shown))?;
        copy.file(fd, String::new(), shown)?;
    } else if is(&found, SFlag::S_IFREG) {
        return Err(Fault::ThroughFile(shown.to_owned()));
    } else {
        return Err(Fault::Special { path: shown.to_owned(), what: what(found.st_mode) });
    }
    let Copy { files, bytes, mut skipped, more, .. } = copy;
    if more > 0 {
        skipped.pop();
        skipped.push(format!("and {} more", more + 1));
    }
    Ok(Outcome::Copied { files, bytes, skipped })
}

struct Copy<'a, 'b> {
    exchange: &'a mut Exchange<'b>,
    block: &'a mut [u8],
    max_bytes: u64,
    max_entries: u64,
    entries: u64,
    files: u64,
    bytes: u64,
    skipped: Vec<String>,
    more: u64,
}

impl Copy<'_, '_> {
    /// Copies everything below `root`: each folder in the order of its names, its own entry before those in it.
    fn tree(&mut self, root: &OwnedFd) -> Result<(), Fault> {
        let mut folders = vec![String::new()];
        while let Some(path) = folders.pop() {
            let names = match self.names(root, &path) {
                Ok(names) => names,
                Err(Fault::System { errno, .. }) => {
                    self.skip(path.as_bytes(), &format!("cannot be listed: {}", errno.desc().to_lowercase()));
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            let Some((folder, names)) = names else { continue };
            let mut inner = Vec::new();
            for name in names {
                self.exchange.check_time()?;
                if let Some(folder) = self.one(&folder, &path, &name)? {
                    inner.push(folder);
                }
            }
            folders.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// The sorted names in the folder at `path`; none when it is no folder any more.
    fn names(&self, root: &OwnedFd, path: &str) -> Result<Option<(Dir, Vec<CString>)>, Fault> {
        let system = |errno| Fault::System { path: path.to_owned(), errno };
        let at = if path.is_empty() { "." } else { path };
        let held = match beneath(root, at.as_bytes()) {
            Ok(held) => held,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
            Err(errno) => return Err(system(errno)),
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut folder = Dir::from_fd(openat(&held, c".", flags, Mode::empty()).map_err(system)?).map_err(system)?;
        let mut names = Vec::new();
        for entry in folder.iter() {
            let entry = entry.map_err(system)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                if names.len() as u64 + self.entries > self.max_entries {
                    return Err(self.too_many());
                }
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort_unstable();
        Ok(Some((folder, names)))
    }

    /// Copies one name; gives its path back when it is a folder to go into later.
    fn one(&mut self, folder: &Dir, above: &str, name: &CStr) -> Result<Option<String>, Fault> {
        let joined = if above.is_empty() {
            name.to_bytes().to_vec()
        } else {
            [above.as_bytes(), b"/", name.to_bytes()].concat()
        };
        let Ok(path) = String::from_utf8(joined) else {
            let lossy = [above.as_bytes(), b"/", name.to_bytes()].concat();
            self.skip(&lossy, "its name is not UTF-8");
            return Ok(None);
        };
        if path.len() >= MAX_PATH {
            self.skip(path.as_bytes(), "its path is too long");
            return Ok(None);
        }
        // One removed since it was listed is not there to copy.
        let Ok(found) = fstatat(folder.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return Ok(None) };
        match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFDIR => {
                self.entry(path.clone(), EntryKind::Folder)?;
                return Ok(Some(path));
            }
            SFlag::S_IFREG => {
                let flags =
                    OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
                match openat(folder.as_fd(), name, flags, Mode::empty()) {
                    Ok(fd) => self.file(fd, path.clone(), &path)?,
                    Err(errno) => {
                        self.skip(path.as_bytes(), &format!("cannot be read: {}", errno.desc().to_lowercase()));
                    }
                }
            }
            SFlag::S_IFLNK => self.link(folder, path, name)?,
            _ => self.skip(path.as_bytes(), &format!("is {}", what(found.st_mode))),
        }
        Ok(None)
    }

    fn link(&mut self, folder: &Dir, path: String, name: &CStr) -> Result<(), Fault> {
        let Ok(target) = readlinkat(folder.as_fd(), name) else { return Ok(()) };
        match std::str::from_utf8(target.as_bytes()) {
            Ok(target) if stays_below(target, path.matches('/').count()) => {
                self.entry(path, EntryKind::Link { target: target.to_owned() })
            }
            _ => {
                let target: String = target.to_string_lossy().chars().take(MAX_SHOWN).collect();
                self.skip(path.as_bytes(), &format!("is a link to {target}, out of the copied folder"));
                Ok(())
            }
        }
    }

    fn file(&mut self, fd: OwnedFd, path: String, shown: &str) -> Result<(), Fault> {
        let found: FileStat = fstat(&fd).map_err(|errno| Fault::of(errno, shown))?;
        if !is(&found, SFlag::S_IFREG) {
            self.skip(path.as_bytes(), &format!("is {}", what(found.st_mode)));
            return Ok(());
        }
        let size = u64::try_from(found.st_size).unwrap_or(0);
        if size > self.max_bytes - self.bytes {
            return Err(Fault::Limit(format!(
                "{shown} and what was copied before have more than {} bytes in all, the limit of this copy",
                self.max_bytes
            )));
        }
        self.entry(path, EntryKind::File { size, executable: found.st_mode & 0o111 != 0 })?;
        let mut file = File::from(fd);
        let mut left = size;
        while left > 0 {
            let most = self.block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = match file.read(&mut self.block[..most]) {
                Ok(0) => return Err(Fault::Changed(shown.to_owned())),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Fault::of_io(&error, shown)),
            };
            self.exchange.send_bytes(&self.block[..count])?;
            self.exchange.check_time()?;
            left -= count as u64;
        }
        self.files += 1;
        self.bytes += size;
        Ok(())
    }

    fn entry(&mut self, path: String, kind: EntryKind) -> Result<(), Fault> {
        self.entries += 1;
        if self.entries > self.max_entries {
            return Err(self.too_many());
        }
        self.exchange.send_entry(Entry { path, kind })
    }

    fn too_many(&self) -> Fault {
        Fault::Limit(format!("there are more than {} files and folders, the limit of this copy", self.max_entries))
    }

    fn skip(&mut self, path: &[u8], why: &str) {
        if self.skipped.len() == MAX_SKIPPED {
            self.more += 1;
        } else {
            let shown: String = String::from_utf8_lossy(path).chars().take(MAX_SHOWN).collect();
            self.skipped.push(format!("{shown} {why}"));
        }
    }
}
