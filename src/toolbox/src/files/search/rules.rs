//! Ignore files: `.gitignore` and `.ignore`, read as git reads them.

use std::cell::Cell;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::clock::Stop;
use super::wildmatch::{Wildcards, is_special};
use crate::files::open;

/// Largest ignore file that is heeded.
const MAX_FILE: u64 = 256 * 1024;

/// Most bytes of ignore files that are in force at once; a rule in memory has a multiple of its bytes.
const MAX_IN_FORCE: u64 = 512 * 1024;

/// Bytes that rules are held against between two looks at the clock.
const CLOCK: u64 = 64 * 1024;

/// The names of ignore files; what the second says wins over what the first says.
const FILES: [&str; 2] = [".gitignore", ".ignore"];

/// One line of an ignore file.
#[derive(Debug)]
struct Rule {
    /// It begins with `!`: what matches is not ignored.
    negated: bool,
    /// It ends in `/`.
    only_folders: bool,
    /// It holds a `/` elsewhere: it is about the path below the ignore file's folder and not about a name anywhere.
    path: bool,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// The text itself.
    Plain(Vec<u8>),
    /// `*` and a text without wildcards.
    Suffix(Vec<u8>),
    /// A text without wildcards, and then some. git matches what follows by itself, as if it stood at the beginning.
    Wild(Vec<u8>, Wildcards),
}

impl Rule {
    /// Understands a line; none when it says nothing, or nothing that could match.
    fn new(line: &[u8]) -> Option<Self> {
        let line = without_trailing_blanks(line);
        if line.first() == Some(&b'#') {
            return None;
        }
        let (negated, mut text) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let only_folders = text.ends_with(b"/");
        if only_folders {
            text = &text[..text.len() - 1];
        }
        let path = text.contains(&b'/');
        if path && text.first() == Some(&b'/') {
            text = &text[1..];
        }
        if text.is_empty() || text.contains(&0) {
            return None;
        }
        let plain = text.iter().position(|byte| is_special(*byte));
        let shape = match plain {
            None => Shape::Plain(text.to_owned()),
            Some(0) if !path && text[0] == b'*' && !text[1..].iter().any(|byte| is_special(*byte)) => {
                Shape::Suffix(text[1..].to_owned())
            }
            Some(at) => {
                let at = if path { at } else { 0 };
                Shape::Wild(text[..at].to_owned(), Wildcards::new(&text[at..])?)
            }
        };
        Some(Self { negated, only_folders, path, shape })
    }

    fn matches(&self, path: &[u8], name: &[u8], folder: bool) -> bool {
        if self.only_folders && !folder {
            return false;
        }
        let text = if self.path { path } else { name };
        match &self.shape {
            Shape::Plain(plain) => text == plain,
            Shape::Suffix(suffix) => text.ends_with(suffix),
            Shape::Wild(plain, wild) => text.strip_prefix(plain.as_slice()).is_some_and(|rest| wild.matches(rest)),
        }
    }
}

/// Blanks at the end of a line say nothing, unless a backslash stands before one.
fn without_trailing_blanks(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b' ' => at += 1,
            b'\\' => {
                at += 2;
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    &line[..end.min(line.len())]
}

fn parse(text: &[u8]) -> Vec<Rule> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let line = |line: &[u8]| Rule::new(line.strip_suffix(b"\r").unwrap_or(line));
    // The last rule that matches decides, so the last one is asked first.
    text.split(|byte| *byte == b'\n').rev().filter_map(line).collect()
}

/// The rules of one folder.
#[derive(Debug)]
struct Level {
    /// Where paths below that folder begin in the paths that are asked about.
    begins: usize,
    rules: [Vec<Rule>; 2],
    /// Bytes of the files.
    bytes: u64,
}

/// The rules in force in a folder: its own and those of the folders above.
#[derive(Debug, Default)]
pub(super) struct Rules {
    levels: Vec<Level>,
    /// Bytes that rules were held against since the last look at the clock.
    work: Cell<u64>,
}

/// What became of a folder's ignore files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    /// They hold no rules, or there are none.
    None,
    /// They are in force until the folder is left.
    InForce,
}

impl Rules {
    /// Reads the ignore files of a folder. `begins` is the length of its path, with the `/` at its end. Files that are
    /// there and cannot be heeded are counted in `unreadable`.
    pub(super) fn enter(&mut self, folder: impl AsFd, begins: usize, unreadable: &mut u64) -> Entered {
        let mut bytes = 0;
        let before: u64 = self.levels.iter().map(|level| level.bytes).sum();
        let mut read = |name| match read(folder.as_fd(), name, MAX_FILE.min(MAX_IN_FORCE - before - bytes)) {
            Ok(text) => {
                bytes += text.len() as u64;
                parse(&text)
            }
            Err(Errno::ENOENT) => Vec::new(),
            Err(_) => {
                *unreadable += 1;
                Vec::new()
            }
        };
        let rules = FILES.map(&mut read);
        // To understand a line takes about as long as to hold it against a few names.
        self.work.set(self.work.get() + 4 * bytes);
        if rules.iter().all(Vec::is_empty) {
            return Entered::None;
        }
        self.levels.push(Level { begins, rules, bytes });
        Entered::InForce
    }

    /// Leaves a folder.
    pub(super) fn leave(&mut self, entered: Entered) {
        if entered == Entered::InForce {
            self.levels.pop();
        }
    }

    /// Forgets all rules.
    pub(super) fn clear(&mut self) {
        self.levels.clear();
    }

    /// True when the rules exclude `path`, whose parent folder they do not exclude. Whoever wrote the rules decides how long
    /// that takes, also for a single path, so `check` is asked on the way whether time is up.
    pub(super) fn exclude(
        &self,
        path: &[u8],
        folder: bool,
        check: impl Fn() -> Result<(), Stop>,
    ) -> Result<bool, Stop> {
        if self.levels.is_empty() {
            return Ok(false);
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        for kind in (0..FILES.len()).rev() {
            for level in self.levels.iter().rev() {
                let below = &path[level.begins..];
                for rule in &level.rules[kind] {
                    if rule.matches(below, name, folder) {
                        return Ok(!rule.negated);
                    }
                    let work = self.work.get() + path.len() as u64;
                    if work < CLOCK {
                        self.work.set(work);
                    } else {
                        self.work.set(0);
                        check()?;
                    }
                }
            }
        }
        Ok(false)
    }
}

/// Reads an ignore file of at most so many bytes. Like git, it follows no link here.
fn read(folder: impl AsFd, name: &str, most: u64) -> Result<Vec<u8>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let fd: OwnedFd = match openat(folder, name, flags, Mode::empty()) {
        // A link.
        Err(Errno::ELOOP) => return Err(Errno::ENOENT),
        other => other?,
    };
    let found = fstat(&fd)?;
    if !open::is(&found, SFlag::S_IFREG) {
        return Err(Errno::ENOENT);
    }
    let size = u64::try_from(found.st_size).unwrap_or(0);
    if size > most {
        return Err(Errno::EFBIG);
    }
    let mut text = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    File::from(fd)
        .take(size)
        .read_to_end(&mut text)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok(text)
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
