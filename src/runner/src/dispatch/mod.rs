//! Whoever drives sessions: one dispatcher a process, for one project.
//!
//! ```text
//!  store: queued ──┐                                   ┌──> ended
//!         woken ───┴─ claim ──> active, a driver a ────┼──> waiting (no driver, no task)
//!         orphans ─── take over ──>    session         └──> left to the next runner
//! ```
//!
//! The store knows which session may go on, a driver knows how; here is who asks the one and starts the other. A few loops
//! on one thread do it, as many with one session as with a thousand: `crew` gives slots and keeps the drivers, `wakes`
//! brings events and deadlines to waits, `adopt` takes over what dead processes left, `schedule` starts agents by the
//! clock, `retention` forgets. Each sleeps until the store changes or its own time has come. A waiting session is a row
//! in the store and nothing here.
//!
//! A failure of a loop's step is logged and the step is made again later: a full disk or an engine that is away ends no
//! session and no daemon.
//!
//! How many sessions may run is read when the process begins: a changed `scale` needs a restart.

mod adopt;
mod crew;
mod ends;
mod retention;
mod schedule;
pub mod seat;
mod tick;
mod wakes;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use tokio::sync::Notify;

use crate::exit::Failure;
use crate::project::Schedule;
use crate::session::owner::Owner;
use crate::session::recovery::Containers;
use crate::state::State;
use crate::store::{NewEvent, NewSession, Scope, Session, SessionKey, Slots, Store, StoreError};

pub(crate) use crate::session::drive::{Outcome, Signals};

/// Drives claimed sessions; tests put a scripted one in its place.
pub(crate) trait Drive {
    /// Drives an active session until it has ended, waits, or is left. Failures and panics do not end the session: it is
    /// taken over and driven again.
    fn drive(&self, session: Session, signals: Signals) -> LocalBoxFuture<'static, Result<Outcome, Failure>>;
}

/// What a dispatcher works on.
pub(crate) struct Ground {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) state: State,
    pub(crate) owner: Arc<Owner>,
    pub(crate) containers: Rc<dyn Containers>,
}

/// What a dispatcher is to do.
pub(crate) struct Orders {
    /// The project's canonical path.
    pub(crate) project: String,
    /// How many sessions may run.
    pub(crate) slots: Slots,
    /// Which of the project's sessions it takes.
    pub(crate) scope: Scope,
    /// How long what is over is kept.
    pub(crate) history: Duration,
    /// Which agents start by themselves.
    pub(crate) schedules: Vec<(String, Schedule)>,
    /// Makes their sessions: of this agent, started by this trigger.
    pub(crate) begin: Begin,
    /// Names of agents whose sessions begin again when their container is gone.
    pub(crate) restarting: Vec<String>,
    /// Names of agents whose calls go on when they are ended.
    pub(crate) detaching: Vec<String>,
}

/// Makes a queued session of an agent, and its first line.
pub(crate) type Begin = Box<dyn Fn(&str, Value) -> Result<(NewSession, NewEvent), Failure>>;

/// What a dispatcher is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It takes what may go on.
    Working,
    /// It takes no new call tree, and is done when its drivers are.
    Draining,
    /// Its drivers are leaving their sessions to the next runner.
    Leaving,
}

/// Gives a project's sessions to drivers.
pub(crate) struct Dispatch<D> {
    ground: Ground,
    orders: Orders,
    /// Grows by the trees of sessions that it takes over.
    scope: RefCell<Scope>,
    drive: D,
    crew: RefCell<HashMap<SessionKey, crew::Member>>,
    mode: Cell<Mode>,
    /// Store, containers and folders have been compared.
    compared: Cell<bool>,
    /// Something here has changed: a driver is done, or the mode.
    nudge: Notify,
}

impl<D: Drive + 'static> Dispatch<D> {
    pub(crate) fn new(ground: Ground, orders: Orders, drive: D) -> Rc<Self> {
        let scope = RefCell::new(orders.scope.clone());
        Rc::new(Self {
            ground,
            orders,
            scope,
            drive,
            crew: RefCell::default(),
            mode: Cell::new(Mode::Working),
            compared: Cell::new(false),
            nudge: Notify::new(),
        })
    }

    /// Works until it has drained or left; must run on a `LocalSet`.
    pub(crate) async fn run(self: &Rc<Self>) {
        tokio::select! {
            () = self.fill_slots() => {}
            // These never end by themselves.
            () = self.bring_wakes() => {}
            () = self.look_after() => {}
            () = self.hear_deaths() => {}
            () = self.keep_schedules() => {}
            () = self.forget() => {}
        }
        // One of the loops may have been at it, or has not come to it.
        if self.compared.get() {
            self.remove_sandboxes().await;
        } else {
            self.reconcile(0).await;
        }
    }

    /// Takes no new work but what the call trees at work need to come to their ends; [`Dispatch::run`] returns when the
    /// drivers are done.
    pub(crate) fn drain(&self) {
        if self.working() {
            self.mode.set(Mode::Draining);
            *self.scope.borrow_mut() = Scope::Trees(self.trees_at_work());
        }
        self.nudge.notify_one();
    }

    /// Leaves every session to the next runner, at its next safe point; [`Dispatch::run`] returns when all are left.
    pub(crate) fn leave(&self) {
        self.mode.set(Mode::Leaving);
        for member in self.crew.borrow().values() {
            member.signals.leave.cancel();
        }
        self.nudge.notify_one();
    }

    /// Looks for work now, and not when it hears of a change.
    pub(crate) fn nudge(&self) {
        self.nudge.notify_one();
    }

    fn store(&self) -> &dyn Store {
        &*self.ground.store
    }

    fn working(&self) -> bool {
        self.mode.get() == Mode::Working
    }
}

/// How long a step waits after failures in a row before it is made again: 1, 2, 4, … 15 seconds.
fn back_off(failures: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(15);
    Duration::from_secs(1).saturating_mul(1 << failures.saturating_sub(1).min(4)).min(LONGEST)
}

/// Logs what a loop could not do; it tries again.
fn complain(what: &str, error: &StoreError) {
    tracing::error!(%error, "cannot {what}; it is tried again");
}
