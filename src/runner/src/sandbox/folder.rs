//! A session's folder on the host: what its container sees, read-only, at /app.
//!
//! ```text
//! sessions/<id>/        0711   /app; the agent may pass through, not list
//!   toolbox             0555   PID 1, a hard link to the state directory's
//!   link/               0710   for PID 1 alone, by the runner's group
//!     sock              0660   bound by the link
//!   static/             0755   the agent's staged files: 0444, or 0555 when the source is executable
//!   etc/                0755
//!     passwd group hosts 0444  bound over the image's
//! ```
//!
//! Everything belongs to the runner's effective user and group. The umask and a setgid parent would change modes and
//! groups, so both are set explicitly after each file is made.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use nix::unistd::getegid;
use protocol::Ids;

/// Why a session's folder could not be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {path}: {source}")]
pub(crate) struct FolderError {
    /// What was tried.
    pub(crate) step: &'static str,
    /// On which path.
    pub(crate) path: PathBuf,
    /// Why it failed.
    pub(crate) source: io::Error,
}

impl FolderError {
    pub(super) fn new(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
        move |source| FolderError { step, path: path.to_owned(), source }
    }
}

/// A session's folder.
#[derive(Debug, Clone)]
pub(crate) struct SessionFolder {
    path: PathBuf,
}

impl SessionFolder {
    /// Makes the folder, which must not exist, with everything but the socket, the staged files and the accounts.
    pub(crate) fn create(path: &Path, toolbox: &Path) -> Result<SessionFolder, FolderError> {
        let folder = SessionFolder { path: path.to_owned() };
        make_folder(path, 0o711)?;
        place_toolbox(toolbox, &path.join("toolbox"))?;
        make_folder(&folder.link(), 0o710)?;
        make_folder(&folder.files(), 0o755)?;
        make_folder(&folder.etc(), 0o755)?;
        // The engine makes no /etc/hosts without a network, and node's localhost fails without one.
        make_file(&folder.etc().join("hosts"), b"127.0.0.1 localhost agent\n", 0o444)?;
        Ok(folder)
    }

    /// The folder of an earlier start.
    pub(crate) fn existing(path: &Path) -> SessionFolder {
        SessionFolder { path: path.to_owned() }
    }

    /// The folder itself, /app of the container.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the link's socket belongs.
    pub(crate) fn link(&self) -> PathBuf {
        self.path.join("link")
    }

    /// Where the agent's files are staged, the working directory of commands.
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join("static")
    }

    fn etc(&self) -> PathBuf {
        self.path.join("etc")
    }

    /// Writes the accounts of a session: ssh, node's userInfo and whoami fail for a uid without one.
    pub(crate) fn write_accounts(&self, ids: Ids) -> Result<(), FolderError> {
        let agent = ids.agent;
        let passwd = format!(
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n\
             agent:x:{agent}:{agent}:agent:/tmp/home:/bin/sh\n"
        );
        let group = format!("root:x:0:\nnogroup:x:65534:\nagent:x:{agent}:\n");
        for (name, text) in [("passwd", passwd), ("group", group)] {
            let path = self.etc().join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(FolderError::new("replace", &path)(error));
                }
                _ => make_file(&path, text.as_bytes(), 0o444)?,
            }
        }
        Ok(())
    }

    /// Removes the folder with all in it; one that is not there is fine.
    pub(crate) fn remove(&self) -> Result<(), FolderError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FolderError::new("remove", &self.path)(error)),
            _ => Ok(()),
        }
    }
}

/// Links the program, or copies it where it has as many links as the file system allows.
fn place_toolbox(from: &Path, to: &Path) -> Result<(), FolderError> {
    match fs::hard_link(from, to) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::TooManyLinks => {}
        Err(error) => return Err(FolderError::new("link the toolbox to", to)(error)),
    }
    let program = fs::read(from).map_err(FolderError::new("read", from))?;
    make_file(to, &program, 0o555)
}

/// Makes a folder with exactly this mode and our group.
pub(super) fn make_folder(path: &Path, mode: u32) -> Result<(), FolderError> {
    let failed = || FolderError::new("make", path);
    fs::create_dir(path).map_err(failed())?;
    let folder = File::open(path).map_err(failed())?;
    settle(&folder, mode).map_err(failed())
}

/// Makes a file with exactly this mode and our group.
pub(super) fn make_file(path: &Path, content: &[u8], mode: u32) -> Result<(), FolderError> {
    let failed = || FolderError::new("write", path);
    let mut file = new_file(path).map_err(failed())?;
    file.write_all(content).map_err(failed())?;
    settle(&file, mode).map_err(failed())
}

/// Opens a new file for writing.
pub(super) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Gives a file or folder of ours its mode, and our group where a setgid parent chose another.
pub(super) fn settle(file: &File, mode: u32) -> io::Result<()> {
    let group = getegid().as_raw();
    if file.metadata()?.gid() != group {
        fchown(file, None, Some(group))?;
    }
    // After the group: chown drops setuid and setgid bits, chmod sets what we say.
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::{Mode, umask};

    use super::*;
    use crate::{sandbox::ids::block, state::State};

    /// security.md 3: the modes, exactly, whatever the umask and with a setgid parent of another group.
    #[test]
    fn modes_and_groups_are_exact() {
        let base = tempfile::tempdir().unwrap();
        let state = State::open_at(base.path()).unwrap();
        let sessions = base.path().join("sessions");
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&sessions, None, Some(12_345)).unwrap();
            fs::set_permissions(&sessions, fs::Permissions::from_mode(0o2700)).unwrap();
        }
        let before = umask(Mode::from_bits_truncate(0o077));
        let toolbox = state.place_toolbox(b"program", "aa").unwrap();
        let folder = SessionFolder::create(&state.session_folder("s1"), &toolbox).unwrap();
        folder.write_accounts(block(20_000)).unwrap();
        folder.write_accounts(block(20_064)).unwrap();
        umask(before);
        let expected = [
            ("", 0o711),
            ("toolbox", 0o555),
            ("link", 0o710),
            ("static", 0o755),
            ("etc", 0o755),
            ("etc/hosts", 0o444),
            ("etc/passwd", 0o444),
            ("etc/group", 0o444),
        ];
        for (name, mode) in expected {
            let found = fs::symlink_metadata(folder.path().join(name)).unwrap();
            assert_eq!(found.mode() & 0o7777, mode, "{name}");
            assert_eq!((found.uid(), found.gid()), (nix::unistd::geteuid().as_raw(), getegid().as_raw()), "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing else inside");
        let program = fs::metadata(folder.path().join("toolbox")).unwrap();
        assert_eq!(program.ino(), fs::metadata(&toolbox).unwrap().ino(), "a hard link");
        let passwd = fs::read_to_string(folder.path().join("etc/passwd")).unwrap();
        assert!(passwd.contains("agent:x:20064:20064:agent:/tmp/home:/bin/sh\n"), "{passwd}");
        folder.remove().unwrap();
        folder.remove().unwrap();
        assert!(state.session_folders().unwrap().is_empty());
        assert!(toolbox.exists());
    }

    #[test]
    fn a_folder_that_exists_is_an_error_that_names_it() {
        let base = tempfile::tempdir().unwrap();
        let message = SessionFolder::create(base.path(), Path::new("/nothing")).unwrap_err().to_string();
        assert!(message.contains(base.path().to_str().unwrap()), "{message}");
    }
}
