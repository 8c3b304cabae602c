//! The state directory and the records in it: can they be used?

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::Finding;
use crate::state::{Place, State, StateError};
use crate::store::{SessionFilter, SqliteStore, Store};

/// What was found, and what can be used of it.
pub(super) struct Seen {
    pub(super) finding: Finding,
    pub(super) store_finding: Finding,
    pub(super) state: Option<State>,
    pub(super) store: Option<Arc<dyn Store>>,
}

pub(super) async fn examine() -> Seen {
    let (finding, state) = match directory() {
        Ok((finding, state)) => (finding, Some(state)),
        Err(error) => (Finding::from_error("state", &error), look_anyway()),
    };
    let (store_finding, store) = match &state {
        Some(state) => store(state).await,
        None => (Finding::skipped("store", "not looked at: the state directory cannot be used"), None),
    };
    Seen { finding, store_finding, state, store }
}

/// Opens the directory as commands that drive sessions do, which closes it to others if it was open.
fn directory() -> Result<(Finding, State), StateError> {
    const CHECK: &str = "state";
    let root = Place::from_environment().directory()?;
    let before = std::fs::symlink_metadata(&root).map(|found| found.permissions().mode() & 0o777).ok();
    let state = State::open_at(&root)?;
    let shown = root.display();
    let finding = match before {
        None => Finding::fine(CHECK, format!("{shown} was made")),
        // A link to it has a mode that means nothing.
        Some(0o700 | 0o777) => {
            Finding::fine(CHECK, format!("{shown} is yours, closed to others, and can be executed from"))
        }
        Some(mode) => Finding::warning(
            CHECK,
            format!("{shown} had mode {mode:04o}, so that others could look inside; it has 0700 again"),
            "see who changed it",
        ),
    };
    Ok((finding, state))
}

/// A directory that cannot be driven from may still be read.
fn look_anyway() -> Option<State> {
    let root = Place::from_environment().directory().ok()?;
    root.join("token").exists().then(State::open_to_look)?.ok()
}

async fn store(state: &State) -> (Finding, Option<Arc<dyn Store>>) {
    const CHECK: &str = "store";
    let store: Arc<dyn Store> = match SqliteStore::open_to_look(state.root()) {
        Ok(store) => Arc::new(store),
        Err(error) => return (Finding::from_error(CHECK, &error), None),
    };
    match store.sessions(SessionFilter::default()).await {
        Ok(sessions) => {
            let size = std::fs::metadata(state.root().join("store.db")).map_or(0, |found| found.len());
            let live = sessions.iter().filter(|session| session.end.is_none()).count();
            let seen = format!(
                "schema {}, {} sessions ({live} not ended), {} KiB",
                SqliteStore::schema(),
                sessions.len(),
                size >> 10
            );
            (Finding::fine(CHECK, seen), Some(store))
        }
        Err(error) => (Finding::from_error(CHECK, &error), None),
    }
}
