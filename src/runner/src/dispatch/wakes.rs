//! What wakes sessions that wait: events from outside, and deadlines.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::schedule::SOURCE;
use super::{Dispatch, Drive, back_off, complain};
use crate::crash;
use crate::fleet::WaitIndex;
use crate::store::{Store, StoreError};

/// Longest sleep towards a deadline: the store's clock may be set meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

impl<D: Drive + 'static> Dispatch<D> {
    /// Brings events and deadlines to the waits of the project.
    pub(super) async fn bring_wakes(self: &Rc<Self>) {
        let mut changes = self.ground.store.watch();
        let mut index = WaitIndex::default();
        let mut failures = 0;
        loop {
            changes.mark_unchanged();
            let left = match self.bring(&mut index).await {
                Ok(left) => {
                    failures = 0;
                    left
                }
                Err(error) => {
                    complain("wake sessions", &error);
                    failures += 1;
                    sleep(back_off(failures)).await;
                    continue;
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(left.unwrap_or_default().min(LOOK_AGAIN)), if left.is_some() => {}
            }
        }
    }

    /// Returns the time until the next deadline.
    async fn bring(&self, index: &mut WaitIndex) -> Result<Option<Duration>, StoreError> {
        let project = &self.orders.project;
        for session in match_events(self.store(), project, index).await? {
            tracing::info!(session, "an event woke it");
        }
        loop {
            let Some(deadline) = self.store().next_deadline(project.clone()).await? else { return Ok(None) };
            let left = deadline.saturating_sub(self.store().now().await?);
            if left > 0 {
                return Ok(Some(Duration::from_millis(left.unsigned_abs())));
            }
            let expired = self.store().expire_waits(project.clone()).await?;
            if expired.is_empty() {
                // Somebody else was faster, or the clock was set in between.
                return Ok(Some(Duration::from_secs(1)));
            }
            for session in expired {
                tracing::info!(session, "nothing came in time for it");
            }
        }
    }
}

/// Matches the events of a project that nobody has matched yet, and wakes whoever waits for them; returns the ids of those
/// woken. Whoever accepts an event calls it, and a dispatcher for those who died before they could.
pub(crate) async fn match_events(
    store: &dyn Store,
    project: &str,
    index: &mut WaitIndex,
) -> Result<Vec<String>, StoreError> {
    let events = store.unmatched(project.to_owned()).await?;
    if events.is_empty() {
        return Ok(Vec::new());
    }
    // After the events, so that every wait that began before one of them is known. Later ones look back by themselves.
    index.refresh(store, project).await?;
    let mut woken = Vec::new();
    for event in events {
        // What the inbox tells of schedules is for people.
        let waits = if event.source == SOURCE { Vec::new() } else { index.matching(&event) };
        crash::point("dispatch.matched");
        let sessions = store.wake(event.id, waits).await?;
        for session in &sessions {
            index.remove(session);
        }
        woken.extend(sessions);
    }
    Ok(woken)
}
