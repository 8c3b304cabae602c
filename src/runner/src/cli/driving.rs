//! A dispatcher with real drivers, as `start`, `resume` and `serve` use it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::progress::Notes;
use super::waiting::{self, Queue};
use crate::dispatch::{Dispatch, Drive, Ground, Orders, Outcome, Signals};
use crate::exit::Failure;
use crate::fleet;
use crate::project::{OnCallerExit, OnSandboxLost, Project, Schedule};
use crate::session::begin;
use crate::session::drive;
use crate::session::life::Means;
use crate::session::progress::{Progress, Watcher};
use crate::session::recovery::OnEngine;
use crate::store::{NewEvent, NewSession, Scope, Session, SessionFilter, SessionKey, Status, StoreError};

/// Drives sessions with everything that a session takes.
pub(super) struct Sessions {
    means: Rc<Means>,
    project: Rc<Project>,
    /// The call tree that somebody watches, and who.
    watched: Option<Watched>,
}

/// Somebody watches the sessions of one call tree, of which one is shown in full.
#[derive(Clone)]
pub(super) struct Watched {
    root: SessionKey,
    shown: SessionKey,
    screen: Rc<Screen>,
}

/// Shows one session, and remembers what must not be missed.
pub(super) struct Screen {
    inner: Box<dyn Watcher>,
    started: Cell<bool>,
    ended: Cell<bool>,
}

impl Screen {
    pub(super) fn new(inner: Box<dyn Watcher>) -> Rc<Self> {
        Rc::new(Self { inner, started: Cell::new(false), ended: Cell::new(false) })
    }
}

impl Watcher for Screen {
    fn see(&self, progress: &Progress<'_>) {
        match progress {
            // Each of its drivers says so.
            Progress::Started { .. } if self.started.replace(true) => return,
            Progress::Ended { .. } => self.ended.set(true),
            _ => {}
        }
        self.inner.see(progress);
    }
}

impl Drive for Sessions {
    fn drive(&self, session: Session, signals: Signals) -> LocalBoxFuture<'static, Result<Outcome, Failure>> {
        let (means, project) = (Rc::clone(&self.means), Rc::clone(&self.project));
        let watched = self.watched.clone();
        Box::pin(async move {
            let screen = match watched {
                Some(watched) if watched.shown == session.key => watched.screen,
                Some(watched) if watched.root != session.root => {
                    let message = format!("took over session {} of {}: its runner had died", session.id, session.agent);
                    watched.screen.see(&Progress::Note { message: &message });
                    return Box::pin(drive::drive(&means, &project, session, &Notes, &signals)).await;
                }
                _ => return Box::pin(drive::drive(&means, &project, session, &Notes, &signals)).await,
            };
            let (id, key) = (session.id.clone(), session.key);
            if let Some(wait) = means.store.wait_of(key).await? {
                screen.see(&Progress::Resumed { session: &id, by: &waiting::woken(&wait) });
            }
            let outcome = Box::pin(drive::drive(&means, &project, session, &*screen, &signals)).await?;
            if outcome == Outcome::Suspended
                && let Some(wait) = means.store.wait_of(key).await?
            {
                waiting::show_wait(&id, &wait, &*screen);
            }
            Ok(outcome)
        })
    }
}

/// Which agents of a project start by the clock.
pub(super) fn schedules(project: &Project) -> Vec<(String, Schedule)> {
    let scheduled = |name: String| {
        let agent = project.agent(&name).ok()?;
        Some((name, agent.settings.schedule?)).filter(|_| agent.settings.scale > 0)
    };
    project.agent_names().into_iter().filter_map(scheduled).collect()
}

/// A dispatcher for a project.
pub(super) fn dispatch(
    means: &Rc<Means>,
    project: &Rc<Project>,
    scope: Scope,
    schedules: Vec<(String, Schedule)>,
    watched: Option<Watched>,
) -> Rc<Dispatch<Sessions>> {
    let agents: Vec<_> = project.agent_names().iter().filter_map(|name| project.agent(name).ok()).collect();
    let those = |wanted: &dyn Fn(&crate::project::Settings) -> bool| {
        agents.iter().filter(|agent| wanted(&agent.settings)).map(|agent| agent.name.clone()).collect()
    };
    let orders = Orders {
        project: project.root.display().to_string(),
        slots: fleet::slots(project),
        scope,
        history: project.fleet().history,
        schedules,
        begin: {
            let (means, project) = (Rc::clone(means), Rc::clone(project));
            Box::new(move |agent, trigger| begin_scheduled(&means, &project, agent, trigger))
        },
        restarting: those(&|settings| settings.on_sandbox_lost == OnSandboxLost::Restart),
        detaching: those(&|settings| settings.on_caller_exit == OnCallerExit::Detach),
    };
    let ground = Ground {
        store: Arc::clone(&means.store),
        state: means.state.clone(),
        owner: Arc::clone(&means.owner),
        containers: Rc::new(OnEngine::new(means.engine.clone(), &means.state)),
    };
    Dispatch::new(ground, orders, Sessions { means: Rc::clone(means), project: Rc::clone(project), watched })
}

/// Drives a session and its call tree in this process until the tree has ended; returns the session's exit code.
pub(super) async fn drive_here(
    means: Means,
    project: Project,
    session: &Session,
    screen: Rc<Screen>,
    interrupt: &CancellationToken,
) -> Result<u8, Failure> {
    let (means, project) = (Rc::new(means), Rc::new(project));
    let watched = Watched { root: session.root, shown: session.key, screen: Rc::clone(&screen) };
    let scope = Scope::Trees(vec![session.root]);
    let dispatch = dispatch(&means, &project, scope, Vec::new(), Some(watched));
    let ended = LocalSet::new()
        .run_until(async {
            dispatch.take_up().await?;
            let running = {
                let dispatch = Rc::clone(&dispatch);
                tokio::task::spawn_local(async move { dispatch.run().await })
            };
            let ended = until_ended(&means, &dispatch, session, &screen, interrupt).await;
            // What was taken over beside it is left again.
            for id in dispatch.driven_beside(session.root) {
                let message =
                    format!("leaving session {id} again; `runner resume {id}` or `runner serve` goes on with it");
                screen.see(&Progress::Note { message: &message });
            }
            dispatch.leave();
            // It ends when its drivers have let go.
            running.await.map_err(|error| Failure::new(crate::exit::BUG, &error))?;
            ended.map_err(Failure::from)
        })
        .await;
    ended?;
    let session = means.store.session(&session.id).await?;
    if !screen.ended.get() {
        waiting::show_end(&session, "", &*screen);
    }
    Ok(session.end.map_or(0, |(end, _)| end.exit_code))
}

/// Waits until no session of the tree is live; an interruption ends them all.
async fn until_ended(
    means: &Means,
    dispatch: &Rc<Dispatch<Sessions>>,
    session: &Session,
    screen: &Screen,
    interrupt: &CancellationToken,
) -> Result<(), StoreError> {
    let mut changes = means.store.watch();
    let mut queue = Queue::default();
    let (mut interrupted, mut told) = (false, false);
    let filter = SessionFilter { tree: Some(session.root), status: Status::Live, ..SessionFilter::default() };
    loop {
        changes.mark_unchanged();
        let live = means.store.sessions(filter.clone()).await?;
        if live.is_empty() {
            return Ok(());
        }
        match live.iter().find(|other| other.key == session.key) {
            Some(now) => queue.show(&*means.store, now, screen).await?,
            None if !told => {
                told = true;
                let ids: Vec<&str> = live.iter().map(|session| session.id.as_str()).collect();
                let message = format!("its calls go on: {}; Ctrl-C ends them", ids.join(", "));
                screen.see(&Progress::Note { message: &message });
            }
            None => {}
        }
        if interrupt.is_cancelled() {
            interrupted = true;
            dispatch.interrupt_tree(&live, &waiting::who()).await;
        }
        tokio::select! {
            // A store that is closed says so at the next look.
            _ = changes.changed() => {}
            () = interrupt.cancelled(), if !interrupted => {}
        }
    }
}

fn begin_scheduled(
    means: &Means,
    project: &Project,
    agent: &str,
    trigger: Value,
) -> Result<(NewSession, NewEvent), Failure> {
    let agent = project.agent(agent)?;
    let order = begin::Order::by(trigger, &agent);
    begin::begin(project, &agent, order, means.owner.id())
}
