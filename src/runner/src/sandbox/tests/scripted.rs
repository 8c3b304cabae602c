//! The other end of the link: one that says what a test wants, and one that keeps the rules as PID 1 does.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use protocol::{
    BashEnd, Call, CallState, Decoder, Done, End, Frame, FromSandbox, Hello, INITIAL_CREDIT, Known, OLDEST, Outcome,
    Request, Role, ToSandbox, VERSION, Welcome, encode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::super::facts;

/// A connection that says whatever the test wants.
pub(super) struct Peer {
    pub(super) stream: UnixStream,
    decoder: Decoder,
}

impl Peer {
    pub(super) async fn connect(socket: &Path) -> Self {
        Self { stream: UnixStream::connect(socket).await.unwrap(), decoder: Decoder::new() }
    }

    /// A control connection after a proper handshake.
    pub(super) async fn control(socket: &Path) -> Self {
        let mut peer = Self::connect(socket).await;
        peer.send(&control_hello(), b"").await;
        assert!(matches!(peer.receive().await, Some(Frame { header: ToSandbox::Welcome(_), .. })));
        peer.send(&FromSandbox::Ready { known: Vec::new() }, b"").await;
        peer
    }

    /// A files connection after a proper handshake.
    pub(super) async fn files(socket: &Path, label: u64) -> Self {
        let mut peer = Self::connect(socket).await;
        peer.send(&hello(Role::Files { label }), b"").await;
        assert!(matches!(peer.receive().await, Some(Frame { header: ToSandbox::Welcome(_), .. })));
        peer.send(&FromSandbox::Ready { known: Vec::new() }, b"").await;
        peer
    }

    pub(super) async fn send(&mut self, message: &FromSandbox, payload: &[u8]) {
        let _ = self.stream.write_all(&frame(message, payload)).await;
    }

    pub(super) async fn receive(&mut self) -> Option<Frame<ToSandbox>> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.decoder.push(&buffer[..count]),
            }
        }
    }

    /// The next call, past credit and the like.
    pub(super) async fn next_call(&mut self) -> (Call, Vec<u8>) {
        loop {
            match self.receive().await.expect("a call, not the end") {
                Frame { header: ToSandbox::Call(call), payload } => return (call, payload),
                other => drop(other),
            }
        }
    }

    pub(super) async fn done(&mut self, id: u64, outcome: Outcome, payload: &[u8]) {
        self.send(&FromSandbox::Done(Box::new(Done { id, outcome })), payload).await;
    }
}

pub(super) fn frame(message: &FromSandbox, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, payload, &mut bytes).unwrap();
    bytes
}

pub(super) fn hello(role: Role) -> FromSandbox {
    FromSandbox::Hello(Box::new(Hello { version: VERSION, oldest: OLDEST, role }))
}

pub(super) fn control_hello() -> FromSandbox {
    hello(Role::Control(Box::new(facts::good(0))))
}

pub(super) fn bash_end(payload: &[u8]) -> Outcome {
    Outcome::Bash(BashEnd {
        end: End::Exited(0),
        head: payload.len() as u64,
        total_bytes: payload.len() as u64,
        total_lines: 1,
        omitted_bytes: 0,
        omitted_lines: 0,
        kept: None,
        kept_is_cut: false,
        full: None,
        duration_ms: 1,
    })
}

/// Where the next connections break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// After so many bytes from the host.
    Heard(usize),
    /// After so many bytes to the host.
    Said(usize),
}

/// A PID 1 that follows the protocol: it runs each command for a moment, keeps results until they are forgotten and
/// connects again whenever its connection breaks, which happens where `cuts` say.
#[derive(Debug, Default)]
pub(super) struct Faithful {
    cuts: RefCell<Vec<Cut>>,
    pub(super) on_cut: RefCell<Option<mpsc::UnboundedSender<()>>>,
    /// How often each call was begun.
    pub(super) begun: RefCell<BTreeMap<String, u32>>,
    kept: RefCell<BTreeMap<String, (Outcome, Vec<u8>)>>,
    pub(super) heard: Cell<usize>,
    pub(super) said: Cell<usize>,
    running: RefCell<HashMap<String, Option<u64>>>,
}

enum Event {
    Heard(io::Result<usize>),
    Ended(String),
}

impl Faithful {
    pub(super) fn new(cuts: Vec<Cut>) -> Rc<Self> {
        Rc::new(Self { cuts: RefCell::new(cuts), ..Self::default() })
    }

    /// Keys of results that nobody has forgotten.
    pub(super) fn kept(&self) -> Vec<String> {
        self.kept.borrow().keys().cloned().collect()
    }

    /// Connects for ever.
    pub(super) async fn run(self: Rc<Self>, socket: PathBuf) {
        let (ended, mut ends) = mpsc::unbounded_channel();
        loop {
            if let Ok(stream) = UnixStream::connect(&socket).await {
                let cut = self.cuts.borrow_mut().pop();
                let _ = Line { stream, cut, heard: 0, said: 0, pid1: &self }.serve(&ended, &mut ends).await;
                for id in self.running.borrow_mut().values_mut() {
                    *id = None;
                }
                if cut.is_some()
                    && let Some(on_cut) = &*self.on_cut.borrow()
                {
                    let _ = on_cut.send(());
                }
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    fn begin(self: &Rc<Self>, call: &Call, body: &[u8], ended: &mpsc::UnboundedSender<String>) {
        *self.begun.borrow_mut().entry(call.key.clone()).or_default() += 1;
        let payload = format!("{} bytes", body.len()).into_bytes();
        let outcome = match call.request {
            Request::Bash { .. } => bash_end(&payload),
            _ => Outcome::Nothing,
        };
        let payload = if outcome == Outcome::Nothing { Vec::new() } else { payload };
        self.running.borrow_mut().insert(call.key.clone(), Some(call.id));
        let (pid1, key, ended) = (Rc::clone(self), call.key.clone(), ended.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_micros(500)).await;
            pid1.kept.borrow_mut().insert(key.clone(), (outcome, payload));
            let _ = ended.send(key);
        });
    }
}

struct Line<'a> {
    stream: UnixStream,
    cut: Option<Cut>,
    heard: usize,
    said: usize,
    pid1: &'a Rc<Faithful>,
}

impl Line<'_> {
    async fn serve(
        &mut self,
        ended: &mpsc::UnboundedSender<String>,
        ends: &mut mpsc::UnboundedReceiver<String>,
    ) -> io::Result<()> {
        let mut decoder = Decoder::new();
        let mut bodies: HashMap<u64, (Call, Vec<u8>)> = HashMap::new();
        self.say(&control_hello(), b"").await?;
        loop {
            let mut buffer = [0; 4096];
            let may_hear = match self.cut {
                Some(Cut::Heard(limit)) => (limit - self.heard).min(buffer.len()),
                _ => buffer.len(),
            };
            if may_hear == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let event = tokio::select! {
                count = self.stream.read(&mut buffer[..may_hear]) => Event::Heard(count),
                Some(key) = ends.recv() => Event::Ended(key),
            };
            match event {
                Event::Ended(key) => {
                    let asked = self.pid1.running.borrow_mut().remove(&key);
                    if let Some(Some(id)) = asked {
                        let (outcome, payload) = self.pid1.kept.borrow()[&key].clone();
                        self.say(&FromSandbox::Done(Box::new(Done { id, outcome })), &payload).await?;
                    }
                    continue;
                }
                Event::Heard(count) => match count? {
                    0 => return Ok(()),
                    count => {
                        self.heard += count;
                        self.pid1.heard.set(self.pid1.heard.get() + count);
                        decoder.push(&buffer[..count]);
                    }
                },
            }
            while let Some(Frame { header, payload }) = decoder.next().unwrap() {
                match header {
                    ToSandbox::Welcome(welcome) => self.ready(&welcome).await?,
                    ToSandbox::Call(call) => {
                        assert!(bodies.keys().all(|id| *id < call.id), "ids increase");
                        bodies.insert(call.id, (call, payload));
                    }
                    ToSandbox::Chunk { id } => {
                        bodies.get_mut(&id).unwrap().1.extend_from_slice(&payload);
                        let bytes = u32::try_from(payload.len()).unwrap();
                        assert!(bytes <= INITIAL_CREDIT);
                        self.say(&FromSandbox::Credit { id, bytes }, b"").await?;
                    }
                    ToSandbox::Forget { key } => drop(self.pid1.kept.borrow_mut().remove(&key)),
                    ToSandbox::Ping { nonce } => self.say(&FromSandbox::Pong { nonce }, b"").await?,
                    _ => {}
                }
                bodies.retain(|_, (call, body)| {
                    let whole = body.len() as u64 == call.body;
                    if whole {
                        self.pid1.begin(call, body, ended);
                    }
                    !whole
                });
            }
        }
    }

    async fn ready(&mut self, welcome: &Welcome) -> io::Result<()> {
        let mut known = Vec::new();
        let mut finished = Vec::new();
        for unfinished in &welcome.unfinished {
            let mut running = self.pid1.running.borrow_mut();
            let state = if let Some((outcome, payload)) = self.pid1.kept.borrow().get(&unfinished.key) {
                running.remove(&unfinished.key);
                finished.push((unfinished.id, outcome.clone(), payload.clone()));
                CallState::Finished
            } else if let Some(id) = running.get_mut(&unfinished.key) {
                *id = Some(unfinished.id);
                CallState::Running
            } else {
                CallState::Unknown
            };
            known.push(Known { key: unfinished.key.clone(), state });
        }
        self.say(&FromSandbox::Ready { known }, b"").await?;
        for (id, outcome, payload) in finished {
            self.say(&FromSandbox::Done(Box::new(Done { id, outcome })), &payload).await?;
        }
        Ok(())
    }

    async fn say(&mut self, message: &FromSandbox, payload: &[u8]) -> io::Result<()> {
        let bytes = frame(message, payload);
        let may_say = match self.cut {
            Some(Cut::Said(limit)) => (limit - self.said).min(bytes.len()),
            _ => bytes.len(),
        };
        self.stream.write_all(&bytes[..may_say]).await?;
        self.said += may_say;
        self.pid1.said.set(self.pid1.said.get() + may_say);
        if may_say < bytes.len() || self.cut == Some(Cut::Said(self.said)) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}
