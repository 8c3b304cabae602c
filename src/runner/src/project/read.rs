//! Reads the small text files of projects and agents from a disk that strangers may have written to.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::error::ProjectError;

/// Largest file of this kind in bytes; all of them are written by people.
const MAX_BYTES: u64 = 1024 * 1024;

/// The text of `folder/name`; `None` when there is no such file. Links that leave the folder, FIFOs, devices and files
/// with a second name are refused; a FIFO never blocks.
pub(super) fn inside(folder: &Path, name: &str) -> Result<Option<String>, ProjectError> {
    let path = folder.join(name);
    let unreadable = |why: String| ProjectError::Unreadable { file: path.clone(), why };
    let directory = match File::options().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(folder) {
        Ok(directory) => directory,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(directory.as_fd(), name, how) {
        Ok(file) => text_of(&path, File::from(file), MAX_BYTES).map(Some),
        Err(nix::errno::Errno::ENOENT) => Ok(None),
        Err(nix::errno::Errno::EXDEV) => Err(unreadable("is a link that leaves its folder".to_owned())),
        Err(nix::errno::Errno::ENXIO) => Err(unreadable("is a socket or a device, not a regular file".to_owned())),
        Err(error) => Err(unreadable(error.desc().to_owned())),
    }
}

/// The text of a file that the operator named, links followed.
pub(super) fn named(path: &Path, max_bytes: u64) -> Result<String, ProjectError> {
    let file = File::options()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(path)
        .map_err(|error| ProjectError::Unreadable { file: path.to_owned(), why: error.to_string() })?;
    text_of(path, file, max_bytes)
}

fn text_of(path: &Path, mut file: File, max_bytes: u64) -> Result<String, ProjectError> {
    let unreadable = |why: String| ProjectError::Unreadable { file: path.to_owned(), why };
    let facts = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !facts.is_file() {
        return Err(unreadable("is not a regular file".to_owned()));
    }
    if facts.nlink() > 1 {
        return Err(unreadable("has more than one hard link; copy it instead".to_owned()));
    }
    if facts.len() > max_bytes {
        return Err(unreadable(format!("has {} bytes, more than the {max_bytes} allowed", facts.len())));
    }
    let mut bytes = Vec::new();
    (&mut file).take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > max_bytes {
        return Err(unreadable(format!("grew over the {max_bytes} bytes allowed")));
    }
    String::from_utf8(bytes)
        .map_err(|error| unreadable(format!("is not UTF-8 (byte {} is wrong)", error.utf8_error().valid_up_to())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(result: Result<Option<String>, ProjectError>) -> String {
        match result.unwrap_err() {
            ProjectError::Unreadable { why, .. } => why,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn only_regular_files_inside_the_folder_are_read() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("agent");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("plain"), "text").unwrap();
        std::fs::write(place.path().join("outside"), "secret").unwrap();
        std::os::unix::fs::symlink("plain", folder.join("inner")).unwrap();
        std::os::unix::fs::symlink("../outside", folder.join("outer")).unwrap();
        nix::unistd::mkfifo(&folder.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(folder.join("latin"), b"caf\xe9").unwrap();

        assert_eq!(inside(&folder, "plain"), Ok(Some("text".to_owned())));
        assert_eq!(inside(&folder, "inner"), Ok(Some("text".to_owned())));
        assert_eq!(inside(&folder, "missing"), Ok(None));
        assert_eq!(why(inside(&folder, "outer")), "is a link that leaves its folder");
        assert_eq!(why(inside(&folder, "fifo")), "is not a regular file");
        assert_eq!(why(inside(&folder, "latin")), "is not UTF-8 (byte 3 is wrong)");
        std::fs::hard_link(folder.join("plain"), folder.join("second")).unwrap();
        assert_eq!(why(inside(&folder, "plain")), "has more than one hard link; copy it instead");
    }

    #[test]
    fn large_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("big"), "123456").unwrap();
        let error = named(&place.path().join("big"), 5).unwrap_err();
        assert!(error.to_string().ends_with("big: has 6 bytes, more than the 5 allowed"), "{error}");
    }
}
