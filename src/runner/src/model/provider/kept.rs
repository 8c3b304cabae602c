//! The provider's message in a turn's `raw`: who said it, and what.

use serde_json::{Value, json};

use super::fault::Fault;
use crate::model::FailKind;
use crate::project::ProviderSettings;

/// What takes the place of arguments that are no JSON object when they are sent back: every provider wants an object, and
/// the model shall see what it wrote.
const MALFORMED: &str = "malformed_arguments";

/// Most calls of one turn.
pub(super) const MOST_CALLS: usize = 256;

/// Most bytes of text in one answer, its thinking and arguments included. No model writes a tenth of it.
const MOST_TEXT: usize = 16 * 1024 * 1024;

/// Most JSON values in what is kept of one answer. A value of three bytes takes a hundred or more in memory, so bytes alone
/// bound nothing. Some providers' thinking has three values a token.
const MOST_VALUES: usize = 512 * 1024;

/// What an answer makes us keep, counted while it comes.
#[derive(Default)]
pub(super) struct Load {
    text: usize,
    values: usize,
}

impl Load {
    /// Counts text.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Fault> {
        self.text += text.len();
        self.check()
    }

    /// Counts a value with all that is in it.
    pub(super) fn value(&mut self, value: &Value) -> Result<(), Fault> {
        self.add(value);
        self.check()
    }

    fn add(&mut self, value: &Value) {
        self.values += 1;
        match value {
            Value::String(text) => self.text += text.len(),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.text += key.len();
                    self.add(value);
                }
            }
            _ => {}
        }
    }

    fn check(&self) -> Result<(), Fault> {
        if self.text > MOST_TEXT {
            return Err(Fault::new(FailKind::Network, "the answer says more than 16 MiB"));
        }
        if self.values > MOST_VALUES {
            return Err(Fault::new(FailKind::Network, "the answer has more than 524288 JSON values"));
        }
        Ok(())
    }
}

/// The fault of an answer that asks for too much at once.
pub(super) fn too_many_calls() -> Fault {
    Fault::format("it asks for more than 256 calls at once")
}

/// An event of an answer. Every format's events are objects.
pub(super) fn event(data: &str) -> Result<Value, Fault> {
    let event: Value = serde_json::from_str(data).map_err(|error| Fault::format(&error.to_string()))?;
    if event.is_object() { Ok(event) } else { Err(Fault::format("an event that is no object")) }
}

/// A number of tokens. Sums of what a provider claims do not overflow.
pub(super) fn tokens(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0).min(1 << 40)
}

/// Keeps a message.
pub(super) fn keep(settings: &ProviderSettings, message: Value) -> Value {
    let mut raw = json!({"provider": settings.provider.name(), "model": settings.model});
    raw["message"] = message;
    raw
}

/// The message again, if this provider's model said it.
pub(super) fn message<'a>(settings: &ProviderSettings, raw: &'a Value) -> Option<&'a Value> {
    let ours = raw["provider"] == settings.provider.name() && raw["model"] == settings.model.as_str();
    ours.then(|| &raw["message"])
}

/// Arguments as every provider takes them.
pub(super) fn as_object(args: &Value) -> Value {
    match args {
        Value::Object(_) => args.clone(),
        Value::Null => json!({}),
        other => json!({MALFORMED: other}),
    }
}

/// Arguments as they were written. What is not JSON stays text, which no tool's schema takes; nothing at all is no
/// arguments, unless the answer was cut there. So does what would be more values than one answer may have.
pub(super) fn parse_arguments(written: &str, cut: bool) -> Value {
    if written.bytes().filter(|byte| b",[{".contains(byte)).count() > MOST_VALUES {
        return Value::String(written.to_owned());
    }
    match serde_json::from_str(written) {
        Ok(Value::Null) => json!({}),
        Ok(args) => args,
        Err(_) if written.trim().is_empty() && !cut => json!({}),
        Err(_) => Value::String(written.to_owned()),
    }
}
