//! The drivers at work, and who gets the next slot.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures_util::FutureExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Dispatch, Drive, Mode, Outcome, Signals, back_off, complain};
use crate::crash;
use crate::exit::Failure;
use crate::session::journal::{EndCause, Event, Informed};
use crate::state::random_hex;
use crate::store::{Claimed, Lines, NewEvent, Scope, Session, SessionKey, SessionState, StoreError};

/// How often a driver of one session may panic before the session is ended for it.
const PANICS: u32 = 2;

/// A driver at work on a session.
pub(super) struct Member {
    /// Id of the session.
    session: String,
    /// The root of its call tree.
    root: SessionKey,
    /// Tell it to stop.
    pub(super) signals: Signals,
    /// Cancelled when it has let go of the session.
    gone: CancellationToken,
}

/// How driving a session came out.
enum Try {
    Over(Outcome),
    Failed(Failure),
    Panicked,
}

impl<D: Drive + 'static> Dispatch<D> {
    /// Gives slots to sessions as long as there are both; returns when draining or leaving is done.
    pub(super) async fn fill_slots(self: &Rc<Self>) {
        let mut changes = self.ground.store.watch();
        let mut failures = 0;
        loop {
            // Before the claim: what changes from here on is looked at again.
            changes.mark_unchanged();
            let mut pause = None;
            if self.mode.get() != Mode::Leaving {
                match self.fill().await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        complain("give slots to sessions", &error);
                        failures += 1;
                        pause = Some(back_off(failures));
                    }
                }
            }
            if !self.working() && self.crew.borrow().is_empty() {
                return;
            }
            tokio::select! {
                () = self.nudge.notified() => {}
                // A store that is closed says so at the next claim.
                _ = changes.changed(), if pause.is_none() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    async fn fill(self: &Rc<Self>) -> Result<(), StoreError> {
        while self.mode.get() != Mode::Leaving {
            let scope = self.scope.borrow().clone();
            let (owner, container) = (self.ground.owner.id().clone(), random_hex());
            let (project, slots) = (self.orders.project.clone(), self.orders.slots.clone());
            let claimed = self.store().claim(project, slots, scope, owner, container, Lines::new(granted)).await?;
            crash::point("dispatch.claimed");
            let Some(claimed) = claimed else { return Ok(()) };
            tracing::info!(
                session = claimed.session.id,
                agent = claimed.session.agent,
                waited_ms = claimed.waited,
                overcommit = claimed.overcommit,
                "got a slot"
            );
            self.enlist(claimed.session);
        }
        Ok(())
    }

    /// Starts a driver for an active session of ours.
    pub(super) fn enlist(self: &Rc<Self>, session: Session) {
        let signals = Signals::default();
        if self.mode.get() == Mode::Leaving {
            signals.leave.cancel();
        }
        let gone = CancellationToken::new();
        let member =
            Member { session: session.id.clone(), root: session.root, signals: signals.clone(), gone: gone.clone() };
        let former = self.crew.borrow_mut().insert(session.key, member);
        let dispatch = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let key = session.key;
            // It was woken while its former driver was still pausing the container.
            if let Some(former) = former {
                former.gone.cancelled().await;
            }
            dispatch.steer(session, signals).await;
            dispatch.dismiss(key, &gone);
        });
    }

    fn dismiss(&self, key: SessionKey, gone: &CancellationToken) {
        gone.cancel();
        // A successor may have taken the place.
        let mut crew = self.crew.borrow_mut();
        if crew.get(&key).is_some_and(|member| member.gone.is_cancelled()) {
            crew.remove(&key);
        }
        drop(crew);
        self.nudge.notify_one();
    }

    /// Drives a session, also past failures of the driver itself: the session is taken over from the failed one under a
    /// new generation, so that nothing of it can still write.
    async fn steer(&self, mut session: Session, signals: Signals) {
        let (mut failures, mut panics) = (0, 0);
        loop {
            let trial = match AssertUnwindSafe(self.drive.drive(session.clone(), signals.clone())).catch_unwind().await
            {
                Ok(Ok(outcome)) => Try::Over(outcome),
                Ok(Err(failure)) => Try::Failed(failure),
                Err(_) => Try::Panicked,
            };
            match trial {
                Try::Over(outcome) => {
                    tracing::info!(session = session.id, ?outcome, "its driver is done");
                    return;
                }
                Try::Failed(failure) => {
                    tracing::error!(session = session.id, error = failure.message, "its driver failed");
                }
                Try::Panicked => {
                    panics += 1;
                    tracing::error!(session = session.id, panics, "its driver panicked, which is a bug of runner");
                }
            }
            failures += 1;
            tokio::select! {
                () = signals.leave.cancelled() => return,
                () = signals.interrupt.cancelled() => {}
                () = tokio::time::sleep(back_off(failures)) => {}
            }
            let ended = if signals.interrupt.is_cancelled() {
                Some((EndCause::Interrupted, "Ctrl-C or a signal ended it".to_owned()))
            } else if panics >= PANICS {
                Some((EndCause::Bug, format!("its driver panicked {panics} times, which is a bug of runner")))
            } else {
                None
            };
            if let Some((cause, message)) = ended {
                match self.end(&session, cause, message).await {
                    Ok(()) => return,
                    Err(error) => complain("end a session whose driver failed", &error),
                }
            }
            match self.take_over(&session).await {
                Ok(Some(again)) => session = again,
                // It waits, has ended, or another process has it.
                Ok(None) => return,
                Err(error) => complain("take a session over from its failed driver", &error),
            }
        }
    }

    /// Makes a session of a driver that is gone ours; nothing when it is not active any more, or somebody was faster.
    pub(super) async fn take_over(&self, session: &Session) -> Result<Option<Session>, StoreError> {
        let owner = self.ground.owner.id().clone();
        match self.store().take_over(session.key, session.generation, owner).await {
            Ok(generation) => {
                crash::point("dispatch.taken_over");
                let now = self.store().session(&session.id).await?;
                Ok(Some(now).filter(|now| now.generation == generation && now.state == SessionState::Active))
            }
            Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True when a driver of this process is at the session.
    pub(super) fn drives(&self, key: SessionKey) -> bool {
        self.crew.borrow().contains_key(&key)
    }

    /// How many drivers are at work.
    pub(crate) fn at_work(&self) -> usize {
        self.crew.borrow().len()
    }

    /// The roots of the call trees that drivers of this process are at.
    pub(super) fn trees_at_work(&self) -> Vec<SessionKey> {
        self.crew.borrow().values().map(|member| member.root).collect()
    }

    /// Ids of the sessions of other call trees that drivers of this process are at.
    pub(crate) fn driven_beside(&self, root: SessionKey) -> Vec<String> {
        let crew = self.crew.borrow();
        crew.values().filter(|member| member.root != root).map(|member| member.session.clone()).collect()
    }

    /// Adds a call tree to those that it takes.
    pub(super) fn widen(&self, root: SessionKey) {
        if let Scope::Trees(roots) = &mut *self.scope.borrow_mut()
            && !roots.contains(&root)
        {
            roots.push(root);
        }
    }

    /// Asks the driver of a session to end it as interrupted; false when there is none here.
    pub(crate) fn interrupt(&self, key: SessionKey) -> bool {
        let crew = self.crew.borrow();
        let member = crew.get(&key);
        if let Some(member) = member {
            member.signals.interrupt.cancel();
        }
        member.is_some()
    }
}

/// The line that tells of a slot; one above `scale` is marked (S-CALL-3).
fn granted(claimed: &Claimed) -> Vec<NewEvent> {
    let slot = json!({"slot": {"waited_ms": claimed.waited, "overcommit": claimed.overcommit}});
    vec![Event::Informed(Informed { source: "runner".to_owned(), content: slot }).to_row()]
}
