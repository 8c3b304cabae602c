//! What wakes or starts a session, as JSON that every room reads the same way, and the filters that choose among triggers.
//!
//! A webhook's trigger has normalised fields beside its raw payload; an agent's trigger is one object. A [`Filter`] maps
//! dot paths to scalars: a path is looked up in the fields first, then in the raw payload.

use std::fmt;

use serde_json::{Map, Value, json};

/// The trigger of a call of another agent (S-WAIT-4).
pub fn call(source_agent: &str, call_id: &str, context: &Value) -> Value {
    json!({
        "type": "agent_trigger", "kind": "call", "source_agent": source_agent, "call_id": call_id, "context": context,
    })
}

/// The trigger of the result of a call; `source_agent` is the agent that was called (S-WAIT-4).
pub fn result(source_agent: &str, call_id: &str, outcome: &Value) -> Value {
    let mut trigger = json!({
        "type": "agent_trigger", "kind": "result", "source_agent": source_agent, "call_id": call_id,
    });
    if let (Value::Object(trigger), Value::Object(outcome)) = (&mut trigger, outcome) {
        trigger.extend(outcome.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    trigger
}

/// The trigger of an event from outside: its normalised fields, and the raw payload as `payload`.
pub fn webhook(fields: &Value, raw: &Value) -> Value {
    let mut trigger = json!({"type": "webhook"});
    if let (Value::Object(trigger), Value::Object(fields)) = (&mut trigger, fields) {
        trigger.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        trigger.insert("payload".to_owned(), raw.clone());
    }
    trigger
}

/// Which triggers a wait takes: every path has to lead to an equal scalar (S-WAIT-3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter(Vec<(Path, Scalar)>);

/// Steps to a value: names of members, or positions in lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Vec<String>);

/// A scalar in the form that is compared: equal ones have equal text. A number or boolean equals the string that is
/// written like it; null equals only null.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scalar(Option<String>);

/// Why a filter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is no object.
    #[error("`match` must be an object of dot paths and scalars, such as {{\"repo\": \"acme/app\"}}")]
    NotAnObject,
    /// A path has an empty step or ends in a backslash.
    #[error("`match` has a path that leads nowhere: {0:?}")]
    Path(String),
    /// One path, written in two ways, is to lead to different values.
    #[error("`match` compares {0:?} with two different values")]
    Twice(String),
    /// A value is a list or an object.
    #[error(
        "`match` compares {0:?} with a list or an object; only strings, numbers, booleans and null can be compared"
    )]
    NotAScalar(String),
}

impl Filter {
    /// Reads what a model wrote; null is a filter that takes everything.
    pub fn parse(written: &Value) -> Result<Filter, FilterError> {
        let members = match written {
            Value::Null => return Ok(Filter::default()),
            Value::Object(members) => members,
            _ => return Err(FilterError::NotAnObject),
        };
        let mut filter = Vec::with_capacity(members.len());
        for (path, value) in members {
            let scalar = Scalar::of(value).ok_or_else(|| FilterError::NotAScalar(path.clone()))?;
            filter.push((Path::parse(path).ok_or_else(|| FilterError::Path(path.clone()))?, scalar));
        }
        filter.sort();
        // One path can be written in two ways.
        filter.dedup();
        if let Some(pair) = filter.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(FilterError::Twice(pair[0].0.to_string()));
        }
        Ok(Filter(filter))
    }

    /// True when the trigger fits. `raw` is looked into where `fields` lack the path.
    pub fn matches(&self, fields: &Value, raw: &Value) -> bool {
        self.0.iter().all(|(path, scalar)| path.scalar(fields, raw).as_ref() == Some(scalar))
    }

    /// Its paths and scalars, sorted.
    pub fn parts(&self) -> &[(Path, Scalar)] {
        &self.0
    }

    /// As JSON, for the store and for people.
    pub fn to_json(&self) -> Value {
        let member = |(path, scalar): &(Path, Scalar)| {
            (path.to_string(), scalar.0.as_ref().map_or(Value::Null, |text| Value::String(text.clone())))
        };
        Value::Object(self.0.iter().map(member).collect::<Map<_, _>>())
    }
}

impl Path {
    fn parse(written: &str) -> Option<Path> {
        let (mut steps, mut step, mut escaped) = (Vec::new(), String::new(), false);
        for c in written.chars() {
            match c {
                '\\' if !escaped => escaped = true,
                '.' if !escaped => steps.push(std::mem::take(&mut step)),
                c => {
                    // A backslash means a dot or itself; before anything else it is a character like any other.
                    if escaped && !matches!(c, '.' | '\\') {
                        step.push('\\');
                    }
                    escaped = false;
                    step.push(c);
                }
            }
        }
        steps.push(step);
        (!escaped && steps.iter().all(|step| !step.is_empty())).then_some(Path(steps))
    }

    /// The scalar that it leads to, in the fields or else in the raw payload.
    pub fn scalar(&self, fields: &Value, raw: &Value) -> Option<Scalar> {
        let found = self.walk(fields).or_else(|| self.walk(raw))?;
        Scalar::of(found)
    }

    fn walk<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, step| match value {
            Value::Object(members) => members.get(step),
            Value::Array(items) => items.get(position(step)?),
            _ => None,
        })
    }
}

/// The position that a step names; only its usual form does.
fn position(step: &str) -> Option<usize> {
    let is_number = step.bytes().all(|b| b.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    step.parse().ok().filter(|_| is_number)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.0.iter().map(|step| step.replace('\\', "\\\\").replace('.', "\\.")).collect();
        f.write_str(&steps.join("."))
    }
}

impl Scalar {
    /// None for a list or an object.
    fn of(value: &Value) -> Option<Scalar> {
        match value {
            Value::Null => Some(Scalar(None)),
            Value::Bool(value) => Some(Scalar(Some(value.to_string()))),
            Value::Number(value) => Some(Scalar(Some(value.to_string()))),
            Value::String(value) => Some(Scalar(Some(value.clone()))),
            Value::Array(_) | Value::Object(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(filter: &Value, fields: &Value, raw: &Value) -> bool {
        Filter::parse(filter).unwrap().matches(fields, raw)
    }

    /// S-WAIT-3: a path is looked up in the fields, then in the payload.
    #[test]
    fn fields_come_before_the_payload() {
        let (fields, raw) = (json!({"action": "closed", "sender": "ann"}), json!({"action": "x", "sender": {"id": 5}}));
        assert!(matches(&json!({}), &fields, &raw));
        assert!(matches(&Value::Null, &fields, &raw));
        assert!(matches(&json!({"action": "closed"}), &fields, &raw));
        assert!(!matches(&json!({"action": "x"}), &fields, &raw));
        assert!(matches(&json!({"sender.id": 5, "sender": "ann"}), &fields, &raw));
        assert!(!matches(&json!({"sender.id": 5, "sender": "bob"}), &fields, &raw), "all have to fit");
    }

    /// S-WAIT-3: positions are numbers, and a dot inside a key is written with a backslash.
    #[test]
    fn paths_reach_into_lists_and_odd_keys() {
        let raw = json!({
            "labels": [{"name": "bug"}, {"name": "old"}], "a.b": {"c": 1}, "back\\slash": 2, "0": "zero", "a": {"b": 3},
        });
        let fits = |filter: Value| matches(&filter, &json!({}), &raw);
        assert!(fits(json!({"labels.0.name": "bug", "labels.1.name": "old"})));
        assert!(fits(json!({"a\\.b.c": 1, "a.b": 3})));
        assert!(fits(json!({"back\\slash": 2})) && fits(json!({"back\\\\slash": 2})));
        assert!(fits(json!({"0": "zero"})), "in an object it is a key");
        for wrong in ["labels.2.name", "labels.-1.name", "labels.+1.name", "labels.00.name", "labels.name", "labels"] {
            assert!(!fits(json!({wrong: "bug"})), "{wrong}");
        }
    }

    /// S-WAIT-3: equal is the same scalar, or the string that a number or boolean is written as.
    #[test]
    fn numbers_and_booleans_equal_what_they_are_written_as() {
        let raw = json!({"n": 42, "f": 1.5, "t": true, "z": null, "s": "42", "e": "", "neg": -1, "big": u64::MAX});
        let fits = |filter: Value| matches(&filter, &json!({}), &raw);
        assert!(
            fits(json!({"n": 42})) && fits(json!({"n": "42"})) && fits(json!({"s": 42})) && fits(json!({"s": "42"}))
        );
        assert!(fits(json!({"f": "1.5", "t": "true", "neg": "-1", "big": "18446744073709551615"})));
        assert!(fits(json!({"t": true})) && !fits(json!({"t": 1})) && !fits(json!({"t": "True"})));
        assert!(fits(json!({"z": null})) && !fits(json!({"z": "null"})) && !fits(json!({"e": null})));
        assert!(!fits(json!({"n": "042"})) && !fits(json!({"n": " 42"})));
    }

    /// S-WAIT-3: a missing path equals nothing, not even null; nor does a list or an object.
    #[test]
    fn what_is_missing_equals_nothing() {
        let raw = json!({"a": {"b": []}});
        for path in ["c", "a.c", "a.b.0", "a", "a.b", "a.b.c.d"] {
            for value in [json!(null), json!(""), json!("null"), json!(0), json!(false)] {
                assert!(!matches(&json!({path: value}), &json!({}), &raw), "{path} = {value}");
            }
        }
    }

    #[test]
    fn filters_that_cannot_be_used_say_why() {
        let why = |filter: Value| Filter::parse(&filter).unwrap_err();
        assert_eq!(why(json!([1])), FilterError::NotAnObject);
        assert_eq!(why(json!("repo=x")), FilterError::NotAnObject);
        assert_eq!(why(json!({"a": {"b": 1}})), FilterError::NotAScalar("a".to_owned()));
        for path in ["", ".", "a.", ".a", "a..b", "a\\"] {
            assert_eq!(why(json!({path: 1})), FilterError::Path(path.to_owned()));
        }
    }

    /// S-WAIT-4, S-WAIT-9: triggers have the members that filters read and models see.
    #[test]
    fn triggers_have_their_members() {
        assert_eq!(
            call("a", "s/1/0", &json!("do it")).to_string(),
            r#"{"type":"agent_trigger","kind":"call","source_agent":"a","call_id":"s/1/0","context":"do it"}"#
        );
        assert_eq!(
            result("b", "s/1/0", &json!({"status": "error", "error": "timeout"})).to_string(),
            r#"{"type":"agent_trigger","kind":"result","source_agent":"b","call_id":"s/1/0","status":"error","error":"timeout"}"#
        );
        assert_eq!(
            webhook(&json!({"event": "push", "payload": 1}), &json!([])).to_string(),
            r#"{"type":"webhook","event":"push","payload":[]}"#
        );
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z0-9.]{0,6}".prop_map(Value::from),
        ]
    }

    fn written(step: &str) -> String {
        step.replace('\\', "\\\\").replace('.', "\\.")
    }

    proptest! {
        /// S-WAIT-3: whatever keys a value lies under, the path that is written for them finds it, and only it.
        #[test]
        fn every_key_has_a_path(steps in prop::collection::vec("[ab.\\\\0]{1,4}", 1..4), value in scalar()) {
            let raw = steps.iter().rev().fold(value.clone(), |inner, step| json!({step: inner}));
            let path = steps.iter().map(|step| written(step)).collect::<Vec<_>>().join(".");
            let filter = Filter::parse(&json!({path.clone(): value.clone()})).unwrap();
            let nothing = json!({});
            prop_assert!(filter.matches(&nothing, &raw));
            prop_assert!(filter.matches(&raw, &nothing));
            prop_assert!(!filter.matches(&nothing, &nothing));
            prop_assert_eq!(filter.parts()[0].0.to_string(), path);
        }

        /// A filter that went through the store takes what it took.
        #[test]
        fn filters_come_back_as_they_went(
            members in prop::collection::btree_map("[ab.\\\\]{1,3}", scalar(), 0..4),
        ) {
            let written: Value = members.into_iter().collect();
            if let Ok(filter) = Filter::parse(&written) {
                prop_assert_eq!(Filter::parse(&filter.to_json()), Ok(filter));
            }
        }

        /// S-WAIT-3: no text makes the reader of paths fail.
        #[test]
        fn any_path_is_read_or_refused(path in "\\PC{0,12}|[a.\\\\]{0,8}") {
            let _ = Filter::parse(&json!({path: 1})).map(|filter| filter.matches(&json!({}), &json!({"a": [1]})));
        }
    }
}
