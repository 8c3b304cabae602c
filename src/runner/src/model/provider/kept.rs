//! The provider's message in a turn's `raw`: who said it, and what.

use serde_json::{Value, json};

use crate::project::ProviderSettings;

/// What takes the place of arguments that are no JSON object when they are sent back: every provider wants an object, and
/// the model shall see what it wrote.
const MALFORMED: &str = "malformed_arguments";

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
/// arguments, unless the answer was cut there.
pub(super) fn parse_arguments(written: &str, cut: bool) -> Value {
    match serde_json::from_str(written) {
        Ok(Value::Null) => json!({}),
        Ok(args) => args,
        Err(_) if written.trim().is_empty() && !cut => json!({}),
        Err(_) => Value::String(written.to_owned()),
    }
}
