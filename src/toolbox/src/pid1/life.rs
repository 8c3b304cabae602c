//! The middle of a command: its output, its limits, its end. `advance` is the one place that moves a command from
//! phase to phase (see the drawing in `command`).

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::unistd::read;
use protocol::End;

use super::begin::not_started;
use super::command::{Command, DRAIN, GRACE, KEEP, Phase, QUIET};
use super::end::FIGHT;
use super::feed::Feed;
use super::reap;
use super::state::{Pid1, Source};

/// Between two looks at processes that are about to end.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Reads of one command's output in one turn of the loop.
const READS: usize = 16;
/// Children that are reaped in one turn of the loop.
const REAPED: usize = 512;

/// What a read of a command's output brought.
enum Piece {
    Bytes(usize),
    Nothing,
    /// The keeper has not taken the last piece yet.
    Held,
    End,
}

/// What `advance` does after a phase was looked at.
enum Next {
    /// Something changed: look again.
    Again,
    /// Nothing to do before this moment, or before an event.
    Wait(Option<Instant>),
}

impl Pid1 {
    /// Moves every command on whose time has come.
    pub(super) fn advance_all(&mut self) {
        for slot in 0..self.commands.len() {
            if self.commands[slot].as_ref().and_then(|command| command.wake).is_some_and(|wake| wake <= Instant::now())
            {
                self.advance(slot);
            }
        }
    }

    /// Moves a command on as far as it goes.
    fn advance(&mut self, slot: usize) {
        loop {
            let now = Instant::now();
            let Some(command) = &mut self.commands[slot] else { return };
            let next = match command.phase {
                Phase::Body(_) => {
                    if command.deadline.is_some_and(|deadline| deadline <= now) {
                        return self.refuse(slot, not_started(End::TimedOut));
                    }
                    Next::Wait(command.deadline)
                }
                Phase::Running => self.run_on(slot, now),
                Phase::Lingering => self.linger(slot, now),
                Phase::Draining { .. } => self.drain(slot),
                Phase::Sweeping { pause } => {
                    let left = if command.alone { 0 } else { self.fight(slot) };
                    let Some(command) = &mut self.commands[slot] else { return };
                    if left == 0 {
                        command.phase = Phase::Keeping { until: now + KEEP };
                        Next::Again
                    } else {
                        command.phase = Phase::Sweeping { pause: (2 * pause).min(LONGEST_PAUSE) };
                        Next::Wait(Some(now + pause))
                    }
                }
                Phase::Keeping { until } => {
                    let Some(feed) = command.feed.as_mut().filter(|feed| !feed.is_over()) else {
                        return self.finish(slot);
                    };
                    if until <= now {
                        self.drop_feed(slot);
                        return self.finish(slot);
                    }
                    if !feed.is_full() {
                        unwatch_feed(&self.poll, feed);
                        feed.close();
                    }
                    Next::Wait(Some(until))
                }
            };
            if let Next::Wait(wake) = next {
                if let Some(command) = &mut self.commands[slot] {
                    command.wake = wake;
                }
                return;
            }
        }
    }

    /// The shell runs: is its time up, or its grace?
    fn run_on(&mut self, slot: usize, now: Instant) -> Next {
        let Some(command) = &mut self.commands[slot] else { return Next::Wait(None) };
        match (command.kill_at, command.deadline) {
            (Some(kill_at), _) if kill_at <= now => {
                self.fight(slot);
                if self.commands[slot].as_ref().is_none_or(|command| !command.is_alive()) {
                    return Next::Again;
                }
                // Until its shell is reaped.
                Next::Wait(Some(Instant::now() + LONGEST_PAUSE))
            }
            (Some(kill_at), _) => Next::Wait(Some(kill_at)),
            (None, Some(deadline)) if deadline <= now => {
                self.terminate(slot, Some(End::TimedOut));
                Next::Again
            }
            (None, deadline) => Next::Wait(deadline),
        }
    }

    /// The shell is gone after SIGTERM: the others get the rest of the grace, unless nobody is left.
    fn linger(&mut self, slot: usize, now: Instant) -> Next {
        let tag = self.tag(slot);
        let Some(command) = &mut self.commands[slot] else { return Next::Wait(None) };
        let over = command.kill_at.is_none_or(|kill_at| kill_at <= now);
        if over || !self.processes.any(tag) {
            start_draining(command, now);
            return Next::Again;
        }
        Next::Wait(Some(now + LONGEST_PAUSE))
    }

    /// Sends SIGTERM to everything of a command and lets the grace begin. The shell's own end then counts as `verdict`,
    /// if one is given.
    pub(super) fn terminate(&mut self, slot: usize, verdict: Option<End>) {
        let tag = self.tag(slot);
        let Some(command) = &mut self.commands[slot] else { return };
        if command.kill_at.is_some() || !command.is_alive() {
            return;
        }
        command.verdict = verdict;
        let now = Instant::now();
        command.kill_at = Some(now + GRACE);
        command.wake = Some(now + GRACE);
        self.processes.pass(tag, libc::SIGTERM, &mut BTreeSet::new(), now + FIGHT);
    }

    /// Ends the command that answers call `id`; unknown ids are ignored, it may just have ended.
    pub(super) fn cancel(&mut self, id: u64) {
        let of = |command: &Command| command.call.as_ref().is_some_and(|call| call.id == Some(id));
        let Some(slot) = self.commands.iter().position(|slot| slot.as_ref().is_some_and(of)) else { return };
        if self.commands[slot].as_ref().is_some_and(|command| matches!(command.phase, Phase::Body(_))) {
            self.refuse(slot, not_started(End::Cancelled));
        } else {
            self.terminate(slot, Some(End::Cancelled));
        }
    }

    /// Reads what the ended shell had printed, and waits a moment for what others print.
    fn drain(&mut self, slot: usize) -> Next {
        for _ in 0..READS {
            let piece = self.read_output(slot);
            let now = Instant::now();
            let Some(command) = &mut self.commands[slot] else { return Next::Wait(None) };
            let Phase::Draining { owed, quiet, until } = &mut command.phase else { return Next::Again };
            let over = match piece {
                Piece::Bytes(length) => {
                    *owed = owed.saturating_sub(length);
                    *quiet = now + QUIET;
                    *owed == 0 && *until <= now
                }
                // Whoever else may still hold the pipe has nothing to say.
                Piece::Nothing if command.alone || *quiet <= now || *until <= now => true,
                Piece::Nothing => return Next::Wait(Some((*quiet).min(*until))),
                Piece::Held => {
                    // A keeper that is stuck costs the kept file, not the call.
                    let stuck = *until + KEEP;
                    if stuck > now {
                        return Next::Wait(Some(stuck));
                    }
                    self.drop_feed(slot);
                    false
                }
                Piece::End => true,
            };
            if over {
                self.close_pipe(slot);
                if let Some(command) = &mut self.commands[slot] {
                    command.phase = Phase::Sweeping { pause: FIRST_PAUSE };
                }
                return Next::Again;
            }
        }
        Next::Wait(Some(Instant::now()))
    }

    /// Its output can be read.
    pub(super) fn on_output(&mut self, slot: usize) {
        if self.commands[slot].as_ref().is_some_and(|command| matches!(command.phase, Phase::Draining { .. })) {
            self.advance(slot);
        } else {
            self.read_output(slot);
        }
    }

    /// Its keeper takes more.
    pub(super) fn on_feed(&mut self, slot: usize) {
        if let Some(feed) = self.commands[slot].as_mut().and_then(|command| command.feed.as_mut()) {
            if feed.pipe().is_some() {
                feed.resume();
            }
            self.watch(slot);
        }
        if self.commands[slot].as_ref().is_some_and(|command| command.status.is_some()) {
            self.advance(slot);
        }
    }

    fn read_output(&mut self, slot: usize) -> Piece {
        let Some(command) = &mut self.commands[slot] else { return Piece::End };
        let Some(pipe) = &command.pipe else { return Piece::End };
        if command.feed.as_ref().is_some_and(Feed::is_full) {
            return Piece::Held;
        }
        let length = match read(&pipe.end, &mut self.scratch) {
            Ok(0) => {
                self.close_pipe(slot);
                return Piece::End;
            }
            Ok(length) => length,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Piece::Nothing,
            Err(_) => return Piece::End,
        };
        let piece = &self.scratch[..length];
        if command.feed.is_none()
            && !command.unkept
            && command.output.would_be_cut(piece)
            && let Some(live) = &self.live
        {
            self.outputs += 1;
            match Feed::start(self.outputs, live.session.ids, self.spawner.ruleset()) {
                Ok(mut feed) => {
                    command.output.so_far().into_iter().for_each(|part| feed.give(part));
                    command.feed = Some(feed);
                }
                // At the process limit, for example: then only the shown part is left of it.
                Err(_) => command.unkept = true,
            }
        }
        if let Some(feed) = &mut command.feed {
            feed.give(piece);
        }
        command.output.push(piece);
        self.watch(slot);
        Piece::Bytes(length)
    }

    /// Watches a command's pipes for what can be done with them: while its keeper is behind, its output is not read.
    fn watch(&mut self, slot: usize) {
        let Some(command) = &mut self.commands[slot] else { return };
        let serial = command.serial;
        let full = command.feed.as_ref().is_some_and(Feed::is_full);
        if let Some(pipe) = &mut command.pipe
            && pipe.watched == full
        {
            // Taken out altogether: the end of the pipe would be reported whatever it is watched for.
            let event = EpollEvent::new(EpollFlags::EPOLLIN, Source::Output(slot, serial).number());
            let done = if full { self.poll.delete(&pipe.end) } else { self.poll.add(&pipe.end, event) };
            pipe.watched = !full && done.is_ok();
        }
        let Some(feed) = &mut command.feed else { return };
        if full && !feed.watched {
            let event = EpollEvent::new(EpollFlags::EPOLLOUT, Source::Feed(slot, serial).number());
            feed.watched = feed.pipe().is_some_and(|pipe| self.poll.add(pipe, event).is_ok());
        } else if !full {
            unwatch_feed(&self.poll, feed);
        }
    }

    fn close_pipe(&mut self, slot: usize) {
        let Some(command) = &mut self.commands[slot] else { return };
        if let Some(pipe) = command.pipe.take()
            && pipe.watched
        {
            // Closing alone is not enough: a child that is being forked holds a copy for a moment.
            let _ = self.poll.delete(&pipe.end);
        }
    }

    fn drop_feed(&mut self, slot: usize) {
        if let Some(command) = &mut self.commands[slot] {
            if let Some(mut feed) = command.feed.take() {
                unwatch_feed(&self.poll, &mut feed);
            }
            command.unkept = true;
        }
        self.watch(slot);
    }

    /// Reaps children that ended: those that somebody waits for are told, orphans are only cleared away.
    pub(super) fn reap(&mut self) {
        for _ in 0..REAPED {
            let Some(pid) = reap::peek() else {
                self.more_zombies = false;
                return;
            };
            let of = |command: &Command| command.pid == pid && command.is_alive();
            if let Some(slot) = self.commands.iter().position(|slot| slot.as_ref().is_some_and(of)) {
                self.on_shell_end(slot, pid);
                continue;
            }
            let end = reap::reap(pid);
            if !self.on_server_end(pid) {
                self.on_keeper_end(pid, end);
            }
        }
        self.more_zombies = true;
    }

    fn on_shell_end(&mut self, slot: usize, pid: i32) {
        // Before it is reaped: until then its number is its own.
        let alone = self.processes.is_newest(pid);
        let status = reap::reap(pid);
        let now = Instant::now();
        let Some(command) = &mut self.commands[slot] else { return };
        command.alone = alone;
        command.status = status;
        command.wake = Some(now);
        if command.kill_at.is_some_and(|kill_at| kill_at > now) && !alone {
            command.phase = Phase::Lingering;
        } else {
            start_draining(command, now);
        }
    }

    fn on_keeper_end(&mut self, pid: i32, end: Option<End>) {
        for slot in 0..self.commands.len() {
            let Some(command) = &mut self.commands[slot] else { continue };
            let Some(feed) = command.feed.as_mut().filter(|feed| feed.pid == pid && !feed.is_over()) else { continue };
            unwatch_feed(&self.poll, feed);
            feed.ended(end);
            if command.status.is_some() {
                command.wake = Some(Instant::now());
            }
            self.watch(slot);
            return;
        }
    }
}

fn start_draining(command: &mut Command, now: Instant) {
    let mut owed: libc::c_int = 0;
    if let Some(pipe) = &command.pipe {
        // SAFETY: FIONREAD writes one int, which lives through the call.
        unsafe { libc::ioctl(pipe.end.as_raw_fd(), libc::FIONREAD, &raw mut owed) };
    }
    let owed = usize::try_from(owed).unwrap_or(0);
    command.phase = Phase::Draining { owed, quiet: now + QUIET, until: now + DRAIN };
}

fn unwatch_feed(poll: &nix::sys::epoll::Epoll, feed: &mut Feed) {
    if feed.watched {
        if let Some(pipe) = feed.pipe() {
            let _ = poll.delete(pipe);
        }
        feed.watched = false;
    }
}
