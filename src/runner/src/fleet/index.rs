//! Which waits an event matches, without looking at each of them.
//!
//! Waits that ask alike (the same sources, the same event, the same paths) are one group, and within it they are found by
//! the values that they want. An event is looked at once for each group: its values at the group's paths are the key of
//! all waits that it matches. So what a match costs grows with the kinds of waits and not with their number.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::store::{InboxEvent, Store, StoreError, Wait, WaitOn};
use crate::trigger::{Path, Scalar};

/// After this many additions, and as many as there are waits, the index is made anew: what ended without a word here
/// leaves it then.
const RENEW: usize = 1024;

/// The waits for events from outside, of one project.
///
/// It is no authority: it may know waits that are over. The store wakes those that still wait.
#[derive(Debug, Default)]
pub struct WaitIndex {
    groups: HashMap<Arc<Signature>, Group>,
    /// Where each session's wait is; a session has one at most.
    homes: HashMap<String, Home>,
    /// Number of the newest wait that was looked at.
    newest: i64,
    /// Waits that were taken in since it was made.
    added: usize,
}

/// What waits of one group have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Signature {
    sources: Vec<String>,
    event: Option<String>,
    paths: Vec<Path>,
}

/// Values at a group's paths, and the numbers of the waits that want them.
type Group = HashMap<Arc<[Scalar]>, BTreeSet<i64>>;

#[derive(Debug)]
struct Home {
    wait: i64,
    signature: Arc<Signature>,
    values: Arc<[Scalar]>,
}

impl WaitIndex {
    /// Takes in the waits of a project that were begun since the last time. Right before an event is matched this makes
    /// the index complete: whatever waits then and is not in it began after the event, and looked back itself.
    pub async fn refresh(&mut self, store: &dyn Store, project: &str) -> Result<(), StoreError> {
        if self.added > RENEW.max(2 * self.homes.len()) {
            *self = Self::default();
        }
        for wait in store.waits(Some(project.to_owned()), self.newest).await? {
            self.insert(&wait);
        }
        Ok(())
    }

    /// Takes in a wait, in place of an older one of its session. Only those for events from outside have a place here, and
    /// only as long as nothing has woken them.
    pub fn insert(&mut self, wait: &Wait) {
        self.newest = self.newest.max(wait.id);
        self.remove(&wait.session);
        let WaitOn::Webhook { sources, event, filter } = &wait.on else { return };
        if wait.woken.is_some() {
            return;
        }
        let mut sources = sources.clone();
        sources.sort_unstable();
        let (paths, values): (Vec<Path>, Vec<Scalar>) = filter.parts().iter().cloned().unzip();
        let signature = Signature { sources, event: event.clone(), paths };
        let signature = match self.groups.get_key_value(&signature) {
            Some((known, _)) => known.clone(),
            None => Arc::new(signature),
        };
        let group = self.groups.entry(signature.clone()).or_default();
        let values = match group.get_key_value(values.as_slice()) {
            Some((known, _)) => known.clone(),
            None => values.into(),
        };
        group.entry(values.clone()).or_default().insert(wait.id);
        self.homes.insert(wait.session.clone(), Home { wait: wait.id, signature, values });
        self.added += 1;
    }

    /// Removes the wait of a session that goes on or has ended.
    pub fn remove(&mut self, session: &str) {
        let Some(Home { wait, signature, values }) = self.homes.remove(session) else { return };
        let Some(group) = self.groups.get_mut(&signature) else { return };
        if let Some(waits) = group.get_mut(&values) {
            waits.remove(&wait);
            if waits.is_empty() {
                group.remove(&values);
            }
        }
        if group.is_empty() {
            self.groups.remove(&signature);
        }
    }

    /// Numbers of the waits that an event matches, in order (S-WAIT-2, S-WAIT-3).
    pub fn matching(&self, event: &InboxEvent) -> Vec<i64> {
        let mut found = Vec::new();
        for (signature, group) in &self.groups {
            let from = signature.sources.is_empty() || signature.sources.contains(&event.source);
            if !from || signature.event.as_ref().is_some_and(|wanted| *wanted != event.event) {
                continue;
            }
            let scalar = |path: &Path| path.scalar(&event.fields, &event.raw);
            let values: Option<Vec<Scalar>> = signature.paths.iter().map(scalar).collect();
            found.extend(values.and_then(|values| group.get(values.as_slice())).into_iter().flatten());
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::store::{SessionKey, Woken};
    use crate::trigger::Filter;

    fn wait(id: i64, sources: &[&str], event: Option<&str>, filter: &Value) -> Wait {
        let on = WaitOn::Webhook {
            sources: sources.iter().map(|name| (*name).to_owned()).collect(),
            event: event.map(str::to_owned),
            filter: Filter::parse(filter).unwrap(),
        };
        Wait {
            id,
            key: SessionKey(id),
            session: format!("s{id}"),
            agent: "a".to_owned(),
            project: "/p".to_owned(),
            call: format!("s{id}/1/0"),
            on,
            words: String::new(),
            since: 0,
            deadline: 0,
            paused: true,
            woken: None,
        }
    }

    fn event(source: &str, event: &str, fields: Value, raw: Value) -> InboxEvent {
        InboxEvent { id: 1, at: 0, source: source.to_owned(), event: event.to_owned(), fields, raw, woke: None }
    }

    fn index(waits: &[Wait]) -> WaitIndex {
        let mut index = WaitIndex::default();
        for wait in waits {
            index.insert(wait);
        }
        index
    }

    #[test]
    fn waits_are_found_by_what_they_ask_for() {
        let mut index = index(&[
            wait(1, &[], None, &json!({})),
            wait(2, &["a", "b"], None, &json!({})),
            wait(3, &["b", "a"], Some("push"), &json!({"repo": "x"})),
            wait(4, &["a"], Some("push"), &json!({"repo": "y"})),
            wait(5, &["a"], Some("push"), &json!({"repo": "x", "n": 1})),
            wait(6, &["c"], None, &json!({})),
        ]);
        let found = |index: &WaitIndex, source: &str, name: &str, fields: Value| {
            index.matching(&event(source, name, fields, json!({"n": 1})))
        };
        assert_eq!(found(&index, "a", "push", json!({"repo": "x"})), [1, 2, 3, 5]);
        assert_eq!(found(&index, "a", "pull", json!({"repo": "x"})), [1, 2]);
        assert_eq!(found(&index, "b", "push", json!({"repo": "x", "n": 2})), [1, 2, 3]);
        index.remove("s2");
        index.remove("s3");
        index.remove("nobody");
        assert_eq!((found(&index, "b", "push", json!({"repo": "x"})), index.homes.len()), (vec![1], 4));
        // A session's new wait takes the place of its old one.
        let mut again = wait(7, &[], None, &json!({"repo": "z"}));
        again.session = "s1".to_owned();
        index.insert(&again);
        assert!(found(&index, "b", "push", json!({"repo": "x"})).is_empty());
        assert_eq!(found(&index, "b", "push", json!({"repo": "z"})), [7]);
    }

    #[test]
    fn only_waits_for_events_that_still_wait_are_in_it() {
        let mut woken = wait(2, &[], None, &json!({}));
        woken.woken = Some(Woken::Timeout);
        let mut agent = wait(3, &[], None, &json!({}));
        agent.on = WaitOn::Agent { source_agent: None, filter: Filter::default() };
        let index = index(&[wait(1, &[], None, &json!({})), woken, agent]);
        assert_eq!((index.homes.len(), index.newest), (1, 3));
        assert_eq!(index.matching(&event("a", "push", json!({}), json!({}))), [1]);
    }

    /// Nothing is left of waits that were removed.
    #[test]
    fn an_empty_index_has_no_groups() {
        let mut index = index(&(1..100).map(|id| wait(id, &["a"], None, &json!({"n": id % 7}))).collect::<Vec<_>>());
        assert_eq!(index.groups.len(), 1);
        (1..100).for_each(|id| index.remove(&format!("s{id}")));
        assert!(index.groups.is_empty() && index.homes.is_empty());
    }

    /// A hundred thousand waits: what a match costs does not grow with those that it does not find. The limits are far
    /// above the promised millisecond, which the benchmark measures.
    #[test]
    fn many_waits_are_matched_at_once() {
        let mut index = WaitIndex::default();
        for id in 0..100_000 {
            index.insert(&wait(id, &["github"], Some("push"), &json!({"repo": format!("acme/{}", id % 1000)})));
        }
        let event = event("github", "push", json!({"repo": "acme/7"}), json!({}));
        let begun = Instant::now();
        let found = index.matching(&event);
        assert_eq!(found.len(), 100);
        assert!(begun.elapsed() < Duration::from_millis(100));
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("1")), Just(json!(true)), Just(json!("x"))]
    }

    fn payload() -> impl Strategy<Value = Value> {
        let leaf = scalar();
        leaf.prop_recursive(2, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[ab]", payload(), 0..3).prop_map(|members| members.into_iter().collect())
    }

    fn filter() -> impl Strategy<Value = Value> {
        let path = prop::sample::select(vec!["a", "b", "a.a", "a.b", "a.0", "b.1", "a.0.b"]);
        prop::collection::btree_map(path.prop_map(str::to_owned), scalar(), 0..3)
            .prop_map(|members| members.into_iter().collect())
    }

    type Asked = (Vec<&'static str>, Option<&'static str>, Value);

    fn asked() -> impl Strategy<Value = Asked> {
        let sources = prop::sample::subsequence(vec!["p", "q"], 0..=2);
        let event = prop::option::of(prop::sample::select(vec!["push", "pull"]));
        (sources, event, filter())
    }

    proptest! {
        /// S-WAIT-3: the index finds what a look at every wait finds, whatever was removed in between.
        #[test]
        fn the_index_finds_what_a_look_at_every_wait_finds(
            asked in prop::collection::vec(asked(), 0..24),
            removed in prop::collection::vec(0_usize..24, 0..8),
            source in prop::sample::select(vec!["p", "q", "r"]),
            name in prop::sample::select(vec!["push", "pull"]),
            fields in object(),
            raw in object(),
        ) {
            let waits: Vec<Wait> = (0_i64..).zip(&asked).map(|(id, (sources, event, filter))| {
                wait(id, sources, *event, filter)
            }).collect();
            let mut index = index(&waits);
            for id in &removed {
                index.remove(&format!("s{id}"));
            }
            let is_matched = |wait: &&Wait| {
                let WaitOn::Webhook { sources, event: wanted, filter } = &wait.on else { return false };
                let left = !removed.iter().any(|id| format!("s{id}") == wait.session);
                let from = sources.is_empty() || sources.iter().any(|one| one == source);
                left && from && wanted.as_deref().is_none_or(|wanted| wanted == name) && filter.matches(&fields, &raw)
            };
            let expected: Vec<i64> = waits.iter().filter(is_matched).map(|wait| wait.id).collect();
            prop_assert_eq!(index.matching(&event(source, name, fields.clone(), raw.clone())), expected);
        }
    }
}
