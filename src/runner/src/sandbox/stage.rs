//! Stages an agent's folder: a snapshot of its files for the sandbox, taken so that nothing outside the folder gets in.
//!
//! Folders are written by people who may not know what is in them (a clone, an archive from somewhere), and others may
//! change them while we read. So every open goes through `openat2` below the folder's own descriptor, follows no magic
//! link, and what was opened is looked at again before it is read. Comparing names first and opening later leaked in one
//! race of 300.

mod source;

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::folder::{FolderError, make_folder, new_file, settle};
use source::{Folder, Found, Source};

/// How much may be staged.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Files and folders.
    entries: u64,
    /// Bytes in MiB.
    mebibytes: u64,
}

const BOUNDS: Bounds = Bounds { entries: 20_000, mebibytes: 256 };

/// Most levels of folders.
const MAX_DEPTH: usize = 64;

/// Most problems that are listed before the rest is only counted.
const MAX_LISTED: usize = 20;

/// What was staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    /// Files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// SHA-256 over the names, modes and contents of all, in hex: the same files give the same one.
    pub(crate) sha256: String,
}

/// Why a folder could not be staged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// Some of its files are refused.
    #[error("{folder} cannot be given to a sandbox: {}", list(.problems))]
    Refused {
        /// The agent's folder.
        folder: PathBuf,
        /// Each with the path inside the folder and the reason.
        problems: Vec<String>,
    },
    /// There is more than fits.
    #[error("{folder} has more than {limit}; move what the agent does not need out of it")]
    TooLarge {
        /// The agent's folder.
        folder: PathBuf,
        /// The limit that was passed.
        limit: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The copy cannot be written.
    #[error(transparent)]
    Write(#[from] FolderError),
}

fn list(problems: &[String]) -> String {
    let shown = problems.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join("; ");
    match problems.len().checked_sub(MAX_LISTED) {
        Some(more) if more > 0 => format!("{shown}; and {more} more"),
        _ => shown,
    }
}

/// Copies an agent's folder into an existing empty one. `.git` and `.env*` stay behind.
///
/// A link to something inside the folder is staged as a copy of it. Refused, all with their names: links that leave the
/// folder, lead nowhere, in circles or to what is never staged; devices, sockets and FIFOs; setuid and setgid files;
/// files with a second hard link; names with control characters.
pub(crate) fn stage(from: &Path, to: &Path) -> Result<Staged, StageError> {
    stage_within(BOUNDS, from, to)
}

fn stage_within(bounds: Bounds, from: &Path, to: &Path) -> Result<Staged, StageError> {
    let source = Source::open(from)?;
    let mut work =
        Work { bounds, source: &source, hash: Sha256::new(), files: 0, entries: 0, bytes: 0, problems: Vec::new() };
    let top = source.top()?;
    work.folder(&top, to, &mut vec![top.identity])?;
    if !work.problems.is_empty() {
        return Err(StageError::Refused { folder: from.to_owned(), problems: work.problems });
    }
    Ok(Staged { files: work.files, bytes: work.bytes, sha256: hex::encode(work.hash.finalize()) })
}

/// Names that hold secrets or history and never an agent's instructions.
fn stays_behind(name: &[u8]) -> bool {
    name == b".git" || name.starts_with(b".env")
}

struct Work<'a> {
    bounds: Bounds,
    source: &'a Source,
    hash: Sha256,
    files: u64,
    entries: u64,
    bytes: u64,
    problems: Vec<String>,
}

impl Work<'_> {
    /// Stages one folder; `above` are the folders on the way to it, to notice circles of links.
    fn folder(&mut self, folder: &Folder, to: &Path, above: &mut Vec<(u64, u64)>) -> Result<(), StageError> {
        for name in self.source.names(folder, self.bounds.entries)? {
            if stays_behind(name.as_encoded_bytes()) {
                continue;
            }
            self.entries += 1;
            if self.entries > self.bounds.entries {
                return Err(self.too_large(format!("{} files and folders", self.bounds.entries)));
            }
            let path = folder.path.join(&name);
            let Some(text) = name.to_str().filter(|name| !name.chars().any(is_control)) else {
                self.refuse(&path, "its name has control characters or is not UTF-8");
                continue;
            };
            let target = to.join(text);
            match self.source.look(&path, stays_behind)? {
                Found::File(file) => self.file(&path, file, &target)?,
                Found::Folder(inner) if above.contains(&inner.identity) => {
                    self.refuse(&path, "it is a link that leads in a circle");
                }
                Found::Folder(_) if above.len() >= MAX_DEPTH => self.refuse(&path, "it is more than 64 folders deep"),
                Found::Folder(inner) => {
                    make_folder(&target, 0o755)?;
                    self.note(b'D', &path, 0, &[]);
                    above.push(inner.identity);
                    self.folder(&inner, &target, above)?;
                    above.pop();
                }
                Found::Refused(reason) => self.refuse(&path, reason),
                Found::Gone => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, found: source::OpenFile, target: &Path) -> Result<(), StageError> {
        let source::OpenFile { file, executable } = found;
        let mut copy = new_file(target).map_err(FolderError::new("write", target))?;
        let most = self.bounds.mebibytes << 20;
        // One byte more than is left, to notice a file that is larger or grows while it is read.
        let content = Copy { from: file.take(most - self.bytes + 1), to: &mut copy, hash: Sha256::new() };
        let (size, digest) = content.run(path, target)?;
        self.bytes += size;
        if self.bytes > most {
            return Err(self.too_large(format!("{} MiB", self.bounds.mebibytes)));
        }
        settle(&copy, if executable { 0o555 } else { 0o444 }).map_err(FolderError::new("set the mode of", target))?;
        self.files += 1;
        self.note(if executable { b'X' } else { b'F' }, path, size, &digest);
        Ok(())
    }

    /// Adds an entry to the hash, every part with its length or of a fixed one.
    fn note(&mut self, kind: u8, path: &Path, size: u64, digest: &[u8]) {
        let path = path.as_os_str().as_encoded_bytes();
        self.hash.update([kind]);
        self.hash.update((path.len() as u64).to_le_bytes());
        self.hash.update(path);
        self.hash.update(size.to_le_bytes());
        self.hash.update(digest);
    }

    fn refuse(&mut self, path: &Path, reason: &str) {
        // Debug format: a name with control characters must not reach a terminal as it is.
        self.problems.push(format!("{:?}: {reason}", path.to_string_lossy()));
    }

    fn too_large(&self, limit: String) -> StageError {
        StageError::TooLarge { folder: self.source.path().to_owned(), limit }
    }
}

/// C0, DEL, C1 and the characters that turn or hide text on a terminal.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

struct Copy<'a> {
    from: io::Take<File>,
    to: &'a mut File,
    hash: Sha256,
}

impl Copy<'_> {
    fn run(mut self, path: &Path, target: &Path) -> Result<(u64, Vec<u8>), StageError> {
        let mut buffer = vec![0; 128 << 10];
        let mut size = 0;
        loop {
            let n = match self.from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(StageError::Read { path: path.to_owned(), source }),
            };
            self.to.write_all(&buffer[..n]).map_err(FolderError::new("write", target))?;
            self.hash.update(&buffer[..n]);
            size += n as u64;
        }
        Ok((size, self.hash.finalize().to_vec()))
    }
}

#[cfg(test)]
mod tests;
