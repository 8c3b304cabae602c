//! What wakes sessions that wait: events from outside, and deadlines.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::{Dispatch, Drive, back_off, complain};
use crate::fleet::WaitIndex;
use crate::fleet::events::deliver;
use crate::store::StoreError;

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
        for session in deliver(self.store(), project, index).await? {
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
