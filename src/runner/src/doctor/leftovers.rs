//! What sessions left behind: containers, folders and files that nobody needs any more.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;

use super::{Finding, Usable};
use crate::embedded::TOOLBOX_SHA256;
use crate::session::owner;
use crate::session::recovery::{goes_on, is_finished};
use crate::state::State;
use crate::store::{SessionFilter, SessionState, Status, Store, StoreError};

/// A file that is being written is younger.
const UNFINISHED: Duration = Duration::from_hours(1);

/// What is left.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Sessions without a mind whose runner died, or whose sandbox could not be removed: recovery removes what they have.
    pub(super) sessions: Vec<String>,
    /// Sandboxes that were kept on purpose and run.
    pub(super) kept: usize,
    /// Sessions whose runner died or left, and that go on with the next one: no leftovers.
    pub(super) going_on: usize,
    /// Containers with our token of a session that the store does not know, and their sessions.
    pub(super) containers: Vec<(String, String)>,
    /// Containers with our token of sessions that were cleaned up before they appeared.
    pub(super) latecomers: Vec<String>,
    /// Folders of sessions that the store does not know.
    pub(super) folders: Vec<String>,
    /// Folders of sessions that are finished.
    pub(super) finished_folders: Vec<String>,
    /// Programs for containers that no session has and no runner of this version uses.
    pub(super) toolboxes: Vec<PathBuf>,
    /// Files whose writer died.
    pub(super) unfinished: Vec<PathBuf>,
    /// What could not be looked at.
    pub(super) unseen: Vec<String>,
}

pub(super) async fn examine(state: Option<&State>, store: Option<&Arc<dyn Store>>, engine: Option<&Usable>) -> Finding {
    const CHECK: &str = "leftovers";
    let Some(state) = state else {
        return Finding::skipped(CHECK, "not looked at: the state directory cannot be used");
    };
    let left = Leftovers::find(state, store, engine).await;
    let mut seen = left.sentences();
    let nothing = seen.is_empty();
    if nothing {
        seen.push("none".to_owned());
    }
    if left.going_on > 0 {
        let how = "`runner serve` or `runner resume` goes on with them";
        seen.push(format!("{} × session whose runner is gone ({how})", left.going_on));
    }
    if left.kept > 0 {
        seen.push(format!("{} kept on purpose (`runner ps --all`)", left.kept));
    }
    seen.extend(left.unseen.iter().cloned());
    let seen = seen.join("; ");
    if nothing {
        Finding::fine(CHECK, seen)
    } else {
        Finding::warning(CHECK, seen, "remove them: `runner doctor --fix`")
    }
}

impl Leftovers {
    /// Looks for them; what cannot be looked at is said.
    pub(super) async fn find(state: &State, store: Option<&Arc<dyn Store>>, engine: Option<&Usable>) -> Leftovers {
        let mut left = Leftovers::default();
        left.find_files(state);
        // Before the store is read: a folder and a container are made after their session was recorded.
        let folders = state.session_folders().unwrap_or_default();
        let containers = if let Some(usable) = engine {
            usable.engine.list_by_token(state.token()).await.unwrap_or_else(|error| {
                left.unseen.push(format!("containers were not looked at: {error}"));
                Vec::new()
            })
        } else {
            left.unseen.push("containers were not looked at: no engine can be used".to_owned());
            Vec::new()
        };
        let Some(store) = store else {
            left.unseen.push("sessions were not looked at: the store cannot be read".to_owned());
            return left;
        };
        let running: BTreeSet<&str> =
            containers.iter().filter(|found| found.alive).map(|found| found.session.as_str()).collect();
        let filter = SessionFilter { status: Status::Unfinished, ..SessionFilter::default() };
        for session in store.sessions(filter).await.unwrap_or_default() {
            if owner::is_alive(state, &session.owner).unwrap_or(true) {
                continue;
            }
            if goes_on(&session) {
                // One that is queued or waits needs no runner now.
                left.going_on += usize::from(session.state == SessionState::Active);
            } else if session.end.is_some()
                && session.keep
                && (engine.is_none() || running.contains(session.id.as_str()))
            {
                left.kept += 1;
            } else {
                left.sessions.push(session.id);
            }
        }
        for found in containers {
            match known(store, &found.session).await {
                Known::Unknown if is_id(&found.session) => left.containers.push((found.id, found.session)),
                Known::Finished => left.latecomers.push(found.id),
                _ => {}
            }
        }
        for id in folders {
            match known(store, &id).await {
                Known::Unknown if is_id(&id) => left.folders.push(id),
                Known::Finished if state.session_folder(&id).exists() => left.finished_folders.push(id),
                _ => {}
            }
        }
        left
    }

    /// Files beside the sessions: only ours, by name and owner, and never a link.
    fn find_files(&mut self, state: &State) {
        let current = format!("toolbox-{TOOLBOX_SHA256}");
        for entry in std::fs::read_dir(state.root()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let Ok(found) = entry.metadata() else { continue };
            if !found.is_file() || found.uid() != geteuid().as_raw() {
                continue;
            }
            let age = found.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            let old = age.is_some_and(|age| age > UNFINISHED);
            if name != current && name.strip_prefix("toolbox-").is_some_and(is_hash) && found.nlink() == 1 {
                self.toolboxes.push(entry.path());
            } else if name.strip_prefix(".new-").is_some_and(|rest| rest.len() == 32) && old {
                self.unfinished.push(entry.path());
            }
        }
        self.toolboxes.sort();
    }

    fn sentences(&self) -> Vec<String> {
        [
            (self.sessions.len(), "session whose runner died or whose sandbox is still there"),
            (self.containers.len() + self.latecomers.len(), "container of no live session"),
            (self.folders.len() + self.finished_folders.len(), "folder of no live session"),
            (self.toolboxes.len(), "superseded toolbox file"),
            (self.unfinished.len(), "unfinished file"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} × {what}"))
        .collect()
    }
}

/// What the store knows of a session.
enum Known {
    Unknown,
    /// It ended and nothing of it is left to do.
    Finished,
    /// It is somebody's, or nothing could be found out.
    Other,
}

async fn known(store: &Arc<dyn Store>, id: &str) -> Known {
    match store.session(id).await {
        Ok(session) if session.id == id && is_finished(&session) => Known::Finished,
        Ok(session) if session.id == id => Known::Other,
        Ok(_) | Err(StoreError::UnknownSession { .. } | StoreError::Ambiguous { .. }) => Known::Unknown,
        Err(_) => Known::Other,
    }
}

/// True for the ids of sessions: anything else may lead out of the folder of sessions.
fn is_id(id: &str) -> bool {
    uuid::Uuid::try_parse(id).is_ok() && id.len() == 36
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
