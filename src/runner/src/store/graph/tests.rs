//! The rules against what they are to mean: sets of sessions that hold each other up, and fleets that run to their end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Fleet, Limits, Member, Needs, Standing, deadlock, free, starving, waits_for};
use crate::store::{SessionKey, Slots};

const AGENTS: [&str; 3] = ["a", "b", "c"];

fn key(n: usize) -> SessionKey {
    SessionKey(i64::try_from(n).unwrap())
}

/// All sets of sessions that hold each other up: each of them has a clause of which every alternative needs one of them.
fn stuck_sets(needs: &Needs) -> Vec<BTreeSet<SessionKey>> {
    let keys: Vec<_> = needs.keys().copied().collect();
    let chosen = |bits: usize| keys.iter().enumerate().filter(move |(n, _)| bits & (1 << n) != 0).map(|(_, key)| *key);
    let holds = |set: &BTreeSet<SessionKey>| {
        set.iter().all(|key| {
            needs[key].iter().any(|clause| clause.iter().all(|all| all.iter().any(|needed| set.contains(needed))))
        })
    };
    (0..1 << keys.len()).map(|bits| chosen(bits).collect()).filter(holds).collect()
}

fn needs() -> impl Strategy<Value = Needs> {
    let session = (0..8_usize).prop_map(key);
    let clauses = vec(vec(vec(session, 1..3), 1..3), 0..3);
    vec(clauses, 6).prop_map(|all| all.into_iter().enumerate().map(|(n, clauses)| (key(n), clauses)).collect())
}

/// Up to seven sessions. Calls lead from older to younger ones, as those that were begun by a call do.
fn fleet(standing: impl Strategy<Value = Standing>) -> impl Strategy<Value = Fleet> {
    let member = (0..3_usize, standing, any::<prop::sample::Index>(), vec(any::<prop::sample::Index>(), 0..3));
    vec(member, 1..8).prop_map(|members| {
        let mut fleet = Fleet::default();
        let count = members.len();
        let agents: Vec<_> = members.iter().map(|member| AGENTS[member.0]).collect();
        for (n, (_, standing, root, calls)) in members.into_iter().enumerate() {
            let root = root.index(n + 1);
            let root = if root == n { key(n) } else { fleet.members[&key(root)].root };
            // Whoever has not begun has called nobody.
            let calls = if standing == Standing::Queued || n + 1 == count { Vec::new() } else { calls };
            let servers: BTreeSet<_> = calls.iter().map(|index| n + 1 + index.index(count - n - 1)).collect();
            let calls = servers.into_iter().map(|server| (agents[server].to_owned(), key(server))).collect();
            let agent = agents[n].to_owned();
            fleet.members.insert(key(n), Member { id: n.to_string(), agent, root, standing, stopping: false, calls });
        }
        fleet
    })
}

fn waiting() -> impl Strategy<Value = Standing> {
    let agent = prop::option::weighted(0.8, prop::sample::select(&AGENTS[..]).prop_map(str::to_owned));
    prop_oneof![
        4 => agent.prop_map(Standing::WaitsForAgent),
        1 => Just(Standing::WaitsOutside),
        2 => Just(Standing::Active { slotted: true }),
    ]
}

fn any_standing() -> impl Strategy<Value = Standing> {
    prop_oneof![
        4 => Just(Standing::Active { slotted: true }),
        1 => Just(Standing::Active { slotted: false }),
        4 => Just(Standing::Queued),
        2 => Just(Standing::Woken),
        3 => waiting(),
    ]
}

/// Lets a fleet run: who has all that it asks after ends, who waits is woken by what is over, slots are given as there
/// is room, and above the limits to who starves if `overcommit`. Returns who never ends.
fn run(mut fleet: Fleet, limits: &Limits<'_>, overcommit: bool) -> BTreeSet<SessionKey> {
    loop {
        let live: BTreeSet<_> = fleet.members.keys().copied().collect();
        for member in fleet.members.values_mut() {
            let counts = |target: &str, on: &Option<String>| on.as_deref().is_none_or(|agent| agent == target);
            if let Standing::WaitsForAgent(on) = &member.standing {
                let over = member.calls.iter().any(|(target, server)| counts(target, on) && !live.contains(server));
                if over || !member.calls.iter().any(|(target, _)| counts(target, on)) {
                    member.standing = Standing::Woken;
                }
            } else if member.standing == Standing::WaitsOutside {
                member.standing = Standing::Woken;
            }
            member.calls.retain(|(_, server)| live.contains(server));
        }
        let active = |member: &Member| member.standing == Standing::Active { slotted: true };
        let ends = fleet
            .members
            .iter()
            .find(|(_, member)| matches!(member.standing, Standing::Active { .. }) && member.calls.is_empty());
        if let Some((key, _)) = ends {
            let key = *key;
            fleet.members.remove(&key);
            continue;
        }
        let trees: BTreeSet<_> = fleet.members.values().filter(|member| active(member)).map(|m| m.root).collect();
        let next = fleet.members.iter().find(|(_, member)| {
            let new = member.standing == Standing::Queued;
            let held = fleet.members.values().filter(|other| active(other) && other.agent == member.agent).count();
            (new || member.standing == Standing::Woken)
                && held < limits.of_agent(&member.agent, new)
                && (trees.contains(&member.root) || trees.len() < limits.trees(new))
        });
        let next = next
            .map(|(key, _)| *key)
            .or_else(|| if overcommit { starving(&fleet, limits).first().copied() } else { None });
        match next {
            Some(key) => fleet.members.get_mut(&key).unwrap().standing = Standing::Active { slotted: true },
            None => return live,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn free_is_who_no_set_holds_up(needs in needs()) {
        let stuck: BTreeSet<_> = stuck_sets(&needs).into_iter().flatten().collect();
        let expected: BTreeSet<_> = needs.keys().filter(|key| !stuck.contains(key)).copied().collect();
        prop_assert_eq!(free(&needs), expected);
    }

    /// S-LOCK-5: a deadlock is a set with both of them in which each but the asker waits only for others of it, and the
    /// holder, by way of it, for the asker.
    #[test]
    fn a_deadlock_is_a_set_that_all_lead_back_into(fleet in fleet(waiting()), pick in any::<[prop::sample::Index; 2]>()) {
        let [asker, holder] = pick.map(|index| key(index.index(fleet.members.len())));
        let holder = if holder == asker { key(fleet.members.len() - 1) } else { holder };
        let asker = if holder == asker { key(0) } else { asker };
        if asker == holder {
            return Ok(());
        }
        let found = deadlock(&fleet, asker, holder);
        let targets: BTreeMap<_, BTreeSet<_>> = fleet.members.iter().map(|(key, member)| {
            (*key, waits_for(&fleet, *key, member).into_iter().flatten().flatten().collect())
        }).collect();
        let others: Vec<_> = fleet.members.keys().filter(|key| **key != asker).copied().collect();
        let locked = (0..1_usize << others.len()).any(|bits| {
            let mut set: BTreeSet<_> =
                others.iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0).map(|(_, key)| *key).collect();
            if !set.contains(&holder) {
                return false;
            }
            set.insert(asker);
            let closed = set.iter().filter(|key| **key != asker)
                .all(|key| !targets[key].is_empty() && targets[key].is_subset(&set));
            let mut reached = BTreeSet::from([holder]);
            for _ in 0..set.len() {
                reached = reached.iter().filter(|key| **key != asker).flat_map(|key| targets[key].clone()).chain(reached.clone()).collect();
            }
            closed && reached.contains(&asker)
        });
        prop_assert_eq!(found.is_some(), locked);
        if let Some(cycle) = found {
            prop_assert_eq!((cycle[0], cycle[1], cycle[cycle.len() - 1]), (asker, holder, asker));
            for step in cycle[1..].windows(2) {
                prop_assert!(targets[&step[0]].contains(&step[1]), "{:?} is no way", cycle);
            }
        }
    }

    /// S-CALL-3: nobody starves, and nobody is started above the limits who would have got a slot in the end.
    #[test]
    fn every_fleet_comes_to_its_end(fleet in fleet(any_standing()), others in 1..3_u32, trees in prop::option::of(1..3_u32)) {
        let slots = Slots { trees, agents: BTreeMap::new(), others };
        let limits = Limits { slots: &slots, paused: &BTreeSet::new() };
        let never = run(fleet.clone(), &limits, false);
        let starving = starving(&fleet, &limits);
        prop_assert!(starving.is_subset(&never), "{:?} starve, and only {:?} never end", starving, never);
        prop_assert_eq!(run(fleet, &limits, true), BTreeSet::new());
    }

    /// A person's decision is no reason for a slot above the limits.
    #[test]
    fn a_paused_project_overcommits_nobody_new(fleet in fleet(any_standing())) {
        let slots = Slots { trees: Some(1), agents: BTreeMap::new(), others: 1 };
        let paused = BTreeSet::from([String::new()]);
        let starving = starving(&fleet, &Limits { slots: &slots, paused: &paused });
        prop_assert!(starving.iter().all(|key| fleet.members[key].standing == Standing::Woken));
    }
}
