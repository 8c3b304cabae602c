//! A session around its loop: recorded, given a sandbox, and cleaned up after, whatever happens in between.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::begin;
use super::calls::Caller;
use super::driver::{Conclusion, LoopLimits, interruption, lost};
use super::held::Held;
use super::journal::{EndCause, Event, Informed, Journal, Last, Started};
use super::owner::Owner;
use super::progress::{Progress, Watcher};
use crate::exit::{Failure, POLICY, USAGE, chain, engine_code};
use crate::project::{Agent, Project};
use crate::sandbox::engine::{Engine, EngineError};
use crate::sandbox::{CallError, Copied, CopyError, Order, Sandbox, SandboxError};
use crate::state::{State, random_hex};
use crate::store::{Container, Generation, NewSession, Place, Store, StoreError};
use crate::tools::{Registry, ToolSession};

/// What every session of this process is made with.
pub(crate) struct Means {
    pub(crate) state: State,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) owner: Arc<Owner>,
    pub(crate) engine: Engine,
}

/// A session without a mind of ours, to be begun and driven here.
pub(crate) struct Plan<'a> {
    pub(crate) project: &'a Project,
    pub(crate) agent: &'a Agent,
    /// Leave the sandbox at the end.
    pub(crate) keep: bool,
    /// Files and folders of the host, and where they go.
    pub(crate) copy_in: Vec<(PathBuf, String)>,
    /// Files and folders of the sandbox, and the folders they go to.
    pub(crate) copy_out: Vec<(String, PathBuf)>,
    /// What the journal says that started it.
    pub(crate) trigger: Value,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) cause: EndCause,
    /// One sentence.
    pub(crate) message: String,
}

/// Lives a session that has no slot, begun here: `mind` works with its tools until it is done or interrupted.
///
/// # Errors
/// Nothing was begun, or the end could not be recorded.
pub(crate) async fn live(
    means: &Means,
    plan: Plan<'_>,
    watcher: &dyn Watcher,
    interrupt: &CancellationToken,
    mind: impl AsyncFnOnce(Caller<'_>, LoopLimits) -> Conclusion,
) -> Result<Ended, Failure> {
    let image = means.engine.image(&plan.agent.settings.image).await?;
    let id = Uuid::now_v7().to_string();
    // Recorded before the container is made, so that a crash in between leaves nothing that nobody may remove.
    let name = random_hex();
    let started = Started {
        image_id: Some(image.id),
        trigger: plan.trigger.clone(),
        ..begin::described(plan.project, plan.agent)
    };
    let new = NewSession {
        id: id.clone(),
        project: started.project.clone(),
        agent: plan.agent.name.clone(),
        owner: means.owner.id().clone(),
        container: Some(name.clone()),
        keep: plan.keep,
        place: Place::default(),
    };
    let key = means.store.create_session(new, Event::Started(started).to_row()).await?;
    let journal = Journal::new(Arc::clone(&means.store), key, Generation::FIRST);
    let life = Life { means, watcher, journal, id, keep: plan.keep, detach: false };
    life.show_start(plan.agent);
    let sandbox = match life.make(plan.agent, &name).await {
        Ok(sandbox) => sandbox,
        Err(conclusion) => return life.end(Left::Nothing, conclusion).await,
    };
    let settings = &plan.agent.settings;
    let tools = ToolSession::new(settings.bash_timeout, settings.limits, true);
    let (registry, held) = (Registry::transport(), Held::default());
    let caller = Caller {
        session: &life.id,
        journal: &life.journal,
        registry: &registry,
        hands: &sandbox,
        tools: &tools,
        watcher,
        member: None,
        held: &held,
    };
    let conclusion = match life.copy_in(&sandbox, caller, &plan.copy_in, interrupt).await {
        Ok(()) => mind(caller, LoopLimits::of(settings, Duration::ZERO)).await,
        Err(conclusion) => conclusion,
    };
    let conclusion = life.copy_out(&sandbox, &plan.copy_out, conclusion).await;
    life.end(Left::Sandbox(Box::new(sandbox)), conclusion).await
}

/// A recorded session that this process drives.
pub(super) struct Life<'a> {
    pub(super) means: &'a Means,
    pub(super) watcher: &'a dyn Watcher,
    pub(super) journal: Journal,
    pub(super) id: String,
    /// Leave the sandbox at the end.
    pub(super) keep: bool,
    /// Its running calls go on although it fails.
    pub(super) detach: bool,
}

/// What a session that ends has left of its sandbox.
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// All of it.
    Sandbox(Box<Sandbox>),
    /// Perhaps a container of this name, and the folder.
    Named(String),
}

impl Life<'_> {
    pub(super) fn show_start(&self, agent: &Agent) {
        self.watcher.see(&Progress::Started { session: &self.id, agent: &agent.name, image: &agent.settings.image });
    }

    /// Makes the session's sandbox, in a container of this recorded name. Nothing of it is left on failure.
    pub(super) async fn make(&self, agent: &Agent, name: &str) -> Result<Sandbox, Conclusion> {
        let begun = Instant::now();
        let settings = &agent.settings;
        let order = Order {
            session: self.id.clone(),
            name: name.to_owned(),
            image: settings.image.clone(),
            limits: settings.limits,
            runtime: settings.runtime.clone(),
            orphan_grace: settings.orphan_grace,
            agent: agent.folder.clone(),
        };
        // Not cut short by Ctrl-C: a container that is half made could not be removed for sure. The engine's deadlines
        // bound it, and a second Ctrl-C ends this process.
        let sandbox = Sandbox::start(&self.means.engine, &self.means.state, order).await;
        let sandbox = sandbox.map_err(|error| not_started(&error))?;
        if let Err(error) = self.record_sandbox(&sandbox, name).await {
            if let Err(left) = sandbox.stop().await {
                self.note(&format!("the sandbox is still there: {left}; the next runner removes it"));
            }
            return Err(error.into());
        }
        self.show_ready(&sandbox, begun);
        Ok(sandbox)
    }

    pub(super) fn show_ready(&self, sandbox: &Sandbox, begun: Instant) {
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.watcher.see(&Progress::SandboxReady { container: sandbox.container_id(), duration_ms });
        for notice in sandbox.notices() {
            self.note(notice);
        }
    }

    async fn record_sandbox(&self, sandbox: &Sandbox, name: &str) -> Result<(), StoreError> {
        let container = Container { name: name.to_owned(), id: Some(sandbox.container_id().to_owned()) };
        self.means.store.set_container(self.journal.key(), self.journal.generation(), container).await?;
        // Which image a name stands for, and what the agent's files are, is known now and not when it was queued.
        let content = serde_json::json!({
            "container": sandbox.container_id(),
            "image_id": sandbox.image_id(),
            "staged": sandbox.staged(),
        });
        self.journal.record_later(&Event::Informed(Informed { source: "runner".to_owned(), content })).await;
        Ok(())
    }

    pub(super) fn note(&self, message: &str) {
        self.watcher.see(&Progress::Note { message });
    }

    /// Copies in, unless something ends the session.
    pub(super) async fn copy_in(
        &self,
        sandbox: &Sandbox,
        caller: Caller<'_>,
        wanted: &[(PathBuf, String)],
        interrupt: &CancellationToken,
    ) -> Result<(), Conclusion> {
        for (from, to) in wanted {
            let shown = from.display().to_string();
            let copied = tokio::select! {
                biased;
                end = interruption(caller, interrupt) => return Err(end),
                copied = sandbox.put(from, to) => copied,
            };
            match copied {
                Ok(copied) => self.show_copy(&shown, to, &copied),
                Err(error) => return Err(copy_failed(&format!("cannot copy {shown} into the sandbox"), &error)),
            }
        }
        Ok(())
    }

    /// Copies out, also after a failure, as long as there is a sandbox.
    pub(super) async fn copy_out(
        &self,
        sandbox: &Sandbox,
        wanted: &[(String, PathBuf)],
        conclusion: Conclusion,
    ) -> Conclusion {
        use EndCause::{Engine, Killed, Policy, Protocol, SandboxLost};
        if matches!(conclusion.cause, SandboxLost | Protocol | Engine | Policy | Killed) {
            return conclusion;
        }
        let mut conclusion = conclusion;
        for (from, to) in wanted {
            let shown = to.display().to_string();
            match sandbox.get(from, to).await {
                Ok(copied) => self.show_copy(from, &shown, &copied),
                Err(error) => {
                    let failed = copy_failed(&format!("cannot copy {from} to {shown}"), &error);
                    // The end says it, unless it has an earlier failure to report.
                    if conclusion.cause == EndCause::Done {
                        conclusion = Conclusion { text: conclusion.text, ..failed };
                    } else {
                        self.note(&failed.message);
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
    pub(super) async fn end(self, left: Left, conclusion: Conclusion) -> Result<Ended, Failure> {
        let Conclusion { cause, message, text } = conclusion;
        // The end first: should this process die while it removes, the next runner knows how the session ended and has
        // only the sandbox to remove.
        let has_none = matches!(left, Left::Nothing);
        let last = Last { text: Some(text.clone()), detach: self.detach };
        let recorded = self.journal.end_with(cause, message.clone(), has_none, last).await;
        let mut removed = has_none;
        if !has_none && !self.keep {
            self.watcher.see(&Progress::Removing);
            match self.remove(left).await {
                Ok(()) => removed = true,
                Err(error) => self.note(&format!("the sandbox is still there: {error}; the next runner removes it")),
            }
            if removed && recorded.is_ok() {
                let (key, generation) = (self.journal.key(), self.journal.generation());
                self.means.store.sandbox_removed(key, generation).await.map_err(|error| unrecorded(&error))?;
            }
            if let (true, Err(error)) = (removed, &recorded) {
                // What was removed has made room, perhaps; without an end the session would be driven again, and has no
                // container any more. Somebody who has fenced this driver is not disturbed.
                let _ = self.journal.end(EndCause::Store, error.to_string(), true).await;
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

    async fn remove(&self, left: Left) -> Result<(), EngineError> {
        match left {
            Left::Nothing => Ok(()),
            Left::Sandbox(sandbox) => sandbox.stop().await,
            Left::Named(name) => Sandbox::remove(&self.means.engine, &self.means.state, &self.id, &name).await,
        }
    }
}

/// A session that was begun ends with the code of its cause, whatever the same failure would be before one begins.
fn unrecorded(error: &StoreError) -> Failure {
    Failure::new(EndCause::Store.exit_code(), error)
}

/// The end of a session whose sandbox could not be made; nothing of it is left.
pub(super) fn not_started(error: &SandboxError) -> Conclusion {
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
