//! What commands that drive sessions open first.

use std::sync::Arc;

use crate::exit::Failure;
use crate::observe::logging::{self, Destination};
use crate::sandbox::engine::Engine;
use crate::session::life::Means;
use crate::session::owner::Owner;
use crate::session::progress::{Progress, Watcher};
use crate::session::recovery::{OnEngine, recover};
use crate::state::State;
use crate::store::{SqliteStore, Store};

/// Opens the state directory, the engine and the store, and cleans up after runners that died.
pub(super) async fn open(watcher: &dyn Watcher) -> Result<Means, Failure> {
    let state = State::open()?;
    let filter = std::env::var(logging::VARIABLE).ok();
    logging::init(Destination::Folder(state.root()), filter.as_deref())
        .map_err(|error| Failure::new(crate::exit::USAGE, &error))?;
    let engine = Engine::connect(None).await?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state.root())?);
    let owner = Arc::new(Owner::claim(&state)?);
    let recovered = recover(&store, &state, &owner, &OnEngine::new(engine.clone(), &state)).await?;
    for session in &recovered.ended {
        let message = format!("session {session} was ended and cleaned up: its runner had died");
        watcher.see(&Progress::Note { message: &message });
    }
    for problem in &recovered.problems {
        watcher.see(&Progress::Note { message: problem });
    }
    Ok(Means { state, store, owner, engine })
}
