//! What PID 1 sees of its own confinement, for the hello frame; the host refuses a session whose facts are not right.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nix::sys::prctl;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgroups, getpid};
use protocol::Facts;

/// Paths that must be folders or files of their own: a link there would let the image choose what we mount or trust.
const NO_LINKS: [&str; 11] = [
    "/tmp",
    "/proc",
    "/dev",
    "/dev/shm",
    "/dev/pts",
    "/sys",
    "/app",
    "/etc",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
];

/// Where a shell may be, best first.
const SHELLS: [&str; 5] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh"];

/// Looks at everything. What cannot be read counts as wrong.
pub(super) fn gather(landlock: u32) -> Facts {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(nix::unistd::Gid::as_raw).collect();
    groups.sort_unstable();
    Facts {
        pid: u32::try_from(getpid().as_raw()).unwrap_or(0),
        groups,
        capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|set| mask(&status, set)),
        no_new_privs: prctl::get_no_new_privs().unwrap_or(false),
        seccomp: field(&status, "Seccomp").and_then(|value| value.parse().ok()).unwrap_or(0),
        undumpable: !prctl::get_dumpable().unwrap_or(true),
        root_read_only: statvfs("/").is_ok_and(|root| root.flags().contains(FsFlags::ST_RDONLY)),
        tmp_is_tmpfs: own_tmpfs("/tmp"),
        shell: SHELLS.iter().find(|path| runnable(path)).map(ToString::to_string),
        links: NO_LINKS.iter().filter(|path| is_link(path)).map(ToString::to_string).collect(),
        landlock,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
    }
}

/// Gives /tmp mode 1777: runc applies the mode that the image's own /tmp has over the one asked for.
pub(super) fn open_tmp_to_all() -> std::io::Result<()> {
    if fs::symlink_metadata("/tmp")?.mode() & 0o7777 == 0o1777 {
        return Ok(());
    }
    fs::set_permissions("/tmp", fs::Permissions::from_mode(0o1777))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// All bits set when the line is missing: no host accepts that.
fn mask(status: &str, name: &str) -> u64 {
    field(status, name).and_then(|value| u64::from_str_radix(value, 16).ok()).unwrap_or(u64::MAX)
}

fn own_tmpfs(path: &str) -> bool {
    let on_tmpfs = statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
    let device = |path: &str| fs::metadata(path).map(|found| found.dev());
    on_tmpfs && matches!((device(path), device("/")), (Ok(tmp), Ok(root)) if tmp != root)
}

/// Every user may execute it: the agent's uid is neither its owner nor in its group.
fn runnable(path: &str) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o001 != 0)
}

fn is_link(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_line_counts_as_every_capability() {
        assert_eq!(mask("CapInh:\t00000000000000e0\n", "CapInh"), 0xe0);
        assert_eq!(mask("CapInh:\tzz\n", "CapInh"), u64::MAX);
        assert_eq!(mask("", "CapBnd"), u64::MAX);
    }

    #[test]
    fn a_field_is_matched_by_its_whole_name() {
        assert_eq!(field("Seccomp_filters:\t3\nSeccomp:\t2\n", "Seccomp"), Some("2"));
    }
}
