//! How a request is refused: in the CLI's words, with its exit code.

use axum::Json;
use axum::body::{self, Body};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::exit::{self, Failure};
use crate::store::StoreError;

/// Most bytes of what axum says itself.
const MAX_WORDS: usize = 64 * 1024;

/// Why a request was refused.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(super) struct Refused {
    /// What is wrong.
    pub(super) error: String,
    /// What to do about it.
    #[serde(default)]
    pub(super) hint: Option<String>,
    /// The exit code of a command that fails like this.
    pub(super) code: u8,
}

/// A refusal and its status.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    failure: Failure,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Failure { code, message, hint } = self.failure;
        (self.status, Json(Refused { error: message, hint, code })).into_response()
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            exit::USAGE => StatusCode::BAD_REQUEST,
            exit::POLICY => StatusCode::FORBIDDEN,
            exit::BUG => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, failure }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::UnknownSession { .. } => StatusCode::NOT_FOUND,
            StoreError::Ambiguous { .. } | StoreError::Ended { .. } | StoreError::QueueFull { .. } => {
                StatusCode::CONFLICT
            }
            StoreError::Full { .. } => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, failure: error.into() }
    }
}

/// Reads a body: JSON whatever its content type says, because nobody but the same user's programs can send one.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let hint = "`GET /api/v1/openapi.json` describes it";
        Failure::usage(format!("the request's body is not what is asked for: {error}"), hint).into()
    })
}

/// Makes refusals of axum's own (no such path, another method, a body above the limit) look like ours.
pub(super) async fn in_json(response: Response) -> Response {
    let status = response.status();
    let typed = response.headers().get(header::CONTENT_TYPE);
    if status.is_success() || typed.is_some_and(|typed| typed.as_bytes().starts_with(b"application/json")) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let words = body::to_bytes(body, MAX_WORDS).await.unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let error = match status {
        StatusCode::NOT_FOUND => "no such path".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => "this path has other methods".to_owned(),
        _ if words.is_empty() => status.to_string(),
        _ => words.into_owned(),
    };
    let hint = Some("`GET /api/v1/openapi.json` describes what can be asked".to_owned());
    let refused = Refused { error, hint, code: exit::USAGE };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(serde_json::json!(refused).to_string()))
}
