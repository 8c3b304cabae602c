//! Agents that start by the clock.
//!
//! A tick whose agent is busy (its slots are taken, or one of its sessions is queued) is skipped, and the inbox tells of
//! it under the source `schedule`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::tick::Ticks;
use super::{Dispatch, Drive, complain};
use crate::fleet::events::SCHEDULE;
use crate::store::{NewInboxEvent, SessionFilter, SessionState, Status, StoreError};

/// Longest time between two looks at the clock, which somebody may set.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

impl<D: Drive + 'static> Dispatch<D> {
    /// Starts agents when their ticks come.
    pub(super) async fn keep_schedules(&self) {
        let now = Timestamp::now().as_millisecond();
        let schedules = self.orders.schedules.iter();
        let mut all: Vec<_> = schedules.map(|(agent, schedule)| (agent, Ticks::new(schedule.clone(), now))).collect();
        loop {
            let now = Timestamp::now().as_millisecond();
            for (agent, ticks) in &mut all {
                let due = ticks.due(now);
                if due.missed {
                    tracing::warn!(agent, "ticks of its schedule were missed; they are not made up for");
                }
                if let Some(tick) = due.tick
                    && self.working()
                    && let Err(error) = self.tick(agent, tick).await
                {
                    complain("start an agent by its schedule", &error);
                }
            }
            let Some(next) = all.iter().filter_map(|(_, ticks)| ticks.next()).min() else {
                return std::future::pending().await;
            };
            let left = next.saturating_sub(Timestamp::now().as_millisecond());
            sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0)).min(LOOK_AGAIN)).await;
        }
    }

    async fn tick(&self, agent: &str, tick: i64) -> Result<(), StoreError> {
        let at = Timestamp::from_millisecond(tick).unwrap_or_default().to_string();
        if let Some(reason) = self.busy(agent).await? {
            return self.skip(agent, &at, reason, None).await;
        }
        match (self.orders.begin)(agent, json!({"type": "schedule", "at": at})) {
            Ok((mut session, started)) => {
                // No second one behind one that is queued already.
                session.place.queue = Some(1);
                let id = session.id.clone();
                match self.store().create_session(session, started).await {
                    Ok(_) => tracing::info!(agent, session = id, at, "started by its schedule"),
                    Err(StoreError::QueueFull { .. }) => return self.skip(agent, &at, "queued", None).await,
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            Err(failure) => self.skip(agent, &at, "config", Some(&failure.message)).await,
        }
    }

    /// Why the agent cannot take a tick now.
    async fn busy(&self, agent: &str) -> Result<Option<&'static str>, StoreError> {
        let paused = self.store().paused_agents(self.orders.project.clone()).await?;
        if paused.iter().any(|name| name.is_empty() || name == agent) {
            return Ok(Some("paused"));
        }
        let filter = SessionFilter {
            project: Some(self.orders.project.clone()),
            agent: Some(agent.to_owned()),
            status: Status::Live,
            ..SessionFilter::default()
        };
        let live = self.store().sessions(filter).await?;
        let count = |state| live.iter().filter(|session| session.state == state && session.slotted).count();
        let slots = self.orders.slots.agents.get(agent).copied().unwrap_or(self.orders.slots.others);
        Ok(if count(SessionState::Queued) > 0 {
            Some("queued")
        } else if count(SessionState::Active) >= slots as usize {
            Some("busy")
        } else {
            None
        })
    }

    /// Tells of a tick that is not acted upon.
    async fn skip(&self, agent: &str, at: &str, reason: &str, message: Option<&str>) -> Result<(), StoreError> {
        tracing::warn!(agent, at, reason, message, "a tick of its schedule is skipped");
        let event = NewInboxEvent {
            project: self.orders.project.clone(),
            source: SCHEDULE.to_owned(),
            event: "skipped".to_owned(),
            fields: json!({"source": SCHEDULE, "event": "skipped", "agent": agent, "at": at, "reason": reason, "message": message}),
            raw: Value::Null,
        };
        // Nobody waits for it: it is matched with nothing.
        let event = self.store().accept(event).await?;
        self.store().wake(event, Vec::new()).await.map(drop)
    }
}
