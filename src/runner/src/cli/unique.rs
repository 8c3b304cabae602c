//! JSON in which no object has a name twice: a plain parser takes the last and drops the others without a word.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value of such JSON.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Unique(pub(super) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Builder).map(Self)
    }
}

struct Builder;

impl<'de> Visitor<'de> for Builder {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("{name:?} is given twice")));
            }
            let Unique(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_is_given_twice_is_told() {
        let wrong = |text: &str| serde_json::from_str::<Unique>(text).unwrap_err().to_string();
        assert_eq!(wrong(r#"{"path": "a", "path": "b"}"#), "\"path\" is given twice at line 1 column 20");
        assert_eq!(wrong(r#"{"edits": [{"a": 1, "a": 1}]}"#), "\"a\" is given twice at line 1 column 23");
        assert!(serde_json::from_str::<Unique>(r#"[{"a": 1}, {"a": 1}]"#).is_ok());
    }

    proptest! {
        /// Everything else is read as by the plain parser.
        #[test]
        fn other_json_is_read_alike(text in r#"[\[\]{},:0-9a-b"e. -]{0,20}"#, whole in any::<i64>(), part in any::<f64>()) {
            for text in [text.clone(), format!("[{whole}, {part:?}, {text:?}, null, true, {{\"a\": {{}}}}]")] {
                let Ok(Unique(value)) = serde_json::from_str::<Unique>(&text) else { continue };
                prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
