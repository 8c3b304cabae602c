//! Waiting for children without taking away anybody's exit status.

use protocol::End;

/// A child that ended and is still a zombie, if there is one.
pub(super) fn peek() -> Option<i32> {
    wait(libc::P_ALL, 0, libc::WNOWAIT).map(|(pid, _)| pid)
}

/// Reaps the child `pid`, which has ended, and says how.
pub(super) fn reap(pid: i32) -> Option<End> {
    wait(libc::P_PID, libc::id_t::try_from(pid).ok()?, 0).map(|(_, end)| end)
}

fn wait(kind: libc::idtype_t, id: libc::id_t, more: i32) -> Option<(i32, End)> {
    // SAFETY: all-zero is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // By hand: nix knows no real-time signals and fails on a child that one of them killed, for ever.
    // SAFETY: `info` lives through the call.
    let answer = unsafe { libc::waitid(kind, id, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::__WALL | more) };
    // SAFETY: a successful waitid fills the fields of SIGCHLD, or leaves the pid 0 when there is nothing to report.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if answer != 0 || pid == 0 {
        return None;
    }
    let end = if info.si_code == libc::CLD_EXITED { End::Exited(status) } else { End::Signalled(status) };
    Some((pid, end))
}
