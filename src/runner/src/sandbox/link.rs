//! The link to one sandbox: its connections, and the calls that outlive them.
//!
//! ```text
//!            listen                 PID 1 connects, hello, ready
//!   (none) ---------> waiting --------------------------------> up
//!                        ^  |                                   |
//!                        |  | not within the deadline           | the control connection drops:
//!                        |  v                                   | its unfinished calls wait
//!                        | gone <--- violation, death, stuck    |
//!                        +--------------------------------------+
//! ```
//!
//! When PID 1 connects again the host lists the unfinished calls and PID 1 answers each: finished and running ones go
//! on under new ids, unknown ones end as interrupted. A call that was not sent to its last byte was not begun, so it is
//! sent again. `gone` is final; whoever owns the container removes it.

mod connection;
mod files;
mod get;
mod handshake;
mod incoming;
pub(super) mod listener;
mod outbox;
mod put;
mod running;
mod slot;
mod welcome;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::{Cause, Facts};
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{CallError, Gone, GoneKind, Reply, ToolCall};
use connection::{Connection, Outgoing};

use super::terms::{Terms, Timing};
use running::Running;
use slot::{Answer, Ears, Shape, Slot};

/// Keys whose `Forget` is repeated after a reconnection, because the first may have been lost.
const FORGOTTEN: usize = 256;

/// Most file servers open at once besides the resident worker.
const MAX_SERVERS: usize = 16;

/// The host's end of the link to one sandbox. Dropping it closes every connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    init: watch::Sender<Option<i32>>,
    accepting: [AbortHandle; 2],
}

/// What the tasks of one link share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Known when the container is; no connection is looked at before.
    pub(super) terms: OnceLock<Terms>,
    pub(super) timing: Timing,
    state: Mutex<State>,
    changed: Notify,
    gone: OnceLock<Gone>,
    /// Makes this process's own keys unlike those of a runner that died.
    nonce: String,
    numbers: AtomicU64,
    /// Calls whose callers go away are for the next runner process.
    let_go: AtomicBool,
    /// Held by the one `write` or `edit` that runs: two on one file must not overlap (T-8).
    pub(super) writes: tokio::sync::Mutex<()>,
    pub(super) replacing: tokio::sync::Mutex<()>,
    pub(super) servers: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    control: Option<Arc<Connection>>,
    /// Control handshakes begun so far; only the newest may finish.
    handshakes: u64,
    /// When the control connection was lost; none while it is up or before the first.
    lost: Option<Instant>,
    /// Calls that wait for the next control connection.
    orphans: Vec<Slot>,
    /// Where callers may hear of the calls of an earlier runner process.
    taken_up: HashMap<String, Ears>,
    running: HashSet<String>,
    forgotten: VecDeque<String>,
    facts: Option<Facts>,
    worker: Option<Arc<Connection>>,
    /// File servers by label, from the order to open them on; none until they connect.
    files: HashMap<u64, Option<Arc<Connection>>>,
    last_label: u64,
    /// An earlier runner process worked with this container.
    resumed: bool,
    /// When PID 1 was last asked for a resident worker.
    worker_asked: Option<Instant>,
}

impl Link {
    /// Starts to listen for the PID 1 of a new container.
    pub(super) fn listen(listener: UnixListener, timing: Timing) -> Self {
        Self::open(listener, timing, State::default())
    }

    /// Starts to listen for the PID 1 of a container that an earlier runner process left behind. `unfinished` are the
    /// keys of the control calls it was waiting for; each is awaited with [`Link::take_up`].
    pub(super) fn resume(listener: UnixListener, timing: Timing, unfinished: &[String]) -> Self {
        // Labels are never used twice in a container, and nobody knows which ones the other process used.
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let last_label = u64::try_from(since_epoch.as_micros()).unwrap_or_default();
        let mut state = State { resumed: true, last_label, ..State::default() };
        for key in unfinished {
            let (slot, ears) = Slot::new(key.clone(), Shape::TakenUp);
            state.orphans.push(slot);
            state.taken_up.insert(key.clone(), ears);
            state.running.insert(key.clone());
        }
        let link = Self::open(listener, timing, state);
        link.shared.lost_since(Instant::now());
        link
    }

    fn open(listener: UnixListener, timing: Timing, state: State) -> Self {
        let shared = Arc::new(Shared {
            terms: OnceLock::new(),
            timing,
            state: Mutex::new(state),
            changed: Notify::new(),
            gone: OnceLock::new(),
            nonce: uuid::Uuid::now_v7().simple().to_string(),
            numbers: AtomicU64::new(0),
            let_go: AtomicBool::new(false),
            writes: tokio::sync::Mutex::new(()),
            replacing: tokio::sync::Mutex::new(()),
            servers: Arc::new(Semaphore::new(MAX_SERVERS)),
        });
        let (init, known) = watch::channel(None);
        let (send, mut accepted) = mpsc::channel(1);
        let serving = tokio::spawn(listener::serve(listener, known, send)).abort_handle();
        let weak = Arc::downgrade(&shared);
        let welcoming = tokio::spawn(async move {
            while let Some((stream, place)) = accepted.recv().await {
                let Some(shared) = weak.upgrade() else { return };
                tokio::spawn(shared.welcome(stream, place));
            }
        });
        Self { shared, init, accepting: [serving, welcoming.abort_handle()] }
    }

    /// Says which process is the container's PID 1, and what it is to be told; connections are held until then.
    pub(super) fn expect(&self, pid: u32, terms: Terms) {
        let _ = self.shared.terms.set(terms);
        self.init.send_replace(i32::try_from(pid).ok());
    }

    /// Waits until PID 1 and the resident worker are ready.
    pub(super) async fn ready(&self) -> Result<Facts, Gone> {
        self.shared
            .until(|state| match (&state.control, &state.worker) {
                (Some(_), Some(_)) => state.facts.clone(),
                _ => None,
            })
            .await
    }

    /// Makes one call and waits for its reply.
    pub(super) async fn call(&self, call: &ToolCall) -> Result<Reply, CallError> {
        use protocol::Request::{Bash, CloseFiles, Edit, Find, Get, Grep, Ls, OpenFiles, Put, Read, StopJob, Write};
        call.check()?;
        // Before a cancel counts: the end of the sandbox is what its session cancels the rest for.
        self.shared.check_gone()?;
        match call.request {
            Bash { .. } | StopJob { .. } => self.shared.control_call(call).await,
            Read { .. } | Write { .. } | Edit { .. } | Ls { .. } | Grep { .. } | Find { .. } => {
                self.shared.file_call(call).await
            }
            OpenFiles { .. } | CloseFiles { .. } | Put { .. } | Get { .. } => {
                Err(CallError::Invalid("the link itself makes these calls".to_owned()))
            }
        }
    }

    /// Waits for the reply to a call of an earlier runner process, which was given to [`Link::listen`].
    pub(super) async fn take_up(
        &self,
        key: &str,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Result<Reply, CallError> {
        let Some(ears) = self.shared.lock().taken_up.remove(key) else {
            return Err(CallError::Invalid(format!("call {key} was not left unfinished")));
        };
        let running = Running::new(&self.shared, key);
        let answer = async { self.shared.reply(ears.answer.await.ok()).map(Some) };
        running.supervise(answer, timeout, cancel).await
    }

    /// Tells PID 1 that the reply of this call is safe: it need not keep it any longer.
    pub(super) fn forget(&self, key: &str) {
        self.shared.forget(key);
    }

    /// From here on, a call whose caller goes away is not cancelled.
    pub(super) fn let_go(&self) {
        self.shared.let_go.store(true, Ordering::Relaxed);
    }

    /// Measures one round trip to PID 1.
    pub(super) async fn ping(&self) -> Result<Duration, Gone> {
        loop {
            let control = self.shared.control().await?;
            let begin = Instant::now();
            if control.ping(self.shared.number()).await.is_ok() {
                return Ok(begin.elapsed());
            }
        }
    }

    /// Waits for the end of the sandbox.
    pub(super) async fn gone(&self) -> Gone {
        self.shared.gone().await
    }

    /// Breaks the control connection, if there is one; PID 1 connects again.
    #[cfg(test)]
    pub(super) fn sever(&self) {
        if let Some(control) = &self.shared.lock().control {
            control.sever();
        }
    }

    /// Waits until PID 1 is connected.
    #[cfg(test)]
    pub(super) async fn connected(&self) -> Result<(), Gone> {
        self.shared.control().await.map(drop)
    }

    /// Ends the link for this reason, unless it has ended before.
    pub(super) fn end(&self, gone: Gone) {
        self.shared.end(gone);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.accepting {
            task.abort();
        }
        self.shared.end(Gone::new(GoneKind::Stopped, "the runner closed its link"));
    }
}

impl Shared {
    /// Makes a call on the control connection, over as many connections as it takes.
    pub(super) async fn control_call(&self, call: &ToolCall) -> Result<Reply, CallError> {
        if !self.lock().running.insert(call.key.clone()) {
            return Err(CallError::Invalid(format!("call {} is running already", call.key)));
        }
        let running = Running::new(self, &call.key);
        let answer = async {
            loop {
                // What takes the sandbox away cancels its calls as well; the first is the reason.
                self.check_gone()?;
                if call.cancel.is_cancelled() {
                    return Ok(None);
                }
                let control = self.control().await?;
                let outgoing =
                    Outgoing { key: &call.key, request: &call.request, body: &call.body, timeout: call.timeout };
                let Ok((id, ears)) = control.start(outgoing).await else { continue };
                control.send_body(id, &call.body).await;
                match ears.answer.await {
                    Ok(Answer::NotSent) => self.check_gone()?,
                    other => return self.reply(other.ok()).map(Some),
                }
            }
        };
        running.supervise(answer, call.timeout, &call.cancel).await
    }

    /// Makes a call of the link's own on the control connection. These may be made twice without harm.
    pub(super) async fn internal_call(&self, request: protocol::Request) -> Result<Reply, CallError> {
        let call = ToolCall {
            key: format!("~{}/{}", self.nonce, self.number()),
            request,
            body: bytes::Bytes::new(),
            timeout: self.timing.server,
            cancel: CancellationToken::new(),
        };
        let reply = self.control_call(&call).await;
        self.forget(&call.key);
        reply
    }

    /// What an answer means to its caller; none when the call's connection ended for good.
    fn reply(&self, answer: Option<Answer>) -> Result<Reply, CallError> {
        match answer {
            Some(Answer::Done { outcome, payload }) => Ok(Reply::new(outcome, payload)),
            Some(Answer::Unknown) => Err(CallError::Interrupted),
            Some(Answer::NotSent) | None => Err(self.gone_now().into()),
        }
    }

    pub(super) fn forget(&self, key: &str) {
        let mut state = self.lock();
        if state.forgotten.len() == FORGOTTEN {
            state.forgotten.pop_front();
        }
        state.forgotten.push_back(key.to_owned());
        if let Some(control) = &state.control {
            control.forget(key);
        }
    }

    /// Cancels the control call of this key; false when no connection has been told of it.
    pub(super) fn cancel(&self, key: &str) -> bool {
        let mut state = self.lock();
        if let Some(slot) = state.orphans.iter_mut().find(|slot| slot.key == key) {
            slot.cancelled = true;
            return true;
        }
        state.control.as_ref().is_some_and(|control| control.cancel(key))
    }

    /// The control connection, as soon as there is one.
    async fn control(&self) -> Result<Arc<Connection>, Gone> {
        self.until(|state| state.control.clone()).await
    }

    /// Runs `check` now and after every change until it gives something, or the sandbox is gone.
    async fn until<T>(&self, mut check: impl FnMut(&mut State) -> Option<T>) -> Result<T, Gone> {
        loop {
            let changed = self.changed.notified();
            self.check_gone()?;
            if let Some(found) = check(&mut self.lock()) {
                return Ok(found);
            }
            changed.await;
        }
    }

    pub(super) async fn gone(&self) -> Gone {
        match self.until(|_| None::<std::convert::Infallible>).await {
            Err(gone) => gone,
            Ok(never) => match never {},
        }
    }

    pub(super) fn check_gone(&self) -> Result<(), Gone> {
        self.gone.get().map_or(Ok(()), |gone| Err(gone.clone()))
    }

    /// The reason why the sandbox is gone, for those who know that it is.
    pub(super) fn gone_now(&self) -> Gone {
        self.gone.get().cloned().unwrap_or_else(|| Gone::new(GoneKind::Lost, "its connection ended"))
    }

    /// Ends the link: every connection is closed, every caller hears of it.
    pub(super) fn end(&self, gone: Gone) {
        if self.gone.set(gone).is_err() {
            return;
        }
        let (connections, orphans) = {
            let mut state = self.lock();
            let mut connections: Vec<_> = state.files.drain().filter_map(|(_, files)| files).collect();
            connections.extend(state.control.take());
            connections.extend(state.worker.take());
            (connections, std::mem::take(&mut state.orphans))
        };
        for connection in connections {
            drop(connection.close());
        }
        drop(orphans);
        self.changed.notify_waiters();
    }

    /// Ends the link because the sandbox broke a rule.
    pub(super) fn violated(&self, rule: &str) {
        tracing::warn!(rule, "a sandbox broke the protocol");
        self.end(Gone::new(GoneKind::Protocol, format!("it broke the protocol: {rule}")));
    }

    pub(super) fn notify(&self) {
        self.changed.notify_waiters();
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a call that was cancelled before the sandbox saw it.
pub(super) fn cancelled() -> Reply {
    Reply::failed(Cause::Cancelled, "cancelled before it began")
}
