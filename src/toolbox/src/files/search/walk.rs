//! A walk through a tree, folder by folder, in bounded memory and with few system calls: every name is opened relative to
//! its folder, and links are never followed.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::sys::statfs::{self, FsType, fstatfs};
use protocol::Skipped;

use super::clock::Stop;
use super::names::{FLAGS, Item, ItemKind, read_folder, record};
use super::rules::{Entered, Rules};
use crate::files::fault::Fault;
use crate::files::open;

/// Folders that may lie in one another; each holds a descriptor.
const MAX_DEPTH: usize = 200;

/// Bytes of names that are held at once. In a folder with more, the walk goes on in parts.
const MAX_NAMES: usize = 4 * 1024 * 1024;

/// Bytes of a folder that are read at once.
const BLOCK: usize = 32 * 1024;

/// Names between two looks at the clock.
const CLOCK: u64 = 256;

/// File systems whose contents the kernel makes up, some of it endlessly: `mqueue` has no name in the C library.
const MADE_UP: [FsType; 6] = [
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::CGROUP_SUPER_MAGIC,
    statfs::CGROUP2_SUPER_MAGIC,
    statfs::DEVPTS_SUPER_MAGIC,
    FsType(0x1980_0202),
];

/// What looks at the names of a walk.
pub(in crate::files) trait Visitor {
    /// True when this name matters, folders apart: others are not even counted as ignored.
    fn wants(&self, item: &Item) -> bool;

    /// Looks at a name that it wants, or at a folder before it is entered.
    fn visit(&mut self, item: &Item, skipped: &mut Skipped) -> Result<(), Stop>;

    /// Fails when time is up.
    fn check(&self) -> Result<(), Stop>;
}

/// A name of a folder that is being walked. In memory a `/` stands behind each.
#[derive(Debug, Clone, Copy)]
struct Name {
    begin: usize,
    end: usize,
    kind: ItemKind,
}

impl Name {
    /// What it is ordered by: those of folders with their `/`, so that the paths of a walk come in the order of their bytes.
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.begin..self.end + usize::from(self.kind == ItemKind::Folder)]
    }
}

/// A walk.
#[derive(Debug)]
pub(in crate::files) struct Walk {
    /// Real path of the name at hand.
    path: Vec<u8>,
    /// Where the part of it begins that is below the first folder.
    root: usize,
    rules: Rules,
    heed_rules: bool,
    ordered: bool,
    /// Names of all folders on the way, the innermost last, and their bytes.
    names: Vec<Name>,
    bytes: Vec<u8>,
    /// Records of a folder, as the kernel gives them.
    block: Box<[u8]>,
    /// What was left out.
    pub(in crate::files) skipped: Skipped,
    /// Names met.
    pub(in crate::files) seen: u64,
}

impl Walk {
    /// A walk that heeds ignore files or not, and takes the names of each folder in order or as they come.
    pub(in crate::files) fn new(heed_rules: bool, ordered: bool) -> Self {
        Self {
            path: Vec::new(),
            root: 0,
            rules: Rules::default(),
            heed_rules,
            ordered,
            names: Vec::new(),
            bytes: Vec::new(),
            block: vec![0; BLOCK].into(),
            skipped: Skipped::default(),
            seen: 0,
        }
    }

    /// Walks through the folder `root`, which is called `shown`.
    pub(in crate::files) fn run(
        &mut self,
        root: &OwnedFd,
        shown: &str,
        visitor: &mut impl Visitor,
    ) -> Result<Result<(), Stop>, Fault> {
        let fault = |errno| Fault::of(errno, shown);
        if is_made_up(root).map_err(fault)? {
            return Err(Fault::MadeUp(shown.to_owned()));
        }
        let device = fstat(root).map_err(fault)?.st_dev;
        self.path = open::real_path(root).map_err(fault)?;
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.root = self.path.len();
        if self.heed_rules
            && let Err(stop) = self.rules_above(root, visitor)
        {
            return Ok(Err(stop));
        }
        Ok(self.folder(root, device, 0, visitor))
    }

    /// Reads the ignore files of the folders above, up to the one that is a repository. If they exclude what was named,
    /// they are put aside: it was named.
    fn rules_above(&mut self, root: &OwnedFd, visitor: &impl Visitor) -> Result<(), Stop> {
        if is_repository(root) {
            return Ok(());
        }
        let ends = self.path[..self.root - 1].iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let mut above = Vec::new();
        for length in ends.map(|(at, _)| at + 1) {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let Ok(folder) = nix::fcntl::open(&self.path[..length], flags, Mode::empty()) else { continue };
            let last = is_repository(&folder);
            above.push((folder, length));
            if last {
                break;
            }
        }
        for (folder, length) in above.into_iter().rev() {
            if self.rules.exclude(&self.path[..length - 1], true, || visitor.check())? {
                self.rules.clear();
            }
            self.rules.enter(&folder, length, &mut self.skipped.unreadable);
        }
        if self.rules.exclude(&self.path[..self.root - 1], true, || visitor.check())? {
            self.rules.clear();
        }
        Ok(())
    }

    fn folder(&mut self, folder: &OwnedFd, device: u64, depth: usize, visitor: &mut impl Visitor) -> Result<(), Stop> {
        let entered = if self.heed_rules {
            self.rules.enter(folder, self.path.len(), &mut self.skipped.unreadable)
        } else {
            Entered::None
        };
        let (first, begin) = (self.names.len(), self.bytes.len());
        loop {
            let more = self.fill(folder);
            if self.ordered {
                let bytes = &self.bytes;
                self.names[first..].sort_unstable_by(|one, other| one.key(bytes).cmp(other.key(bytes)));
            }
            for at in first..self.names.len() {
                self.name(folder, at, device, depth, visitor)?;
            }
            self.names.truncate(first);
            self.bytes.truncate(begin);
            if !more {
                break;
            }
            visitor.check()?;
        }
        self.rules.leave(entered);
        Ok(())
    }

    /// Reads names until there are enough; true when there are more.
    fn fill(&mut self, folder: &OwnedFd) -> bool {
        while self.bytes.len() < MAX_NAMES {
            let length = match read_folder(folder, &mut self.block) {
                // In the second case it was removed.
                Ok(0) | Err(Errno::ENOENT) => return false,
                Ok(length) => length,
                Err(_) => {
                    self.skipped.unreadable += 1;
                    return false;
                }
            };
            let mut rest = &self.block[..length];
            while let Some((name, kind, length)) = record(rest) {
                rest = &rest[length..];
                if matches!(name, b"." | b".." | b".git") {
                    continue;
                }
                // Some file systems leave it to be asked.
                let kind = kind.unwrap_or_else(|| {
                    fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
                        .map_or(ItemKind::Special, |found| ItemKind::of(&found))
                });
                let begin = self.bytes.len();
                self.bytes.extend_from_slice(name);
                self.names.push(Name { begin, end: self.bytes.len(), kind });
                self.bytes.push(b'/');
            }
        }
        true
    }

    /// Looks at one name, and goes into it when it is a folder.
    fn name(
        &mut self,
        folder: &OwnedFd,
        at: usize,
        device: u64,
        depth: usize,
        visitor: &mut impl Visitor,
    ) -> Result<(), Stop> {
        self.seen += 1;
        if self.seen.is_multiple_of(CLOCK) {
            visitor.check()?;
        }
        let Name { begin, end, kind } = self.names[at];
        let is_folder = kind == ItemKind::Folder;
        let length = self.path.len();
        self.path.extend_from_slice(&self.bytes[begin..end]);
        let item = Item { folder: folder.as_fd(), name: &self.path[length..], path: &self.path[self.root..], kind };
        if !is_folder && !visitor.wants(&item) {
            self.path.truncate(length);
            return Ok(());
        }
        if self.rules.exclude(&self.path, is_folder, || visitor.check())? {
            self.skipped.ignored += 1;
            self.path.truncate(length);
            return Ok(());
        }
        visitor.visit(&item, &mut self.skipped)?;
        if is_folder {
            match self.enter(folder, length, device, depth) {
                Ok(Some((inner, device))) => {
                    self.path.push(b'/');
                    self.folder(&inner, device, depth + 1, visitor)?;
                }
                Ok(None) => self.skipped.special += 1,
                // It was there a moment ago.
                Err(Errno::ENOENT) => {}
                Err(_) => self.skipped.unreadable += 1,
            }
        }
        self.path.truncate(length);
        Ok(())
    }

    /// Opens the folder whose name stands at `name` of the path; none when it is not to be walked through.
    fn enter(&self, folder: &OwnedFd, name: usize, device: u64, depth: usize) -> Result<Option<(OwnedFd, u64)>, Errno> {
        if depth == MAX_DEPTH {
            return Err(Errno::ENAMETOOLONG);
        }
        let inner = openat(folder, &self.path[name..], FLAGS | OFlag::O_DIRECTORY, Mode::empty())?;
        let found = fstat(&inner)?;
        if found.st_dev != device && is_made_up(&inner)? {
            return Ok(None);
        }
        Ok(Some((inner, found.st_dev)))
    }
}

fn is_made_up(folder: impl AsFd) -> Result<bool, Errno> {
    Ok(MADE_UP.contains(&fstatfs(folder)?.filesystem_type()))
}

fn is_repository(folder: impl AsFd) -> bool {
    fstatat(folder, ".git", AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
}
