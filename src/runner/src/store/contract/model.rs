//! A fleet in memory, as simple as the rules can be said: what the store's answers are compared with.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::graph::{Fleet, Limits, Member, Standing, deadlock, starving};
use crate::store::{SessionKey, SessionState, Slots};

pub(super) const AGENTS: [&str; 3] = ["a", "b", "c"];

/// A session; its key in the store is found by its place in the list.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) agent: usize,
    pub(super) state: SessionState,
    pub(super) parent: Option<usize>,
    pub(super) root: usize,
    pub(super) overcommit: bool,
    pub(super) woken_at: u64,
    pub(super) wait: Option<ModelWait>,
}

/// What a session waits for, or went on with.
#[derive(Debug, Clone)]
pub(super) struct ModelWait {
    pub(super) hook: bool,
    pub(super) agent: Option<usize>,
    pub(super) deadline: i64,
    pub(super) woken: Option<Wake>,
}

/// What ends a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wake {
    Event(usize),
    Call(usize),
    Result(usize),
    Timeout,
}

/// A call and how it stands.
#[derive(Debug, Clone)]
pub(super) struct ModelCall {
    pub(super) caller: usize,
    pub(super) server: usize,
    pub(super) delivered: bool,
    /// When it got its answer, in the order of answers.
    pub(super) answered: Option<(i64, usize)>,
    pub(super) seen: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) now: i64,
    pub(super) sessions: Vec<Entry>,
    pub(super) calls: Vec<ModelCall>,
    /// Holder and expiry of each lock.
    pub(super) locks: BTreeMap<usize, (usize, i64)>,
    /// Sessions that each event woke.
    pub(super) events: Vec<BTreeSet<usize>>,
    pub(super) turns: BTreeMap<usize, u64>,
    pub(super) ticks: u64,
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    pub(super) fn create(&mut self, agent: usize, parent: Option<usize>, id: String) -> usize {
        let n = self.sessions.len();
        let root = parent.map_or(n, |parent| self.sessions[parent].root);
        let state = SessionState::Queued;
        let entry = Entry { id, agent, state, parent, root, overcommit: false, woken_at: 0, wait: None };
        self.sessions.push(entry);
        n
    }

    fn active(&self) -> impl Iterator<Item = &Entry> {
        self.sessions.iter().filter(|entry| entry.state == SessionState::Active)
    }

    /// Who gets the next slot, and whether above the limits.
    pub(super) fn claim(&mut self, slots: &Slots) -> Option<(usize, bool)> {
        let mut waiting: Vec<_> = (0..self.sessions.len())
            .filter(|n| matches!(self.sessions[*n].state, SessionState::Queued | SessionState::Woken))
            .collect();
        waiting.sort_by_key(|n| match &self.sessions[*n] {
            entry if entry.state == SessionState::Woken => (0, entry.woken_at, 0),
            entry => (1, self.turns.get(&entry.agent).copied().unwrap_or(0), *n),
        });
        let paused = BTreeSet::new();
        let limits = Limits { slots, paused: &paused };
        let trees: BTreeSet<_> = self.active().map(|entry| entry.root).collect();
        let fits = |n: &usize| {
            let entry = &self.sessions[*n];
            let new = entry.state == SessionState::Queued;
            let held = self.active().filter(|other| other.agent == entry.agent).count();
            held < limits.of_agent(AGENTS[entry.agent], new)
                && (trees.contains(&entry.root) || trees.len() < limits.trees(new))
        };
        let within = waiting.iter().copied().find(fits).map(|n| (n, false));
        let next = within.or_else(|| {
            let starving = starving(&self.fleet(), &limits);
            waiting.iter().copied().find(|n| starving.contains(&key(*n))).map(|n| (n, true))
        });
        if let Some((n, overcommit)) = next {
            let tick = self.tick();
            self.turns.insert(self.sessions[n].agent, tick);
            self.sessions[n].state = SessionState::Active;
            self.sessions[n].overcommit = overcommit;
        }
        next
    }

    /// The live sessions as the rules see them.
    pub(super) fn fleet(&self) -> Fleet {
        let mut fleet = Fleet::default();
        for (n, entry) in self.sessions.iter().enumerate() {
            let standing = match (entry.state, &entry.wait) {
                (SessionState::Ended, _) => continue,
                (SessionState::Queued, _) => Standing::Queued,
                (SessionState::Woken, _) => Standing::Woken,
                (SessionState::Active, _) => Standing::Active { slotted: true },
                (SessionState::Waiting, Some(ModelWait { hook: false, agent, .. })) => {
                    Standing::WaitsForAgent(agent.map(|agent| AGENTS[agent].to_owned()))
                }
                (SessionState::Waiting, _) => Standing::WaitsOutside,
            };
            let open = self.calls.iter().filter(|call| call.caller == n && call.answered.is_none());
            let calls = open.map(|call| (AGENTS[self.sessions[call.server].agent].to_owned(), key(call.server)));
            let member = Member {
                id: entry.id.clone(),
                agent: AGENTS[entry.agent].to_owned(),
                root: key(entry.root),
                standing,
                stopping: false,
                calls: calls.collect(),
            };
            fleet.members.insert(key(n), member);
        }
        fleet
    }

    pub(super) fn holder(&self, resource: usize) -> Option<usize> {
        self.locks.get(&resource).filter(|(_, expires)| *expires > self.now).map(|(holder, _)| *holder)
    }

    /// Says in a word what acquiring comes to.
    pub(super) fn acquire(&mut self, n: usize, resource: usize, ttl: i64) -> &'static str {
        let held = self.holder(resource);
        let other = self.locks.keys().copied().find(|other| self.holder(*other) == Some(n) && *other != resource);
        match held {
            Some(holder) if holder != n => {
                if deadlock(&self.fleet(), key(n), key(holder)).is_some() {
                    "deadlock"
                } else {
                    "conflict"
                }
            }
            None if other.is_some() => "already_holding",
            held => {
                // What it had before is over for good, whatever the clock does.
                self.locks.retain(|other, (holder, _)| *holder != n || *other == resource);
                self.locks.insert(resource, (n, self.now + ttl));
                if held.is_some() { "renewed" } else { "granted" }
            }
        }
    }

    /// The agents above a session, by its birth and by the delivered calls that it serves, itself included.
    fn above(&self, n: usize) -> Vec<Vec<usize>> {
        let delivered = self.calls.iter().filter(|call| call.server == n && call.delivered && call.answered.is_none());
        let callers: BTreeSet<_> = delivered.map(|call| call.caller).chain(self.sessions[n].parent).collect();
        if callers.is_empty() {
            return vec![vec![self.sessions[n].agent]];
        }
        let chains = callers.into_iter().flat_map(|caller| self.above(caller));
        chains.map(|chain| chain.into_iter().chain([self.sessions[n].agent]).collect()).collect()
    }

    /// The server of a call and whether it was delivered, or in a word why not.
    pub(super) fn call(&mut self, n: usize, target: usize, child: String) -> Result<(usize, bool), &'static str> {
        if self.sessions[n].agent == target {
            return Err("self_call");
        }
        let above = self.above(n);
        if above.iter().any(|chain| chain.contains(&target)) {
            return Err("cycle");
        }
        if above.iter().any(|chain| chain.len() > 3) {
            return Err("max_depth");
        }
        let from = self.sessions[n].agent;
        let call = self.calls.len();
        let mut takers: Vec<_> = (0..self.sessions.len())
            .filter(|taker| {
                let entry = &self.sessions[*taker];
                entry.agent == target
                    && entry.state == SessionState::Waiting
                    && entry.wait.as_ref().is_some_and(|wait| !wait.hook && wait.agent.is_none_or(|a| a == from))
            })
            .collect();
        // The one that has waited longest: its wait began first.
        takers.sort_by_key(|taker| self.sessions[*taker].woken_at);
        let (server, delivered) = match takers.first() {
            Some(taker) => {
                self.wake(*taker, Wake::Call(call));
                (*taker, true)
            }
            None => (self.create(target, Some(n), child), false),
        };
        self.calls.push(ModelCall { caller: n, server, delivered, answered: None, seen: false });
        Ok((server, delivered))
    }

    /// The oldest unseen result, which is seen then.
    pub(super) fn take_result(&mut self, n: usize, agent: Option<usize>) -> Option<usize> {
        let sessions = &self.sessions;
        let fits = |call: &ModelCall| {
            call.caller == n && !call.seen && agent.is_none_or(|agent| sessions[call.server].agent == agent)
        };
        let found = self.calls.iter().enumerate().filter(|(_, call)| fits(call));
        let (_, call) = found.filter_map(|(call, record)| record.answered.map(|at| (at, call))).min()?;
        self.calls[call].seen = true;
        Some(call)
    }

    pub(super) fn suspend(&mut self, n: usize, hook: bool, agent: Option<usize>, timeout: i64) {
        let deadline = self.now + timeout;
        let tick = self.tick();
        let entry = &mut self.sessions[n];
        entry.state = SessionState::Waiting;
        entry.overcommit = false;
        entry.woken_at = tick;
        entry.wait = Some(ModelWait { hook, agent, deadline, woken: None });
    }

    pub(super) fn wake(&mut self, n: usize, by: Wake) {
        let tick = self.tick();
        let entry = &mut self.sessions[n];
        entry.state = SessionState::Woken;
        entry.woken_at = tick;
        entry.wait.as_mut().expect("it waits").woken = Some(by);
    }

    fn answer(&mut self, call: usize) {
        self.calls[call].answered = Some((self.now, call));
        let (caller, agent) = (self.calls[call].caller, self.sessions[self.calls[call].server].agent);
        let entry = &self.sessions[caller];
        let takes = |wait: &ModelWait| !wait.hook && wait.agent.is_none_or(|of| of == agent);
        if entry.state == SessionState::Waiting && entry.wait.as_ref().is_some_and(takes) {
            self.calls[call].seen = true;
            self.wake(caller, Wake::Result(call));
        }
    }

    /// The call that a returned value goes to.
    pub(super) fn return_value(&mut self, n: usize) -> Option<usize> {
        let open = |delivered| {
            let serves = move |call: &ModelCall| call.server == n && call.answered.is_none();
            self.calls.iter().rposition(move |call| serves(call) && call.delivered == delivered)
        };
        if let Some(call) = open(true) {
            self.answer(call);
            return Some(call);
        }
        open(false)
    }

    /// Ends a session, and with `cancel` the queued ones that it called.
    pub(super) fn end(&mut self, n: usize, cancel: bool) {
        self.sessions[n].state = SessionState::Ended;
        self.sessions[n].overcommit = false;
        self.sessions[n].wait = None;
        self.locks.retain(|_, (holder, _)| *holder != n);
        for call in 0..self.calls.len() {
            if self.calls[call].server == n && self.calls[call].answered.is_none() {
                self.answer(call);
            }
        }
        for child in 0..self.sessions.len() {
            let entry = &self.sessions[child];
            if cancel && entry.parent == Some(n) && entry.state == SessionState::Queued {
                self.end(child, false);
            }
        }
    }
}

/// The name of the session in the rules' graph.
fn key(n: usize) -> SessionKey {
    SessionKey(i64::try_from(n).expect("few sessions"))
}
