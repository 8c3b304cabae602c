//! PID 1's state and its loop: one thread, one epoll, nothing that blocks.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::timerfd::TimerFd;
use nix::unistd::read;
use protocol::{End, Facts};

use super::command::Command;
use super::kept::Kept;
use super::link::Link;
use super::servers::{Server, Worker};
use super::spawn::Spawner;
use super::sweep::Processes;
use crate::session::Session;

/// Ticks without a host before the first welcome said how many it shall be.
const FIRST_GRACE: u32 = 60;

/// Ticks more for a host that has taken the connection and not said its welcome yet.
const HESITATION: u32 = 10;

/// What an event is about; travels through epoll as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Signal,
    Tick,
    Link,
    /// Output of the command in a slot.
    Output(usize, u32),
    /// The pipe to its keeper.
    Feed(usize, u32),
    /// The exec of a job.
    Start(usize, u32),
}

impl Source {
    pub(super) fn number(self) -> u64 {
        let of = |kind: u64, slot: usize, serial: u32| kind << 48 | (slot as u64) << 32 | u64::from(serial);
        match self {
            Self::Signal => of(1, 0, 0),
            Self::Tick => of(2, 0, 0),
            Self::Link => of(3, 0, 0),
            Self::Output(slot, serial) => of(4, slot, serial),
            Self::Feed(slot, serial) => of(5, slot, serial),
            Self::Start(slot, serial) => of(6, slot, serial),
        }
    }

    fn from_number(number: u64) -> Option<Self> {
        let slot = usize::try_from(number >> 32 & 0xffff).ok()?;
        let serial = u32::try_from(number & 0xffff_ffff).ok()?;
        Some(match number >> 48 {
            1 => Self::Signal,
            2 => Self::Tick,
            3 => Self::Link,
            4 => Self::Output(slot, serial),
            5 => Self::Feed(slot, serial),
            6 => Self::Start(slot, serial),
            _ => return None,
        })
    }
}

/// The session, once the host has said what it is.
pub(super) struct Live {
    pub(super) session: Session,
    /// Ticks without a host after which PID 1 exits.
    pub(super) orphan_grace: u32,
    /// Environment and working directory in the kernel's form.
    pub(super) environment: Vec<CString>,
    pub(super) directory: CString,
}

/// PID 1.
pub(super) struct Pid1 {
    pub(super) poll: Epoll,
    pub(super) signals: SignalFd,
    pub(super) ticks: TimerFd,
    pub(super) facts: Facts,
    pub(super) spawner: Spawner,
    pub(super) processes: Processes,
    /// /tmp itself, to ask how full it is.
    pub(super) tmp: OwnedFd,
    /// What is read from anywhere passes through here.
    pub(super) scratch: Box<[u8]>,

    pub(super) link: Option<Link>,
    pub(super) live: Option<Live>,
    /// Ticks since the last one with a host.
    pub(super) alone_for: u32,
    pub(super) exit: Option<i32>,

    /// The command in slot `n` carries tag `first_tag + n`.
    pub(super) commands: Vec<Option<Command>>,
    pub(super) serial: u32,
    pub(super) outputs: u64,
    pub(super) kept: Kept,
    /// Names and ends of jobs that are over, oldest first.
    pub(super) past_jobs: VecDeque<(String, End)>,
    pub(super) servers: Vec<Server>,
    pub(super) worker: Worker,
    /// Commands have ended since memory was last given back.
    pub(super) untrimmed: bool,
    /// More children may wait to be reaped.
    pub(super) more_zombies: bool,
}

impl Pid1 {
    /// Works until it is told to exit; answers the exit code.
    pub(super) fn run(mut self) -> i32 {
        self.connect();
        let mut events = [EpollEvent::empty(); 32];
        loop {
            let count = self.poll.wait(&mut events, self.patience()).unwrap_or(0);
            for event in &events[..count] {
                if let Some(source) = Source::from_number(event.data()) {
                    self.on_event(source, event.events());
                }
            }
            if self.more_zombies {
                self.reap();
            }
            self.advance_all();
            if self.worker == Worker::Due {
                self.tend_worker();
            }
            self.tend_link();
            if let Some(code) = self.exit {
                return code;
            }
        }
    }

    /// How long epoll may sleep.
    fn patience(&self) -> EpollTimeout {
        if self.more_zombies {
            return EpollTimeout::ZERO;
        }
        let Some(wake) = self.commands.iter().flatten().filter_map(|command| command.wake).min() else {
            return EpollTimeout::NONE;
        };
        let left = wake.saturating_duration_since(Instant::now());
        // Rounded up: waking a moment too early would only turn the loop once more.
        let whole = if left.is_zero() { left } else { left + Duration::from_micros(999) };
        EpollTimeout::try_from(whole.min(Duration::from_hours(1))).unwrap_or(EpollTimeout::ZERO)
    }

    fn on_event(&mut self, source: Source, events: EpollFlags) {
        match source {
            Source::Signal => self.on_signal(),
            Source::Tick => self.on_tick(),
            Source::Link => self.on_link(events),
            Source::Output(slot, serial) if self.is_current(slot, serial) => self.on_output(slot),
            Source::Feed(slot, serial) if self.is_current(slot, serial) => self.on_feed(slot),
            Source::Start(slot, serial) if self.is_current(slot, serial) => self.on_start(slot),
            // The command ended earlier in this turn of the loop.
            Source::Output(..) | Source::Feed(..) | Source::Start(..) => {}
        }
    }

    fn is_current(&self, slot: usize, serial: u32) -> bool {
        self.commands.get(slot).and_then(Option::as_ref).is_some_and(|command| command.serial == serial)
    }

    fn on_signal(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if i32::try_from(signal.ssi_signo) == Ok(Signal::SIGCHLD as i32) {
                self.more_zombies = true;
            } else {
                // Only the host can send it, and it means the container's end.
                self.exit = Some(0);
            }
        }
    }

    /// One second of PID 1's own running: after a pause all missed expirations are one read, so they count as one.
    fn on_tick(&mut self) {
        let mut expirations = [0; 8];
        if read(&self.ticks, &mut expirations).is_err() {
            return;
        }
        if self.untrimmed && self.commands.iter().all(Option::is_none) {
            self.untrimmed = false;
            // SAFETY: gives free memory back to the kernel; nothing else in this thread uses the allocator meanwhile.
            unsafe { libc::malloc_trim(0) };
        }
        if self.link.as_ref().is_some_and(|link| link.welcomed) {
            self.alone_for = 0;
            if self.worker == Worker::Missing {
                self.worker = Worker::Due;
            }
            return;
        }
        self.alone_for += 1;
        if self.link.is_none() {
            self.connect();
        }
        let grace = self.live.as_ref().map_or(FIRST_GRACE, |live| live.orphan_grace).max(1);
        // A host that has taken the connection gets a little longer to say that it is one.
        let grace = if self.link.is_some() { grace.saturating_add(HESITATION) } else { grace };
        if self.alone_for >= grace {
            say!("no host for {} s: ending the sandbox", self.alone_for);
            self.exit = Some(0);
        }
    }

    fn on_link(&mut self, events: EpollFlags) {
        let Some(link) = &mut self.link else { return };
        if events.contains(EpollFlags::EPOLLOUT) {
            link.flush();
        }
        if !events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        // What the host said before it left still counts, so the frames come first.
        let host_is_there = link.receive(&mut self.scratch);
        self.take_frames();
        if !host_is_there {
            self.lose_link("the host closed the connection");
        }
    }

    /// Takes the frames that are there; one read bounds them.
    fn take_frames(&mut self) {
        while let Some(link) = &mut self.link {
            let taken = match link.next() {
                Ok(Some(frame)) => self.on_frame(frame),
                Ok(None) => return,
                Err(error) => Err(error.to_string()),
            };
            if let Err(breach) = taken {
                self.lose_link(&breach);
            }
        }
    }

    /// Writes and watches what the link needs after a turn of the loop.
    fn tend_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        if link.is_broken() {
            self.lose_link("the host does not read any more");
            return;
        }
        let wanted = link.wants();
        if wanted != link.watched {
            link.watched = wanted;
            let mut event = EpollEvent::new(wanted, Source::Link.number());
            let _ = self.poll.modify(&*link, &mut event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_the_way_through_epoll() {
        let last = Source::Start(61, u32::MAX);
        for source in [Source::Signal, Source::Tick, Source::Link, Source::Output(0, 1), Source::Feed(7, 9), last] {
            assert_eq!(Source::from_number(source.number()), Some(source));
        }
        assert_eq!(Source::from_number(0), None);
    }
}
