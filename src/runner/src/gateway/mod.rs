//! The control API: how other processes of the same user speak to whoever serves a project.
//!
//! HTTP over a Unix socket (`docs/api.md`). What can be read is read from the store; what a dispatcher has to know is
//! asked of it through [`Control`]. A request is one connection: it has deadlines, a largest size, and no second request
//! behind it. Nothing here decides who runs, and nothing here is needed for a session to go on.

mod client;
mod connection;
mod control;
mod events;
mod fleet;
mod refusal;
mod sessions;
mod socket;
mod views;

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Json, Router, middleware};
use tokio::net::UnixListener;
use tokio::sync::Mutex;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::fleet::WaitIndex;
use crate::project::Project;
use crate::store::{Session, Store, StoreError};

use connection::Deadlines;

pub use client::Client;
pub use control::{Control, CopyIn, CopyOut, NewStart};
pub use events::{Emitted, NewEmit, source};
pub use socket::{SocketError, bind};
pub use views::Health;

/// Most bytes of a request's body, unless it brings an event.
const MAX_BODY: usize = 2 * 1024 * 1024;

/// Most bytes of an event: GitHub's webhooks have at most 25 MB.
const MAX_EVENT: usize = 25 * 1024 * 1024;

/// Answers requests until `shutdown`, and then those that have begun; must run on a `LocalSet`, as `control` does.
pub async fn serve(
    listener: UnixListener,
    control: Rc<dyn Control>,
    store: Arc<dyn Store>,
    project: Project,
    shutdown: impl Future<Output = ()>,
) {
    serve_within(Deadlines::USUAL, listener, control, store, project, shutdown).await;
}

async fn serve_within(
    deadlines: Deadlines,
    listener: UnixListener,
    control: Rc<dyn Control>,
    store: Arc<dyn Store>,
    project: Project,
    shutdown: impl Future<Output = ()>,
) {
    let (desk, orders) = control::desk();
    let house = House { path: project.root.display().to_string(), store, project, desk, index: Mutex::default() };
    tokio::select! {
        () = connection::accept(listener, router(house), deadlines, shutdown) => {}
        // Ends when nobody can ask any more.
        () = control::answer(&*control, orders) => {}
    }
}

/// What the handlers work on.
struct House {
    store: Arc<dyn Store>,
    project: Project,
    /// The project's identity in the store.
    path: String,
    desk: control::Desk,
    /// For events that come in here; the dispatcher has one of its own.
    index: Mutex<WaitIndex>,
}

impl House {
    /// Finds a session of this project.
    async fn session(&self, id: &str) -> Result<Session, StoreError> {
        // Every session begins with nothing.
        if !id.is_empty() {
            let session = self.store.session(id).await?;
            if session.project == self.path {
                return Ok(session);
            }
        }
        Err(StoreError::UnknownSession { id: id.to_owned() })
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "runner",
    description = "The control API of `runner serve`.",
    license(identifier = "MIT OR Apache-2.0")
))]
struct Api;

fn router(house: House) -> Router {
    let events = OpenApiRouter::new().routes(routes!(events::emit)).layer(DefaultBodyLimit::max(MAX_EVENT));
    let api = OpenApiRouter::new()
        .routes(routes!(fleet::health))
        .routes(routes!(sessions::start, sessions::list))
        .routes(routes!(sessions::show))
        .routes(routes!(sessions::journal))
        .routes(routes!(sessions::stop))
        .routes(routes!(sessions::kill))
        .routes(routes!(fleet::queue))
        .routes(routes!(fleet::locks))
        .routes(routes!(fleet::waits))
        .routes(routes!(fleet::calls))
        .routes(routes!(fleet::inbox))
        .routes(routes!(fleet::pause))
        .routes(routes!(fleet::unpause))
        .routes(routes!(fleet::drain))
        .routes(routes!(fleet::nudge))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .merge(events);
    let (router, description) = OpenApiRouter::with_openapi(Api::openapi()).nest("/api/v1", api).split_for_parts();
    let description = async move || Json(description);
    router
        .route("/api/v1/openapi.json", get(description))
        .layer(middleware::map_response(refusal::in_json))
        .with_state(Arc::new(house))
}
