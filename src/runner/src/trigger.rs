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
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }
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
