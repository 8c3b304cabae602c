//! Events from outside.

use serde_json::Value;

/// An event from outside, to be kept.
#[derive(Debug, Clone)]
pub struct NewInboxEvent {
    /// The project it is for.
    pub project: String,
    /// Name of the source.
    pub source: String,
    /// The provider's event.
    pub event: String,
    /// The normalised fields, an object.
    pub fields: Value,
    /// The payload as it came.
    pub raw: Value,
}

/// An event in the inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxEvent {
    /// Its position; later ones are larger.
    pub id: i64,
    /// When it was accepted, in milliseconds since 1970.
    pub at: i64,
    /// Name of the source.
    pub source: String,
    /// The provider's event.
    pub event: String,
    /// The normalised fields.
    pub fields: Value,
    /// The payload as it came.
    pub raw: Value,
    /// Ids of the sessions that it woke; none until it was matched.
    pub woke: Option<Vec<String>>,
}
