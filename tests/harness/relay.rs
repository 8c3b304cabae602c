//! A socket that stands before the real engine and lies, stalls or swallows answers where a test says so.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tempfile::TempDir;

use super::engine::socket;
use super::host::until;

/// What is done with a request.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    /// It is answered with this and goes no further.
    Answer(Value),
    /// It is answered with 404 and goes no further.
    NotFound,
    /// It is passed on and its answer is swallowed.
    Swallow,
    /// It is not passed on, and nothing is said.
    Mute,
    /// It is answered by the engine, one byte at a time.
    Dribble,
    /// The connection is closed.
    HangUp,
    /// It is answered with 500 and goes no further.
    Fail,
    /// It is passed on, and answered with 500 when the engine has done it.
    FailAfter,
}

/// What an engine says that does not know what happened to it.
const FAILURE: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{\"message\":\"sorry\"}";

/// The socket, until it is dropped.
pub(crate) struct Relay {
    folder: TempDir,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Part of `METHOD path`, and what is done. The first that fits counts.
    rules: Vec<(String, Rule)>,
    /// `METHOD path` of requests, once their rule has been done.
    met: Vec<String>,
    closed: bool,
}

impl Relay {
    /// A relay that passes everything on.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("runner-test-").tempdir().expect("a folder below /tmp");
        let listener = UnixListener::bind(folder.path().join("docker.sock")).expect("a fresh folder");
        let relay = Self { folder, state: Arc::default() };
        let state = Arc::clone(&relay.state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if lock(&state).closed {
                    return;
                }
                let state = Arc::clone(&state);
                // A peer that hangs up is what some tests are about.
                std::thread::spawn(move || drop(serve(client, &state)));
            }
        });
        relay
    }

    /// The socket's path.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("docker.sock")
    }

    /// The address for `DOCKER_HOST`.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Does this with requests whose `METHOD path` contains `part`.
    pub(crate) fn rule(&self, part: &str, rule: Rule) -> &Self {
        lock(&self.state).rules.push((part.to_owned(), rule));
        self
    }

    /// Passes everything on again.
    pub(crate) fn heal(&self) {
        lock(&self.state).rules.clear();
    }

    /// Waits until a rule has been done to a request whose `METHOD path` contains `part`.
    #[track_caller]
    pub(crate) fn met(&self, part: &str) {
        until(part, || lock(&self.state).met.iter().any(|met| met.contains(part)));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.state).closed = true;
        // Wakes the listener.
        let _ = UnixStream::connect(self.socket());
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no holder panics")
}

fn serve(mut client: UnixStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let mut more = [0; 4096];
            match client.read(&mut more)? {
                0 => return Ok(()),
                count => bytes.extend_from_slice(&more[..count]),
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let line = head.split(" HTTP/").next().unwrap_or_default().to_owned();
        let rule =
            lock(state).rules.iter().find(|(part, _)| line.contains(part.as_str())).map(|(_, rule)| rule.clone());
        let meet = || lock(state).met.push(line.clone());
        match rule {
            Some(Rule::Answer(answer)) => {
                let answer = answer.to_string();
                let length = answer.len();
                write!(
                    client,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
                )?;
                client.write_all(answer.as_bytes())?;
                // Requests that are answered here have no body.
                bytes.drain(..end);
                meet();
            }
            Some(Rule::NotFound) => {
                client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")?;
                bytes.drain(..end);
                meet();
            }
            Some(Rule::Fail) => {
                client.write_all(FAILURE)?;
                bytes.drain(..end);
                meet();
            }
            Some(Rule::FailAfter) => {
                let mut engine = UnixStream::connect(socket())?;
                engine.write_all(&bytes)?;
                engine.read_exact(&mut [0; 12])?;
                client.write_all(FAILURE)?;
                meet();
                return Ok(());
            }
            Some(Rule::HangUp) => {
                meet();
                return Ok(());
            }
            Some(Rule::Mute) => {
                meet();
                return listen_only(&mut client);
            }
            Some(Rule::Swallow) => {
                let mut engine = UnixStream::connect(socket())?;
                engine.write_all(&bytes)?;
                forward(client.try_clone()?, engine.try_clone()?);
                // The head of the answer comes when the engine has done it.
                engine.read_exact(&mut [0; 12])?;
                meet();
                return listen_only(&mut client);
            }
            Some(Rule::Dribble) => {
                let mut engine = UnixStream::connect(socket())?;
                engine.write_all(&bytes)?;
                forward(client.try_clone()?, engine.try_clone()?);
                meet();
                let mut byte = [0];
                while engine.read(&mut byte)? != 0 {
                    client.write_all(&byte)?;
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                return Ok(());
            }
            None => {
                let mut engine = UnixStream::connect(socket())?;
                engine.write_all(&bytes)?;
                forward(client.try_clone()?, engine.try_clone()?);
                std::io::copy(&mut engine, &mut client)?;
                return client.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Passes on what the client sends, until it hangs up.
fn forward(mut client: UnixStream, mut engine: UnixStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut client, &mut engine);
        let _ = engine.shutdown(Shutdown::Both);
    });
}

/// Reads until the client gives up, and says nothing.
fn listen_only(client: &mut UnixStream) -> std::io::Result<()> {
    std::io::copy(client, &mut std::io::sink()).map(drop)
}
