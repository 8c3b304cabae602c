//! The life of a sandbox, from an order to its removal.
//!
//! ```text
//!   order ─► image ─► folder + staged files ─► socket ─► container ─► PID 1 known ─► hello, facts ─► ready
//!              │              │                   │          │              │              │           │
//!              ▼              ▼                   ▼          ▼              ▼              ▼           │
//!           refused       removed: the container by its recorded name, the folder; then the error      │
//!                                                                                                      ▼
//!   gone ◄─── PID 1 died · protocol broken · stuck · link lost ◄─────────────────────────────────── at work
//!    │                                                                                                 │
//!    └──────────────────────────► stop: kill, remove, verified; folder removed ◄───────────────────────┘
//! ```
//!
//! One task watches for the end: PID 1's death is heard through a pidfd at once, and a sandbox that is gone for another
//! reason is killed at once. Removing it is the owner's: [`Sandbox::stop`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::stat::lstat;
use nix::unistd::{Gid, getegid};
use protocol::{Facts, Ids, Request};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::call::{CallError, Gone, GoneKind, Reply, ToolCall};
use super::cgroup::{Cgroup, Counters};
use super::copy::{Copied, CopyError};
use super::death::{Init, last_word, watch};
use super::engine::{Engine, EngineError, Inspected, Status};
use super::folder::SessionFolder;
use super::launch::Launch;
use super::link::Link;
use super::link::listener;
use super::order::{Order, SandboxError};
use super::spec::{LABEL_IDS, LABEL_TOKEN};
use super::terms::{Terms, Timing};
use super::{environment, ids, stage};
use crate::embedded;
use crate::state::State;

/// Where commands begin: the agent's staged files.
const DIRECTORY: &str = "/app/static";

/// How long PID 1 and its worker may take to be ready.
const READY: Duration = Duration::from_secs(30);

/// How often the engine is asked to freeze or thaw a container before that counts as failed.
const PAUSES: u32 = 3;

/// How long PID 1 may take to answer before its container is frozen.
const ANSWER: Duration = Duration::from_secs(1);

/// A running sandbox. Dropping it closes its link and leaves the container to be taken up again or to exit by itself;
/// [`Sandbox::stop`] removes it.
#[derive(Debug)]
pub struct Sandbox {
    /// The first to go: the end of the link must not look like a broken rule.
    watching: Watching,
    engine: Engine,
    id: String,
    folder: SessionFolder,
    link: Link,
    facts: Facts,
    ids: Ids,
    cgroup: Option<Cgroup>,
    /// The counters as they were last read.
    counters: Mutex<Counters>,
    copies: AtomicU64,
    staged: Option<String>,
    image_id: String,
    notices: Vec<String>,
}

/// A container whose PID 1 is known and has not said hello.
struct Started {
    /// It was frozen, and the engine has been asked to thaw it.
    thawing: Option<JoinHandle<Result<(), EngineError>>>,
    id: String,
    pid: Option<u32>,
    ids: Ids,
    environment: Vec<String>,
    orphan_grace: u32,
    staged: Option<String>,
    image_id: String,
    notices: Vec<String>,
}

/// A container of an earlier runner process, which can be taken up.
#[derive(Debug)]
pub struct Found {
    container: Inspected,
    ids: Ids,
}

impl Sandbox {
    /// Starts a sandbox. On failure nothing of it is left; when the caller goes away, it is removed again.
    pub async fn start(engine: &Engine, state: &State, order: Order) -> Result<Sandbox, SandboxError> {
        let (send, receive) = oneshot::channel();
        let (engine, state) = (engine.clone(), state.clone());
        // A task of its own: the engine may be making the container just when the caller goes away.
        tokio::spawn(async move {
            if let Err(Ok(sandbox)) = send.send(Self::begin(&engine, &state, order).await)
                && let Err(error) = sandbox.stop().await
            {
                warn!(%error, "removing a sandbox that nobody waited for");
            }
        });
        receive.await.unwrap_or_else(|_| Err(SandboxError::late()))
    }

    async fn begin(engine: &Engine, state: &State, order: Order) -> Result<Sandbox, SandboxError> {
        let image = engine.image(&order.image).await?;
        let path = state.session_folder(&order.session);
        let (folder, staged) = match prepare(state.clone(), path.clone(), order.agent.clone()).await {
            Ok(prepared) => prepared,
            Err(error) => {
                // A folder that was there before is another's.
                if !matches!(&error, SandboxError::Folder { source, .. } if source.kind() == ErrorKind::AlreadyExists) {
                    remove_folder(&path).await;
                }
                return Err(error);
            }
        };
        let begun = async {
            let (link, gid) = listen(&folder, |listener| Link::listen(listener, Timing::default()))?;
            let launch = Launch {
                session: &order.session,
                name: &order.name,
                token: state.token(),
                image: &image,
                limits: order.limits,
                runtime: order.runtime.as_deref(),
                folder: &folder,
                socket_gid: gid,
            };
            let launched = launch.run(engine).await?;
            let started = Started {
                thawing: None,
                id: launched.id,
                pid: Some(launched.pid),
                ids: launched.ids,
                environment: image.environment.clone(),
                image_id: image.id.clone(),
                orphan_grace: order.orphan_grace,
                staged: Some(staged),
                notices: launched.notices,
            };
            Self::meet(engine, folder.clone(), link, gid, started).await
        };
        match begun.await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) => {
                if let Err(left) = Self::remove(engine, state, &order.session, &order.name).await {
                    warn!(error = %left, name = order.name, "removing a sandbox that did not start");
                }
                Err(error)
            }
        }
    }

    /// Looks for the container of an earlier runner process: one of this recorded name that runs or is frozen.
    pub async fn find(engine: &Engine, state: &State, name: &str) -> Result<Found, SandboxError> {
        let found = engine.inspect(name).await?;
        let ours = found.name == name && found.labels.get(LABEL_TOKEN).is_some_and(|token| token == state.token());
        let base = found.labels.get(LABEL_IDS).and_then(|ids| ids.parse().ok());
        let Some(base) = base.filter(|_| ours) else {
            return Err(EngineError::NotOurs(name.to_owned()).into());
        };
        if !matches!(found.status, Status::Running | Status::Paused) {
            return Err(Gone::new(GoneKind::Died, "its container does not run any more").into());
        }
        Ok(Found { container: found, ids: ids::block(base) })
    }

    /// Finds and takes up the container of an earlier runner process, as [`Sandbox::find`] and [`Sandbox::go_on`] do.
    pub async fn resume(
        engine: &Engine,
        state: &State,
        session: &str,
        name: &str,
        orphan_grace: u32,
        unfinished: &[String],
    ) -> Result<Sandbox, SandboxError> {
        let found = Self::find(engine, state, name).await?;
        Self::go_on(engine, state, session, found, orphan_grace, unfinished).await
    }

    /// Takes up the container of an earlier runner process, with the keys of the control calls it was waiting for. Each
    /// is then awaited with [`Sandbox::take_up`].
    pub async fn go_on(
        engine: &Engine,
        state: &State,
        session: &str,
        found: Found,
        orphan_grace: u32,
        unfinished: &[String],
    ) -> Result<Sandbox, SandboxError> {
        let Found { container: found, ids } = found;
        let folder = SessionFolder::existing(&state.session_folder(session));
        let (link, gid) = listen(&folder, |listener| Link::resume(listener, Timing::default(), unfinished))?;
        // PID 1 connects as soon as it is thawed, so the socket comes first; and it does so before the engine answers.
        let thawing = (found.status == Status::Paused).then(|| tokio::spawn(thaw(engine.clone(), found.id.clone())));
        let image = engine.image(found.whole.image.as_deref().unwrap_or_default()).await?;
        let started = Started {
            thawing,
            id: found.id,
            pid: found.pid,
            ids,
            environment: image.environment,
            image_id: image.id,
            orphan_grace,
            staged: None,
            notices: Vec::new(),
        };
        Self::meet(engine, folder, link, gid, started).await
    }

    /// Lets PID 1 of a started container in and waits until it is ready.
    async fn meet(
        engine: &Engine,
        folder: SessionFolder,
        link: Link,
        gid: u32,
        started: Started,
    ) -> Result<Sandbox, SandboxError> {
        let Started { thawing, id, pid, ids, environment, orphan_grace, staged, image_id, notices } = started;
        // The handle is opened before the first word of PID 1, which then proves that the pid was not another's by now.
        let init = pid.map(|pid| Init::open(pid).map(|init| (pid, init)));
        let Some(Ok((pid, init))) = init else {
            return Err(Gone::new(GoneKind::Died, last_word(engine, &id).await).into());
        };
        let cgroup = Cgroup::of(pid).inspect_err(|error| warn!(%error, "no counters for memory and processes")).ok();
        let counters = cgroup.as_ref().and_then(|cgroup| cgroup.read().ok()).unwrap_or_default();
        let terms = Terms {
            ids,
            environment: environment::of_commands(&environment),
            directory: DIRECTORY.to_owned(),
            orphan_grace,
            gid,
        };
        let watch = tokio::spawn(watch(init, Arc::clone(&link.shared), engine.clone(), id.clone()));
        let watching = Watching(Some(watch.abort_handle()));
        link.expect(pid, terms);
        let facts = tokio::select! {
            biased;
            facts = timeout(READY, link.ready()) => facts.unwrap_or_else(|_| {
                let late = Gone::new(GoneKind::Stuck, format!("its PID 1 was not ready within {} s", READY.as_secs()));
                link.end(late.clone());
                Err(late)
            }),
            error = still_frozen(thawing) => {
                // It is whole and can be taken up later, so nothing may kill it.
                return Err(error.into());
            }
        };
        let facts = match facts {
            Ok(facts) => facts,
            Err(error) => {
                // It broke a rule or never came: the watch kills it.
                watching.go_on();
                return Err(error.into());
            }
        };
        info!(container = id, pid, "a sandbox is ready");
        Ok(Sandbox {
            engine: engine.clone(),
            id,
            folder,
            link,
            facts,
            ids,
            cgroup,
            counters: Mutex::new(counters),
            copies: AtomicU64::new(0),
            staged,
            image_id,
            notices,
            watching,
        })
    }

    /// Makes one call and waits for its reply.
    pub async fn call(&self, call: ToolCall) -> Result<Reply, CallError> {
        // Before the command is sent: it may meet a limit before this process runs again.
        let counted = if let Request::Bash { background: false } = call.request { self.read_counters() } else { None };
        let before = counted.unwrap_or_else(|| *self.lock_counters());
        let mut reply = self.link.call(&call).await?;
        if !reply.is_success()
            && let Some(after) = self.read_counters()
        {
            let grown = after.since(before);
            reply.oom = grown.oom_kills > 0;
            reply.pids = grown.pids_refused > 0;
        }
        Ok(reply)
    }

    /// Waits for the reply to a call of an earlier runner process, one of those given to [`Sandbox::resume`].
    pub async fn take_up(&self, key: &str, timeout: Duration, cancel: &CancellationToken) -> Result<Reply, CallError> {
        self.link.take_up(key, timeout, cancel).await
    }

    /// Tells PID 1 that the reply of this call is in the journal: it need not keep it any longer.
    pub fn forget(&self, key: &str) {
        self.link.forget(key);
    }

    /// Copies a file or folder of the host to a path in the sandbox, below /tmp.
    pub async fn put(&self, from: &Path, to: &str) -> Result<Copied, CopyError> {
        self.link.shared.put(&self.copy_key(), from, to).await
    }

    /// Copies a file or folder of the sandbox into a folder of the host, under its last component. The folder is made
    /// when it is missing; existing files are replaced, other things in the way are an error.
    pub async fn get(&self, from: &str, to: &Path) -> Result<Copied, CopyError> {
        self.link.shared.get(&self.copy_key(), from, to).await
    }

    /// Measures one round trip to PID 1.
    pub async fn ping(&self) -> Result<Duration, Gone> {
        self.link.ping().await
    }

    /// Waits for the end of the sandbox: its container or PID 1 died, it broke the protocol, it was stopped.
    pub async fn gone(&self) -> Gone {
        self.link.gone().await
    }

    /// From here on, a call whose caller goes away is not cancelled: whoever resumes the container takes it up.
    pub fn let_go(&self) {
        self.link.let_go();
    }

    /// Freezes the container, which uses no CPU then; true when it is frozen for sure. PID 1 must be connected: one that
    /// waits for a host would find nobody when it is thawed.
    pub async fn pause(&self) -> bool {
        for _ in 0..PAUSES {
            match timeout(ANSWER, self.link.ping()).await {
                Ok(Ok(_)) => {}
                Ok(Err(gone)) => {
                    warn!(%gone, "a sandbox is not paused");
                    return false;
                }
                Err(_) => continue,
            }
            // Its own answer does not count: an engine may say that it failed after it froze the processes.
            if let Err(error) = self.engine.pause(&self.id).await {
                warn!(%error, "pausing a sandbox");
            }
            match self.engine.inspect(&self.id).await {
                Ok(found) if found.status == Status::Paused => return true,
                Ok(found) => warn!(status = ?found.status, "a sandbox was not paused"),
                Err(error) => warn!(%error, "looking at a sandbox that was to be paused"),
            }
        }
        false
    }

    /// Thaws the container of a sandbox that was paused after all.
    pub async fn unpause(&self) -> Result<(), EngineError> {
        thaw(self.engine.clone(), self.id.clone()).await
    }

    /// Kills and removes the container, verified, and removes the folder. May be called again after a failure.
    pub async fn stop(&self) -> Result<(), EngineError> {
        self.watching.stop();
        self.link.end(Gone::new(GoneKind::Stopped, "it was stopped"));
        self.engine.end(&self.id).await?;
        remove_folder(self.folder.path()).await;
        Ok(())
    }

    /// Removes what is left of a sandbox that this process has no [`Sandbox`] of: the container, if it is ours by token
    /// and recorded name, and the folder.
    pub async fn remove(engine: &Engine, state: &State, session: &str, name: &str) -> Result<(), EngineError> {
        let ended = engine.end_ours(state.token(), name).await;
        // A container that may still run needs its folder; one that is not ours has another.
        if matches!(ended, Ok(()) | Err(EngineError::NotOurs(_))) {
            remove_folder(&state.session_folder(session)).await;
        }
        ended
    }

    /// The container's full id.
    pub fn container_id(&self) -> &str {
        &self.id
    }

    /// What PID 1 says of its own confinement, and of the shell and kernel there.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The session's user and group ids.
    pub fn ids(&self) -> Ids {
        self.ids
    }

    /// The engine's id of the image that it was made from.
    pub fn image_id(&self) -> &str {
        &self.image_id
    }

    /// SHA-256 over the staged files of the agent; none for a sandbox that was taken up again.
    pub fn staged(&self) -> Option<&str> {
        self.staged.as_deref()
    }

    /// What the engine could not do, one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Ends the link as the death of this process would, and leaves the container alone.
    #[cfg(test)]
    pub(super) fn break_link(&self) {
        self.watching.stop();
        self.link.end(Gone::new(GoneKind::Stopped, "the runner died"));
    }

    /// Breaks the control connection, if there is one; PID 1 connects again.
    #[cfg(test)]
    pub(super) fn sever(&self) {
        self.link.sever();
    }

    fn copy_key(&self) -> String {
        format!("~copy/{}", self.copies.fetch_add(1, Ordering::Relaxed))
    }

    fn read_counters(&self) -> Option<Counters> {
        let counters = self.cgroup.as_ref()?.read().ok()?;
        *self.lock_counters() = counters;
        Some(counters)
    }

    fn lock_counters(&self) -> std::sync::MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watch that kills a sandbox which broke the rules. It ends with its holder, also with one that is given up before
/// PID 1 has said hello: a runner that leaves then leaves the container as it is.
#[derive(Debug)]
struct Watching(Option<AbortHandle>);

impl Watching {
    fn stop(&self) {
        if let Some(watch) = &self.0 {
            watch.abort();
        }
    }

    /// Lets it do its work without a holder.
    fn go_on(mut self) {
        self.0 = None;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Thaws a container that was frozen. An engine that fails is asked again, unless the container is thawed all the same.
async fn thaw(engine: Engine, id: String) -> Result<(), EngineError> {
    let mut tries = 0;
    loop {
        let Err(error) = engine.unpause(&id).await else { return Ok(()) };
        if engine.inspect(&id).await.is_ok_and(|found| found.status != Status::Paused) {
            return Ok(());
        }
        tries += 1;
        warn!(%error, tries, "unpausing a sandbox");
        if tries == PAUSES {
            return Err(error);
        }
    }
}

/// Waits for the engine's failure to thaw a container; for ever when there is none.
async fn still_frozen(thawing: Option<JoinHandle<Result<(), EngineError>>>) -> EngineError {
    if let Some(thawing) = thawing
        && let Ok(Err(error)) = thawing.await
    {
        return error;
    }
    std::future::pending().await
}

/// Makes the session's folder and stages the agent's files. Returns their hash too.
async fn prepare(state: State, path: PathBuf, agent: PathBuf) -> Result<(SessionFolder, String), SandboxError> {
    let work = move || {
        let toolbox = state.place_toolbox(embedded::TOOLBOX, embedded::TOOLBOX_SHA256)?;
        let folder = SessionFolder::create(&path, &toolbox)?;
        let staged = stage::stage(&agent, &folder.files())?;
        Ok((folder, staged.sha256))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Binds the socket of a session's folder. Returns its group too, as it stands in the file system.
fn listen(
    folder: &SessionFolder,
    open: impl FnOnce(tokio::net::UnixListener) -> Link,
) -> Result<(Link, u32), SandboxError> {
    let place = folder.link();
    let failed = |source: std::io::Error| SandboxError::Folder {
        step: format!("cannot bind the socket in {}", place.display()),
        source,
    };
    let listener = listener::bind(&place, Gid::from_raw(getegid().as_raw())).map_err(failed)?;
    let gid = lstat(&place.join("sock")).map_err(|error| failed(error.into()))?.st_gid;
    Ok((open(listener), gid))
}

async fn remove_folder(path: &Path) {
    let folder = SessionFolder::existing(path);
    let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
    if let Ok(Err(error)) = removed {
        warn!(%error, "removing a session's folder");
    }
}
