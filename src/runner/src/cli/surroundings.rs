//! What the store knows of sessions beside their own rows: what they wait for, which lock they hold, who is paused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::store::{Lock, Session, SessionKey, Store, StoreError, Wait};

/// The waits and locks of some sessions, and the paused agents of their projects.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    waits: HashMap<SessionKey, Wait>,
    locks: HashMap<SessionKey, Lock>,
    /// By project; an empty name stands for all of its agents.
    paused: BTreeMap<String, Vec<String>>,
}

impl Surroundings {
    /// Reads those of these projects.
    pub(crate) async fn of(store: &dyn Store, projects: BTreeSet<String>) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for project in projects {
            for wait in store.waits(Some(project.clone()), 0).await? {
                found.waits.insert(wait.key, wait);
            }
            for lock in store.locks(Some(project.clone())).await? {
                found.locks.insert(lock.key, lock);
            }
            let paused = store.paused_agents(project.clone()).await?;
            if !paused.is_empty() {
                found.paused.insert(project, paused);
            }
        }
        Ok(found)
    }

    /// What the session waits for, or did until it was woken.
    pub(crate) fn wait(&self, session: &Session) -> Option<&Wait> {
        self.waits.get(&session.key)
    }

    /// The lock that the session holds.
    pub(crate) fn lock(&self, session: &Session) -> Option<&Lock> {
        self.locks.get(&session.key)
    }

    /// One line for each project that has paused agents.
    pub(crate) fn paused(&self) -> Vec<String> {
        self.paused.iter().map(|(project, agents)| paused_words(project, agents)).collect()
    }
}

/// Says which agents of a project are paused, and how they go on.
fn paused_words(project: &str, agents: &[String]) -> String {
    if agents.iter().any(String::is_empty) {
        return format!("paused: all of {project}; `runner unpause` lets it go on");
    }
    let agents = agents.join(", ");
    format!("paused: {agents} of {project}; `runner unpause AGENT` lets one go on")
}
