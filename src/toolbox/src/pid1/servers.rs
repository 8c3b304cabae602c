//! Birth and death of file servers: the resident worker and those that the host asks for. File data never passes
//! through here.

use std::io;
use std::time::{Duration, Instant};

use protocol::{Cause, FromSandbox, Outcome, Role};

use super::calls::{failed, hello};
use super::command::Waiting;
use super::link::{blocking, dial};
use super::lockdown;
use super::state::Pid1;
use crate::files;

/// Label of the resident worker.
const RESIDENT: u64 = 0;
/// Most file servers at a time.
const MOST: usize = 32;

/// A worker that lived shorter than this is not started again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Whether the resident worker is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worker {
    /// It was started, or nobody has asked for it yet.
    Started,
    /// It ended and is started again at the next tick with a host.
    Missing,
    /// It ended and is started again when this turn of the loop is over.
    Due,
}

/// A running file server.
pub(super) struct Server {
    label: u64,
    pid: i32,
    started: Instant,
    /// Calls that wait for its end.
    closing: Vec<Waiting>,
}

impl Server {
    fn kill(&self) {
        // SAFETY: a plain system call; the child is not reaped yet, so the number is still its own. It cannot have
        // children (its process limit is 0), so nothing is left of it.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

impl Pid1 {
    /// Starts a file server under a label; label 0 replaces the resident worker.
    pub(super) fn open_files(&mut self, call: &Waiting, label: u64) {
        let outcome = if label == RESIDENT {
            self.end_server(RESIDENT, None);
            self.start_server(RESIDENT)
        } else if self.servers.iter().any(|server| server.label == label) {
            Err(io::Error::from(io::ErrorKind::AlreadyExists))
        } else if self.servers.len() >= MOST {
            Err(io::Error::from(io::ErrorKind::QuotaExceeded))
        } else {
            self.start_server(label)
        };
        let outcome = match outcome {
            Ok(()) => Outcome::Nothing,
            Err(error) => server_failure(label, &error),
        };
        self.answer(call, outcome, &[]);
    }

    /// Ends a file server; the call is answered when nothing of it is left.
    pub(super) fn close_files(&mut self, call: Waiting, label: u64) {
        if let Some(call) = self.end_server(label, Some(call)) {
            self.answer(&call, Outcome::Nothing, &[]);
        }
    }

    /// Kills every server but the resident worker, which ends by itself with its connection: their host is gone.
    pub(super) fn end_servers(&mut self) {
        for server in &mut self.servers {
            server.closing.clear();
            if server.label != RESIDENT {
                server.kill();
            }
        }
    }

    /// Starts the resident worker, or starts it again.
    pub(super) fn replace_worker(&mut self) {
        self.end_server(RESIDENT, None);
        self.worker = if self.start_server(RESIDENT).is_ok() { Worker::Started } else { Worker::Missing };
    }

    /// Starts the resident worker that is missing; a failure is tried again at the next tick.
    pub(super) fn tend_worker(&mut self) {
        self.worker = Worker::Missing;
        if !self.link.as_ref().is_some_and(|link| link.welcomed) {
            return;
        }
        match self.start_server(RESIDENT) {
            Ok(()) => self.worker = Worker::Started,
            Err(error) => say!("cannot start the file worker: {error}"),
        }
    }

    /// Takes note of a server's end; false when the child is none.
    pub(super) fn on_server_end(&mut self, pid: i32) -> bool {
        let Some(at) = self.servers.iter().position(|server| server.pid == pid) else { return false };
        let server = self.servers.swap_remove(at);
        for call in &server.closing {
            self.answer(call, Outcome::Nothing, &[]);
        }
        let replaced = self.servers.iter().any(|other| other.label == RESIDENT);
        if server.label == RESIDENT && !replaced {
            // At the next tick when it did not live long: a worker that cannot live must not keep PID 1 busy.
            self.worker = if server.started.elapsed() > SHORT_LIFE { Worker::Due } else { Worker::Missing };
        }
        true
    }

    /// Kills the server with this label, gives back a call for which there is nothing to wait for.
    fn end_server(&mut self, label: u64, call: Option<Waiting>) -> Option<Waiting> {
        let mut call = call;
        for server in self.servers.iter_mut().filter(|server| server.label == label) {
            server.kill();
            server.closing.extend(call.take());
        }
        call
    }

    fn start_server(&mut self, label: u64) -> io::Result<()> {
        let Some(live) = &self.live else { return Err(io::Error::from(io::ErrorKind::NotConnected)) };
        // Wrapped, so that its EAGAIN is not taken for that of the fork.
        let mut link = dial().and_then(|link| blocking(link.into())).map_err(io::Error::other)?;
        let mut greeting = Vec::new();
        protocol::encode(&FromSandbox::Hello(Box::new(hello(Role::Files { label }))), b"", &mut greeting)
            .map_err(io::Error::other)?;
        // A fresh socket takes these few bytes at once.
        io::Write::write_all(&mut link, &greeting)?;
        let session = &live.session;
        let pid = lockdown::start(session.ids, self.spawner.ruleset(), link.into(), |link| {
            files::serve(link.into(), session, label == RESIDENT);
            0
        })?;
        self.servers.push(Server { label, pid, started: Instant::now(), closing: Vec::new() });
        Ok(())
    }
}

fn server_failure(label: u64, error: &io::Error) -> Outcome {
    let cause = match error.raw_os_error() {
        Some(libc::EAGAIN) => Cause::Pids,
        Some(libc::ENOMEM) => Cause::Oom,
        _ if error.kind() == io::ErrorKind::AlreadyExists => Cause::Invalid,
        _ => Cause::Limit,
    };
    let remedy = match cause {
        Cause::Pids => "the sandbox's process limit is reached: end a job or wait for other calls",
        Cause::Oom => "the sandbox's memory limit is reached: end a job or wait for other calls",
        Cause::Invalid => "the label is in use: choose another",
        _ => "wait for other calls and try again",
    };
    failed(cause, format!("cannot start file server {label} ({error}); {remedy}"))
}
