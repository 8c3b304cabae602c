//! One connection that carries calls.
//!
//! The fast path of a call is short: the caller writes its frame straight to the socket, one reader per connection takes
//! the answer off it and wakes the caller. Nothing here grows with what the other side sends: a frame is capped, streams
//! are under credit and wait in short channels, and an answer without a question ends the connection.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use protocol::frame::MAX_PAYLOAD;
use protocol::{Call, Decoder, Entry, FromSandbox, INITIAL_CREDIT, MAX_CALLS, Request, ToSandbox};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::handshake::{End, Framed};
use super::outbox::Outbox;
use super::slot::{Answer, Ears, Slot, WINDOW};
use crate::crash;

/// Bytes read at once.
const READ: usize = 64 * 1024;

/// Largest piece of a body or file sent in one frame.
const PIECE: usize = 64 * 1024;

/// The connection is closed: what was to be sent was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

/// What a call looks like to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) key: &'a str,
    pub(super) request: &'a Request,
    pub(super) body: &'a [u8],
    pub(super) timeout: Duration,
}

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) write: OwnedWriteHalf,
    table: Mutex<Table>,
    /// Told when credit, room or a place in the table may have become free, or the connection closed.
    pub(super) changed: Notify,
    /// Told when the outbox has something to write later.
    waiting: Notify,
    closing: Notify,
}

/// The reading end, for [`Connection::run`].
#[derive(Debug)]
pub(super) struct Reader {
    read: OwnedReadHalf,
    decoder: Decoder,
}

#[derive(Debug)]
pub(super) struct Table {
    open: bool,
    last_id: u64,
    pub(super) calls: HashMap<u64, Slot>,
    pub(super) pings: HashMap<u64, oneshot::Sender<()>>,
    outbox: Outbox,
    pub(super) last_done: Instant,
}

impl Connection {
    /// Takes over a connection whose handshake is done. `calls` are unfinished calls of earlier connections with the
    /// ids they have on this one; `last_id` is the highest id given out so far.
    pub(super) fn new(framed: Framed, calls: HashMap<u64, Slot>, last_id: u64) -> (Self, Reader) {
        let (read, write) = UnixStream::into_split(framed.stream);
        let table = Table {
            open: true,
            last_id,
            calls,
            pings: HashMap::new(),
            outbox: Outbox::default(),
            last_done: Instant::now(),
        };
        let connection = Self {
            write,
            table: Mutex::new(table),
            changed: Notify::new(),
            waiting: Notify::new(),
            closing: Notify::new(),
        };
        (connection, Reader { read, decoder: framed.decoder })
    }

    /// Sends a call with the first part of its body, when there is a place for it.
    pub(super) async fn start(&self, call: Outgoing<'_>) -> Result<(u64, Ears), Closed> {
        self.when(|table| table.start(&self.write, call)).await
    }

    /// Sends what [`Connection::start`] left of a body, under credit. Returns early when the call has ended.
    pub(super) async fn send_body(&self, id: u64, body: &[u8]) {
        let mut rest = body.get(MAX_PAYLOAD..).unwrap_or_default();
        while !rest.is_empty() {
            let Ok(sent) = self.send_piece(id, rest, true).await else { return };
            rest = &rest[sent..];
        }
    }

    /// Sends bytes of a copied file, under credit.
    pub(super) async fn send_chunk(&self, id: u64, bytes: &[u8]) -> Result<(), Closed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = self.send_piece(id, rest, false).await?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Sends the next entry of a copy, or the end of all.
    pub(super) async fn send_entry(&self, id: u64, entry: Option<Entry>) -> Result<(), Closed> {
        let message = match entry {
            Some(entry) => ToSandbox::Entry { id, entry },
            None => ToSandbox::EndOfEntries { id },
        };
        self.when(|table| {
            if !table.calls.contains_key(&id) {
                return Some(Err(Closed));
            }
            if !table.outbox.has_room() {
                return None;
            }
            Some(table.outbox.send(&self.write, &message, b"").map_err(|_| Closed))
        })
        .await
    }

    /// Lets the sandbox send more of a stream; nothing when the call has ended.
    pub(super) fn grant(&self, id: u64, bytes: u32) {
        let mut table = self.lock();
        if let Some(slot) = table.calls.get_mut(&id) {
            slot.window += u64::from(bytes);
            table.post(&self.write, &ToSandbox::Credit { id, bytes });
        }
        self.flush_later(&table);
    }

    /// Sends `Cancel` for the call of this key; false when it is not here.
    pub(super) fn cancel(&self, key: &str) -> bool {
        let mut table = self.lock();
        let found = table.calls.iter_mut().find(|(_, slot)| slot.key == key).map(|(id, slot)| {
            let first = !std::mem::replace(&mut slot.cancelled, true);
            (*id, first)
        });
        if let Some((id, true)) = found {
            table.post(&self.write, &ToSandbox::Cancel { id });
            self.flush_later(&table);
        }
        found.is_some()
    }

    /// Sends `Cancel` again for calls that were cancelled while there was no connection.
    pub(super) fn repeat_cancels(&self) {
        let mut table = self.lock();
        let ids: Vec<u64> = table.calls.iter().filter(|(_, slot)| slot.cancelled).map(|(id, _)| *id).collect();
        for id in ids {
            table.post(&self.write, &ToSandbox::Cancel { id });
        }
        self.flush_later(&table);
    }

    /// Tells the sandbox to drop the kept result of a call.
    pub(super) fn forget(&self, key: &str) {
        let mut table = self.lock();
        table.post(&self.write, &ToSandbox::Forget { key: key.to_owned() });
        self.flush_later(&table);
    }

    /// Sends a ping and waits for its pong.
    pub(super) async fn ping(&self, nonce: u64) -> Result<(), Closed> {
        let pong = self
            .when(|table| {
                if table.pings.len() >= MAX_CALLS || !table.outbox.has_room() {
                    return None;
                }
                let (pong, hear) = oneshot::channel();
                table.pings.insert(nonce, pong);
                table.post(&self.write, &ToSandbox::Ping { nonce });
                Some(Ok(hear))
            })
            .await?;
        pong.await.map_err(|_| Closed)
    }

    /// When the last answer came.
    pub(super) fn last_done(&self) -> Instant {
        self.lock().last_done
    }

    /// Ends the connection and gives back the calls that the other side may have begun; callers of the others are told
    /// that theirs was not sent.
    pub(super) fn close(&self) -> Vec<Slot> {
        let mut table = self.lock();
        table.open = false;
        table.pings.clear();
        // Callers that hold the connection keep its file open; the other side must hear of the end at once.
        let _ = shutdown(self.write.as_ref().as_raw_fd(), Shutdown::Both);
        let (mut begun, mut not_sent) = (Vec::new(), Vec::new());
        for (_, slot) in std::mem::take(&mut table.calls) {
            match slot.body_end {
                Some(end) if table.outbox.has_written(end) => begun.push(slot),
                _ => not_sent.push(slot),
            }
        }
        drop(table);
        for slot in not_sent {
            let _ = slot.answer.send(Answer::NotSent);
        }
        self.changed.notify_waiters();
        self.closing.notify_one();
        begun
    }

    /// Reads and answers until the connection ends. A frame that has begun must be whole within `whole_frame`.
    pub(super) async fn run(&self, mut reader: Reader, whole_frame: Duration) -> End {
        tokio::select! {
            biased;
            end = self.read(&mut reader, whole_frame) => end,
            never = self.write_waiting() => match never {},
            () = self.closing.notified() => End::Closed,
        }
    }

    /// Breaks the connection as if the other side had.
    #[cfg(test)]
    pub(super) fn sever(&self) {
        let _ = shutdown(self.write.as_ref().as_raw_fd(), Shutdown::Both);
    }

    async fn read(&self, reader: &mut Reader, whole_frame: Duration) -> End {
        let mut buffer = vec![0; READ];
        let mut began = None;
        loop {
            loop {
                match reader.decoder.next::<FromSandbox>() {
                    Ok(Some(frame)) => {
                        began = None;
                        crash::point("link.received");
                        if let Err(violation) = self.dispatch(frame).await {
                            return End::Violation(violation);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return End::Violation(error.to_string()),
                }
            }
            let read = reader.read.read(&mut buffer);
            let count = if reader.decoder.is_partial() {
                let deadline = *began.get_or_insert_with(Instant::now) + whole_frame;
                match tokio::time::timeout_at(deadline, read).await {
                    Ok(count) => count,
                    Err(_) => return End::Violation(format!("a frame was not whole after {whole_frame:?}")),
                }
            } else {
                read.await
            };
            match count {
                Ok(0) | Err(_) => return End::Dropped,
                Ok(count) => reader.decoder.push(&buffer[..count]),
            }
        }
    }

    async fn send_piece(&self, id: u64, rest: &[u8], is_body: bool) -> Result<usize, Closed> {
        self.when(|table| {
            let room = table.outbox.has_room();
            let Some(slot) = table.calls.get_mut(&id) else { return Some(Err(Closed)) };
            let allowed = usize::try_from(slot.credit).unwrap_or(usize::MAX).min(rest.len()).min(PIECE);
            if allowed == 0 || !room {
                return None;
            }
            slot.credit -= allowed as u64;
            if table.outbox.send(&self.write, &ToSandbox::Chunk { id }, &rest[..allowed]).is_err() {
                return Some(Err(Closed));
            }
            if is_body && allowed == rest.len() {
                slot.body_end = Some(table.outbox.accepted());
            }
            Some(Ok(allowed))
        })
        .await
    }

    /// Runs `attempt` now and after every change until it gives a result. Writes what it left in the outbox.
    async fn when<T>(&self, mut attempt: impl FnMut(&mut Table) -> Option<Result<T, Closed>>) -> Result<T, Closed> {
        loop {
            let changed = self.changed.notified();
            {
                let mut table = self.lock();
                if !table.open {
                    return Err(Closed);
                }
                if let Some(result) = attempt(&mut table) {
                    self.flush_later(&table);
                    return result;
                }
            }
            changed.await;
        }
    }

    /// Writes what the socket did not take at once. When the other side is gone it stops, and leaves it to the reader
    /// to take what still came before the end.
    async fn write_waiting(&self) -> std::convert::Infallible {
        loop {
            self.waiting.notified().await;
            loop {
                if self.write.writable().await.is_err() {
                    return std::future::pending().await;
                }
                let result = {
                    let mut table = self.lock();
                    table.outbox.flush(&self.write)
                };
                self.changed.notify_waiters();
                match result {
                    Ok(()) => break,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return std::future::pending().await,
                }
            }
        }
    }

    pub(super) fn flush_later(&self, table: &Table) {
        if table.outbox.is_waiting() {
            self.waiting.notify_one();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn start(&mut self, write: &OwnedWriteHalf, call: Outgoing<'_>) -> Option<Result<(u64, Ears), Closed>> {
        if self.calls.len() >= MAX_CALLS || !self.outbox.has_room() {
            return None;
        }
        let id = self.last_id + 1;
        let first = &call.body[..call.body.len().min(MAX_PAYLOAD)];
        let message = ToSandbox::Call(Call {
            id,
            key: call.key.to_owned(),
            timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
            body: call.body.len() as u64,
            request: call.request.clone(),
        });
        if self.outbox.send(write, &message, first).is_err() {
            return Some(Err(Closed));
        }
        self.last_id = id;
        let (mut slot, ears) = Slot::new(call.key.to_owned(), call.request.into());
        if first.len() == call.body.len() {
            slot.body_end = Some(self.outbox.accepted());
        }
        if slot.window > 0 {
            self.post(write, &ToSandbox::Credit { id, bytes: WINDOW - INITIAL_CREDIT });
        }
        self.calls.insert(id, slot);
        Some(Ok((id, ears)))
    }

    /// Sends a small message that may not wait; there is at most one per call, chunk or cancel, so few add up.
    pub(super) fn post(&mut self, write: &OwnedWriteHalf, message: &ToSandbox) {
        if self.open {
            let sent = self.outbox.send(write, message, b"");
            debug_assert!(sent.is_ok(), "small messages fit");
        }
    }
}
