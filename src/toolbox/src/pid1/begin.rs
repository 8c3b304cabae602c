//! The beginning of a command: a slot, its text, its shell.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::unistd::pipe2;
use protocol::{Cause, End, FromSandbox, Outcome};

use super::body::{Body, BodyError, Script};
use super::calls::failed;
use super::command::{Command, Phase, Pipe, Waiting};
use super::spawn::{Failure, Order, Step, Target};
use super::state::{Pid1, Source};

/// Folders of the logs of jobs.
const LOG_FOLDERS: [&CStr; 2] = [c"/tmp/.runner", c"/tmp/.runner/jobs"];

/// Why a command did not start, for the call's outcome.
pub(super) type Refusal = (Cause, String);

impl Pid1 {
    /// Takes a new command with the first part of its text.
    pub(super) fn begin(&mut self, call: Waiting, background: bool, length: u64, first: &[u8], deadline: Instant) {
        let Some(slot) = self.commands.iter().position(Option::is_none) else {
            let message = format!(
                "{} commands and jobs run in this sandbox already, which is its limit; wait for one to end or stop a job",
                self.commands.len()
            );
            self.answer(&call, failed(Cause::Limit, message), &[]);
            return;
        };
        match Body::new(length) {
            Ok(body) => {
                self.serial = self.serial.wrapping_add(1);
                self.commands[slot] = Some(Command::new(self.serial, call, body, background, Some(deadline)));
                self.append(slot, first, false);
            }
            Err(error) => {
                let (cause, message) = body_failure(&error);
                self.answer(&call, failed(cause, message), &[]);
            }
        }
    }

    /// Takes more of a command's text and starts its shell when it is whole.
    pub(super) fn append(&mut self, slot: usize, part: &[u8], is_chunk: bool) {
        let Some(command) = &mut self.commands[slot] else { return };
        let Phase::Body(body) = &mut command.phase else { return };
        match body.take(part, is_chunk) {
            Ok(credit) => {
                let id = command.call.as_ref().and_then(|call| call.id);
                let whole = body.is_whole();
                if credit > 0
                    && let (Some(link), Some(id)) = (&mut self.link, id)
                {
                    link.send(&FromSandbox::Credit { id, bytes: credit }, b"");
                }
                if whole && let Err(refusal) = self.launch(slot) {
                    self.refuse(slot, refusal);
                }
            }
            Err(error) => self.refuse(slot, body_failure(&error)),
        }
    }

    /// Answers a command that did not start and frees its slot.
    pub(super) fn refuse(&mut self, slot: usize, (cause, message): Refusal) {
        let Some(mut command) = self.commands[slot].take() else { return };
        if let Some(call) = command.call.take() {
            self.answer(&call, failed(cause, message), &[]);
        }
    }

    /// Starts the shell.
    fn launch(&mut self, slot: usize) -> Result<(), Refusal> {
        let (Some(command), Some(live)) = (&mut self.commands[slot], &self.live) else { return Ok(()) };
        let Phase::Body(body) = std::mem::replace(&mut command.phase, Phase::Running) else { return Ok(()) };
        let script = body.finish().map_err(|error| body_failure(&error))?;
        let Some(shell) = &self.facts.shell else {
            return Err((Cause::NotFound, "the image has no shell; use one with /bin/sh or /bin/bash".to_owned()));
        };
        let shell = CString::new(shell.as_str()).unwrap_or_default();
        let name = CString::new(shell.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default());
        let name = name.unwrap_or_default();

        let agent = live.session.ids.agent;
        let (serial, started) = (command.serial, Instant::now());
        // A command writes into a pipe; a job into a file, and its pipe, which nobody writes to, ends with the exec.
        let ends = if command.job.is_some() {
            pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)
        } else {
            self.spawner.pipe(agent)
        };
        let (reader, writer) = ends.map_err(|error| spawn_failure(&error))?;
        let log = command.job.as_ref().map(|job| CString::new(job.log.as_str()).unwrap_or_default());
        let order = Order {
            shell: &shell,
            arguments: &[&name, c"-c", c"--", script.argument()],
            environment: &live.environment,
            directory: &live.directory,
            agent,
            tag: tag_of(live.session.ids.first_tag, slot),
            output: match &log {
                Some(file) => Target::Log { folders: &LOG_FOLDERS, file },
                None => Target::Pipe(writer.as_fd()),
            },
            script: script.file(),
            report: slot,
        };
        command.pid = self.spawner.spawn(&order).map_err(|error| spawn_failure(&error))?;
        drop::<Script>(script);
        drop(writer);
        command.started = started;
        let source = if let Some(job) = &mut command.job {
            command.wake = None;
            command.deadline = None;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, Source::Start(slot, serial).number());
            // Without the event the job's call is answered when the job ends.
            let _ = self.poll.add(&reader, event);
            job.starting = Some(reader);
            return Ok(());
        } else {
            Source::Output(slot, serial)
        };
        let watched = self.poll.add(&reader, EpollEvent::new(EpollFlags::EPOLLIN, source.number())).is_ok();
        command.pipe = Some(Pipe { end: reader, watched });
        Ok(())
    }

    /// A job's shell has been executed, or will never be: then its end says so.
    pub(super) fn on_start(&mut self, slot: usize) {
        let Some(command) = &mut self.commands[slot] else { return };
        let Some(job) = &mut command.job else { return };
        if let Some(pipe) = job.starting.take() {
            let _ = self.poll.delete(&pipe);
        }
        if self.spawner.failure(slot).is_some() {
            return;
        }
        let outcome = Outcome::Job { job: job.name.clone(), log: job.log.clone() };
        if let Some(call) = command.call.take() {
            self.answer_and_keep(call, outcome, Vec::new());
        }
    }
}

/// The tag of the command in a slot.
pub(super) fn tag_of(first: u32, slot: usize) -> u32 {
    first + u32::try_from(slot).expect("slots are few")
}

fn body_failure(error: &BodyError) -> Refusal {
    let cause = match error {
        BodyError::Nul => Cause::Invalid,
        BodyError::Room(_) => Cause::Oom,
    };
    (cause, error.to_string())
}

fn spawn_failure(error: &io::Error) -> Refusal {
    let (cause, remedy) = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            (Cause::Pids, "the sandbox's process limit is reached: stop a job or wait for other calls to end")
        }
        Some(libc::ENOMEM) => {
            (Cause::Oom, "the sandbox's memory limit is reached: stop a job or wait for other calls to end")
        }
        _ => (Cause::Limit, "wait for other calls to end and try again"),
    };
    (cause, format!("cannot start the command ({error}); {remedy}"))
}

/// What a child's failure before its exec means for the call.
pub(super) fn exec_failure(failure: Failure, directory: &CStr) -> Outcome {
    let error = io::Error::from_raw_os_error(failure.errno);
    // A file, a folder or a link that leads nowhere.
    let things = [libc::ENOTDIR, libc::EEXIST, libc::EISDIR, libc::ENOENT];
    let in_the_way = failure.step == Step::Log && things.contains(&failure.errno);
    let cause = match failure.errno {
        _ if in_the_way => Cause::Invalid,
        libc::ENOMEM => Cause::Oom,
        libc::EAGAIN => Cause::Pids,
        libc::ENOSPC => Cause::NoSpace,
        libc::ENOENT | libc::ENOTDIR => Cause::NotFound,
        _ => Cause::Denied,
    };
    let what = match failure.step {
        Step::Directory => format!("cannot enter the working directory {}: {error}", directory.to_string_lossy()),
        Step::Log if in_the_way => {
            "cannot make the log of the job: /tmp/.runner and /tmp/.runner/jobs must be folders, and something else is in \
             their place: move it away"
                .to_owned()
        }
        Step::Log => {
            format!("cannot make the log below /tmp/.runner/jobs: {error}; free space or remove what is there")
        }
        Step::Execute => format!("cannot execute the image's shell: {error}"),
        step => format!("cannot confine the command (step {step:?}): {error}"),
    };
    failed(cause, what)
}

/// How a command that was cancelled before it started is answered.
pub(super) fn not_started(verdict: End) -> Refusal {
    match verdict {
        End::TimedOut => {
            (Cause::Timeout, "time was up before the whole command had arrived; nothing was run".to_owned())
        }
        _ => (Cause::Cancelled, "cancelled before the whole command had arrived; nothing was run".to_owned()),
    }
}
