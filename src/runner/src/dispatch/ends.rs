//! Ends of sessions that nobody drives: queued, waiting or woken ones that are stopped or whose container is gone.

use super::{Dispatch, Drive, back_off, complain};
use crate::session::journal::{EndCause, Ended, Event};
use crate::session::recovery::{self, FoundContainer};
use crate::store::{CallsAfter, End, Seat, Session, SessionState, StopHow, StopRequest, StoreError};

/// True when nobody drives it, because it waits for a slot or a trigger.
fn is_undriven(session: &Session) -> bool {
    matches!(session.state, SessionState::Queued | SessionState::Waiting | SessionState::Woken)
}

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
        let end = end_of(cause, message, !has_container);
        let row = Event::Ended(Ended { cause, message: end.message.clone() }).to_row();
        let calls = self.calls_after(session, &end);
        let seat = Seat { key: session.key, generation };
        match self.store().end_session(seat, end, calls, row).await {
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
            match self.store().stop_requested(session.key).await? {
                Some(StopRequest { by, how: StopHow::Orderly }) => {
                    self.end(session, EndCause::Stopped, format!("stopped by {by}")).await?;
                }
                Some(StopRequest { by, how: StopHow::Kill }) => {
                    self.end(session, EndCause::Killed, format!("killed by {by}")).await?;
                }
                None => {}
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

    fn calls_after(&self, session: &Session, end: &End) -> CallsAfter {
        if end.exit_code == 0 {
            return CallsAfter::GoOn;
        }
        let message = format!("session {} that called it ended: {}", session.id, end.cause);
        let ended = Event::Ended(Ended { cause: EndCause::Stopped, message: message.clone() }).to_row();
        CallsAfter::Cancel {
            end: end_of(EndCause::Stopped, message, true),
            ended,
            detach: self.orders.detaching.contains(&session.agent),
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

fn end_of(cause: EndCause, message: String, sandbox_removed: bool) -> End {
    End { cause: cause.as_str().to_owned(), exit_code: cause.exit_code(), message, sandbox_removed, text: None }
}
