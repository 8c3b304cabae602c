//! Which waits an event matches, in memory.
//!
//! Waits of one shape (the same sources, and a filter on the same paths) are kept in one map by the scalars that they ask
//! for. An event is looked at once for each path, and looked up once for each shape: how many waits there are does not
//! matter, only how many match and how many shapes there are, which are few because people write them.
//!
//! The index is no authority: it may know waits that are over. The store wakes those that still wait.

use std::collections::HashMap;

use crate::store::{InboxEvent, Store, StoreError, Wait, WaitOn};
use crate::trigger::{Path, Scalar};

/// After this many additions the index is made anew, if it is not larger than that anyway: waits that are over leave it.
const RENEW: usize = 1024;

/// The waits of a project for events from outside.
#[derive(Debug, Default)]
pub struct WaitIndex {
    shapes: HashMap<Shape, HashMap<Key, Vec<i64>>>,
    /// Number of the newest wait that it knows.
    newest: i64,
    waits: usize,
    added: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shape {
    sources: Vec<String>,
    paths: Vec<Path>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    event: Option<String>,
    scalars: Vec<Scalar>,
}

impl WaitIndex {
    /// Learns of waits that have begun since the last time.
    pub async fn refresh(&mut self, store: &dyn Store, project: &str) -> Result<(), StoreError> {
        if self.added > RENEW.max(self.waits / 2) {
            *self = Self::default();
        }
        for wait in store.waits(Some(project.to_owned()), self.newest).await? {
            self.add(&wait);
        }
        // The first filling is no growth.
        if self.added == self.waits {
            self.added = 0;
        }
        Ok(())
    }

    /// Adds a wait, unless it is for other agents or over.
    pub fn add(&mut self, wait: &Wait) {
        self.newest = self.newest.max(wait.id);
        let WaitOn::Webhook { sources, event, filter } = &wait.on else { return };
        if wait.woken.is_some() {
            return;
        }
        let (paths, scalars) = filter.parts().iter().cloned().unzip();
        let shape = Shape { sources: sources.clone(), paths };
        let key = Key { event: event.clone(), scalars };
        self.shapes.entry(shape).or_default().entry(key).or_default().push(wait.id);
        self.waits += 1;
        self.added += 1;
    }

    /// The numbers of the waits that an event matches, in order.
    pub fn matching(&self, event: &InboxEvent) -> Vec<i64> {
        let mut seen: HashMap<&Path, Option<Scalar>> = HashMap::new();
        let mut found = Vec::new();
        for (shape, waits) in &self.shapes {
            if !shape.sources.is_empty() && !shape.sources.contains(&event.source) {
                continue;
            }
            let scalar =
                |path| seen.entry(path).or_insert_with(|| Path::scalar(path, &event.fields, &event.raw)).clone();
            let Some(scalars) = shape.paths.iter().map(scalar).collect::<Option<Vec<_>>>() else { continue };
            let mut key = Key { event: None, scalars };
            found.extend(waits.get(&key).into_iter().flatten());
            key.event = Some(event.event.clone());
            found.extend(waits.get(&key).into_iter().flatten());
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::store::SessionKey;
    use crate::trigger::Filter;

    fn wait(id: i64, sources: &[&str], event: Option<&str>, filter: &Value) -> Wait {
        let sources = sources.iter().map(ToString::to_string).collect();
        let on = WaitOn::Webhook { sources, event: event.map(str::to_owned), filter: Filter::parse(filter).unwrap() };
        let text = String::new;
        Wait {
            id,
            key: SessionKey(id),
            session: text(),
            agent: text(),
            project: text(),
            call: text(),
            on,
            words: text(),
            since: 0,
            deadline: 0,
            paused: false,
            woken: None,
        }
    }

    fn event(source: &str, event: &str, fields: Value, raw: Value) -> InboxEvent {
        InboxEvent { id: 1, at: 0, source: source.to_owned(), event: event.to_owned(), fields, raw, woke: None }
    }

    proptest! {
        /// S-WAIT-3, S-WAIT-9: the index finds what looking at every wait finds.
        #[test]
        fn it_finds_what_a_look_at_each_wait_finds(
            waits in prop::collection::vec(
                (
                    prop::collection::vec(prop::sample::select(vec!["a", "b"]), 0..2),
                    prop::option::of(prop::sample::select(vec!["push", "open"])),
                    prop::sample::select(vec![
                        json!({}), json!({"repo": "x"}), json!({"repo": "y"}), json!({"repo": "x", "n": 1}),
                        json!({"n": "1"}), json!({"n": null}), json!({"labels.0": "bug"}), json!({"a\\.b": true}),
                    ]),
                ),
                0..40,
            ),
            source in prop::sample::select(vec!["a", "b", "c"]),
            name in prop::sample::select(vec!["push", "open", "close"]),
            fields in prop::sample::select(vec![
                json!({}), json!({"repo": "x"}), json!({"repo": "x", "n": 1}), json!({"repo": "y", "n": null}),
                json!({"labels": ["bug"]}),
            ]),
            raw in prop::sample::select(vec![json!(null), json!({"n": 1}), json!({"a.b": "true", "repo": "x"})]),
        ) {
            let event = event(source, name, fields, raw);
            let mut index = WaitIndex::default();
            let mut expected = Vec::new();
            for ((sources, on, filter), id) in waits.iter().zip(1..) {
                let wait = wait(id, sources, *on, filter);
                index.add(&wait);
                let takes = (sources.is_empty() || sources.contains(&source))
                    && on.is_none_or(|on| on == name)
                    && Filter::parse(filter).unwrap().matches(&event.fields, &event.raw);
                expected.extend(takes.then_some(id));
            }
            prop_assert_eq!(index.matching(&event), expected);
        }
    }

    #[test]
    fn what_is_over_or_for_agents_is_not_in_it() {
        let mut index = WaitIndex::default();
        let over = Wait { woken: Some(crate::store::Woken::Timeout), ..wait(1, &[], None, &json!({})) };
        let on = WaitOn::Agent { source_agent: None, filter: Filter::default() };
        index.add(&over);
        index.add(&Wait { on, ..wait(2, &[], None, &json!({})) });
        assert!(index.matching(&event("a", "push", json!({}), json!(null))).is_empty());
        assert_eq!(index.newest, 2);
    }
}
