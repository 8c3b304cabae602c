//! The host's side of a file server, for tests: a server on a thread, and calls to it that keep the rules of credit.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::{
    Call, Cause, Decoder, Done, Entry, Frame, FromSandbox, INITIAL_CREDIT, Ids, Outcome, Request, ToSandbox, Welcome,
    encode, frame::MAX_PAYLOAD,
};

use crate::session::Session;

/// A session whose working directory is `directory` and whose HOME is /tmp/home.
pub(super) fn session_in(directory: impl Into<PathBuf>) -> Session {
    let id = 65_534;
    Session {
        ids: Ids { agent: id, worker: id, first_tag: id, tags: 1 },
        environment: vec![("HOME".to_owned(), "/tmp/home".to_owned())],
        directory: directory.into(),
        home: PathBuf::from("/tmp/home"),
    }
}

/// What came back for a call.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    pub(super) payload: Vec<u8>,
    /// All chunks, one after the other.
    pub(super) streamed: Vec<u8>,
    /// Entries of a copy, each with its bytes.
    pub(super) entries: Vec<(Entry, Vec<u8>)>,
}

impl Reply {
    /// Cause and message of a failure.
    pub(super) fn failure(&self) -> (Cause, &str) {
        match &self.outcome {
            Outcome::Failed { cause, message } => (*cause, message),
            other => panic!("expected a failure, got {other:?}"),
        }
    }

    /// The payload as text.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("the payload is valid UTF-8")
    }
}

/// A server and the connection to it.
pub(super) struct Host {
    socket: UnixStream,
    decoder: Decoder,
    last_id: u64,
    server: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts a server whose working directory is `directory`.
    pub(super) fn start(directory: impl Into<PathBuf>, resident: bool) -> Self {
        Self::start_as(directory, resident, || {})
    }

    /// Starts a server that first does `prepare` on its thread.
    pub(super) fn start_as(
        directory: impl Into<PathBuf>,
        resident: bool,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (socket, link) = UnixStream::pair().unwrap();
        let session = session_in(directory);
        let welcome = Welcome {
            version: protocol::VERSION,
            ids: session.ids,
            environment: session.environment.clone(),
            directory: session.directory.to_string_lossy().into_owned(),
            orphan_grace: 1,
            unfinished: Vec::new(),
        };
        let server = std::thread::spawn(move || {
            prepare();
            super::serve(link, &session, resident);
        });
        let mut host = Self { socket, decoder: Decoder::new(), last_id: 0, server: Some(server) };
        host.send(&ToSandbox::Welcome(Box::new(welcome)), &[]);
        assert_eq!(host.receive().unwrap().header, FromSandbox::Ready { known: Vec::new() });
        host
    }

    /// Sends one frame.
    pub(super) fn send(&mut self, message: &ToSandbox, payload: &[u8]) {
        let mut bytes = Vec::new();
        encode(message, payload, &mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next frame; `None` when the server hung up.
    pub(super) fn receive(&mut self) -> Option<Frame<FromSandbox>> {
        let mut block = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            match self.socket.read(&mut block) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.decoder.push(&block[..count]),
            }
        }
    }

    /// Begins a call and returns its id.
    pub(super) fn begin(&mut self, request: Request, begun: &[u8], body: u64) -> u64 {
        self.begin_for(request, begun, body, Duration::from_mins(1))
    }

    fn begin_for(&mut self, request: Request, begun: &[u8], body: u64, limit: Duration) -> u64 {
        self.last_id += 1;
        let key = format!("test/1/{}", self.last_id);
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap();
        self.send(&ToSandbox::Call(Call { id: self.last_id, key, timeout_ms, body, request }), begun);
        self.last_id
    }

    /// Makes a call that has this much time.
    pub(super) fn call_for(&mut self, request: Request, limit: Duration) -> Reply {
        let id = self.begin_for(request, &[], 0, limit);
        self.finish(id, Flow::default())
    }

    /// Makes a call without a body.
    pub(super) fn call(&mut self, request: Request) -> Reply {
        self.call_with(request, &[])
    }

    /// Makes a call with a body, which goes in the first frame as far as it fits.
    pub(super) fn call_with(&mut self, request: Request, body: &[u8]) -> Reply {
        let (begun, rest) = body.split_at(body.len().min(MAX_PAYLOAD));
        let id = self.begin(request, begun, body.len() as u64);
        let mut flow = Flow::default();
        self.send_chunks(id, rest, &mut flow);
        self.finish(id, flow)
    }

    /// Makes a call that takes entries.
    pub(super) fn put(&mut self, path: &str, entries: &[(Entry, Vec<u8>)]) -> Reply {
        let id = self.begin(Request::Put { path: path.to_owned() }, &[], 0);
        let mut flow = Flow::default();
        for (entry, bytes) in entries {
            self.send(&ToSandbox::Entry { id, entry: entry.clone() }, &[]);
            self.send_chunks(id, bytes, &mut flow);
            if flow.done.is_some() {
                break;
            }
        }
        self.send(&ToSandbox::EndOfEntries { id }, &[]);
        self.finish(id, flow)
    }

    fn send_chunks(&mut self, id: u64, mut rest: &[u8], flow: &mut Flow) {
        while !rest.is_empty() && flow.done.is_none() {
            while flow.credit == 0 && flow.done.is_none() {
                let frame = self.receive().expect("the server is there");
                flow.take(id, frame);
            }
            // An odd size, so that borders fall anywhere.
            let most = usize::try_from(flow.credit).unwrap().min(50_021).min(rest.len());
            let (part, left) = rest.split_at(most);
            self.send(&ToSandbox::Chunk { id }, part);
            flow.credit -= part.len() as u64;
            rest = left;
        }
    }

    /// Waits for the end of a call, granting credit as its chunks arrive.
    fn finish(&mut self, id: u64, mut flow: Flow) -> Reply {
        while flow.done.is_none() {
            let frame = self.receive().expect("the server answers before it hangs up");
            let length = u32::try_from(frame.payload.len()).unwrap();
            let chunk = matches!(frame.header, FromSandbox::Chunk { .. });
            flow.take(id, frame);
            if chunk {
                flow.in_flight += u64::from(length);
                assert!(flow.in_flight <= u64::from(INITIAL_CREDIT), "chunks beyond their credit");
                // Granted late, so that the server does run out of it.
                if flow.in_flight == u64::from(INITIAL_CREDIT) {
                    self.send(&ToSandbox::Credit { id, bytes: INITIAL_CREDIT }, &[]);
                    flow.in_flight = 0;
                }
            }
        }
        let (outcome, payload) = flow.done.unwrap();
        Reply { outcome, payload, streamed: flow.streamed, entries: flow.entries }
    }

    /// Waits for the end of a call that was begun before.
    pub(super) fn end_of(&mut self, id: u64) -> Reply {
        self.finish(id, Flow::default())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let ended = self.server.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

struct Flow {
    credit: u64,
    in_flight: u64,
    streamed: Vec<u8>,
    entries: Vec<(Entry, Vec<u8>)>,
    done: Option<(Outcome, Vec<u8>)>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { credit: u64::from(INITIAL_CREDIT), in_flight: 0, streamed: Vec::new(), entries: Vec::new(), done: None }
    }
}

impl Flow {
    fn take(&mut self, call: u64, frame: Frame<FromSandbox>) {
        match frame.header {
            FromSandbox::Chunk { id } if id == call => {
                self.streamed.extend_from_slice(&frame.payload);
                if let Some((_, bytes)) = self.entries.last_mut() {
                    bytes.extend_from_slice(&frame.payload);
                }
            }
            FromSandbox::Entry { id, entry } if id == call => self.entries.push((entry, Vec::new())),
            FromSandbox::Credit { id, bytes } if id == call => self.credit += u64::from(bytes),
            FromSandbox::Done(done) if done.id == call => {
                let Done { outcome, .. } = *done;
                self.done = Some((outcome, frame.payload));
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}
