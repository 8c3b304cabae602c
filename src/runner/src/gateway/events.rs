//! Events from outside: kept in the inbox, then matched with what waits.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::House;
use super::refusal::{self, Refusal, Refused};
use crate::exit::Failure;
use crate::fleet::events::{deliver, incoming};
use crate::project::{Project, WebhookSource};
use crate::store::StoreError;

/// An event from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEmit {
    /// Name of a configured source, or the provider type that one source alone has.
    pub source: String,
    /// The provider's event.
    pub event: String,
    /// The payload as the provider sends it.
    #[schema(value_type = Object)]
    pub payload: Value,
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Emitted {
    /// Its position in the inbox.
    pub id: i64,
    /// Ids of the sessions that it woke.
    pub woke: Vec<String>,
}

/// Accepts an event, and says whom it woke. It is kept before it is matched: once it has an id it is not lost.
#[utoipa::path(post, path = "/events", request_body = NewEmit,
    responses((status = 200, body = Emitted), (status = "default", body = Refused)))]
pub(super) async fn emit(State(house): State<Arc<House>>, body: Bytes) -> Result<Json<Emitted>, Refusal> {
    let new: NewEmit = refusal::read(&body)?;
    drop(body);
    let event = incoming(&house.path, source(&house.project, &new.source)?, &new.event, new.payload);
    let id = house.store.accept(event).await?;
    deliver(&*house.store, &house.path, &mut *house.index.lock().await).await?;
    house.desk.nudge().await?;
    Ok(Json(Emitted { id, woke: woken_by(&house, id).await? }))
}

/// The project's source of this name, else the only one of this provider type.
pub fn source<'a>(project: &'a Project, name: &str) -> Result<&'a WebhookSource, Failure> {
    let sources = &project.fleet().sources;
    if let Some(source) = sources.iter().find(|source| source.name == name) {
        return Ok(source);
    }
    let mut typed = sources.iter().filter(|source| source.provider.as_str() == name);
    if let (Some(source), None) = (typed.next(), typed.next()) {
        return Ok(source);
    }
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let hint = match names.as_slice() {
        [] => "the project's config.toml has no [webhooks.NAME] section; add one with its `type`".to_owned(),
        names => format!("the project has {}", names.join(", ")),
    };
    Err(Failure::usage(format!("no source of webhooks is named {name:?}"), hint))
}

/// Ids of the sessions that an event woke, whoever matched it. It is among the newest, and payloads are large: so few are
/// asked for first.
async fn woken_by(house: &House, id: i64) -> Result<Vec<String>, StoreError> {
    for limit in [1, 16, 256] {
        let newest = house.store.inbox(house.path.clone(), limit).await?;
        if let Some(event) = newest.into_iter().find(|event| event.id == id) {
            return Ok(event.woke.unwrap_or_default());
        }
    }
    Ok(Vec::new())
}
