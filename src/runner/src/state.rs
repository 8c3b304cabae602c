//! The state directory: where sessions, the store and the program for containers live on this host.
//!
//! `$RUNNER_STATE`, else `/var/lib/runner` for root, else `$XDG_STATE_HOME/runner` (`~/.local/state/runner`). Nobody else
//! may look inside (0700), and every mode is set by an explicit chmod, because the umask of whoever types `runner` is
//! not ours to trust. The engine mounts folders of it into containers and containers execute a file of it, so a noexec
//! or a network mount is refused here, with the remedy, rather than by a puzzling engine error later.

mod place;
mod probe;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

use crate::embedded::{TOOLBOX, TOOLBOX_SHA256};

pub use place::Place;

/// Name of the file with the install token.
const TOKEN: &str = "token";

/// Prefix of files that are being written; a crash leaves one behind and the next start ignores it.
const UNFINISHED: &str = ".new-";

/// The state directory of this user, opened and checked.
#[derive(Debug, Clone)]
pub struct State {
    root: PathBuf,
    token: String,
}

/// Why the state directory cannot be used. Every message names the path and, where that helps, `RUNNER_STATE`.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// No rule gives a path.
    #[error(
        "no place for the state directory: neither XDG_STATE_HOME nor HOME is set to an absolute path; set RUNNER_STATE"
    )]
    Nowhere,
    /// `RUNNER_STATE` is a relative path.
    #[error("RUNNER_STATE is {0:?}; it must be an absolute path")]
    Relative(PathBuf),
    /// Something else than a directory has the path.
    #[error("the state directory {0} is not a directory; move it away or set RUNNER_STATE to another path")]
    NotADirectory(PathBuf),
    /// Another user owns it.
    #[error(
        "the state directory {path} belongs to uid {owner}, not to you (uid {you}); set RUNNER_STATE to a path of your own"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who asks.
        you: u32,
    },
    /// It holds files and none of them is ours; changing its mode could do harm.
    #[error(
        "the state directory {path} holds {entry:?}, which is not runner's; set RUNNER_STATE to an empty or new directory"
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// The first foreign entry.
        entry: String,
    },
    /// Programs cannot be executed from there.
    #[error(
        "the state directory {0} is on a noexec mount, and containers execute a file of it; set RUNNER_STATE to a path on another file system"
    )]
    NoExec(PathBuf),
    /// Root, and so the engine, has no power there.
    #[error(
        "the state directory {path} is on {kind}, where the engine's root may be squashed; set RUNNER_STATE to a path on a local file system"
    )]
    Squashed {
        /// The directory.
        path: PathBuf,
        /// What kind of file system it is, or what was seen.
        kind: String,
    },
    /// The file system has no space or inodes left.
    #[error(
        "no space left for the state directory {0}; free some, or set RUNNER_STATE to a path on another file system"
    )]
    Full(PathBuf),
    /// The file system is read-only.
    #[error("the state directory {0} is on a read-only file system; set RUNNER_STATE to a writable path")]
    ReadOnly(PathBuf),
    /// The mode or owner of a parent forbids it.
    #[error("no permission for the state directory {0}; set RUNNER_STATE to a path you may write")]
    Denied(PathBuf),
    /// The token file is damaged.
    #[error(
        "{0} does not hold 32 hex digits; restore it, or remove it when no session of this state directory is left"
    )]
    BadToken(PathBuf),
    /// Anything else.
    #[error("cannot {step} {path}: {source}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl StateError {
    fn from_io(step: &'static str, path: &Path, source: io::Error) -> StateError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StateError::Full(path.to_owned()),
            io::ErrorKind::ReadOnlyFilesystem => StateError::ReadOnly(path.to_owned()),
            io::ErrorKind::PermissionDenied => StateError::Denied(path.to_owned()),
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => StateError::NotADirectory(path.to_owned()),
            _ => StateError::Io { step, path: path.to_owned(), source },
        }
    }
}

impl State {
    /// Opens the state directory that the environment names, and makes it when it is missing.
    pub fn open() -> Result<State, StateError> {
        State::open_at(&Place::from_environment().directory()?)
    }

    /// Opens a given state directory, and makes it when it is missing.
    pub fn open_at(root: &Path) -> Result<State, StateError> {
        if !root.is_absolute() {
            return Err(StateError::Relative(root.to_owned()));
        }
        claim(root)?;
        probe::check(root)?;
        let token = read_or_make_token(root)?;
        let state = State { root: root.to_owned(), token };
        state.folder("sessions")?;
        Ok(state)
    }

    /// Opens the state directory without trying out what it can do: for commands that only look at what is there, also
    /// when its file system is full. Makes it when it is missing, like [`State::open`].
    pub fn open_to_look() -> Result<State, StateError> {
        let root = Place::from_environment().directory()?;
        if !root.join(TOKEN).exists() {
            return State::open_at(&root);
        }
        claim(&root)?;
        let token = read_or_make_token(&root)?;
        Ok(State { root, token })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The random token of this install, 32 hex digits: containers that carry it as a label may be ours.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Where the folder of a session is or will be.
    pub fn session_folder(&self, id: &str) -> PathBuf {
        self.root.join("sessions").join(id)
    }

    /// Ids of the sessions that have a folder, whoever left it there.
    pub fn session_folders(&self) -> Result<Vec<String>, StateError> {
        let sessions = self.root.join("sessions");
        let list = fs::read_dir(&sessions).map_err(|e| StateError::from_io("list", &sessions, e))?;
        let mut ids = Vec::new();
        for entry in list {
            let entry = entry.map_err(|e| StateError::from_io("list", &sessions, e))?;
            ids.extend(entry.file_name().into_string().ok());
        }
        ids.sort();
        Ok(ids)
    }

    /// Makes sure of a folder of ours (0700) directly below the root.
    pub fn folder(&self, name: &str) -> Result<PathBuf, StateError> {
        let path = self.root.join(name);
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StateError::from_io("make", &path, error)),
        }
        set_mode(&path, 0o700)?;
        Ok(path)
    }

    /// Puts the embedded program for containers in place, if it is not, and tells where it is.
    pub fn toolbox(&self) -> Result<PathBuf, StateError> {
        self.place_toolbox(TOOLBOX, TOOLBOX_SHA256)
    }

    /// Puts a program in place, once per content.
    ///
    /// The file is 0555 and named by its sha256. Session folders hold hard links to it, which share its mode and its
    /// pages: it is never changed again.
    pub(crate) fn place_toolbox(&self, program: &[u8], sha256: &str) -> Result<PathBuf, StateError> {
        let path = self.root.join(format!("toolbox-{sha256}"));
        let in_place = fs::symlink_metadata(&path).is_ok_and(|found| {
            found.is_file()
                && found.len() == program.len() as u64
                && found.mode() & 0o7777 == 0o555
                && found.uid() == geteuid().as_raw()
        });
        if in_place {
            return Ok(path);
        }
        let unfinished = self.root.join(unfinished_name());
        write_synced(&unfinished, program, 0o555)?;
        fs::rename(&unfinished, &path).map_err(|e| StateError::from_io("rename to", &path, e))?;
        Ok(path)
    }
}

/// Makes the directory, or checks that the one that exists may be used, and closes it to others.
fn claim(root: &Path) -> Result<(), StateError> {
    if let Some(parent) = root.parent() {
        fs::create_dir_all(parent).map_err(|e| StateError::from_io("make", parent, e))?;
    }
    match fs::create_dir(root) {
        Ok(()) => return set_mode(root, 0o700),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(StateError::from_io("make", root, error)),
    }
    let found = fs::metadata(root).map_err(|e| StateError::from_io("look at", root, e))?;
    if !found.is_dir() {
        return Err(StateError::NotADirectory(root.to_owned()));
    }
    let you = geteuid().as_raw();
    if found.uid() != you {
        return Err(StateError::Foreign { path: root.to_owned(), owner: found.uid(), you });
    }
    // A directory without our token must be empty: `RUNNER_STATE=/tmp` must not close /tmp to everyone.
    if !root.join(TOKEN).exists() {
        for entry in fs::read_dir(root).map_err(|e| StateError::from_io("list", root, e))? {
            let entry = entry.map_err(|e| StateError::from_io("list", root, e))?.file_name();
            let entry = entry.to_string_lossy();
            if entry != TOKEN && !entry.starts_with(UNFINISHED) && !root.join(TOKEN).exists() {
                return Err(StateError::NotOurs { path: root.to_owned(), entry: entry.into_owned() });
            }
        }
    }
    set_mode(root, 0o700)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), StateError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|e| StateError::from_io("set the mode of", path, e))
}

fn unfinished_name() -> String {
    format!("{UNFINISHED}{}", random_hex())
}

/// 128 random bits as 32 hex digits: an install token, a container's name.
pub fn random_hex() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random source answers on every kernel that runs Docker");
    hex::encode(bytes)
}

/// Writes a new file with exactly this mode and makes sure that its content is on disk; a failure leaves no file.
fn write_synced(path: &Path, content: &[u8], mode: u32) -> Result<(), StateError> {
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    })();
    written.map_err(|error| {
        // The first error is the one to report; a file that cannot be removed either is ignored by later starts.
        let _ = fs::remove_file(path);
        StateError::from_io("write", path.parent().unwrap_or(path), error)
    })
}

fn read_or_make_token(root: &Path) -> Result<String, StateError> {
    let path = root.join(TOKEN);
    loop {
        match fs::read_to_string(&path) {
            Ok(text) => {
                let token = text.trim_end();
                let good = token.len() == 32 && token.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                return if good { Ok(token.to_owned()) } else { Err(StateError::BadToken(path)) };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StateError::from_io("read", &path, error)),
        }
        let unfinished = root.join(unfinished_name());
        write_synced(&unfinished, format!("{}\n", random_hex()).as_bytes(), 0o600)?;
        // A link never replaces: of two first starts at once one wins and both read the winner's token.
        let linked = fs::hard_link(&unfinished, &path);
        fs::remove_file(&unfinished).map_err(|e| StateError::from_io("remove", &unfinished, e))?;
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StateError::from_io("make", &path, error)),
        }
    }
}

#[cfg(test)]
mod tests;
