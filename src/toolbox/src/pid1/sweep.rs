//! Finding and killing the processes of one command. Every process of a command carries its tag as a supplementary
//! group, which it cannot drop; nothing here forks, for at the process limit PID 1 could not.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{getpid, read};

/// `PROC_PID_INIT_INO` of linux/proc_ns.h: the host's own PID namespace.
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// The view on all processes of this container.
pub(super) struct Processes {
    /// For listing.
    list: Dir,
    /// For opening what was listed.
    root: OwnedFd,
    /// Its last field is the pid that was given out last.
    loadavg: File,
}

/// What one pass over all processes met.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    /// Processes with the tag, zombies included, and those that could not be looked at.
    pub(super) found: u32,
    /// Those among them that no earlier pass had met: proof that somebody still forks.
    pub(super) fresh: u32,
    /// Time was up before it had met all of them.
    pub(super) is_cut: bool,
}

impl Processes {
    /// Opens /proc.
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let list = Dir::open("/proc", flags, Mode::empty())?;
        let root = nix::fcntl::open("/proc", flags, Mode::empty())?;
        Ok(Self { list, root, loadavg: File::open("/proc/loadavg")? })
    }

    /// True when `pid` is the newest process of this container, so that it never had a child. Only meaningful while
    /// `pid` is not reaped: until then its number is not given out again.
    pub(super) fn is_newest(&self, pid: i32) -> bool {
        let mut text = [0; 128];
        let Ok(length) = self.loadavg.read_at(&mut text, 0) else { return false };
        let newest =
            std::str::from_utf8(&text[..length]).ok().and_then(|line| line.split_ascii_whitespace().next_back());
        newest.and_then(|number| number.parse().ok()) == Some(pid)
    }

    /// Sends `signal` to every process that carries `tag`; `seen` collects their ids. It stops at `until`: processes
    /// that compete for every processor can make one pass last seconds.
    pub(super) fn pass(&mut self, tag: u32, signal: i32, seen: &mut BTreeSet<i32>, until: Instant) -> Pass {
        let mut pass = Pass::default();
        for pid in pids(&mut self.list) {
            match carries(&self.root, pid, tag) {
                // Another's, or it ended in the meantime.
                Ok(false) | Err(nix::Error::ENOENT | nix::Error::ESRCH) => continue,
                Ok(true) => send(&self.root, pid, tag, signal),
                Err(_) => {}
            }
            pass.found += 1;
            pass.fresh += u32::from(seen.insert(pid));
            if pass.found.is_multiple_of(16) && Instant::now() >= until {
                pass.is_cut = true;
                break;
            }
        }
        pass
    }

    /// True when some process carries `tag`.
    pub(super) fn any(&mut self, tag: u32) -> bool {
        let gone = [Ok(false), Err(nix::Error::ENOENT), Err(nix::Error::ESRCH)];
        pids(&mut self.list).any(|pid| !gone.contains(&carries(&self.root, pid, tag)))
    }
}

/// Signals `pid` if it still carries the tag once its identity is fixed by a descriptor: the number may have gone
/// to a process of another command since it was listed.
fn send(root: &OwnedFd, pid: i32, tag: u32, signal: i32) {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(process) = openat(root, pid.to_string().as_str(), flags, Mode::empty()) else { return };
    if !status_of(&process, "status").is_ok_and(|status| has_group(&status, tag)) {
        return;
    }
    // SAFETY: a plain system call; /proc/<pid> serves as a pidfd (pidfd_send_signal(2)), no siginfo is passed.
    unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, std::ptr::null::<u8>(), 0);
    }
}

/// Ends every process of the container but PID 1, if this is one: true when the kernel was asked. It takes the lock
/// that a fork needs, so nothing escapes it.
pub(super) fn kill_everything() -> bool {
    if !may_kill_everything() {
        return false;
    }
    // SAFETY: a plain system call, which the check above confines to this container.
    unsafe { libc::kill(-1, libc::SIGKILL) == 0 }
}

/// Only PID 1 of a PID namespace that is not the host's own may say `kill(-1)`: elsewhere it would end the machine.
fn may_kill_everything() -> bool {
    getpid().as_raw() == 1
        && std::fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace.as_os_str() != HOST_NAMESPACE)
}

/// The processes of this container but PID 1.
fn pids(list: &mut Dir) -> impl Iterator<Item = i32> {
    list.iter().filter_map(|entry| process_id(entry.ok()?.file_name().to_bytes())).filter(|pid| *pid != 1)
}

fn process_id(name: &[u8]) -> Option<i32> {
    if !name.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(name).ok()?.parse().ok()
}

fn carries(root: &OwnedFd, pid: i32, tag: u32) -> nix::Result<bool> {
    status_of(root, format!("{pid}/status").as_str()).map(|status| has_group(&status, tag))
}

/// The first part of a status file, which holds the groups: before them stand only numbers and an escaped name.
fn status_of(folder: &OwnedFd, name: &str) -> nix::Result<[u8; 1024]> {
    let file = openat(folder, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut status = [0; 1024];
    let length = read(&file, &mut status)?;
    if length == 0 { Err(nix::Error::ESRCH) } else { Ok(status) }
}

fn has_group(status: &[u8], tag: u32) -> bool {
    let mark = b"\nGroups:";
    let Some(at) = status.windows(mark.len()).position(|window| window == mark) else { return false };
    let rest = &status[at + mark.len()..];
    let line = &rest[..rest.iter().position(|byte| *byte == b'\n').unwrap_or(0)];
    let line = std::str::from_utf8(line).unwrap_or("");
    line.split_ascii_whitespace().any(|group| group.parse() == Ok(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// security.md 5: outside a container nothing is killed, whoever asks.
    #[test]
    fn kill_everything_is_refused_outside_a_container() {
        assert!(!may_kill_everything());
        assert!(!kill_everything());
    }

    #[test]
    fn a_tag_is_a_whole_group() {
        let status = b"Name:\tx\\nGroups:\t7\nGroups:\t20000 1900000002 \nNStgid:\t7\n";
        assert!(has_group(status, 1_900_000_002));
        assert!(has_group(status, 20_000));
        assert!(!has_group(status, 7));
        assert!(!has_group(status, 2000));
        assert!(!has_group(b"Name:\tx\n", 7));
    }

    #[test]
    fn this_process_is_found_by_its_own_groups_and_only_by_them() {
        let mut processes = Processes::open().unwrap();
        assert!(!processes.any(4_000_000_001));
        let mut seen = BTreeSet::new();
        let soon = Instant::now() + std::time::Duration::from_mins(1);
        assert_eq!(processes.pass(4_000_000_001, 0, &mut seen, soon), Pass::default());
        if let Some(group) = nix::unistd::getgroups().unwrap().first() {
            assert!(processes.any(group.as_raw()));
        }
    }

    #[test]
    fn process_ids_are_numbers_alone() {
        assert_eq!(process_id(b"17"), Some(17));
        assert_eq!(process_id(b"self"), None);
        assert_eq!(process_id(b"+5"), None);
    }
}
