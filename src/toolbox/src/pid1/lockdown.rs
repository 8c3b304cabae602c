//! Turning a fork of PID 1 into a server: a process that handles the agent's files with the agent's rights on them, and
//! that the agent cannot reach. It is never exec'd; its user is the session's worker, only its file-system ids are the
//! agent's, so files keep the right owner while every attack on a process of one's own uid fails.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, fork, setsid};
use protocol::Ids;

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// `CAP_SETGID` and `CAP_SETUID` as bits.
const SET_IDS: u32 = 1 << 6 | 1 << 7;
/// The descriptor that a server starts with, besides the standard ones.
const GIVEN: i32 = 3;

/// The step at which a server could not be locked down; it then ends before it did anything.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock a server down: {step}: {source}")]
struct LockdownError {
    step: &'static str,
    source: io::Error,
}

/// Forks a server that runs `work` on `given` once it is locked down and exits with its answer. Gives its pid.
pub(super) fn start(
    ids: Ids,
    ruleset: Option<&OwnedFd>,
    given: OwnedFd,
    work: impl FnOnce(OwnedFd) -> i32,
) -> io::Result<i32> {
    // SAFETY: PID 1 has one thread, so the child's copy of it is whole.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let code = match lock(ids, ruleset, given) {
                Ok(given) => work(given),
                Err(error) => {
                    say!("{error}");
                    70
                }
            };
            // SAFETY: ends this process; destructors and exit handlers are PID 1's and must not run here.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Gives up, one after the other, what PID 1 has and a server must not have.
fn lock(ids: Ids, ruleset: Option<&OwnedFd>, given: OwnedFd) -> Result<OwnedFd, LockdownError> {
    let at = |step| move |source: io::Error| LockdownError { step, source };
    let system = |step, answer: i64| match answer {
        0.. => Ok(()),
        _ => Err(at(step)(io::Error::last_os_error())),
    };

    setsid().map_err(|error| at("session")(error.into()))?;
    // Raw calls: the C library's wrappers would also work, but say nothing about order. The worker's gid is the tag.
    // SAFETY: system calls on values and on memory that lives through them, here and below.
    system("groups", unsafe { libc::syscall(libc::SYS_setgroups, 1usize, &raw const ids.worker) })?;
    // Without this the change of ids would end the capabilities that setting the file-system ids needs.
    prctl::set_keepcaps(true).map_err(|error| at("keep capabilities")(error.into()))?;
    // SAFETY: as above.
    system("gid", unsafe { libc::syscall(libc::SYS_setresgid, ids.worker, ids.worker, ids.worker) })?;
    // SAFETY: as above.
    system("uid", unsafe { libc::syscall(libc::SYS_setresuid, ids.worker, ids.worker, ids.worker) })?;
    capabilities(SET_IDS).map_err(at("raise capabilities"))?;
    // These two report no errors: they answer the id before, so asking again tells whether it worked.
    for (step, call, id) in
        [("file-system gid", libc::SYS_setfsgid, ids.agent), ("file-system uid", libc::SYS_setfsuid, ids.agent)]
    {
        // SAFETY: as above.
        let now = unsafe {
            libc::syscall(call, id);
            libc::syscall(call, id)
        };
        if now != i64::from(id) {
            return Err(at(step)(io::Error::from_raw_os_error(libc::EPERM)));
        }
    }
    capabilities(0).map_err(at("drop capabilities"))?;
    // After the ids, each change of which sets both anew.
    prctl::set_dumpable(false).map_err(|error| at("dumpable")(error.into()))?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| at("parent death")(error.into()))?;
    // It decodes hostile bytes: whatever happens in it, it starts nothing, so killing it ends all of it.
    setrlimit(Resource::RLIMIT_NPROC, 0, 0).map_err(|error| at("process limit")(error.into()))?;
    if let Some(ruleset) = ruleset {
        // SAFETY: as above.
        system("landlock", unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) })?;
    }
    // Descriptors last: the ruleset is one. Standard input is /dev/null already.
    // SAFETY: PID 1's copies of these descriptors are never used in this process again.
    unsafe {
        system("descriptors", i64::from(libc::dup2(given.into_raw_fd(), GIVEN)))?;
        system("descriptors", i64::from(libc::dup2(0, 1)))?;
        system("descriptors", i64::from(libc::dup2(0, 2)))?;
        system("descriptors", libc::syscall(libc::SYS_close_range, GIVEN + 1, u32::MAX, 0))?;
        Ok(OwnedFd::from_raw_fd(GIVEN))
    }
}

/// Sets the permitted and effective capabilities to `set`.
fn capabilities(set: u32) -> io::Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    // Effective, permitted, inheritable, for the low and the high 32 capabilities.
    let data = [set, set, 0, 0, 0, 0];
    // SAFETY: both arrays have the layout of capset(2)'s structures and live through the call.
    let answer = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
