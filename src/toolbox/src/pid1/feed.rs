//! PID 1's end of a keeper: a pipe that never blocks it and holds at most one piece that did not fit yet.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, write};
use protocol::{End, Ids};

use super::{keeper, lockdown};

/// A running or ended keeper.
pub(super) struct Feed {
    number: u64,
    pub(super) pid: i32,
    /// `None` when everything was given, or the keeper is gone.
    pipe: Option<OwnedFd>,
    waiting: Vec<u8>,
    end: Option<End>,
    /// Epoll watches the pipe.
    pub(super) watched: bool,
}

impl Feed {
    /// Starts a keeper for the output with this number.
    pub(super) fn start(number: u64, ids: Ids, ruleset: Option<&OwnedFd>) -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // Fewer turns for long outputs; a smaller pipe does as well.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(256 * 1024));
        let pid = lockdown::start(ids, ruleset, reader, |pipe| keeper::serve(pipe, number))?;
        Ok(Self { number, pid, pipe: Some(writer), waiting: Vec::new(), end: None, watched: false })
    }

    /// Gives it more. What does not fit waits; nothing more may be given until it went.
    pub(super) fn give(&mut self, bytes: &[u8]) {
        if self.pipe.is_none() {
            return;
        }
        if !self.waiting.is_empty() {
            self.waiting.extend_from_slice(bytes);
            return;
        }
        let given = self.write(bytes);
        if self.pipe.is_some() {
            self.waiting.extend_from_slice(&bytes[given..]);
        }
    }

    /// Goes on giving what waits.
    pub(super) fn resume(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let given = self.write(&waiting);
        if self.pipe.is_some() {
            self.waiting.extend_from_slice(&waiting[given..]);
        }
    }

    /// Something waits: the command's output is not to be read until it went.
    pub(super) fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The pipe, while it is open.
    pub(super) fn pipe(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    /// Says that nothing more will come.
    pub(super) fn close(&mut self) {
        self.pipe = None;
        self.waiting = Vec::new();
    }

    /// Takes note of its end.
    pub(super) fn ended(&mut self, end: Option<End>) {
        self.end = end.or(Some(End::Exited(-1)));
        self.close();
    }

    /// It has ended.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Where the output is kept and whether a middle part is missing, if it is kept.
    pub(super) fn kept(&self) -> Option<(String, bool)> {
        match self.end {
            Some(End::Exited(keeper::WHOLE)) => Some((keeper::path(self.number), false)),
            Some(End::Exited(keeper::CUT)) => Some((keeper::path(self.number), true)),
            _ => None,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut given = 0;
        while let Some(pipe) = &self.pipe
            && given < bytes.len()
        {
            match write(pipe, &bytes[given..]) {
                Ok(length) => given += length,
                Err(nix::Error::EAGAIN) => break,
                Err(nix::Error::EINTR) => {}
                // It gave up: /tmp is full, or it was killed. Its exit code says what became of the output.
                Err(_) => self.close(),
            }
        }
        given
    }
}

impl Drop for Feed {
    /// Ends a keeper that is not waited for any more.
    fn drop(&mut self) {
        if self.end.is_none() {
            // SAFETY: a plain system call; the child is not reaped yet, so the number is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_waits_and_a_reader_that_left_is_no_error() {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        let (number, pid, end) = (1, -1, Some(End::Exited(keeper::WHOLE)));
        let mut feed = Feed { number, pid, pipe: Some(writer), waiting: Vec::new(), end, watched: false };
        feed.give(&vec![1; 100_000]);
        assert!(feed.is_full());
        let mut buffer = vec![0; 100_000];
        let mut read = 0;
        while read < 100_000 {
            read += nix::unistd::read(&reader, &mut buffer).unwrap_or(0);
            feed.resume();
        }
        assert!(!feed.is_full());
        assert_eq!(feed.kept(), Some(("/tmp/.runner/out/1.log".to_owned(), false)));
        drop(reader);
        feed.give(&[1; 10]);
        assert!(feed.pipe().is_none() && !feed.is_full());
    }
}
