//! What dead processes left: their sessions are taken over, and store, containers and folders are compared.

use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Dispatch, Drive, back_off, complain};
use crate::session::owner;
use crate::session::recovery::{self, RecoveryError};
use crate::store::{Session, SessionFilter, SessionState, Status, StoreError};

/// How often the processes of others are looked after, while any of them drives a session of the project.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// How often store, containers and folders are compared.
const RECONCILE: Duration = Duration::from_mins(1);

/// Shortest time between two looks at the project's sessions, while the store changes all the time.
const REST: Duration = Duration::from_millis(250);

/// A look at many sessions takes long: this many times its own time passes until the next one.
const REST_FACTOR: u32 = 20;

impl<D: Drive + 'static> Dispatch<D> {
    /// Takes over what the dead left, before anything else; returns how many sessions those were.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn take_up(self: &Rc<Self>) -> Result<usize, StoreError> {
        self.look().await.map(|seen| seen.adopted)
    }

    /// Looks after the project's sessions: takes over those of dead processes, ends those that are to stop, and compares
    /// the three lists, first of all at once.
    pub(super) async fn look_after(self: &Rc<Self>) {
        let mut changes = self.ground.store.watch();
        let mut failures = 0;
        let mut reconcile_at = Instant::now();
        loop {
            changes.mark_unchanged();
            let begun = Instant::now();
            let others = match self.look().await {
                Ok(seen) => seen.others,
                Err(error) => {
                    complain("look after the project's sessions", &error);
                    true
                }
            };
            if self.working() && begun >= reconcile_at {
                failures = self.reconcile(failures).await;
                reconcile_at = Instant::now() + if failures == 0 { RECONCILE } else { back_off(failures) };
            }
            sleep(REST.max(begun.elapsed() * REST_FACTOR)).await;
            let next = if others { reconcile_at.min(Instant::now() + LOOK_AFTER) } else { reconcile_at };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    async fn look(self: &Rc<Self>) -> Result<Seen, StoreError> {
        let live = self.live().await?;
        let mut seen = Seen::default();
        if !self.working() {
            return Ok(seen);
        }
        self.stop_undriven(&live).await?;
        for session in &live {
            let by_another = session.state == SessionState::Active && session.owner != *self.ground.owner.id();
            if !by_another {
                continue;
            }
            match owner::is_alive(&self.ground.state, &session.owner) {
                Ok(false) if session.slotted => seen.adopted += usize::from(self.adopt(session).await?),
                // One without a slot (`runner tool`) has no mind that could go on; it is ended when lists are compared.
                Ok(_) => seen.others = true,
                Err(error) => {
                    tracing::warn!(%error, "cannot tell whether the runner of session {} lives", session.id);
                    seen.others = true;
                }
            }
        }
        Ok(seen)
    }

    /// Takes over a session whose process is dead, and drives it; false when somebody else was faster.
    pub(crate) async fn adopt(self: &Rc<Self>, session: &Session) -> Result<bool, StoreError> {
        let Some(session) = self.take_over(session).await? else { return Ok(false) };
        tracing::info!(session = session.id, agent = session.agent, "taken over from a runner that died");
        // It may poll calls that are still queued.
        self.widen(session.root);
        self.enlist(session);
        Ok(true)
    }

    /// Compares the three lists; returns how often that has failed in a row.
    pub(super) async fn reconcile(self: &Rc<Self>, failures: u32) -> u32 {
        match self.compare().await {
            Ok(()) => {
                if failures > 0 {
                    tracing::info!("sessions, containers and folders can be compared again");
                }
                0
            }
            Err(error) => {
                // Said once, it need not be said again.
                if failures == 0 {
                    tracing::error!(%error, "cannot compare sessions, containers and folders; it is tried again");
                }
                failures + 1
            }
        }
    }

    async fn compare(self: &Rc<Self>) -> Result<(), RecoveryError> {
        let ground = &self.ground;
        let done = recovery::recover(&ground.store, &ground.state, &ground.owner, &*ground.containers).await?;
        for id in &done.ended {
            tracing::info!(session = id, "ended and cleaned up: its runner had died");
        }
        self.look_for_lost().await?;
        self.remove_sandboxes().await;
        self.compared.set(true);
        Ok(())
    }
}

impl<D: Drive + 'static> Dispatch<D> {
    /// Hears from the engine when containers die, so that a session that waits does not do so in vain. What is not heard is
    /// seen when the lists are compared.
    pub(super) async fn hear_deaths(&self) {
        loop {
            let mut deaths = self.ground.containers.deaths();
            while deaths.next().await.is_some() {
                // Several often die at once, most of them because their sessions have ended.
                sleep(REST).await;
                while deaths.next().now_or_never().flatten().is_some() {}
                if let Err(error) = self.look_for_lost().await {
                    tracing::warn!(%error, "cannot see which container died; it is tried again in a minute");
                }
            }
            sleep(back_off(u32::MAX)).await;
        }
    }

    async fn look_for_lost(&self) -> Result<(), RecoveryError> {
        // Before the containers: a container that is not listed then was gone before.
        let live = self.live().await?;
        if live.iter().any(|session| session.state == SessionState::Waiting) {
            let found = self.ground.containers.with_our_token().await.map_err(RecoveryError::Engine)?;
            self.end_lost(&live, &found).await?;
        }
        Ok(())
    }

    async fn live(&self) -> Result<Vec<Session>, StoreError> {
        let filter = SessionFilter {
            project: Some(self.orders.project.clone()),
            status: Status::Live,
            ..SessionFilter::default()
        };
        self.store().sessions(filter).await
    }
}

/// What a look at the project's sessions has found.
#[derive(Default)]
struct Seen {
    /// Sessions that were taken over.
    adopted: usize,
    /// Other processes drive sessions of the project.
    others: bool,
}
