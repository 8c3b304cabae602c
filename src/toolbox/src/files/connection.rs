//! Blocking frames on a file server's connection, and the flow of one call's bytes under credit.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use protocol::frame::MAX_PAYLOAD;
use protocol::{Call, Decoder, Done, Entry, Frame, FromSandbox, INITIAL_CREDIT, MAX_BODY, MAX_CALLS, MAX_KEY, Outcome};
use protocol::{ToSandbox, encode};

use super::fault::{Fault, LinkError};

/// Bytes read from the socket at once.
const READ: usize = 64 * 1024;

/// Bytes that stay allocated in a buffer that a large frame went through.
pub(super) const KEEP: usize = 64 * 1024;

/// Consumed bytes after which the host is granted new credit, so that not every small chunk costs a frame.
const GRANT: u32 = INITIAL_CREDIT / 4;

/// Frames that may wait while a call is being served; the host never has that many under way.
const MAX_WAITING: usize = 64 * 1024;

/// The connection to the host.
#[derive(Debug)]
pub(super) struct Connection {
    socket: UnixStream,
    decoder: Decoder,
    input: Box<[u8]>,
    output: Vec<u8>,
    /// Frames that arrived while another call was served, in order.
    waiting: VecDeque<Frame<ToSandbox>>,
    waiting_calls: usize,
    last_id: u64,
}

impl Connection {
    /// Speaks on `socket`.
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            input: vec![0; READ].into_boxed_slice(),
            output: Vec::new(),
            waiting: VecDeque::new(),
            waiting_calls: 0,
            last_id: 0,
        }
    }

    /// Waits for the host's welcome and says ready.
    pub(super) fn greet(&mut self) -> Result<(), LinkError> {
        match self.receive()?.header {
            ToSandbox::Welcome(welcome) if (protocol::OLDEST..=protocol::VERSION).contains(&welcome.version) => {}
            ToSandbox::Welcome(_) => return Err(LinkError::Rule("a version this build does not speak")),
            _ => return Err(LinkError::Rule("the first frame must be a welcome")),
        }
        self.send(&FromSandbox::Ready { known: Vec::new() }, &[])
    }

    /// The next call, in the order asked, with the first part of its body.
    pub(super) fn next_call(&mut self) -> Result<(Call, Vec<u8>), LinkError> {
        loop {
            let frame = match self.waiting.pop_front() {
                Some(frame) => frame,
                None => self.receive()?,
            };
            let ToSandbox::Call(call) = frame.header else {
                // Left over from a call that ended before its last chunk, credit or cancel arrived.
                self.answer_ping(&frame.header)?;
                continue;
            };
            self.waiting_calls = self.waiting_calls.saturating_sub(1);
            let cancelled =
                |waiting: &Frame<ToSandbox>| matches!(waiting.header, ToSandbox::Cancel { id } if id == call.id);
            if self.waiting.iter().any(cancelled) {
                self.done(call.id, Fault::Cancelled.outcome(), &[])?;
                continue;
            }
            return Ok((call, frame.payload));
        }
    }

    /// Ends a call.
    pub(super) fn done(&mut self, id: u64, outcome: Outcome, payload: &[u8]) -> Result<(), LinkError> {
        self.send(&FromSandbox::Done(Box::new(Done { id, outcome })), payload)
    }

    fn send(&mut self, message: &FromSandbox, payload: &[u8]) -> Result<(), LinkError> {
        self.output.clear();
        encode(message, payload, &mut self.output)?;
        self.socket.write_all(&self.output)?;
        if self.output.capacity() > KEEP {
            self.output.clear();
            self.output.shrink_to(KEEP);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Frame<ToSandbox>, LinkError> {
        let frame = loop {
            if let Some(frame) = self.decoder.next::<ToSandbox>()? {
                break frame;
            }
            match self.socket.read(&mut self.input) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => self.decoder.push(&self.input[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        };
        if let ToSandbox::Call(call) = &frame.header {
            if call.id <= self.last_id {
                return Err(LinkError::Rule("call ids must increase"));
            }
            if call.key.len() > MAX_KEY || call.body > MAX_BODY || call.body < frame.payload.len() as u64 {
                return Err(LinkError::Rule(
                    "a call's key or body is over its cap, or its body is shorter than its payload",
                ));
            }
            self.last_id = call.id;
            self.waiting_calls += 1;
            if self.waiting_calls > MAX_CALLS {
                return Err(LinkError::Rule("too many unfinished calls"));
            }
        }
        Ok(frame)
    }

    fn answer_ping(&mut self, message: &ToSandbox) -> Result<(), LinkError> {
        match message {
            ToSandbox::Ping { nonce } => self.send(&FromSandbox::Pong { nonce: *nonce }, &[]),
            _ => Ok(()),
        }
    }

    /// The next frame that belongs to call `id`; frames of others wait.
    fn receive_for(&mut self, id: u64) -> Result<Frame<ToSandbox>, LinkError> {
        if let Some(at) = self.waiting.iter().position(|frame| call_of(&frame.header) == Some(id)) {
            return Ok(self.waiting.remove(at).expect("the position was just found"));
        }
        loop {
            let frame = self.receive()?;
            if call_of(&frame.header) == Some(id) {
                return Ok(frame);
            }
            if matches!(frame.header, ToSandbox::Ping { .. }) {
                self.answer_ping(&frame.header)?;
            } else if self.waiting.len() >= MAX_WAITING {
                return Err(LinkError::Rule("too many frames for calls that have not begun"));
            } else {
                self.waiting.push_back(frame);
            }
        }
    }
}

/// The call that a frame continues; `None` for frames that begin one or belong to none.
fn call_of(message: &ToSandbox) -> Option<u64> {
    match message {
        ToSandbox::Chunk { id }
        | ToSandbox::Entry { id, .. }
        | ToSandbox::EndOfEntries { id }
        | ToSandbox::Credit { id, .. }
        | ToSandbox::Cancel { id } => Some(*id),
        ToSandbox::Call(_) | ToSandbox::Welcome(_) | ToSandbox::Forget { .. } | ToSandbox::Ping { .. } => None,
    }
}

/// What the host sends while a call is served.
#[derive(Debug)]
pub(super) enum Inbound {
    /// Bytes of the body or of the last entry.
    Chunk(Vec<u8>),
    /// The next entry of a copy.
    Entry(Entry),
    /// No more entries.
    End,
}

/// One call's use of the connection.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    connection: &'a mut Connection,
    id: u64,
    deadline: Instant,
    may_send: u64,
    may_receive: u32,
    consumed: u32,
}

impl<'a> Exchange<'a> {
    /// The use of `connection` by the call that just began.
    pub(super) fn new(connection: &'a mut Connection, call: &Call) -> Self {
        // A year stands for "no limit" and keeps the sum in range.
        let limit = Duration::from_millis(call.timeout_ms).min(Duration::from_hours(365 * 24));
        Self {
            connection,
            id: call.id,
            deadline: Instant::now() + limit,
            may_send: u64::from(INITIAL_CREDIT),
            may_receive: INITIAL_CREDIT,
            consumed: 0,
        }
    }

    /// Fails when the call's time is over; for loops over what the sandbox can make arbitrarily long.
    pub(super) fn check_time(&self) -> Result<(), Fault> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(Fault::Timeout) }
    }

    /// When the call's time is over.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for what the host sends next for this call. `more` says that chunks are still to come after it, so that
    /// credit is worth a frame.
    pub(super) fn receive(&mut self, more: bool) -> Result<Inbound, Fault> {
        if more && self.consumed >= GRANT {
            let credit = FromSandbox::Credit { id: self.id, bytes: self.consumed };
            self.connection.send(&credit, &[])?;
            self.may_receive += self.consumed;
            self.consumed = 0;
        }
        loop {
            let frame = self.connection.receive_for(self.id)?;
            match frame.header {
                ToSandbox::Chunk { .. } => {
                    let length = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
                    self.may_receive =
                        self.may_receive.checked_sub(length).ok_or(LinkError::Rule("chunks beyond their credit"))?;
                    self.consumed += length;
                    return Ok(Inbound::Chunk(frame.payload));
                }
                ToSandbox::Entry { entry, .. } => return Ok(Inbound::Entry(entry)),
                ToSandbox::EndOfEntries { .. } => return Ok(Inbound::End),
                other => self.take(&other)?,
            }
        }
    }

    /// Hands the call's body of `length` bytes to `take`, part by part; `begun` came with the call.
    pub(super) fn body(
        &mut self,
        begun: &[u8],
        length: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        take(begun)?;
        let mut left = length - begun.len() as u64;
        while left > 0 {
            let Inbound::Chunk(bytes) = self.receive(true)? else {
                return Err(LinkError::Rule("an entry in a body").into());
            };
            left = left.checked_sub(bytes.len() as u64).ok_or(LinkError::Rule("a body longer than announced"))?;
            take(&bytes)?;
        }
        Ok(())
    }

    /// Sends an entry of a copy.
    pub(super) fn send_entry(&mut self, entry: Entry) -> Result<(), Fault> {
        Ok(self.connection.send(&FromSandbox::Entry { id: self.id, entry }, &[])?)
    }

    /// Sends `bytes` in chunks, waiting for credit where it is used up.
    pub(super) fn send_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            while self.may_send == 0 {
                let frame = self.connection.receive_for(self.id)?;
                self.take(&frame.header)?;
            }
            let most = usize::try_from(self.may_send).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD);
            let (part, rest) = bytes.split_at(most.min(bytes.len()));
            self.connection.send(&FromSandbox::Chunk { id: self.id }, part)?;
            self.may_send -= part.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    fn take(&mut self, message: &ToSandbox) -> Result<(), Fault> {
        match message {
            ToSandbox::Credit { bytes, .. } => {
                self.may_send = self.may_send.saturating_add(u64::from(*bytes));
                Ok(())
            }
            ToSandbox::Cancel { .. } => Err(Fault::Cancelled),
            _ => Err(LinkError::Rule("a chunk or entry for a call that takes none").into()),
        }
    }
}
