//! A language model's provider on this machine: it speaks Anthropic's, OpenAI's or Ollama's wire format, answers from a
//! queue, fails in every way that providers do, remembers what it was asked, and refuses what the real ones refuse.
//!
//! ```ignore
//! let provider = Provider::start(Wire::Anthropic);
//! provider.push(Turn::new().say("I look.").call("toolu_1", "ls", &json!({"path": "/tmp"})));
//! provider.push(Turn::new().say("Done."));
//! place.write("config.toml", provider.config());
//! ```
//!
//! The conversation of every request is held against the rules of the real thing (`rules.rs`); one that breaks them is
//! answered with 400 and listed in [`Provider::refused`], and the answer that was due stays in the queue.

mod answer;
mod body;
mod rules;
mod wires;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) use answer::{Answer, Fault, Part, Turn};
pub(crate) use wires::Wire;

/// The key that requests must carry. It is unlike anything else, so that a test can search for it.
pub(crate) const KEY: &str = "sk-test-SENTINEL-4f1d9c72e8b35a60";

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A provider that runs until it is dropped.
pub(crate) struct Provider {
    wire: Wire,
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The path, as in `/v1/messages`.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body.
    pub(crate) body: Value,
    /// When it had come.
    pub(crate) at: Instant,
}

/// What the server's thread and the test share.
struct Shared {
    wire: Wire,
    state: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    answers: VecDeque<Answer>,
    /// Given when the queue is empty.
    always: Option<Answer>,
    requests: Vec<Request>,
    refused: Vec<String>,
    /// What it has said, for the rules that hold a conversation against it.
    issued: rules::Issued,
    hung_up: usize,
    connections: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().expect("no test panics with this lock")
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl Provider {
    /// Starts one on a free port of 127.0.0.1.
    pub(crate) fn start(wire: Wire) -> Self {
        let shared = Arc::new(Shared { wire, state: Mutex::default(), changed: Condvar::new() });
        let (stop, stopped) = oneshot::channel();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(listener, served, stopped));
        Self { wire, address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Starts one that has these answers.
    pub(crate) fn with<A: Into<Answer>>(wire: Wire, answers: impl IntoIterator<Item = A>) -> Self {
        let provider = Self::start(wire);
        for answer in answers {
            provider.push(answer);
        }
        provider
    }

    /// Adds an answer to the queue. An empty queue answers 500.
    pub(crate) fn push(&self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.shared.change(|inner| inner.answers.push_back(answer));
    }

    /// Sets what is answered when the queue is empty, again and again.
    pub(crate) fn always(&self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.shared.change(|inner| inner.always = Some(answer));
    }

    /// The value of `baseUrl`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}{}", self.address, self.wire.base_path())
    }

    /// A `config.toml` with this provider as the only model; its key is in the variable that [`Provider::variable`] names.
    pub(crate) fn config(&self) -> String {
        format!("[models.real]\n{}", self.model())
    }

    /// The lines of a `[models.X]` section.
    pub(crate) fn model(&self) -> String {
        let (name, model) = (self.wire.provider(), self.wire.model());
        format!("provider = \"{name}\"\nmodel = \"{model}\"\nbaseUrl = \"{}\"\n", self.base_url())
    }

    /// The environment variable for the key.
    pub(crate) fn variable(&self) -> &'static str {
        self.wire.variable()
    }

    /// Everything it was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The last request.
    #[track_caller]
    pub(crate) fn last(&self) -> Request {
        self.requests().pop().expect("it was asked")
    }

    /// Why it refused requests, in order.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.shared.lock().refused.clone()
    }

    /// Answers that are still in the queue.
    pub(crate) fn left(&self) -> usize {
        self.shared.lock().answers.len()
    }

    /// How many answers were under way when the client hung up.
    pub(crate) fn hung_up(&self) -> usize {
        self.shared.lock().hung_up
    }

    /// How many connections it was asked over.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits until it was asked this often.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, count: usize) {
        self.wait("requests", |inner| inner.requests.len() >= count);
    }

    /// Waits until a client has hung up this often.
    #[track_caller]
    pub(crate) fn wait_for_hang_ups(&self, count: usize) {
        self.wait("hang-ups", |inner| inner.hung_up >= count);
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&Inner) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut inner = self.shared.lock();
        while !holds(&inner) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for {what} in vain: {} so far", inner.requests.len());
            inner = self.shared.changed.wait_timeout(inner, left).expect("no test panics with this lock").0;
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: std::net::TcpListener, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    use axum::serve::ListenerExt;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        listener.set_nonblocking(true).expect("a socket");
        let counted = Arc::clone(&shared);
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket").tap_io(move |stream| {
            counted.change(|inner| inner.connections += 1);
            let _ = stream.set_nodelay(true);
        });
        let router = axum::Router::new()
            .fallback(answer)
            .layer(axum::extract::DefaultBodyLimit::max(256 * 1024 * 1024))
            .with_state(shared);
        // Answers that stall never end by themselves: the thread goes as soon as it is told to.
        tokio::select! {
            served = async { axum::serve(listener, router).await } => served.expect("it serves"),
            _ = stopped => {}
        }
    });
}

/// Answers one request.
async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let request = Request { path: uri.path().to_owned(), headers, body, at: Instant::now() };
    let wire = shared.wire;
    let mut due = None;
    let mut refusal = None;
    shared.change(|inner| {
        inner.requests.push(request.clone());
        if let Err((status, why)) = rules::check(wire, &request, &inner.issued) {
            inner.refused.push(why.clone());
            refusal = Some((status, why));
            return;
        }
        due = inner.answers.pop_front().or_else(|| inner.always.clone());
        if let Some(Answer::Turn(turn)) = &due {
            inner.issued.remember(wire, turn);
        }
    });
    if let Some((status, why)) = refusal {
        return (status, [("content-type", "application/json")], wire.error_body(status, &why)).into_response();
    }
    match due {
        Some(answer) => body::respond(&shared, answer).await,
        None => (StatusCode::INTERNAL_SERVER_ERROR, "the test has no more answers").into_response(),
    }
}
