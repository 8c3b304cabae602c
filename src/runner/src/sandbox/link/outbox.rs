//! Bytes on their way to the socket: written at once when it takes them, queued when it does not.

use std::io;

use protocol::{FrameError, ToSandbox, encode};
use tokio::net::unix::OwnedWriteHalf;

use crate::crash;

/// Queued bytes above which nothing but small answers may be added.
const HIGH: usize = 512 * 1024;

/// What one connection still has to write.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Vec<u8>,
    start: usize,
    scratch: Vec<u8>,
    /// Bytes given to the kernel so far.
    written: u64,
    /// Bytes given to this outbox so far.
    accepted: u64,
}

impl Outbox {
    /// True when another call or chunk may be added.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() - self.start < HIGH
    }

    /// True when the socket did not take everything yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.start < self.queue.len()
    }

    /// Bytes accepted so far; once [`Outbox::has_written`] this many, all of them are on their way.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// True when the first `count` bytes were given to the kernel.
    pub(super) fn has_written(&self, count: u64) -> bool {
        self.written >= count
    }

    /// Writes a frame, or queues what the socket does not take now.
    pub(super) fn send(&mut self, to: &OwnedWriteHalf, message: &ToSandbox, payload: &[u8]) -> Result<(), FrameError> {
        crash::point("link.send");
        self.scratch.clear();
        encode(message, payload, &mut self.scratch)?;
        crash::point("link.send");
        self.accepted += self.scratch.len() as u64;
        let mut done = 0;
        if !self.is_waiting() {
            // An error other than "would block" means that the peer is gone, which the reader sees too.
            while done < self.scratch.len()
                && let Ok(count) = to.try_write(&self.scratch[done..])
            {
                done += count;
            }
            self.written += done as u64;
        }
        self.queue.extend_from_slice(&self.scratch[done..]);
        self.scratch.shrink_to(16 * 1024);
        Ok(())
    }

    /// Writes queued bytes; an error of kind `WouldBlock` means that some are left.
    pub(super) fn flush(&mut self, to: &OwnedWriteHalf) -> io::Result<()> {
        while self.is_waiting() {
            let count = to.try_write(&self.queue[self.start..])?;
            self.start += count;
            self.written += count as u64;
        }
        self.queue.clear();
        self.start = 0;
        self.queue.shrink_to(16 * 1024);
        Ok(())
    }
}
