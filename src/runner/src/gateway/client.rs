//! The CLI's end of the control API.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use axum::body::{self, Body, Bytes};
use axum::http::{Method, Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::MAX_EVENT;
use super::control::NewStart;
use super::events::{Emitted, NewEmit};
use super::fleet::Whom;
use super::refusal::Refused;
use super::sessions::Begun;
use super::socket;
use super::views::Health;
use crate::dispatch::seat;
use crate::exit::Failure;
use crate::state::State;

/// How long an answer may take: what is asked for is a few rows of the store, which may be busy.
const DEADLINE: Duration = Duration::from_secs(20);

/// When a socket is looked at again whose backlog is full.
const AGAIN: Duration = Duration::from_millis(20);

/// Most bytes of an answer.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Speaks to whoever serves a project.
#[derive(Debug, Clone)]
pub struct Client {
    project: String,
    folder: PathBuf,
    deadline: Duration,
}

impl Client {
    /// Finds whoever serves a project; none when nobody does.
    ///
    /// # Errors
    /// The socket is there and cannot be used.
    pub async fn find(state: &State, project: &str) -> Result<Option<Client>, Failure> {
        let folder = seat::folder(state, project);
        let client = Client { project: project.to_owned(), folder, deadline: DEADLINE };
        Ok(client.connect().await?.map(|_| client))
    }

    /// The same, with less patience or more.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Client {
        Client { deadline, ..self }
    }

    /// Who serves.
    pub async fn health(&self) -> Result<Health, Failure> {
        self.ask(Method::GET, "/health", None::<&()>).await
    }

    /// Starts a session and returns its id.
    pub async fn start(&self, new: &NewStart) -> Result<String, Failure> {
        let begun: Begun = self.ask(Method::POST, "/sessions", Some(new)).await?;
        Ok(begun.session)
    }

    /// Asks a session, by its whole id, to end.
    pub async fn stop(&self, session: &str) -> Result<(), Failure> {
        self.order(&format!("/sessions/{session}/stop"), None::<&()>).await
    }

    /// Ends a session, by its whole id, and its call tree at once.
    pub async fn kill(&self, session: &str) -> Result<(), Failure> {
        self.order(&format!("/sessions/{session}/kill"), None::<&()>).await
    }

    /// Gives it an event from outside.
    pub async fn emit(&self, event: &NewEmit) -> Result<Emitted, Failure> {
        self.ask(Method::POST, "/events", Some(event)).await
    }

    /// Pauses an agent, or the whole project.
    pub async fn pause(&self, agent: Option<&str>) -> Result<(), Failure> {
        self.order("/pause", Some(&Whom { agent: agent.map(str::to_owned) })).await
    }

    /// Unpauses an agent, or the whole project.
    pub async fn unpause(&self, agent: Option<&str>) -> Result<(), Failure> {
        self.order("/unpause", Some(&Whom { agent: agent.map(str::to_owned) })).await
    }

    /// Lets it end when what is at work has come to its end.
    pub async fn drain(&self) -> Result<(), Failure> {
        self.order("/drain", None::<&()>).await
    }

    /// Lets it look for work now.
    pub async fn nudge(&self) -> Result<(), Failure> {
        self.order("/nudge", None::<&()>).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        let answer = self.request(method, path, body).await?;
        serde_json::from_slice(&answer).map_err(|error| self.broken(&error.to_string()))
    }

    async fn order(&self, path: &str, body: Option<&impl Serialize>) -> Result<(), Failure> {
        self.request(Method::POST, path, body).await.map(|_| ())
    }

    async fn request(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<Bytes, Failure> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| self.broken(&error.to_string()))?,
            None => Vec::new(),
        };
        // Whoever is refused while it still sends may not hear why.
        if body.len() > MAX_EVENT {
            let what = format!("{} bytes are too many for one request", body.len());
            return Err(Failure::usage(what, format!("at most {} MiB are taken", MAX_EVENT >> 20)));
        }
        let Some(stream) = self.connect().await? else {
            return Err(self.failure("nobody serves it any more", "start `runner serve` again"));
        };
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header(header::HOST, "runner")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| self.broken(&error.to_string()))?;
        let (status, answer) = match timeout(self.deadline, exchange(stream, request)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(why)) => return Err(self.broken(&why)),
            Err(_) => {
                let who = pid.map_or_else(|| "the process".to_owned(), |pid| format!("process {pid}"));
                let what = format!("{who} that serves it has not answered within {} s", self.deadline.as_secs_f32());
                return Err(self.failure(&what, "look at its log, or end it and start `runner serve` again; what was asked may still have been done"));
            }
        };
        if status.is_success() {
            return Ok(answer);
        }
        match serde_json::from_slice::<Refused>(&answer) {
            Ok(Refused { error, hint, code }) => Err(Failure { code, message: error, hint }),
            Err(_) => Err(self.broken(&format!("status {status}"))),
        }
    }

    async fn connect(&self) -> Result<Option<UnixStream>, Failure> {
        let since = Instant::now();
        loop {
            match socket::connect(&self.folder).await {
                // Its backlog is full.
                Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() < self.deadline => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => {
                    let what = format!("cannot connect to the control socket in {}: {error}", self.folder.display());
                    return Err(Failure { code: 1, message: what, hint: None });
                }
                Ok(connected) => return Ok(connected),
            }
        }
    }

    fn broken(&self, why: &str) -> Failure {
        self.failure(
            &format!("whoever serves it does not answer as agreed: {why}"),
            "restart `runner serve` with this runner's version",
        )
    }

    fn failure(&self, what: &str, hint: &str) -> Failure {
        Failure { code: 1, message: format!("{}: {what}", self.project), hint: Some(hint.to_owned()) }
    }
}

/// Sends a request and reads the whole answer.
async fn exchange(stream: UnixStream, request: Request<Body>) -> Result<(StatusCode, Bytes), String> {
    let words = |error: hyper::Error| crate::exit::chain(&error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(words)?;
    let conversation = async {
        let response = sender.send_request(request).await.map_err(words)?;
        let status = response.status();
        let answer = body::to_bytes(Body::new(response.into_body()), MAX_ANSWER).await;
        Ok((status, answer.map_err(|error| crate::exit::chain(&error))?))
    };
    tokio::pin!(connection, conversation);
    let mut open = true;
    loop {
        tokio::select! {
            answered = &mut conversation => return answered,
            // When it has closed, what was read of the answer is still to come.
            _ = &mut connection, if open => open = false,
        }
    }
}
