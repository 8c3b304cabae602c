//! Journal lines, and the payloads that they name.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A journal line to be recorded, with the payloads that it refers to: they are kept in the same transaction.
#[derive(Debug, Clone, Default)]
pub struct NewEvent {
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// JSON text.
    pub body: String,
    /// Payloads that the body names by hash.
    pub blobs: Vec<Blob>,
    /// Tokens that it tells of; they are added to the session's.
    pub tokens: u64,
}

/// A journal line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its number in this journal, from 1, without gaps.
    pub seq: u64,
    /// When it was recorded, in milliseconds since 1970.
    pub at: i64,
    /// Its kind.
    pub kind: String,
    /// JSON text.
    pub body: String,
}

/// SHA-256 of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobId([u8; 32]);

impl BlobId {
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobId({self})")
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for BlobId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<BlobId, Self::Error> {
        let mut id = [0; 32];
        hex::decode_to_slice(text, &mut id).map_err(|_| "a payload's name is 64 hexadecimal digits")?;
        Ok(BlobId(id))
    }
}

/// A payload and its hash.
#[derive(Debug, Clone)]
pub struct Blob {
    id: BlobId,
    bytes: Vec<u8>,
}

impl Blob {
    /// Most bytes of one payload: what a call's body may have, twice, for JSON's and base64's overhead.
    pub const MAX: usize = 128 * 1024 * 1024;

    /// Hashes the payload.
    pub fn new(bytes: Vec<u8>) -> Blob {
        Blob { id: BlobId(Sha256::digest(&bytes).into()), bytes }
    }

    /// Its hash.
    pub fn id(&self) -> BlobId {
        self.id
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
