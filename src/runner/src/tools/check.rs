//! Arguments against their schema (T-1).

use jsonschema::error::ValidationErrorKind;
use serde_json::{Number, Value};

use super::text::shorten;
use crate::project::near;

/// Most faults that are named at once.
const MOST: usize = 8;
/// Up to here a double is exact.
const LARGEST: f64 = 9_007_199_254_740_991.0;

/// Makes numbers of strings that stand where the schema wants a number, and whole numbers of those with a decimal point:
/// JSON schema calls 2.0 an integer. A string of JSON where the schema wants a list becomes that list.
pub(super) fn coerce(schema: &Value, args: &mut Value) {
    let wants = |kind: &str| match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(any) => any.iter().any(|one| one == kind),
        _ => false,
    };
    match args {
        Value::String(text) if wants("array") && !wants("string") => {
            if let Ok(Value::Array(items)) = serde_json::from_str(text) {
                *args = Value::Array(items);
                coerce(schema, args);
            }
        }
        Value::String(text) => {
            if wants("string") || !(wants("number") || wants("integer")) {
                return;
            }
            let text = text.trim();
            let number = text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from));
            // Only digits, sign, dot and exponent: `inf` and `nan` are numbers to Rust and not to JSON.
            let plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
            let number = number.ok().or_else(|| text.parse().ok().filter(|_| plain).and_then(Number::from_f64));
            if let Some(number) = number {
                *args = Value::Number(if wants("integer") { whole(number) } else { number });
            }
        }
        Value::Number(number) if wants("integer") => *number = whole(number.clone()),
        Value::Array(items) => items.iter_mut().for_each(|item| coerce(&schema["items"], item)),
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                coerce(&schema["properties"][name.as_str()], value);
            }
        }
        _ => {}
    }
}

/// The same number without a decimal point if it is a whole one that every reader of JSON knows exactly.
fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() <= LARGEST =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number within the range checked above")]
            Number::from(value as i64)
        }
        _ => number,
    }
}

/// What to say of arguments that are text: the model wrote something that is no JSON, or its answer was cut.
pub(super) fn not_json(text: &str) -> String {
    let why = match serde_json::from_str::<Value>(text) {
        Ok(_) => "they are text".to_owned(),
        Err(error) if error.is_eof() => format!("they end too early ({error}); was the answer too long?"),
        Err(error) => format!("they are not JSON ({error})"),
    };
    format!("\n- the arguments: {why} (rule `type`: object); received {:?}", shorten(text, 200))
}

/// What is wrong with the arguments, one line each: path, rule and the value received.
pub(super) fn faults(schema: &Value, validator: &jsonschema::Validator, args: &Value) -> Option<String> {
    let mut lines = String::new();
    for error in validator.iter_errors(args).take(MOST) {
        let path = match error.instance_path().as_str() {
            "" => "the arguments",
            path => path,
        };
        let hint = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
                let near = unexpected.first().map(|name| near(name, known)).unwrap_or_default();
                near.first().map(|best| format!(" (did you mean {best:?}?)")).unwrap_or_default()
            }
            _ => String::new(),
        };
        let rule = error.kind().keyword();
        let what = shorten(&error.masked_with("the value").to_string(), 300);
        let value = shorten(&error.instance().to_string(), 200);
        let line = format!("\n- {path}: {what} (rule `{rule}`){hint}; received {value}");
        lines.push_str(&line);
    }
    (!lines.is_empty()).then_some(lines)
}
