//! File calls: the quick and small ones go to the resident worker, the others to a file server of their own.

use std::sync::Arc;

use protocol::frame::MAX_PAYLOAD;
use protocol::{Cause, Outcome, Request};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::connection::{Connection, Outgoing};
use super::slot::{Answer, Item, WINDOW};
use super::{Shared, cancelled};
use crate::sandbox::call::{CallError, Gone, Reply, ToolCall};

/// Most bytes of an image: the sandbox scales to 4.5 MB.
const MAX_STREAMED: usize = 5 * 1024 * 1024;

/// Stream bytes after which credit is given back.
const GRANT: usize = WINDOW as usize / 4;

/// A file server of its own for one call. Dropping it has it killed.
#[derive(Debug)]
pub(super) struct FileServer {
    shared: Arc<Shared>,
    label: u64,
    pub(super) connection: Arc<Connection>,
    closed: bool,
    _place: OwnedSemaphorePermit,
}

impl Shared {
    /// Makes a `Read`, `Write`, `Edit`, `Ls`, `Grep` or `Find` call.
    pub(super) async fn file_call(self: &Arc<Self>, call: &ToolCall) -> Result<Reply, CallError> {
        // One at a time, whatever their paths: only the sandbox knows which of them mean the same file.
        let _turn = if changes_a_file(&call.request) {
            tokio::select! {
                biased;
                turn = self.writes.lock() => Some(turn),
                () = call.cancel.cancelled() => return Ok(cancelled()),
            }
        } else {
            None
        };
        self.check_gone()?;
        if call.cancel.is_cancelled() {
            return Ok(cancelled());
        }
        if call.body.len() <= MAX_PAYLOAD
            && let Some(reply) = self.ask_worker(call).await?
        {
            return Ok(reply);
        }
        self.ask_server(call).await
    }

    /// Asks the resident worker; none when it cannot answer this call, or is gone or stuck.
    async fn ask_worker(self: &Arc<Self>, call: &ToolCall) -> Result<Option<Reply>, CallError> {
        let worker = self.lock().worker.clone();
        let Some(worker) = worker else {
            self.want_worker();
            return Ok(None);
        };
        let text_only = match &call.request {
            Request::Read { path, offset, limit, images: true } => {
                Some(Request::Read { path: path.clone(), offset: *offset, limit: *limit, images: false })
            }
            _ => None,
        };
        let request = text_only.as_ref().unwrap_or(&call.request);
        let outgoing = Outgoing { key: &call.key, request, body: &call.body, timeout: call.timeout };
        let sent = Instant::now();
        let answer = async {
            match worker.start(outgoing).await {
                Ok((_, ears)) => ears.answer.await.ok(),
                Err(_) => None,
            }
        };
        let mut answer = std::pin::pin!(answer);
        let mut patience = std::pin::pin!(sleep(self.timing.stuck));
        let writes = changes_a_file(&call.request);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    self.check_gone()?;
                    return Ok(match answer {
                        Some(Answer::Done { outcome, payload }) if outcome != Outcome::NeedsChild => {
                            Some(Reply::new(outcome, payload))
                        }
                        _ => None,
                    });
                }
                // A write is over in a moment, and whether it happened must be known.
                () = call.cancel.cancelled(), if !writes => return Ok(Some(cancelled())),
                () = &mut patience => {
                    let next = worker.last_done().max(sent) + self.timing.stuck;
                    if next > Instant::now() {
                        patience.as_mut().reset(next);
                        continue;
                    }
                    warn!("the resident file worker of a sandbox is stuck; asking for another");
                    self.replace_worker(Some(&worker)).await;
                    return Ok(None);
                }
            }
        }
    }

    /// Asks PID 1 for a resident worker, at most once in a while: one that dies at once must not keep anybody busy.
    pub(super) fn want_worker(self: &Arc<Self>) {
        {
            let mut state = self.lock();
            if state.worker_asked.is_some_and(|asked| asked.elapsed() < self.timing.stuck) {
                return;
            }
            state.worker_asked = Some(Instant::now());
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move { shared.replace_worker(None).await });
    }

    /// Asks PID 1 for a new resident worker in place of `stuck`, unless somebody else has done so. When this returns the
    /// old one is dead.
    pub(super) async fn replace_worker(&self, stuck: Option<&Arc<Connection>>) {
        let _one_at_a_time = self.replacing.lock().await;
        let replaced = match (&self.lock().worker, stuck) {
            (Some(current), Some(stuck)) => !Arc::ptr_eq(current, stuck),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if replaced || self.check_gone().is_err() {
            return;
        }
        match self.internal_call(Request::OpenFiles { label: 0 }).await {
            Ok(Reply { outcome: Outcome::Nothing, .. }) => {}
            Ok(Reply { outcome, .. }) => warn!(?outcome, "no new resident file worker"),
            Err(error) => warn!(%error, "no new resident file worker"),
        }
        if let Some(stuck) = stuck {
            drop(stuck.close());
        }
    }

    /// Makes the call in a fresh file server.
    async fn ask_server(self: &Arc<Self>, call: &ToolCall) -> Result<Reply, CallError> {
        let server = match self.open_server(&call.cancel).await? {
            Ok(server) => server,
            Err(refused) => return Ok(refused),
        };
        let request = match &call.request {
            Request::Read { path, offset, limit, .. } => {
                Request::Read { path: path.clone(), offset: *offset, limit: *limit, images: true }
            }
            other => other.clone(),
        };
        let outgoing = Outgoing { key: &call.key, request: &request, body: &call.body, timeout: call.timeout };
        let exchange = async {
            let (id, ears) = server.connection.start(outgoing).await.ok()?;
            server.connection.send_body(id, &call.body).await;
            let streamed = match ears.stream {
                Some(stream) => self.collect(&server.connection, id, stream).await?,
                None => Vec::new(),
            };
            ears.answer.await.ok().map(|answer| (answer, streamed))
        };
        let limit = call.timeout.saturating_add(self.timing.grace);
        let result = tokio::select! {
            biased;
            result = exchange => result,
            () = call.cancel.cancelled() => {
                server.close().await?;
                return Ok(Reply::failed(Cause::Cancelled, "cancelled"));
            }
            () = sleep(limit) => {
                server.close().await?;
                let message = format!("no answer within {} s; its file server was killed", limit.as_secs_f32());
                return Ok(Reply::failed(Cause::Timeout, message));
            }
        };
        self.check_gone()?;
        match result {
            Some((Answer::Done { outcome: Outcome::NeedsChild, .. }, _)) => {
                self.violated("a file server of its own that asks for another");
                Err(self.gone_now().into())
            }
            Some((Answer::Done { outcome, payload }, streamed)) => {
                let expected = if let Outcome::Image { bytes, .. } = outcome { bytes } else { 0 };
                if expected != streamed.len() as u64 && !matches!(outcome, Outcome::Failed { .. }) {
                    self.violated("a stream that is not as long as its end says");
                    return Err(self.gone_now().into());
                }
                Ok(Reply { streamed, ..Reply::new(outcome, payload) })
            }
            _ => Ok(server_died()),
        }
    }

    /// Starts a file server and waits for its connection. The inner error is PID 1's refusal.
    pub(super) async fn open_server(
        self: &Arc<Self>,
        cancel: &CancellationToken,
    ) -> Result<Result<FileServer, Reply>, CallError> {
        let place = tokio::select! {
            place = Arc::clone(&self.servers).acquire_owned() => place.map_err(|_| self.gone_now())?,
            () = cancel.cancelled() => return Ok(Err(cancelled())),
            gone = self.gone() => return Err(gone.into()),
        };
        loop {
            let label = {
                let mut state = self.lock();
                state.last_label += 1;
                let label = state.last_label;
                state.files.insert(label, None);
                label
            };
            let mut order = Ordered { shared: self, label, filled: false };
            match self.internal_call(Request::OpenFiles { label }).await {
                Ok(Reply { outcome: Outcome::Nothing, .. }) => {}
                Ok(reply) => return Ok(Err(reply)),
                // Nobody knows of it; another label does no harm.
                Err(CallError::Interrupted) => continue,
                Err(error) => return Err(error),
            }
            let connected = self.until(|state| state.files.get(&label).and_then(Clone::clone));
            let connection = match timeout(self.timing.server, connected).await {
                Ok(connection) => connection?,
                Err(_) => return Ok(Err(server_died())),
            };
            order.filled = true;
            return Ok(Ok(FileServer { shared: Arc::clone(self), label, connection, closed: false, _place: place }));
        }
    }

    /// Collects a streamed result in memory; none when it is longer than any may be.
    async fn collect(&self, connection: &Connection, id: u64, mut stream: mpsc::Receiver<Item>) -> Option<Vec<u8>> {
        let (mut streamed, mut granted) = (Vec::new(), 0);
        while let Some(item) = stream.recv().await {
            let Item::Chunk(bytes) = item else { continue };
            streamed.extend_from_slice(&bytes);
            if streamed.len() > MAX_STREAMED {
                self.violated("a stream that is longer than any image");
                return None;
            }
            if streamed.len() - granted >= GRANT {
                connection.grant(id, u32::try_from(streamed.len() - granted).unwrap_or(WINDOW));
                granted = streamed.len();
            }
        }
        Some(streamed)
    }

    /// Has a file server killed, and forgets its label.
    async fn close_server(&self, label: u64) -> Result<(), CallError> {
        let connection = self.lock().files.remove(&label).flatten();
        if let Some(connection) = connection {
            drop(connection.close());
        }
        loop {
            match self.internal_call(Request::CloseFiles { label }).await {
                Err(CallError::Interrupted) => {}
                other => return other.map(drop),
            }
        }
    }
}

/// True for calls that replace a file.
fn changes_a_file(request: &Request) -> bool {
    matches!(request, Request::Write { .. } | Request::Edit { .. })
}

/// A file server that was ordered and has not connected. Dropping it forgets the order.
#[derive(Debug)]
struct Ordered<'a> {
    shared: &'a Shared,
    label: u64,
    filled: bool,
}

impl Drop for Ordered<'_> {
    fn drop(&mut self) {
        if !self.filled {
            self.shared.lock().files.remove(&self.label);
        }
    }
}

impl FileServer {
    /// Has it killed and waits until it is dead.
    pub(super) async fn close(mut self) -> Result<(), CallError> {
        self.closed = true;
        self.shared.close_server(self.label).await
    }

    /// The reason why the whole sandbox is gone, if it is.
    pub(super) fn check_gone(&self) -> Result<(), Gone> {
        self.shared.check_gone()
    }

    /// Ends the sandbox because this server broke a rule.
    pub(super) fn violated(&self, rule: &str) -> Gone {
        self.shared.violated(rule);
        self.shared.gone_now()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        if self.closed || self.shared.check_gone().is_err() {
            return;
        }
        let (shared, label) = (Arc::clone(&self.shared), self.label);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = shared.close_server(label).await;
            });
        }
    }
}

/// The reply when a file server ended without an answer, which only a kill from outside can do.
pub(super) fn server_died() -> Reply {
    Reply::failed(Cause::Signal, "its file server was killed before it answered")
}
