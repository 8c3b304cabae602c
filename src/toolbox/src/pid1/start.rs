//! The start of PID 1, one straight line: each step says why it comes where it does.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::getpid;

use super::kept::Kept;
use super::servers::Worker;
use super::spawn::Spawner;
use super::state::{Pid1, Source};
use super::sweep::Processes;
use super::{facts, filter, ruleset};

/// Bytes read at a time, from anywhere.
const SCRATCH: usize = 64 * 1024;
/// Allocations from this size on are mappings of their own, which go back to the kernel when they are freed.
const MAPPED: i32 = 128 * 1024;

/// The step at which PID 1 could not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// It was started by hand.
    #[error("this program is the first process of an agent's container and does nothing elsewhere")]
    NotPid1,
    /// The kernel refused something.
    #[error("cannot start: {0}: {1}")]
    Step(&'static str, #[source] io::Error),
}

/// Prepares everything that does not need the host.
pub(super) fn start() -> Result<Pid1, StartError> {
    fn at<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> StartError {
        move |source| StartError::Step(step, source.into())
    }
    // First of all: from here on nobody but root reads this memory.
    prctl::set_dumpable(false).map_err(at("dumpable"))?;
    if getpid().as_raw() != 1 {
        return Err(StartError::NotPid1);
    }
    // SAFETY: a plain call before any thread or large allocation. It also turns off the growing of that threshold.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED) };
    // Children inherit these.
    limits().map_err(at("limits"))?;
    umask(Mode::from_bits_truncate(0o022));
    standard_descriptors().map_err(at("standard descriptors"))?;
    // Nothing interrupts the loop and no handler runs; children start with the defaults.
    default_dispositions();
    SigSet::all().thread_block().map_err(at("block signals"))?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    // Not the others: a keeper that gave up makes a SIGPIPE, which means nothing here.
    let heard = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM]);
    let signals = SignalFd::with_flags(&heard, flags).map_err(at("signalfd"))?;

    facts::open_tmp_to_all().map_err(at("mode of /tmp"))?;
    let landlock = ruleset::abi();
    // Before the filter below: it would hide that the engine's profile is missing.
    let facts = facts::gather(landlock);
    let rules = ruleset::prepare().map_err(|error| StartError::Step("landlock", io::Error::other(error)))?;
    let spawner = Spawner::new(rules, ruleset::scopes_signals(landlock)).map_err(at("memory for children"))?;
    let processes = Processes::open().map_err(at("/proc"))?;
    let tmp = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/tmp").map_err(at("/tmp"))?;
    filter::install().map_err(at("seccomp filter"))?;

    let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(at("epoll"))?;
    let ticks = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)
        .map_err(at("timerfd"))?;
    let second = Expiration::Interval(TimeSpec::new(1, 0));
    ticks.set(second, TimerSetTimeFlags::empty()).map_err(at("timer"))?;
    let watch = |source: Source| EpollEvent::new(EpollFlags::EPOLLIN, source.number());
    poll.add(&signals, watch(Source::Signal)).map_err(at("epoll"))?;
    poll.add(&ticks, watch(Source::Tick)).map_err(at("epoll"))?;

    Ok(Pid1 {
        poll,
        signals,
        ticks,
        facts,
        spawner,
        processes,
        tmp: tmp.into(),
        scratch: vec![0; SCRATCH].into_boxed_slice(),
        link: None,
        live: None,
        alone_for: 0,
        exit: None,
        commands: Vec::new(),
        serial: 0,
        outputs: 0,
        kept: Kept::default(),
        past_jobs: VecDeque::new(),
        servers: Vec::new(),
        worker: Worker::Started,
        untrimmed: false,
        more_zombies: false,
    })
}

/// Lowers the limits that the engine may not have set; never raises one.
fn limits() -> io::Result<()> {
    let limits = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
        (Resource::RLIMIT_RTPRIO, 0),
        (Resource::RLIMIT_NICE, 0),
        (Resource::RLIMIT_MEMLOCK, 64 * 1024),
        (Resource::RLIMIT_NOFILE, 1024),
    ];
    for (resource, most) in limits {
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, hard.min(most), hard.min(most))?;
    }
    Ok(())
}

/// Standard input and output become /dev/null, which children inherit as their input; errors go where the engine put
/// them, but never hold PID 1 up.
fn standard_descriptors() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for number in [0, 1] {
        // SAFETY: a plain system call on two descriptors; nothing in this process owns 0 or 1.
        if unsafe { libc::dup2(null.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: as above; an engine that closed it gets no messages.
    unsafe { libc::fcntl(2, libc::F_SETFL, libc::O_NONBLOCK) };
    Ok(())
}

/// Takes back what Rust's start-up code set, and what the engine's own parent left ignored: children inherit an ignored
/// signal, and handlers have no place here.
fn default_dispositions() {
    for signal in 1..=64 {
        default_disposition(signal);
    }
}

/// Sets one signal to its default. Asks the kernel itself: the C library keeps the signals 32 and 33 for its threads and
/// refuses to touch them, but they can be inherited as ignored.
fn default_disposition(signal: i32) {
    // The kernel's `struct sigaction` of x86-64: handler (0 is SIG_DFL), flags, restorer, mask of 8 bytes.
    let default = [0_u64; 4];
    // SAFETY: the kernel reads 32 bytes, writes nothing, and a default disposition runs no code of this process.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), 8_usize);
    }
}

#[cfg(test)]
mod tests {
    use super::default_disposition;

    /// The signals that this process ignores, bit 0 for signal 1. Source: proc(5), `SigIgn`.
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    /// An engine whose parent ignored a signal of the C library's own hands it down to every container.
    #[test]
    fn a_signal_that_the_c_library_keeps_for_itself_is_reset_too() {
        let bit = 1_u64 << 31;
        // The handler 1 is SIG_IGN.
        let ignore = [1_u64, 0, 0, 0];
        // SAFETY: as above; nothing in a test uses signal 32, which cancels threads.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, 32, ignore.as_ptr(), std::ptr::null_mut::<u64>(), 8_usize);
        }
        assert_eq!(ignored() & bit, bit);
        default_disposition(32);
        assert_eq!(ignored() & bit, 0);
    }
}
