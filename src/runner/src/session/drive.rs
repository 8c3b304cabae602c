//! A session with a slot, driven as far as it goes: its first start, its way on after a wait, and the way on after a
//! runner that died are the same.
//!
//! ```text
//!  claimed ──> journal read ──> sandbox: none yet: made · paused: thawed beside the model's turn · running: linked again
//!                                  │
//!                                  v
//!                  open calls made or taken up ──> think ──> act ──> …
//!                                                    │
//!        ended <──── done, a limit, a stop … <───────┼───────> a wait: paused, Suspended
//!                                                    └───────> the runner leaves: paused, Left
//! ```
//!
//! Somebody who takes the session over fences this driver, which then touches nothing any more.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::active;
use super::arriving::Arriving;
use super::begin::Beginner;
use super::calls::{Caller, finished};
use super::conversation::{self, Conversation, RESTARTED};
use super::driver::{Conclusion, Driver, LoopLimits, Stop, lost};
use super::held::{Held, mark};
use super::journal::{self, EndCause, Event, Informed, Journal, JournalError, Resumed, Started, Suspended};
use super::life::{Ended, Left, Life, Means};
use super::progress::Watcher;
use crate::exit::{Failure, chain};
use crate::fleet::{Member, Rules};
use crate::model::{self, Model, PromptParts, TurnRequest};
use crate::project::{Agent, OnCallerExit, OnSandboxLost, Project};
use crate::sandbox::engine::EngineError;
use crate::sandbox::{Gone, GoneKind, Sandbox, SandboxError};
use crate::state::random_hex;
use crate::store::{Container, Lines, Seat, Session, SessionState, Store, StoreError, Waited, Woken};
use crate::tools::{Registry, ToolSession, wait_for_trigger};

/// How a driver is told to let go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// End the session.
    pub(crate) interrupt: CancellationToken,
    /// Leave it to the next runner.
    pub(crate) leave: CancellationToken,
}

/// How driving a session came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has ended.
    Ended(Ended),
    /// It waits.
    Suspended,
    /// It was left to the next runner.
    Left,
    /// Somebody else drives it.
    Fenced,
}

/// Drives an active session of this process until it has ended, waits, or is left.
///
/// # Errors
/// The store or the engine failed; the session is as it was and can be driven again under a new generation.
pub(crate) async fn drive(
    means: &Means,
    project: &Project,
    session: Session,
    watcher: &dyn Watcher,
    signals: &Signals,
) -> Result<Outcome, Failure> {
    match Drive::open(means, project, &session, watcher, signals).await {
        Ok(Opened::Ready(drive)) => drive.run().await,
        Ok(Opened::Ended(ended)) => Ok(Outcome::Ended(ended)),
        Err(Halt::Fenced) => Ok(Outcome::Fenced),
        Err(Halt::Failed(failure)) => Err(failure),
    }
}

/// Why a session cannot be driven now.
enum Halt {
    Fenced,
    Failed(Failure),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { .. } | StoreError::Ended { .. } => Self::Fenced,
            error => Self::Failed(error.into()),
        }
    }
}

impl From<JournalError> for Halt {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Store(error) => error.into(),
            error @ JournalError::Row { .. } => Self::Failed(Failure::new(1, &error)),
        }
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

enum Opened<'a> {
    Ready(Box<Drive<'a>>),
    /// What it needs is not there any more.
    Ended(Ended),
}

/// A session, read from its journal.
struct Drive<'a> {
    life: Life<'a>,
    agent: Agent,
    model: Box<dyn Model>,
    member: Member,
    signals: &'a Signals,
    started: Started,
    told: Conversation,
    held: Held,
    /// The name of its container.
    name: String,
    /// Somebody has worked in that container.
    lived: bool,
    limits: LoopLimits,
}

impl<'a> Drive<'a> {
    async fn open(
        means: &'a Means,
        project: &Project,
        session: &Session,
        watcher: &'a dyn Watcher,
        signals: &'a Signals,
    ) -> Result<Opened<'a>, Halt> {
        let seat = Seat { key: session.key, generation: session.generation };
        let waited = answer_wait(&means.store, seat).await?;
        let lines = journal::lines(&*means.store, session.key).await?;
        let journal = Journal::new(Arc::clone(&means.store), session.key, session.generation);
        let Some((_, Event::Started(started))) = lines.first() else {
            let message = format!("the journal of session {} does not begin with its start", session.id);
            return Err(Failure { code: EndCause::Bug.exit_code(), message, hint: None }.into());
        };
        let started = started.clone();
        let container = session.container.clone();
        let lived = container.as_ref().is_some_and(|container| container.id.is_some());
        if lived && !waited {
            journal.record(&resumed(&lines)).await?;
        }
        let mut life = Life { means, watcher, journal, id: session.id.clone(), keep: session.keep, detach: false };
        let opened = open_agent(project, &started);
        let (agent, model) = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                let left = container.map_or(Left::Nothing, |container| Left::Named(container.name));
                return Ok(Opened::Ended(life.end(left, Conclusion::new(EndCause::Config, failure.message)).await?));
            }
        };
        life.detach = agent.settings.on_caller_exit == OnCallerExit::Detach;
        let member = Member {
            store: Arc::clone(&means.store),
            seat,
            session: session.id.clone(),
            agent: agent.name.clone(),
            project: session.project.clone(),
            rules: Rules::of(project.fleet(), &agent.settings),
            newcomers: Arc::new(Beginner::new(project.clone(), means.owner.id().clone())),
        };
        let events: Vec<Event> = lines.iter().map(|(_, event)| event.clone()).collect();
        let held = Held::default();
        for event in &events {
            if let Event::ToolFinished(finished) = event {
                held.note(&finished.details);
            }
        }
        let used = active::time(lines.iter().map(|(at, event)| (*at, event)));
        let used = Duration::from_millis(u64::try_from(used).unwrap_or_default());
        let (_, max_tokens) = means.store.tree_tokens(session.key).await?;
        let limits = LoopLimits { max_tokens, ..LoopLimits::of(&agent.settings, used) };
        let told = conversation::of(&session.id, &events);
        let name = container.map_or_else(random_hex, |container| container.name);
        let drive = Self { life, agent, model, member, signals, started, told, held, name, lived, limits };
        Ok(Opened::Ready(Box::new(drive)))
    }

    async fn run(mut self) -> Result<Outcome, Failure> {
        self.life.show_start(&self.agent);
        loop {
            // Before the model has answered there is nothing to go on with: whatever was half done is done again.
            let (stop, sandbox) =
                if self.lived && self.told.turns > 0 { self.go_on().await? } else { self.start_afresh().await? };
            let restarts = self.agent.settings.on_sandbox_lost == OnSandboxLost::Restart;
            match stop {
                Stop::End(conclusion) if conclusion.cause == EndCause::SandboxLost && restarts => {
                    drop(sandbox);
                    match self.begin_again(&conclusion.message).await {
                        Ok(()) => {}
                        Err(Halt::Fenced) => return Ok(Outcome::Fenced),
                        Err(Halt::Failed(failure)) => return Err(failure),
                    }
                }
                Stop::End(conclusion) => return self.end(sandbox, conclusion).await,
                Stop::Suspended => {
                    if let Some(sandbox) = sandbox {
                        self.suspend(&sandbox).await?;
                    }
                    return Ok(Outcome::Suspended);
                }
                Stop::Left => {
                    self.leave(sandbox.as_ref()).await?;
                    return Ok(Outcome::Left);
                }
                Stop::Fenced => return Ok(Outcome::Fenced),
            }
        }
    }

    /// Makes the sandbox, copies in, and lets the model work.
    async fn start_afresh(&mut self) -> Result<(Stop, Option<Sandbox>), Failure> {
        let (means, id) = (self.life.means, &self.life.id);
        if self.lived || means.state.session_folder(id).exists() {
            Sandbox::remove(&means.engine, &means.state, id, &self.name).await?;
        }
        let sandbox = match self.life.make(&self.agent, &self.name).await {
            Ok(sandbox) => sandbox,
            Err(conclusion) => return Ok((conclusion.into(), None)),
        };
        self.lived = true;
        let wanted: Vec<(PathBuf, String)> =
            self.started.copy_in.iter().map(|(from, to)| (PathBuf::from(from), to.clone())).collect();
        let (tools, registry) = self.tools();
        let caller = self.caller(&registry, &sandbox, &tools);
        let copied = tokio::select! {
            copied = self.life.copy_in(&sandbox, caller, &wanted, &self.signals.interrupt) => copied.map_err(Stop::from),
            () = self.signals.leave.cancelled() => Err(Stop::Left),
        };
        let stop = match copied {
            Ok(()) => self.driver(caller).run().await,
            Err(stop) => stop,
        };
        Ok((stop, Some(sandbox)))
    }

    /// Takes the sandbox up again, beside the model's turn.
    async fn go_on(&self) -> Result<(Stop, Option<Sandbox>), Failure> {
        let means = self.life.means;
        let open = || self.told.open.iter().filter(|open| open.result.is_none() && open.begun);
        let begun: BTreeSet<String> = open().map(|open| open.call.key.clone()).collect();
        let unfinished: Vec<String> =
            open().filter(|open| open.call.name == "bash").map(|open| open.call.key.clone()).collect();
        let hands = Arriving::new(begun);
        let asked = Instant::now();
        let grace = self.agent.settings.orphan_grace;
        let arrival = async {
            let resumed =
                Sandbox::resume(&means.engine, &means.state, &self.life.id, &self.name, grace, &unfinished).await;
            match resumed {
                Ok(sandbox) => {
                    self.life.show_ready(&sandbox, asked);
                    hands.arrive(Ok(sandbox));
                }
                Err(error) => hands.arrive(Err(gone_for_good(error)?)),
            }
            std::future::pending::<Result<Stop, Failure>>().await
        };
        let mut arrival = Box::pin(arrival);
        let (tools, registry) = self.tools();
        let stop = tokio::select! {
            stop = self.driver(self.caller(&registry, &hands, &tools)).run() => stop,
            failed = &mut arrival => failed?,
        };
        if self.needs_sandbox(&stop) {
            // The model was faster: a container that is being thawed would be neither frozen again nor copied from.
            tokio::select! {
                gone = hands.arrived() => if let Err(gone) = gone && matches!(stop, Stop::End(_)) {
                    return Ok((lost(&gone).into(), None));
                },
                failed = &mut arrival => { failed?; }
            }
        }
        drop(arrival);
        Ok((stop, hands.into_sandbox()))
    }

    /// What follows this stop is done in the sandbox, also when it has not arrived.
    fn needs_sandbox(&self, stop: &Stop) -> bool {
        match stop {
            Stop::Suspended | Stop::Left => true,
            Stop::End(conclusion) => conclusion.cause == EndCause::Done && !self.started.copy_out.is_empty(),
            Stop::Fenced => false,
        }
    }

    fn tools(&self) -> (ToolSession, Registry) {
        let settings = &self.agent.settings;
        (ToolSession::new(settings.bash_timeout, settings.limits, self.model.takes_images()), Registry::session())
    }

    fn caller<'b>(
        &'b self,
        registry: &'b Registry,
        hands: &'b dyn crate::tools::Hands,
        tools: &'b ToolSession,
    ) -> Caller<'b> {
        Caller {
            session: &self.life.id,
            journal: &self.life.journal,
            registry,
            hands,
            tools,
            watcher: self.life.watcher,
            member: Some(&self.member),
            held: &self.held,
        }
    }

    fn driver<'b>(&'b self, caller: Caller<'b>) -> Driver<'b> {
        let started = &self.started;
        let parts = PromptParts {
            task: started.task.clone(),
            trigger: started.trigger.clone(),
            params: started.params.clone(),
        };
        let request = TurnRequest {
            system: started.system.clone().unwrap_or_default(),
            prompt: started.prompt.clone().unwrap_or_default(),
            parts,
            messages: self.told.messages.clone(),
            tools: caller.registry.definitions(),
        };
        Driver {
            caller,
            model: &*self.model,
            limits: self.limits,
            request,
            room: self.told.room.clone(),
            turn: self.told.turns,
            open: self.told.open.clone(),
            said: self.told.said.clone(),
            since: self.told.since,
            signals: self.signals,
        }
    }

    /// The sandbox is gone: a new one under a new name, and a conversation that knows nothing of the old one.
    async fn begin_again(&mut self, why: &str) -> Result<(), Halt> {
        let life = &self.life;
        Sandbox::remove(&life.means.engine, &life.means.state, &life.id, &self.name).await.map_err(Failure::from)?;
        self.name = random_hex();
        self.lived = false;
        let container = Container { name: self.name.clone(), id: None };
        let store = &life.means.store;
        store.set_container(life.journal.key(), life.journal.generation(), container).await?;
        let content = json!({"restarted": true, "reason": why});
        life.journal.record(&Event::Informed(Informed { source: RESTARTED.to_owned(), content })).await?;
        life.note(&format!("{why}; it begins again in a new sandbox"));
        let lines = journal::lines(&**store, life.journal.key()).await?;
        let used = active::time(lines.iter().map(|(at, event)| (*at, event)));
        let events: Vec<Event> = lines.into_iter().map(|(_, event)| event).collect();
        self.told = conversation::of(&life.id, &events);
        let used = Duration::from_millis(u64::try_from(used).unwrap_or_default());
        self.limits = LoopLimits { max_tokens: self.limits.max_tokens, ..LoopLimits::of(&self.agent.settings, used) };
        Ok(())
    }

    async fn end(self, sandbox: Option<Sandbox>, conclusion: Conclusion) -> Result<Outcome, Failure> {
        let copies: Vec<(String, PathBuf)> =
            self.started.copy_out.iter().map(|(from, to)| (from.clone(), PathBuf::from(to))).collect();
        let (left, conclusion) = match sandbox {
            Some(sandbox) => {
                let conclusion = self.life.copy_out(&sandbox, &copies, conclusion).await;
                (Left::Sandbox(Box::new(sandbox)), conclusion)
            }
            // It was not made, or not found any more, or had not arrived.
            None => (Left::Named(self.name), conclusion),
        };
        Ok(Outcome::Ended(self.life.end(left, conclusion).await?))
    }

    /// The session waits already; its container is paused, unless it has been woken meanwhile and somebody drives it.
    async fn suspend(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        crate::crash::point("pause.before");
        let paused = sandbox.pause().await;
        crate::crash::point("pause.after");
        let store = &self.life.means.store;
        let now = store.session(&self.life.id).await?;
        let waits = matches!(now.state, SessionState::Waiting | SessionState::Woken);
        if !waits || now.generation != self.member.seat.generation {
            if paused {
                sandbox.unpause().await?;
            }
            return Ok(());
        }
        if !paused {
            self.life.note("its container could not be paused; it waits all the same");
        }
        match store.set_paused(self.member.seat, paused).await {
            Ok(()) | Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves the session to the next runner: its calls stay in the container, in which no time passes.
    async fn leave(&self, sandbox: Option<&Sandbox>) -> Result<(), Failure> {
        let left = Suspended { on: json!({"type": LEFT}), active_ms: self.limits.used(), ..Suspended::default() };
        match self.life.journal.record(&Event::Suspended(left)).await {
            Ok(_) => {}
            Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if let Some(sandbox) = sandbox
            && !sandbox.pause().await
        {
            self.life.note("its container could not be paused; it ends by itself if no runner goes on in time");
        }
        Ok(())
    }
}

/// The type of what a session waits for that its runner left.
const LEFT: &str = "runner_left";

/// Answers the call that waited, if the session was woken; true when that was so.
pub(super) async fn answer_wait(store: &Arc<dyn Store>, seat: Seat) -> Result<bool, StoreError> {
    let Some(wait) = store.wait_of(seat.key).await? else { return Ok(false) };
    let (call, begun) = (wait.call, Instant::now());
    let lines = Lines::new(move |waited: &Waited| {
        let by = match &waited.woken {
            Woken::Trigger(trigger) => trigger.clone(),
            Woken::Timeout => json!({"type": "timeout"}),
        };
        let mut result = wait_for_trigger::answer(waited);
        if let Some(lock) = &waited.lost_lock {
            mark(&mut result.details, lock);
        }
        let answered = finished(&call, "wait_for_trigger", &result, begun);
        vec![Event::Resumed(Resumed { by }).to_row(), answered.to_row()]
    });
    store.finish_wait(seat, lines).await?;
    Ok(true)
}

/// The line of a session that goes on after its runner died or left.
fn resumed(lines: &[(i64, Event)]) -> Event {
    let left = matches!(lines.last(), Some((_, Event::Suspended(last))) if last.on["type"] == LEFT);
    Event::Resumed(Resumed { by: json!({"type": if left { LEFT } else { "runner_died" }}) })
}

/// The agent as its files are now, and its model.
fn open_agent(project: &Project, started: &Started) -> Result<(Agent, Box<dyn Model>), Failure> {
    let agent = project.agent_on(started.folder.as_deref().unwrap_or(&started.agent), &started.models)?;
    let model = model::open(&agent.models)?;
    Ok((agent, model))
}

/// The end of a sandbox that cannot be taken up any more; an engine that cannot say so is a failure to be tried again.
fn gone_for_good(error: SandboxError) -> Result<Gone, Failure> {
    match error {
        SandboxError::Gone(gone) => Ok(gone),
        SandboxError::Engine(EngineError::NoContainer(_) | EngineError::NotOurs(_)) => {
            Ok(Gone { kind: GoneKind::Died, message: "its container is not there any more".to_owned() })
        }
        SandboxError::Folder { .. } => Ok(Gone { kind: GoneKind::Lost, message: chain(&error) }),
        SandboxError::Engine(error) => Err(error.into()),
        error => {
            Err(Failure::new(lost(&Gone { kind: GoneKind::Engine, message: String::new() }).cause.exit_code(), &error))
        }
    }
}
