//! Starting a shell: the straight line between clone and exec.
//!
//! The child shares PID 1's memory until it executes the shell (a `vfork`, by far the fastest way) where Landlock keeps
//! other commands from stopping it in between; elsewhere it is forked. Either way it allocates nothing, takes no lock
//! and leaves through `execve` or `_exit`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::prctl;
use nix::unistd::pipe2;

/// Bytes of the child's stack; it needs a page or two.
const STACK: usize = 64 * 1024;
/// Priority of commands; the lowest there is.
const NICE: c_int = 19;
/// Most commands alive at once, each with a report of its own.
pub(super) const MOST: usize = 62;
/// `setfsuid` and friends answer the id that was in force before.
const ROOT: u32 = 0;

/// What a spawned child needs to know. Everything it points to outlives the call of [`Spawner::spawn`].
pub(super) struct Order<'a> {
    /// The shell.
    pub(super) shell: &'a CStr,
    /// Its arguments.
    pub(super) arguments: &'a [&'a CStr],
    /// The whole environment.
    pub(super) environment: &'a [CString],
    /// Working directory.
    pub(super) directory: &'a CStr,
    /// uid and gid.
    pub(super) agent: u32,
    /// The supplementary group.
    pub(super) tag: u32,
    /// Where its output goes.
    pub(super) output: Target<'a>,
    /// A descriptor to hand over as number 3.
    pub(super) script: Option<BorrowedFd<'a>>,
    /// Number of the report to write failures to.
    pub(super) report: usize,
}

/// Where the output of a command goes.
pub(super) enum Target<'a> {
    /// Into a pipe.
    Pipe(BorrowedFd<'a>),
    /// Into a new file, made by the child with the agent's rights.
    Log {
        /// Folders to make first; those that exist are left alone.
        folders: &'a [&'a CStr],
        /// The file. Whatever has this name is unlinked.
        file: &'a CStr,
    },
}

/// What a child was doing when it failed before its exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    Session = 1,
    Groups,
    Gid,
    Uid,
    ParentDeath,
    Landlock,
    Log,
    Descriptors,
    Directory,
    Execute,
}

const STEPS: [Step; 10] = [
    Step::Session,
    Step::Groups,
    Step::Gid,
    Step::Uid,
    Step::ParentDeath,
    Step::Landlock,
    Step::Log,
    Step::Descriptors,
    Step::Directory,
    Step::Execute,
];

/// A child's failure before its exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    /// At what.
    pub(super) step: Step,
    /// The kernel's answer.
    pub(super) errno: i32,
}

/// Failures as children write them, in memory that is shared also with a forked child.
#[repr(C)]
struct Report {
    step: AtomicU32,
    errno: AtomicU32,
}

/// What spawning needs and never changes.
pub(super) struct Spawner {
    stack_top: NonNull<c_void>,
    reports: NonNull<Report>,
    ruleset: Option<OwnedFd>,
    shares_memory: bool,
    /// The kernel makes a process dumpable when its ids change (`fs.suid_dumpable` is 1).
    dumpable_again: bool,
}

impl Spawner {
    /// Prepares it. `ruleset` is what children restrict themselves with.
    pub(super) fn new(ruleset: Option<OwnedFd>, scopes_signals: bool) -> io::Result<Self> {
        let dumpable_again = std::fs::read_to_string("/proc/sys/fs/suid_dumpable").is_ok_and(|mode| mode.trim() == "1");
        let stack = map(STACK, libc::MAP_PRIVATE | libc::MAP_STACK)?;
        // SAFETY: the first page of the mapping above, which nothing uses yet; it becomes the stack's guard.
        if unsafe { libc::mprotect(stack.as_ptr(), 4096, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: one past the end of the mapping.
        let stack_top = unsafe { stack.byte_add(STACK) };
        let reports = map(MOST * size_of::<Report>(), libc::MAP_SHARED)?.cast();
        // A child that shares memory would be dumpable under the agent's uid, and PID 1's memory with it.
        Ok(Self { stack_top, reports, ruleset, shares_memory: scopes_signals && !dumpable_again, dumpable_again })
    }

    /// The ruleset, for children that are not spawned here.
    pub(super) fn ruleset(&self) -> Option<&OwnedFd> {
        self.ruleset.as_ref()
    }

    /// Makes a pipe that belongs to the agent, so that `/dev/stdout` can be opened in commands. The reading end does
    /// not block.
    pub(super) fn pipe(&self, agent: u32) -> io::Result<(OwnedFd, OwnedFd)> {
        set_fsuid(agent);
        let ends = pipe2(OFlag::O_CLOEXEC);
        set_fsuid(ROOT);
        if self.dumpable_again {
            prctl::set_dumpable(false)?;
        }
        let (reader, writer) = ends?;
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((reader, writer))
    }

    /// Starts a child and gives its pid. What goes wrong between clone and exec is told by [`Spawner::failure`], once
    /// the child has ended (or at once, where it shares memory).
    pub(super) fn spawn(&self, order: &Order<'_>) -> io::Result<i32> {
        self.report(order.report).step.store(0, Ordering::Relaxed);
        let pointers = |strings: &mut dyn Iterator<Item = *const c_char>| -> Vec<*const c_char> {
            strings.chain(std::iter::once(ptr::null())).collect()
        };
        let arguments = pointers(&mut order.arguments.iter().map(|argument| argument.as_ptr()));
        let environment = pointers(&mut order.environment.iter().map(|variable| variable.as_ptr()));
        let child = Child {
            order,
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            report: self.report(order.report),
            ruleset: self.ruleset.as_ref().map(AsRawFd::as_raw_fd),
        };
        let flags = libc::SIGCHLD | if self.shares_memory { libc::CLONE_VM | libc::CLONE_VFORK } else { 0 };
        let argument = ptr::from_ref(&child).cast_mut().cast();
        // SAFETY: the stack is ours and unused: with shared memory this process sleeps until the child has executed or
        // ended, else the child has a copy. `child` and all it points to live until then. `run` keeps to system calls.
        let pid = unsafe { libc::clone(run, self.stack_top.as_ptr(), flags, argument) };
        if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
    }

    /// The failure of the last child that was started with this report, if it failed before its exec.
    pub(super) fn failure(&self, report: usize) -> Option<Failure> {
        let report = self.report(report);
        let step = report.step.load(Ordering::Acquire);
        let step = STEPS.into_iter().find(|known| *known as u32 == step)?;
        Some(Failure { step, errno: i32::try_from(report.errno.load(Ordering::Relaxed)).unwrap_or(0) })
    }

    fn report(&self, number: usize) -> &Report {
        assert!(number < MOST, "reports are numbered below {MOST}");
        // SAFETY: within the mapping of `MOST` reports, which is never unmapped and holds atomics only.
        unsafe { self.reports.add(number).as_ref() }
    }
}

fn map(length: usize, kind: c_int) -> io::Result<NonNull<c_void>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, kind | libc::MAP_ANONYMOUS, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address).ok_or_else(|| io::Error::other("mapped at address 0"))
}

fn set_fsuid(id: u32) {
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_setfsuid, id) };
}

/// What the child looks at, on PID 1's stack.
struct Child<'a> {
    order: &'a Order<'a>,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    report: &'a Report,
    ruleset: Option<c_int>,
}

extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: `Spawner::spawn` passes a `Child` that outlives this function.
    let child = unsafe { &*argument.cast_const().cast::<Child<'_>>() };
    let (step, errno) = child.become_command();
    child.report.errno.store(errno.cast_unsigned(), Ordering::Relaxed);
    child.report.step.store(step as u32, Ordering::Release);
    // SAFETY: ends this process without running anything of PID 1's.
    unsafe { libc::_exit(127) }
}

impl Child<'_> {
    /// Gives up everything that PID 1 has and the agent must not have, then executes the shell. Returns only on failure.
    ///
    /// Raw system calls for ids: the C library's wrappers change every thread of the process they believe to be in.
    fn become_command(&self) -> (Step, i32) {
        macro_rules! attempt {
            ($step:ident, $call:expr) => {{
                // SAFETY: a system call on values and on memory that outlives it.
                let answer = unsafe { $call };
                if answer < 0 {
                    return (Step::$step, errno());
                }
                answer
            }};
        }
        let order = self.order;

        // A session of its own: no terminal, no group signals from or to others.
        attempt!(Session, libc::setsid());
        // First in line when memory runs out; needs root's rights on /proc, so before the ids. A kernel that refuses
        // (a lower score is all it could refuse) leaves the container's own score.
        // SAFETY: system calls on a constant path and a constant buffer.
        unsafe {
            let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if score >= 0 {
                libc::write(score, c"1000".as_ptr().cast(), 4);
                libc::close(score);
            }
        }
        // Behind PID 1 and the file servers within this container (its share of the machine is the container's own
        // matter), or a bomb of processes leaves PID 1 no time to end it. It cannot be taken back: RLIMIT_NICE is 0.
        // SAFETY: a plain system call.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        // Groups before gid before uid: each needs a capability that the last one ends.
        attempt!(Groups, libc::syscall(libc::SYS_setgroups, 1usize, &raw const order.tag));
        attempt!(Gid, libc::syscall(libc::SYS_setresgid, order.agent, order.agent, order.agent));
        attempt!(Uid, libc::syscall(libc::SYS_setresuid, order.agent, order.agent, order.agent));
        // After the ids: a change of ids clears it.
        attempt!(ParentDeath, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL));
        if let Some(ruleset) = self.ruleset {
            attempt!(Landlock, libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32));
        }
        let output = match &order.output {
            Target::Pipe(pipe) => pipe.as_raw_fd(),
            Target::Log { folders, file } => {
                for folder in *folders {
                    // SAFETY: a system call on a C string.
                    if unsafe { libc::mkdir(folder.as_ptr(), 0o700) } < 0 && errno() != libc::EEXIST {
                        return (Step::Log, errno());
                    }
                }
                // SAFETY: as above.
                unsafe { libc::unlink(file.as_ptr()) };
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_APPEND;
                attempt!(Log, libc::open(file.as_ptr(), flags | libc::O_CLOEXEC, 0o600))
            }
        };
        // Standard input is PID 1's own, /dev/null.
        attempt!(Descriptors, libc::dup2(output, 1));
        attempt!(Descriptors, libc::dup2(output, 2));
        let mut first_closed = 3u32;
        if let Some(script) = order.script {
            attempt!(Descriptors, libc::dup2(script.as_raw_fd(), 3));
            first_closed = 4;
        }
        // At the exec, not now: the end of one of them tells PID 1 that the exec has happened. Kernels before 5.11 do
        // not know the flag; every descriptor of PID 1 is opened close-on-exec anyway, this is the second lock.
        // SAFETY: a plain system call.
        unsafe { libc::syscall(libc::SYS_close_range, first_closed, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        attempt!(Directory, libc::chdir(order.directory.as_ptr()));
        // Last: PID 1 blocks every signal. Its dispositions are the defaults already.
        // SAFETY: all-zero is the empty set of this type, which lives through the call.
        unsafe {
            let none: libc::sigset_t = std::mem::zeroed();
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        }
        attempt!(Execute, libc::execve(order.shell.as_ptr(), self.arguments, self.environment));
        (Step::Execute, 0)
    }
}

fn errno() -> i32 {
    // SAFETY: the C library's error number of this thread.
    unsafe { *libc::__errno_location() }
}
