//! Who cannot go on without whom: the rules of deadlocks (S-LOCK-5) and of overcommit (S-CALL-3), without a database.
//!
//! What a session needs before it can go on is a list of clauses; each is met by any of its alternatives, and an
//! alternative by all of its sessions being free. Free is who can go on, whatever happens to the others: the least set
//! that the needs lead to. Who is not free is stuck.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{SessionKey, Slots};

/// The live sessions of a project.
#[derive(Debug, Clone, Default)]
pub(super) struct Fleet {
    pub(super) members: BTreeMap<SessionKey, Member>,
}

/// A live session.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) root: SessionKey,
    pub(super) standing: Standing,
    /// Somebody asked for it to stop: it goes away by itself.
    pub(super) stopping: bool,
    /// The agents and sessions that its unfinished calls went to.
    pub(super) calls: Vec<(String, SessionKey)>,
}

/// Where a live session stands, and for whom it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Queued,
    Active {
        slotted: bool,
    },
    WaitsOutside,
    /// For something of this agent, or of any.
    WaitsForAgent(Option<String>),
    Woken,
}

/// All of: any of: all of these sessions are free.
type Needs = BTreeMap<SessionKey, Vec<Vec<Vec<SessionKey>>>>;

/// Finds out whether `holder` can never go on without `asker`; then the sessions that wait for each other, from the
/// asking one to the asking one.
pub(super) fn deadlock(fleet: &Fleet, asker: SessionKey, holder: SessionKey) -> Option<Vec<SessionKey>> {
    let mut needs: Needs = fleet.members.iter().map(|(key, member)| (*key, waits_for(fleet, *key, member))).collect();
    // Of itself it cannot be freed here: the question is who can go on without it.
    needs.insert(asker, vec![vec![]]);
    let path = path(&needs, &free(&needs), holder, asker)?;
    Some(std::iter::once(asker).chain(path).collect())
}

/// An agent's wait: for the sessions that serve its calls to that agent, or else for all live ones of it.
fn waits_for(fleet: &Fleet, key: SessionKey, member: &Member) -> Vec<Vec<Vec<SessionKey>>> {
    let Standing::WaitsForAgent(Some(agent)) = &member.standing else { return Vec::new() };
    if member.stopping {
        return Vec::new();
    }
    let mut targets: Vec<_> =
        member.calls.iter().filter(|(target, _)| target == agent).map(|(_, server)| vec![*server]).collect();
    if targets.is_empty() {
        let others = fleet.members.iter().filter(|(other, member)| **other != key && member.agent == *agent);
        targets = others.map(|(other, _)| vec![*other]).collect();
    }
    // Nobody to wait for is a wait for somebody who may come.
    if targets.is_empty() { Vec::new() } else { vec![targets] }
}

/// The limits that a queued or woken session meets.
pub(super) struct Limits<'a> {
    pub(super) slots: &'a Slots,
    pub(super) paused: &'a BTreeSet<String>,
}

impl Limits<'_> {
    /// Slots of an agent for a session that is new, or goes on: what has begun goes on although the agent was disabled.
    pub(super) fn of_agent(&self, agent: &str, new: bool) -> usize {
        let slots = self.slots.agents.get(agent).copied().unwrap_or(self.slots.others);
        usize::try_from(if new { slots } else { slots.max(1) }).unwrap_or(usize::MAX)
    }

    /// Trees that may be active.
    pub(super) fn trees(&self, new: bool) -> usize {
        let most = self.slots.trees.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        if new { most } else { most.max(1) }
    }

    /// True when no session of the agent is to be begun.
    pub(super) fn closed_to(&self, agent: &str) -> bool {
        self.paused.contains("")
            || self.paused.contains(agent)
            || self.of_agent(agent, true) == 0
            || self.trees(true) == 0
    }
}

/// Finds the queued and woken sessions without which those who hold the slots that they need cannot go on (S-CALL-3).
pub(super) fn starving(fleet: &Fleet, limits: &Limits<'_>) -> BTreeSet<SessionKey> {
    let mut by_agent: BTreeMap<&str, Vec<SessionKey>> = BTreeMap::new();
    let mut by_tree: BTreeMap<SessionKey, Vec<SessionKey>> = BTreeMap::new();
    for (key, member) in &fleet.members {
        if member.standing == (Standing::Active { slotted: true }) {
            by_agent.entry(&member.agent).or_default().push(*key);
            by_tree.entry(member.root).or_default().push(*key);
        }
    }
    let slot = |member: &Member, new: bool| {
        let mut clauses = Vec::new();
        if new && limits.closed_to(&member.agent) {
            // A person's decision, which no slot changes.
            return clauses;
        }
        let holders = by_agent.get(member.agent.as_str()).map_or(&[][..], Vec::as_slice);
        if holders.len() >= limits.of_agent(&member.agent, new) {
            clauses.push(holders.iter().map(|holder| vec![*holder]).collect());
        }
        if !by_tree.contains_key(&member.root) && by_tree.len() >= limits.trees(new) {
            clauses.push(by_tree.values().cloned().collect());
        }
        clauses
    };
    let need = |member: &Member| match &member.standing {
        _ if member.stopping => Vec::new(),
        Standing::Queued => slot(member, true),
        Standing::Woken => slot(member, false),
        // It may ask after any of its calls before it does anything else.
        Standing::Active { .. } => member.calls.iter().map(|(_, server)| vec![vec![*server]]).collect(),
        Standing::WaitsOutside => Vec::new(),
        Standing::WaitsForAgent(agent) => {
            let counts = |target: &String| agent.as_ref().is_none_or(|agent| agent == target);
            let servers: Vec<_> =
                member.calls.iter().filter(|(target, _)| counts(target)).map(|(_, server)| vec![*server]).collect();
            if servers.is_empty() { Vec::new() } else { vec![servers] }
        }
    };
    let needs: Needs = fleet.members.iter().map(|(key, member)| (*key, need(member))).collect();
    let free = free(&needs);
    let starves = |key: &SessionKey, member: &Member| {
        matches!(member.standing, Standing::Queued | Standing::Woken)
            && successors(&needs, *key).any(|next| path(&needs, &free, next, *key).is_some())
    };
    fleet.members.iter().filter(|(key, member)| starves(key, member)).map(|(key, _)| *key).collect()
}

/// The least set of sessions whose needs are met by it. Who is not in the map is over, and in nobody's way.
fn free(needs: &Needs) -> BTreeSet<SessionKey> {
    let mut free = BTreeSet::new();
    loop {
        let is_free = |key: &SessionKey| free.contains(key) || !needs.contains_key(key);
        let met = |clauses: &Vec<Vec<Vec<SessionKey>>>| {
            clauses.iter().all(|clause| clause.iter().any(|alternative| alternative.iter().all(is_free)))
        };
        let more: Vec<_> =
            needs.iter().filter(|(key, clauses)| !free.contains(*key) && met(clauses)).map(|(key, _)| *key).collect();
        if more.is_empty() {
            return free;
        }
        free.extend(more);
    }
}

fn successors(needs: &Needs, key: SessionKey) -> impl Iterator<Item = SessionKey> {
    needs.get(&key).into_iter().flatten().flatten().flatten().copied()
}

/// The shortest way from one stuck session to another through stuck ones, both included.
fn path(needs: &Needs, free: &BTreeSet<SessionKey>, from: SessionKey, to: SessionKey) -> Option<Vec<SessionKey>> {
    let stuck = |key: &SessionKey| needs.contains_key(key) && !free.contains(key);
    let mut came_from = BTreeMap::from([(from, None)]);
    let mut open = VecDeque::from_iter(stuck(&from).then_some(from));
    while let Some(key) = open.pop_front() {
        if key == to {
            let mut path: Vec<_> = std::iter::successors(Some(to), |key| came_from[key]).collect();
            path.reverse();
            return Some(path);
        }
        for next in successors(needs, key).filter(stuck) {
            if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(next) {
                entry.insert(Some(key));
                open.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
