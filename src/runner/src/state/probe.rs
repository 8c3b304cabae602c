//! What the file system below the state directory can do.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use nix::{
    sys::{
        statfs::{self, FsType},
        statvfs::{self, FsFlags},
    },
    unistd::geteuid,
};

use super::{StateError, unfinished_name, write_synced};

/// Network file systems by their magic number (statfs(2)): root of this host is often nobody there.
const NETWORK: [(i64, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
];

/// Magic number of FUSE, where nobody but the mounting user has access unless the mount says `allow_other`.
const FUSE: i64 = 0x6573_5546;

/// What was found out about a directory.
#[derive(Debug, Clone, Copy)]
struct Seen {
    no_exec: bool,
    read_only: bool,
    kind: i64,
    /// Owner of a file that we have just made.
    owner: u32,
    we: u32,
}

/// Tries the directory out: reads its mount flags and writes a file.
pub(super) fn check(root: &Path) -> Result<(), StateError> {
    let flags = statvfs::statvfs(root).map_err(|e| StateError::from_io("look at", root, e.into()))?.flags();
    let FsType(kind) =
        statfs::statfs(root).map_err(|e| StateError::from_io("look at", root, e.into()))?.filesystem_type();
    let we = geteuid().as_raw();
    let mut seen = Seen {
        no_exec: flags.contains(FsFlags::ST_NOEXEC),
        read_only: flags.contains(FsFlags::ST_RDONLY),
        kind,
        owner: we,
        we,
    };
    judge(root, seen)?;
    let probe = root.join(unfinished_name());
    // More than any file system keeps inside an inode, so that a full one is noticed.
    write_synced(&probe, &[0; 8192], 0o600)?;
    let made = fs::symlink_metadata(&probe).map_err(|e| StateError::from_io("look at", &probe, e));
    fs::remove_file(&probe).map_err(|e| StateError::from_io("remove", &probe, e))?;
    seen.owner = made?.uid();
    judge(root, seen)
}

fn judge(root: &Path, seen: Seen) -> Result<(), StateError> {
    let squashed = |kind: String| Err(StateError::Squashed { path: root.to_owned(), kind });
    if seen.read_only {
        return Err(StateError::ReadOnly(root.to_owned()));
    }
    if seen.no_exec {
        return Err(StateError::NoExec(root.to_owned()));
    }
    if let Some((_, name)) = NETWORK.iter().find(|(magic, _)| *magic == seen.kind) {
        return squashed((*name).to_owned());
    }
    if seen.kind == FUSE && seen.we != 0 {
        return squashed("FUSE".to_owned());
    }
    if seen.owner != seen.we {
        return squashed(format!("a file system that makes files of uid {} belong to uid {}", seen.we, seen.owner));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Seen = Seen { no_exec: false, read_only: false, kind: 0xef53, owner: 7, we: 7 };

    /// security.md 1: a state directory on a noexec or root-squashed mount is refused with the remedy.
    #[test]
    fn bad_mounts_are_named_with_the_remedy() {
        let cases = [
            (Seen { no_exec: true, ..GOOD }, "noexec"),
            (Seen { read_only: true, ..GOOD }, "read-only"),
            (Seen { kind: 0x6969, ..GOOD }, "NFS"),
            (Seen { kind: FUSE, ..GOOD }, "FUSE"),
            (Seen { owner: 65534, we: 0, ..GOOD }, "belong to uid 65534"),
        ];
        for (seen, word) in cases {
            let message = judge(Path::new("/some/where"), seen).unwrap_err().to_string();
            for part in [word, "/some/where", "RUNNER_STATE"] {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
        judge(Path::new("/some/where"), GOOD).unwrap();
        judge(Path::new("/some/where"), Seen { kind: FUSE, owner: 0, we: 0, ..GOOD }).unwrap();
    }
}
