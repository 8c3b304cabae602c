//! Ends of sessions that nobody drives: queued, waiting or woken ones that are stopped or whose container is gone.

use std::sync::Arc;

use super::{Dispatch, Drive, back_off, complain};
use crate::session::journal::{EndCause, Journal, Last};
use crate::session::recovery::{self, FoundContainer, is_undriven};
use crate::store::{Session, SessionState, StopHow, StoreError};

impl<D: Drive + 'static> Dispatch<D> {
    /// Ends a session that no driver works on, with the calls it made, and removes its sandbox. That it has ended or gone
    /// on meanwhile is no error.
    pub(crate) async fn end(&self, session: &Session, cause: EndCause, message: String) -> Result<(), StoreError> {
        let owner = self.ground.owner.id().clone();
        // From here on nobody else writes to it, unless it is claimed again; then the end is fenced.
        let generation = match self.store().take_over(session.key, session.generation, owner).await {
            Ok(generation) => generation,
            Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let has_container = session.container.is_some();
        let journal = Journal::new(Arc::clone(&self.ground.store), session.key, generation);
        let last = Last { text: None, detach: self.orders.detaching.contains(&session.agent) };
        match journal.end_with(cause, message, !has_container, last).await {
            Ok(()) => {}
            Err(StoreError::Fenced { .. } | StoreError::Ended { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        tracing::info!(session = session.id, cause = cause.as_str(), "ended without a driver");
        if has_container {
            self.remove_sandboxes().await;
        }
        Ok(())
    }

    /// Ends those of these sessions that somebody wants to stop and nobody drives.
    pub(super) async fn stop_undriven(&self, live: &[Session]) -> Result<(), StoreError> {
        for session in live.iter().filter(|session| is_undriven(session) && !self.drives(session.key)) {
            if session.stop_requested_by.is_none() {
                continue;
            }
            if let Some(request) = self.store().stop_requested(session.key).await? {
                let (cause, message) = recovery::stopped(&request);
                self.end(session, cause, message).await?;
            }
        }
        Ok(())
    }

    /// Ends those of these sessions that wait for a trigger while their container is not there any more; `found` must
    /// have been listed after them.
    pub(super) async fn end_lost(&self, live: &[Session], found: &[FoundContainer]) -> Result<(), StoreError> {
        for session in live.iter().filter(|session| session.state == SessionState::Waiting) {
            let made = session.container.as_ref().is_some_and(|container| container.id.is_some());
            let runs = found.iter().any(|container| container.running && recovery::is_ours(session, container));
            // One that begins again in a new container does so when its wait is over.
            let begins_again = self.orders.restarting.contains(&session.agent);
            if made && !runs && !begins_again && !self.drives(session.key) {
                let message = "its container was gone while it waited".to_owned();
                self.end(session, EndCause::SandboxLost, message).await?;
            }
        }
        Ok(())
    }

    /// Removes what ended sessions of this process have left of their sandboxes.
    pub(super) async fn remove_sandboxes(&self) {
        let ours =
            |session: &Session| session.owner == *self.ground.owner.id() && !session.keep && !self.drives(session.key);
        let ground = &self.ground;
        match recovery::clean_up(&ground.store, &ground.state, &*ground.containers, &ours).await {
            Ok(problems) => problems.iter().for_each(|problem| tracing::warn!("{problem}; it is tried again")),
            Err(error) => tracing::warn!(%error, "cannot remove what ended sessions left; it is tried again"),
        }
    }
}

impl<D: Drive + 'static> Dispatch<D> {
    /// Interrupts live sessions of a call tree: drivers here are told, those of other processes are asked to stop by `who`,
    /// and what nobody drives is ended.
    pub(crate) async fn interrupt_tree(&self, live: &[Session], who: &str) {
        for session in live.iter().filter(|session| !self.interrupt(session.key)) {
            let done = if is_undriven(session) {
                self.end(session, EndCause::Interrupted, "Ctrl-C or a signal ended it".to_owned()).await
            } else if session.stop_requested_by.is_some() {
                Ok(())
            } else {
                self.store().request_stop(session.key, who.to_owned(), StopHow::Orderly).await
            };
            if let Err(error) = done {
                complain("end an interrupted session", &error);
                tokio::time::sleep(back_off(1)).await;
            }
        }
    }
}
