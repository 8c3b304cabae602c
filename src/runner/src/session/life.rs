//! A session around its loop: recorded, given a sandbox, and cleaned up after, whatever happens in between.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::calls::Caller;
use super::driver::{Conclusion, LoopLimits, interruption, lost};
use super::journal::{EndCause, Event, Informed, Journal, Started};
use super::owner::Owner;
use super::progress::{Progress, Watcher};
use crate::exit::{Failure, POLICY, USAGE, chain, engine_code};
use crate::project::{Agent, Project};
use crate::sandbox::engine::Engine;
use crate::sandbox::image::Image;
use crate::sandbox::{CallError, Copied, CopyError, Order, Sandbox, SandboxError};
use crate::state::{State, random_hex};
use crate::store::{Container, Generation, NewSession, Store, StoreError};
use crate::tools::{Registry, ToolSession};

/// What every session of this process is made with.
pub(crate) struct Means {
    pub(crate) state: State,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) owner: Arc<Owner>,
    pub(crate) engine: Engine,
}

/// A session to be.
pub(crate) struct Plan<'a> {
    pub(crate) project: &'a Project,
    pub(crate) agent: &'a Agent,
    /// Leave the sandbox at the end.
    pub(crate) keep: bool,
    /// Files and folders of the host, and where they go.
    pub(crate) copy_in: Vec<(PathBuf, String)>,
    /// Files and folders of the sandbox, and the folders they go to.
    pub(crate) copy_out: Vec<(String, PathBuf)>,
    /// Whoever thinks takes images.
    pub(crate) images: bool,
    /// What the journal begins with; what is known here only is filled in.
    pub(crate) started: Started,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) cause: EndCause,
    /// One sentence.
    pub(crate) message: String,
}

/// Lives a session: `mind` works with its tools until it is done or interrupted.
///
/// # Errors
/// Nothing was begun, or the end could not be recorded.
pub(crate) async fn live(
    means: &Means,
    mut plan: Plan<'_>,
    watcher: &dyn Watcher,
    interrupt: &CancellationToken,
    mind: impl AsyncFnOnce(Caller<'_>, LoopLimits) -> Conclusion,
) -> Result<Ended, Failure> {
    let image = means.engine.image(&plan.agent.settings.image).await?;
    let id = Uuid::now_v7().to_string();
    // Recorded before the container is made, so that a crash in between leaves nothing that nobody may remove.
    let name = random_hex();
    plan.started = fill_in(std::mem::take(&mut plan.started), &plan, &image);
    let new = NewSession {
        id: id.clone(),
        project: plan.project.root.display().to_string(),
        agent: plan.agent.name.clone(),
        owner: means.owner.id().clone(),
        container: Some(name.clone()),
        keep: plan.keep,
        place: crate::store::Place::default(),
    };
    let key = means.store.create_session(new, Event::Started(plan.started.clone()).to_row()).await?;
    let session = Session {
        journal: Journal::new(Arc::clone(&means.store), key, Generation::FIRST),
        means,
        plan,
        watcher,
        interrupt,
        id,
        name,
    };
    session.run(mind).await
}

/// What the journal's first line says of the agent and its limits.
fn fill_in(started: Started, plan: &Plan<'_>, image: &Image) -> Started {
    let settings = &plan.agent.settings;
    Started {
        agent: plan.agent.name.clone(),
        project: plan.project.root.display().to_string(),
        params: plan.agent.params.clone(),
        image: settings.image.clone(),
        image_id: Some(image.id.clone()),
        limits: serde_json::json!({
            "sandbox": settings.limits,
            "timeoutSeconds": settings.timeout.as_secs(),
            "bashTimeoutSeconds": settings.bash_timeout.as_secs(),
            "maxTurns": settings.max_turns,
            "maxTokens": settings.max_tokens,
        }),
        ..started
    }
}

/// A recorded session that has not ended.
struct Session<'a> {
    means: &'a Means,
    plan: Plan<'a>,
    watcher: &'a dyn Watcher,
    interrupt: &'a CancellationToken,
    journal: Journal,
    id: String,
    name: String,
}

impl Session<'_> {
    async fn run(self, mind: impl AsyncFnOnce(Caller<'_>, LoopLimits) -> Conclusion) -> Result<Ended, Failure> {
        let settings = &self.plan.agent.settings;
        self.watcher.see(&Progress::Started {
            session: &self.id,
            agent: &self.plan.agent.name,
            image: &settings.image,
        });
        let begun = Instant::now();
        // Not cut short by Ctrl-C: a container that is half made could not be removed for sure. The engine's deadlines
        // bound it, and a second Ctrl-C ends this process.
        let sandbox = match Sandbox::start(&self.means.engine, &self.means.state, self.order()).await {
            Ok(sandbox) => sandbox,
            Err(error) => return self.end(None, not_started(&error)).await,
        };
        let container = sandbox.container_id().to_owned();
        let conclusion = match self.record_sandbox(&sandbox).await {
            Ok(()) => {
                let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.watcher.see(&Progress::SandboxReady { container: &container, duration_ms });
                for notice in sandbox.notices() {
                    self.watcher.see(&Progress::Note { message: notice });
                }
                self.work(&sandbox, mind).await
            }
            Err(error) => error.into(),
        };
        let conclusion = self.copy_out(&sandbox, conclusion).await;
        self.end(Some(sandbox), conclusion).await
    }

    fn order(&self) -> Order {
        let settings = &self.plan.agent.settings;
        Order {
            session: self.id.clone(),
            name: self.name.clone(),
            image: settings.image.clone(),
            limits: settings.limits,
            runtime: settings.runtime.clone(),
            orphan_grace: settings.orphan_grace,
            agent: self.plan.agent.folder.clone(),
        }
    }

    async fn record_sandbox(&self, sandbox: &Sandbox) -> Result<(), StoreError> {
        let container = Container { name: self.name.clone(), id: Some(sandbox.container_id().to_owned()) };
        self.means.store.set_container(self.journal.key(), self.journal.generation(), container).await?;
        let content = serde_json::json!({"container": sandbox.container_id(), "staged": sandbox.staged()});
        self.journal.record_later(&Event::Informed(Informed { source: "runner".to_owned(), content })).await;
        Ok(())
    }

    /// Copies in, then lets the mind work.
    async fn work(
        &self,
        sandbox: &Sandbox,
        mind: impl AsyncFnOnce(Caller<'_>, LoopLimits) -> Conclusion,
    ) -> Conclusion {
        let settings = &self.plan.agent.settings;
        let registry = Registry::transport();
        let tools = ToolSession::new(settings.bash_timeout, settings.limits, self.plan.images);
        let caller = Caller {
            session: &self.id,
            journal: &self.journal,
            registry: &registry,
            hands: sandbox,
            tools: &tools,
            watcher: self.watcher,
        };
        for (from, to) in &self.plan.copy_in {
            let shown = from.display().to_string();
            let copied = tokio::select! {
                biased;
                end = interruption(caller, self.interrupt) => return end,
                copied = sandbox.put(from, to) => copied,
            };
            match copied {
                Ok(copied) => self.show_copy(&shown, to, &copied),
                Err(error) => return copy_failed(&format!("cannot copy {shown} into the sandbox"), &error),
            }
        }
        mind(caller, LoopLimits::of(settings)).await
    }

    /// Copies out, also after a failure, as long as there is a sandbox.
    async fn copy_out(&self, sandbox: &Sandbox, conclusion: Conclusion) -> Conclusion {
        use EndCause::{Engine, Policy, Protocol, SandboxLost};
        if matches!(conclusion.cause, SandboxLost | Protocol | Engine | Policy) {
            return conclusion;
        }
        let mut conclusion = conclusion;
        for (from, to) in &self.plan.copy_out {
            let shown = to.display().to_string();
            match sandbox.get(from, to).await {
                Ok(copied) => self.show_copy(from, &shown, &copied),
                Err(error) => {
                    let failed = copy_failed(&format!("cannot copy {from} to {shown}"), &error);
                    // The end says it, unless it has an earlier failure to report.
                    if conclusion.cause == EndCause::Done {
                        conclusion = Conclusion { text: conclusion.text, ..failed };
                    } else {
                        self.watcher.see(&Progress::Note { message: &failed.message });
                    }
                }
            }
        }
        conclusion
    }

    fn show_copy(&self, from: &str, to: &str, copied: &Copied) {
        self.watcher.see(&Progress::Copied {
            from,
            to,
            files: copied.files,
            bytes: copied.bytes,
            skipped: &copied.skipped,
        });
    }

    /// Records the end, removes the sandbox, and says so.
    async fn end(self, sandbox: Option<Sandbox>, conclusion: Conclusion) -> Result<Ended, Failure> {
        let Conclusion { cause, message, text } = conclusion;
        // The end first: should this process die while it removes, the next runner knows how the session ended and has
        // only the sandbox to remove.
        let has_none = sandbox.is_none();
        let recorded = self.journal.end(cause, message.clone(), has_none).await;
        let mut removed = has_none;
        if let Some(sandbox) = sandbox
            && !self.plan.keep
        {
            self.watcher.see(&Progress::Removing);
            match sandbox.stop().await {
                Ok(()) => removed = true,
                Err(error) => {
                    let message = format!("the sandbox is still there: {error}; the next runner removes it");
                    self.watcher.see(&Progress::Note { message: &message });
                }
            }
            if removed && recorded.is_ok() {
                let (key, generation) = (self.journal.key(), self.journal.generation());
                self.means.store.sandbox_removed(key, generation).await.map_err(|error| unrecorded(&error))?;
            }
        }
        self.watcher.see(&Progress::Ended {
            session: &self.id,
            cause: cause.as_str(),
            exit_code: cause.exit_code(),
            message: &message,
            text: &text,
            sandbox_removed: removed,
        });
        recorded.map_err(|error| unrecorded(&error))?;
        Ok(Ended { cause, message })
    }
}

/// A session that was begun ends with the code of its cause, whatever the same failure would be before one begins.
fn unrecorded(error: &StoreError) -> Failure {
    Failure::new(EndCause::Store.exit_code(), error)
}

/// The end of a session whose sandbox could not be made; nothing of it is left.
fn not_started(error: &SandboxError) -> Conclusion {
    let cause = match error {
        SandboxError::Engine(error) => match engine_code(error) {
            POLICY => EndCause::Policy,
            USAGE => EndCause::Config,
            _ => EndCause::Engine,
        },
        SandboxError::State(_) | SandboxError::Files(_) => EndCause::Config,
        SandboxError::Folder { .. } => EndCause::Failed,
        SandboxError::Gone(gone) => lost(gone).cause,
    };
    Conclusion::new(cause, chain(error))
}

fn copy_failed(what: &str, error: &CopyError) -> Conclusion {
    match error {
        CopyError::Call(CallError::Gone(gone)) => lost(gone),
        other => Conclusion::new(EndCause::Failed, format!("{what}: {}", chain(other))),
    }
}
