//! Requests about the project as a whole: what it holds and waits for, and whether it goes on.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::House;
use super::refusal::{self, Refusal, Refused};
use super::views::{Calls, Health, Inbox, Locks, Queue, Waits};
use crate::exit::Failure;
use crate::store::{SessionFilter, SessionState, Status};

/// Most events of the inbox in an answer.
const MAX_INBOX: usize = 100;

/// Says who serves which project.
#[utoipa::path(get, path = "/health", responses((status = 200, body = Health)))]
pub(super) async fn health(State(house): State<Arc<House>>) -> Json<Health> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Json(Health { pid: std::process::id(), project: house.path.clone(), version })
}

/// Lists the sessions that wait for a slot, and which agents get none.
#[utoipa::path(get, path = "/queue", responses((status = 200, body = Queue), (status = "default", body = Refused)))]
pub(super) async fn queue(State(house): State<Arc<House>>) -> Result<Json<Queue>, Refusal> {
    let filter = SessionFilter { project: Some(house.path.clone()), status: Status::Live, ..SessionFilter::default() };
    let mut sessions = house.store.sessions(filter).await?;
    sessions.retain(|session| matches!(session.state, SessionState::Queued | SessionState::Woken));
    sessions.sort_by_key(|session| (session.state != SessionState::Woken, session.key));
    let paused = house.store.paused_agents(house.path.clone()).await?;
    let (all, agents): (Vec<String>, Vec<String>) = paused.into_iter().partition(String::is_empty);
    let sessions = sessions.into_iter().map(Into::into).collect();
    Ok(Json(Queue { sessions, paused: !all.is_empty(), paused_agents: agents }))
}

/// Lists the locks that are held.
#[utoipa::path(get, path = "/locks", responses((status = 200, body = Locks), (status = "default", body = Refused)))]
pub(super) async fn locks(State(house): State<Arc<House>>) -> Result<Json<Locks>, Refusal> {
    let locks = house.store.locks(Some(house.path.clone())).await?;
    Ok(Json(Locks { locks: locks.into_iter().map(Into::into).collect() }))
}

/// Lists the sessions that wait for a trigger.
#[utoipa::path(get, path = "/waits", responses((status = 200, body = Waits), (status = "default", body = Refused)))]
pub(super) async fn waits(State(house): State<Arc<House>>) -> Result<Json<Waits>, Refusal> {
    let waits = house.store.waits(Some(house.path.clone()), 0).await?;
    Ok(Json(Waits { waits: waits.into_iter().map(Into::into).collect() }))
}

/// Lists the calls that have no answer yet.
#[utoipa::path(get, path = "/calls", responses((status = 200, body = Calls), (status = "default", body = Refused)))]
pub(super) async fn calls(State(house): State<Arc<House>>) -> Result<Json<Calls>, Refusal> {
    let calls = house.store.calls(Some(house.path.clone())).await?;
    Ok(Json(Calls { calls: calls.into_iter().map(Into::into).collect() }))
}

/// How much of the inbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Newest {
    /// Most events.
    limit: Option<usize>,
}

/// Lists the newest events from outside.
#[utoipa::path(get, path = "/inbox", params(Newest),
    responses((status = 200, body = Inbox), (status = "default", body = Refused)))]
pub(super) async fn inbox(
    State(house): State<Arc<House>>,
    Query(newest): Query<Newest>,
) -> Result<Json<Inbox>, Refusal> {
    let limit = newest.limit.unwrap_or(MAX_INBOX).min(MAX_INBOX);
    let events = house.store.inbox(house.path.clone(), limit).await?;
    Ok(Json(Inbox { events: events.into_iter().map(Into::into).collect() }))
}

/// Who is paused.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Whom {
    /// This agent; the whole project when absent.
    #[serde(default)]
    pub(super) agent: Option<String>,
}

/// Gives no slot to new sessions of an agent, or of the project, until it is unpaused. Those at work go on.
#[utoipa::path(post, path = "/pause", request_body = Whom,
    responses((status = 204), (status = "default", body = Refused)))]
pub(super) async fn pause(State(house): State<Arc<House>>, body: Bytes) -> Result<StatusCode, Refusal> {
    set_paused(&house, &body, true).await
}

/// Gives slots again.
#[utoipa::path(post, path = "/unpause", request_body = Whom,
    responses((status = 204), (status = "default", body = Refused)))]
pub(super) async fn unpause(State(house): State<Arc<House>>, body: Bytes) -> Result<StatusCode, Refusal> {
    set_paused(&house, &body, false).await
}

async fn set_paused(house: &House, body: &[u8], paused: bool) -> Result<StatusCode, Refusal> {
    let Whom { agent } = if body.is_empty() { Whom::default() } else { refusal::read(body)? };
    if let Some(agent) = agent.as_ref().filter(|_| paused) {
        let names = house.project.agent_names();
        if !names.contains(agent) {
            let hint = format!("the project has {}", names.join(", "));
            return Err(Failure::usage(format!("no agent {agent:?}"), hint).into());
        }
    }
    house.store.pause_agent(house.path.clone(), agent, paused).await?;
    house.desk.nudge().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes no new work; whoever serves ends when the call trees at work have come to their ends.
#[utoipa::path(post, path = "/drain", responses((status = 202), (status = "default", body = Refused)))]
pub(super) async fn drain(State(house): State<Arc<House>>) -> Result<StatusCode, Refusal> {
    house.desk.drain().await?;
    Ok(StatusCode::ACCEPTED)
}

/// Looks for work now.
#[utoipa::path(post, path = "/nudge", responses((status = 202), (status = "default", body = Refused)))]
pub(super) async fn nudge(State(house): State<Arc<House>>) -> Result<StatusCode, Refusal> {
    house.desk.nudge().await?;
    Ok(StatusCode::ACCEPTED)
}
