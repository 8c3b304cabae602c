//! The end of a command: nothing of it is left, and its caller is told. No step here forks (security.md 5).

use std::time::{Duration, Instant};

use nix::sys::statvfs::fstatvfs;
use protocol::{BashEnd, Cause, End, Outcome, Space};

use super::begin::{exec_failure, tag_of};
use super::calls::failed;
use super::command::{Command, Waiting};
use super::state::Pid1;
use super::sweep;

/// A fight for one command may take this long …
pub(super) const FIGHT: Duration = Duration::from_millis(250);
/// … and this many passes that meet new processes; then everything is killed.
const PASSES: u32 = 50;
/// Jobs that are over and still known by name.
const PAST_JOBS: usize = 64;

impl Pid1 {
    /// The tag of the command in a slot.
    pub(super) fn tag(&self, slot: usize) -> u32 {
        self.live.as_ref().map_or(u32::MAX, |live| tag_of(live.session.ids.first_tag, slot))
    }

    /// Sends SIGKILL to everything of a command until nothing new turns up; answers how many were there in the last
    /// pass. Those are dying, and a dying process cannot fork: look again a little later.
    pub(super) fn fight(&mut self, slot: usize) -> u32 {
        let tag = self.tag(slot);
        let begun = Instant::now();
        let mut passes = 0;
        loop {
            let Some(command) = &mut self.commands[slot] else { return 0 };
            let pass = self.processes.pass(tag, libc::SIGKILL, &mut command.seen, begun + FIGHT);
            // Zombies carry the tag too.
            self.reap();
            if pass.found == 0 || pass.fresh == 0 {
                return pass.found;
            }
            passes += 1;
            if pass.is_cut || passes >= PASSES || begun.elapsed() >= FIGHT {
                self.kill_all(slot);
                return pass.found;
            }
        }
    }

    /// The last resort against a command that forks faster than it can be killed.
    fn kill_all(&mut self, slot: usize) {
        if !sweep::kill_everything() {
            return;
        }
        let others = self.commands.iter_mut().enumerate().filter(|(other, _)| *other != slot);
        for command in others.filter_map(|(_, command)| command.as_mut()) {
            command.swept |= command.is_alive();
        }
    }

    /// Answers everybody who waited for a command and frees its slot.
    pub(super) fn finish(&mut self, slot: usize) {
        let Some(mut command) = self.commands[slot].take() else { return };
        self.untrimmed = true;
        let end = command.end();
        let failure = self.spawner.failure(slot);
        if let Some(mut job) = command.job.take() {
            if let Some(pipe) = job.starting.take() {
                let _ = self.poll.delete(pipe);
            }
            if let Some(call) = command.call.take() {
                // It ended before its exec was noticed.
                let outcome = match failure {
                    Some(failure) => exec_failure(failure, self.directory()),
                    None => Outcome::Job { job: job.name.clone(), log: job.log },
                };
                self.answer_and_keep(call, outcome, Vec::new());
            }
            for call in job.stops {
                self.answer_and_keep(call, Outcome::JobEnded { end, before: false }, Vec::new());
            }
            if self.past_jobs.len() == PAST_JOBS {
                self.past_jobs.pop_front();
            }
            self.past_jobs.push_back((job.name, end));
            return;
        }
        let Some(call) = command.call.take() else { return };
        if let Some(failure) = failure {
            let outcome = exec_failure(failure, self.directory());
            self.answer(&call, outcome, &[]);
            return;
        }
        let full = if end == End::Exited(0) { None } else { self.fullness() };
        let (end, payload) = bash_end(command, end, full);
        self.answer_and_keep(call, Outcome::Bash(end), payload);
    }

    /// Ends a job; the call is answered when nothing of it is left.
    pub(super) fn stop_job(&mut self, call: Waiting, name: &str) {
        let of = |command: &Command| command.job.as_ref().is_some_and(|job| job.name == name);
        let slot = self.commands.iter().position(|slot| slot.as_ref().is_some_and(of));
        if let Some(slot) = slot {
            if let Some(job) = self.commands[slot].as_mut().and_then(|command| command.job.as_mut()) {
                job.stops.push(call);
            }
            self.terminate(slot, None);
            return;
        }
        let past = self.past_jobs.iter().find(|(past, _)| past == name);
        let outcome = match past {
            Some((_, end)) => Outcome::JobEnded { end: *end, before: true },
            None => failed(Cause::NotFound, format!("there is no job {name:?}; jobs are named when they start")),
        };
        self.answer(&call, outcome, &[]);
    }

    fn directory(&self) -> &std::ffi::CStr {
        self.live.as_ref().map_or(c"/", |live| &live.directory)
    }

    /// Size and use of /tmp if it has no bytes or no inodes left.
    fn fullness(&self) -> Option<Space> {
        let tmp = fstatvfs(&self.tmp).ok()?;
        let size = tmp.fragment_size();
        (tmp.blocks_available() == 0 || tmp.files_free() == 0).then(|| Space {
            bytes: tmp.blocks() * size,
            bytes_used: (tmp.blocks() - tmp.blocks_free()) * size,
            inodes: tmp.files(),
            inodes_used: tmp.files() - tmp.files_free(),
        })
    }
}

fn bash_end(mut command: Command, end: End, full: Option<Space>) -> (BashEnd, Vec<u8>) {
    let shown = std::mem::take(&mut command.output).finish();
    let (kept, kept_is_cut) = command.feed.as_ref().and_then(super::feed::Feed::kept).unzip();
    let duration = u64::try_from(command.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let end = BashEnd {
        end,
        head: shown.head as u64,
        total_bytes: shown.total_bytes,
        total_lines: shown.total_lines,
        omitted_bytes: shown.omitted_bytes,
        omitted_lines: shown.omitted_lines,
        kept,
        kept_is_cut: kept_is_cut.unwrap_or(false),
        full,
        duration_ms: duration,
    };
    (end, shown.payload)
}
