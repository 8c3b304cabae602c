//! Requests about sessions: start them, look at them, end them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use nix::unistd::{Uid, User};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::House;
use super::control::NewStart;
use super::refusal::{self, Refusal, Refused};
use super::views::{Journal, SessionView, Sessions};
use crate::store::{self, SessionFilter, StopHow};

/// Most sessions of an answer, unless fewer are asked for.
const MAX_SESSIONS: usize = 1000;

/// Most lines of a journal in one answer.
const MAX_LINES: usize = 1000;

/// The session that was started.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct Begun {
    /// Its id.
    pub(super) session: String,
}

/// Starts a session, which is queued until it has a slot.
#[utoipa::path(post, path = "/sessions", request_body = NewStart,
    responses((status = 201, body = Begun), (status = "default", body = Refused)))]
pub(super) async fn start(State(house): State<Arc<House>>, body: Bytes) -> Result<(StatusCode, Json<Begun>), Refusal> {
    let session = house.desk.start(refusal::read(&body)?).await?;
    Ok((StatusCode::CREATED, Json(Begun { session })))
}

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Ended ones too.
    #[serde(default)]
    all: bool,
    /// Only of this agent.
    agent: Option<String>,
    /// Only of the call tree that this session belongs to.
    tree: Option<String>,
    /// Most sessions.
    limit: Option<usize>,
}

/// Lists sessions, newest first.
#[utoipa::path(get, path = "/sessions", params(Which),
    responses((status = 200, body = Sessions), (status = "default", body = Refused)))]
pub(super) async fn list(
    State(house): State<Arc<House>>,
    Query(which): Query<Which>,
) -> Result<Json<Sessions>, Refusal> {
    let tree = match &which.tree {
        Some(id) => Some(house.session(id).await?.root),
        None => None,
    };
    let filter = SessionFilter {
        project: Some(house.path.clone()),
        agent: which.agent,
        status: if which.all { store::Status::Any } else { store::Status::Live },
        tree,
        limit: Some(which.limit.unwrap_or(MAX_SESSIONS).min(MAX_SESSIONS)),
    };
    let sessions = house.store.sessions(filter).await?;
    Ok(Json(Sessions { sessions: sessions.into_iter().map(Into::into).collect() }))
}

/// Shows a session.
#[utoipa::path(get, path = "/sessions/{id}", params(("id" = String, Path, description = "Its id, or a unique part of it")),
    responses((status = 200, body = SessionView), (status = "default", body = Refused)))]
pub(super) async fn show(
    State(house): State<Arc<House>>,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, Refusal> {
    Ok(Json(house.session(&id).await?.into()))
}

/// Which lines of a journal.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Piece {
    /// After this line; 0 is before the first.
    #[serde(default)]
    after: u64,
    /// Most lines.
    limit: Option<usize>,
}

/// Reads a session's journal.
#[utoipa::path(get, path = "/sessions/{id}/events",
    params(("id" = String, Path, description = "The session's id, or a unique part of it"), Piece),
    responses((status = 200, body = Journal), (status = "default", body = Refused)))]
pub(super) async fn journal(
    State(house): State<Arc<House>>,
    Path(id): Path<String>,
    Query(piece): Query<Piece>,
) -> Result<Json<Journal>, Refusal> {
    let session = house.session(&id).await?;
    let limit = piece.limit.unwrap_or(MAX_LINES).min(MAX_LINES);
    let events = house.store.events(session.key, piece.after, limit).await?;
    Ok(Json(Journal { events: events.into_iter().map(Into::into).collect() }))
}

/// Asks a session to end: its calls are cancelled, what it has is copied out.
#[utoipa::path(post, path = "/sessions/{id}/stop",
    params(("id" = String, Path, description = "The session's id, or a unique part of it")),
    responses((status = 202, body = SessionView), (status = "default", body = Refused)))]
pub(super) async fn stop(
    State(house): State<Arc<House>>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<SessionView>), Refusal> {
    end(&house, &id, StopHow::Orderly).await
}

/// Ends a session and its whole call tree at once.
#[utoipa::path(post, path = "/sessions/{id}/kill",
    params(("id" = String, Path, description = "The session's id, or a unique part of it")),
    responses((status = 202, body = SessionView), (status = "default", body = Refused)))]
pub(super) async fn kill(
    State(house): State<Arc<House>>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<SessionView>), Refusal> {
    end(&house, &id, StopHow::Kill).await
}

async fn end(house: &House, id: &str, how: StopHow) -> Result<(StatusCode, Json<SessionView>), Refusal> {
    let session = house.session(id).await?;
    house.store.request_stop(session.key, who(), how).await?;
    house.desk.nudge().await?;
    Ok((StatusCode::ACCEPTED, Json(house.session(&session.id).await?.into())))
}

/// Who asks, for the record: nobody but our own user can.
fn who() -> String {
    let uid = Uid::effective();
    User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}
