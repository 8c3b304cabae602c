//! A key that its provider says back, in an answer and not in an error.
//!
//! What a model says is shown, journalled and made calls of, so there is no place where the key could be taken out of it:
//! such an answer is none.

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::fault::Fault;
use crate::model::FailKind;

/// Shortest key that is looked for. Servers that want no key are given words, such as `ollama` or `EMPTY`, which a model
/// may well say.
const SHORTEST: usize = 16;

/// Listens to an answer while it comes.
pub(super) struct Echo<'a> {
    key: Option<&'a str>,
    /// The end of what was said: a key may come in pieces.
    tail: String,
}

impl<'a> Echo<'a> {
    pub(super) fn of(key: Option<&'a SecretString>) -> Self {
        let key = key.map(ExposeSecret::expose_secret).filter(|key| key.len() >= SHORTEST);
        Self { key, tail: String::new() }
    }

    /// Hears more of the text.
    pub(super) fn hear(&mut self, text: &str) -> Result<(), Fault> {
        let Some(key) = self.key else { return Ok(()) };
        self.tail.push_str(text);
        if self.tail.contains(key) {
            return Err(said());
        }
        let mut cut = self.tail.len().saturating_sub(key.len());
        while !self.tail.is_char_boundary(cut) {
            cut += 1;
        }
        self.tail.drain(..cut);
        Ok(())
    }

    /// Looks through all that would be kept.
    pub(super) fn search(&self, value: &Value) -> Result<(), Fault> {
        match self.key {
            Some(key) if holds(value, key) => Err(said()),
            _ => Ok(()),
        }
    }
}

fn holds(value: &Value, key: &str) -> bool {
    match value {
        Value::String(text) => text.contains(key),
        Value::Array(items) => items.iter().any(|item| holds(item, key)),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains(key) || holds(value, key)),
        _ => false,
    }
}

fn said() -> Fault {
    Fault::new(FailKind::Refused, "the answer repeats the key; is `baseUrl` right, and is the server to be trusted?")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-0123456789abcdef";

    #[test]
    fn a_word_is_no_key() {
        let word = SecretString::from("ollama");
        let mut echo = Echo::of(Some(&word));
        assert!(echo.hear("ollama").is_ok() && echo.search(&json!("ollama")).is_ok());
        assert!(Echo::of(None).hear(KEY).is_ok());
    }

    #[test]
    fn a_key_is_found_in_whatever_place() {
        let key = SecretString::from(KEY);
        for value in [json!(KEY), json!([[format!("x{KEY}x")]]), json!({"a": {"b": KEY}}), json!({KEY: 1})] {
            assert!(Echo::of(Some(&key)).search(&value).is_err(), "{value}");
        }
        assert!(Echo::of(Some(&key)).search(&json!([&KEY[1..], {&KEY[1..]: 1}, null])).is_ok());
    }

    proptest! {
        /// M-KEY-4: in whatever pieces it comes.
        #[test]
        fn a_key_in_pieces_is_heard(before in "[aé🙂]{0,40}", sizes in prop::collection::vec(1_usize..8, 0..20)) {
            let key = SecretString::from(KEY);
            let (mut echo, mut heard) = (Echo::of(Some(&key)), false);
            for c in before.chars() {
                prop_assert!(echo.hear(&c.to_string()).is_ok());
            }
            let mut rest = KEY;
            for size in sizes.into_iter().chain([KEY.len()]) {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                rest = after;
                heard |= echo.hear(piece).is_err();
            }
            prop_assert!(heard);
        }
    }
}
