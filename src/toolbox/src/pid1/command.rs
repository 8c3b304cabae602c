//! One command, from its call to its end.
//!
//! ```text
//!            whole                 shell ended              nothing comes any more        nothing left
//!   Body ──────────▶ Running ─────────────────────▶ Draining ──────────────▶ Sweeping ─────────────▶ Keeping ──▶ answer
//!    │                  │ time is up, cancelled, stopped: SIGTERM to all         │                      (the keeper ends)
//!    │ NUL, time is up, │      shell ended                 ▲                      │ a fight that SIGKILL by tag
//!    ▼ cancelled        ├────────────────▶ Lingering ──────┤                      ▼ does not win
//!   answer              │ 2 s later        all gone, or 2 s passed              kill(-1), then the host
//!                       └─ SIGKILL to all, again and again until the shell is gone
//! ```
//!
//! A command holds its slot, and with it its tag, until nothing of it is left.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use protocol::End;

use super::body::Body;
use super::feed::Feed;
use super::output::Output;

/// Between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Longest wait for output after the shell ended …
pub(super) const DRAIN: Duration = Duration::from_millis(100);
/// … and for the next piece of it.
pub(super) const QUIET: Duration = Duration::from_millis(10);
/// Longest wait for a keeper to take what waits for it, and then to end.
pub(super) const KEEP: Duration = Duration::from_secs(3);

/// A call that waits for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its id on the present connection; none while the host is away or does not ask for it.
    pub(super) id: Option<u64>,
    /// Its key.
    pub(super) key: String,
}

/// Where a command stands.
pub(super) enum Phase {
    /// Its text arrives.
    Body(Body),
    /// Its shell runs.
    Running,
    /// Its shell ended after SIGTERM; others get the rest of their grace.
    Lingering,
    /// Its shell ended: what it had printed is read, and what comes shortly after.
    Draining {
        /// Bytes that were in the pipe when the shell ended; they are read whatever the time.
        owed: usize,
        /// End of the wait for the next piece.
        quiet: Instant,
        /// End of the wait.
        until: Instant,
    },
    /// Its processes are killed.
    Sweeping {
        /// Next wait for the dying.
        pause: Duration,
    },
    /// Its output is written to a file.
    Keeping {
        /// End of the wait.
        until: Instant,
    },
}

/// What makes a command a job.
pub(super) struct Job {
    /// Its name.
    pub(super) name: String,
    /// Path of its log.
    pub(super) log: String,
    /// Ends when the shell has been executed; the call is answered then.
    pub(super) starting: Option<OwnedFd>,
    /// Calls that wait for its end.
    pub(super) stops: Vec<Waiting>,
}

/// The reading end of a command's output.
pub(super) struct Pipe {
    pub(super) end: OwnedFd,
    /// Epoll watches it.
    pub(super) watched: bool,
}

/// A command.
pub(super) struct Command {
    /// Tells it from earlier commands in its slot.
    pub(super) serial: u32,
    /// The call it answers; a job's is answered when it starts.
    pub(super) call: Option<Waiting>,
    /// For a job.
    pub(super) job: Option<Job>,
    pub(super) phase: Phase,
    /// When to look at it again, whatever happens.
    pub(super) wake: Option<Instant>,
    /// When its time is up; none for a running job.
    pub(super) deadline: Option<Instant>,
    /// Its shell; 0 before there is one.
    pub(super) pid: i32,
    pub(super) started: Instant,
    /// How its shell ended.
    pub(super) status: Option<End>,
    /// What was decided about it before its shell ended.
    pub(super) verdict: Option<End>,
    /// When SIGTERM turns into SIGKILL.
    pub(super) kill_at: Option<Instant>,
    /// Its shell started nothing: there is nothing to sweep.
    pub(super) alone: bool,
    /// A `kill(-1)` for another command came over it.
    pub(super) swept: bool,
    /// Processes of it that SIGKILL was sent to.
    pub(super) seen: BTreeSet<i32>,
    pub(super) output: Output,
    /// Reading end of its output.
    pub(super) pipe: Option<Pipe>,
    /// Writes its full output to a file.
    pub(super) feed: Option<Feed>,
    /// The full output is not kept: it was tried and failed.
    pub(super) unkept: bool,
}

impl Command {
    /// A command whose text is still to come.
    pub(super) fn new(serial: u32, call: Waiting, body: Body, background: bool, deadline: Option<Instant>) -> Self {
        let job = background.then(|| Job {
            name: format!("j{serial}"),
            log: format!("/tmp/.runner/jobs/j{serial}.log"),
            starting: None,
            stops: Vec::new(),
        });
        Self {
            serial,
            call: Some(call),
            job,
            phase: Phase::Body(body),
            wake: deadline,
            deadline,
            pid: 0,
            started: Instant::now(),
            status: None,
            verdict: None,
            kill_at: None,
            alone: false,
            swept: false,
            seen: BTreeSet::new(),
            output: Output::default(),
            pipe: None,
            feed: None,
            unkept: false,
        }
    }

    /// How it ended, all in all.
    pub(super) fn end(&self) -> End {
        let status = self.status.unwrap_or(End::Signalled(libc::SIGKILL));
        match self.verdict {
            Some(verdict) => verdict,
            None if self.swept && status == End::Signalled(libc::SIGKILL) => End::SweptAway,
            None => status,
        }
    }

    /// Everybody who waits for something of it.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.call.iter_mut().chain(self.job.iter_mut().flat_map(|job| job.stops.iter_mut()))
    }

    /// Its shell runs or is about to.
    pub(super) fn is_alive(&self) -> bool {
        self.pid != 0 && self.status.is_none()
    }
}
