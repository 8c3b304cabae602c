//! Forgetting: what is over and older than `historyRetentionDays` leaves the store.

use std::time::Duration;

use tokio::time::sleep;

use super::{Dispatch, Drive, complain};
use crate::store::{Pruned, StoreError};

/// How often the store is looked through.
const EVERY: Duration = Duration::from_hours(1);

/// Time between two portions, for everybody else's writes.
const BREATH: Duration = Duration::from_millis(20);

impl<D: Drive + 'static> Dispatch<D> {
    /// Removes what is too old, now and every hour.
    pub(super) async fn forget(&self) {
        loop {
            match self.forget_once().await {
                Ok(pruned) if pruned == Pruned::default() => {}
                Ok(pruned) => tracing::info!(
                    sessions = pruned.sessions,
                    events = pruned.events,
                    payloads = pruned.blobs,
                    "removed what was older than `historyRetentionDays`"
                ),
                Err(error) => complain("remove what is older than `historyRetentionDays`", &error),
            }
            sleep(EVERY).await;
        }
    }

    async fn forget_once(&self) -> Result<Pruned, StoreError> {
        let history = i64::try_from(self.orders.history.as_millis()).unwrap_or(i64::MAX);
        let before = self.store().now().await?.saturating_sub(history);
        let mut all = Pruned::default();
        loop {
            let pruned = self.store().prune(self.orders.project.clone(), before).await?;
            if pruned == Pruned::default() {
                return Ok(all);
            }
            all.sessions += pruned.sessions;
            all.events += pruned.events;
            all.blobs += pruned.blobs;
            sleep(BREATH).await;
        }
    }
}
