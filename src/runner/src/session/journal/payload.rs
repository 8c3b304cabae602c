//! Bodies of journal lines as JSON text, and the strings that are too long for them.
//!
//! Strings longer than [`INLINE`] leave the body: `{"$blob": "<sha256>"}` stands in their place. A member that is called
//! `$blob` already gets one more `$`, so nothing that a model or a tool writes can name a payload.

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::store::{Blob, BlobId, Store, StoreError};

/// Longest string, in bytes, that stays inside a row.
pub(super) const INLINE: usize = 16 * 1024;

const MARK: &str = "$blob";

/// Serializes a body. Most are small and leave by the first return.
pub(super) fn encode<T: Serialize>(body: &T) -> (String, Vec<Blob>) {
    let text = serde_json::to_string(body).expect("events have string keys and no other way to fail");
    if text.len() <= INLINE && !text.contains(MARK) {
        return (text, Vec::new());
    }
    let mut value = serde_json::to_value(body).expect("what was just written");
    let mut blobs = Vec::new();
    take_out(&mut value, &mut blobs);
    (value.to_string(), blobs)
}

/// Reads a body of ours. It may nest deeper than what came from outside, which already had to pass the parser's limit.
pub(super) fn parse<T: DeserializeOwned>(body: &str) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(body);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// True for `$blob` with any number of `$`.
fn is_mark(name: &str) -> bool {
    name.trim_start_matches('$') == "blob" && name.starts_with('$')
}

fn take_out(value: &mut Value, blobs: &mut Vec<Blob>) {
    match value {
        Value::String(text) if text.len() > INLINE => {
            let blob = Blob::new(std::mem::take(text).into_bytes());
            *value = Value::Object(Map::from_iter([(MARK.to_owned(), Value::String(blob.id().to_string()))]));
            blobs.push(blob);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| take_out(item, blobs)),
        Value::Object(members) => {
            for (mut name, mut member) in std::mem::take(members) {
                take_out(&mut member, blobs);
                if is_mark(&name) {
                    name.insert(0, '$');
                }
                members.insert(name, member);
            }
        }
        _ => {}
    }
}

/// Undoes [`take_out`].
pub(super) fn fetch(store: &dyn Store, value: Value) -> BoxFuture<'_, Result<Value, StoreError>> {
    Box::pin(async move {
        Ok(match value {
            Value::Array(items) => {
                let mut fetched = Vec::with_capacity(items.len());
                for item in items {
                    fetched.push(fetch(store, item).await?);
                }
                Value::Array(fetched)
            }
            Value::Object(members) => {
                if let Some(id) = members.get(MARK).and_then(Value::as_str) {
                    let id = BlobId::try_from(id.to_owned())
                        .map_err(|_| StoreError::UnknownBlob(Blob::new(id.as_bytes().to_vec()).id()))?;
                    let bytes = store.get_blob(id).await?;
                    return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
                }
                let mut fetched = Map::new();
                for (mut name, member) in members {
                    if is_mark(&name) {
                        name.remove(0);
                    }
                    fetched.insert(name, fetch(store, member).await?);
                }
                Value::Object(fetched)
            }
            other => other,
        })
    })
}

/// Returns the parsed body when it may name payloads.
pub(super) fn references(body: &str) -> Result<Option<Value>, serde_json::Error> {
    if body.contains(MARK) { parse(body).map(Some) } else { Ok(None) }
}
