//! Removes what sessions left behind and puts our own files in order. Only what is ours: by the install's token and the
//! name or the folder that it belongs to, by owner and by name. Settings of engine and machine are never touched.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use nix::unistd::geteuid;

use super::Usable;
use super::leftovers::Leftovers;
use crate::sandbox::engine::Engine;
use crate::session::owner::Owner;
use crate::session::recovery::{OnEngine, recover};
use crate::state::State;
use crate::store::Store;

/// Does it, and says what was done or could not be, a sentence each.
pub(super) async fn fix(state: &State, store: Option<&Arc<dyn Store>>, engine: Option<&Usable>) -> Vec<String> {
    let mut done = Vec::new();
    folders_and_modes(state, &mut done);
    if let (Some(store), Some(usable)) = (store, engine) {
        recover_sessions(state, store, &usable.engine, &mut done).await;
    }
    // After that: what recovery removed is gone, and what it left alone is looked at again.
    let left = Leftovers::find(state, store, engine).await;
    if let Some(usable) = engine {
        for id in &left.latecomers {
            let ended = usable.engine.end(id).await.map_err(|error| error.to_string());
            note(&mut done, ended, &format!("container {id} of a finished session"));
        }
        for (id, session) in &left.containers {
            if let Some(ended) = end_ownerless(&usable.engine, state, id, session).await {
                note(&mut done, ended, &format!("container {id} of session {session}, which the store does not know"));
            }
        }
        for session in left.folders.iter().chain(&left.finished_folders) {
            // A container that is still there needs its folder.
            let needed = usable.engine.list_by_token(state.token()).await;
            if needed.is_ok_and(|all| all.iter().all(|container| container.session != *session)) {
                let path = state.session_folder(session);
                note(&mut done, remove_folder(&path), &format!("folder {}", path.display()));
            }
        }
    }
    for path in left.toolboxes.iter().chain(&left.unfinished) {
        let removed = fs::remove_file(path).map_err(|error| error.to_string());
        note(&mut done, removed, &path.display().to_string());
    }
    done
}

fn note(done: &mut Vec<String>, result: Result<(), String>, what: &str) {
    done.push(match result {
        Ok(()) => format!("removed {what}"),
        Err(why) => format!("could not remove {what}: {why}"),
    });
}

/// What every command that drives sessions does first.
async fn recover_sessions(state: &State, store: &Arc<dyn Store>, engine: &Engine, done: &mut Vec<String>) {
    let me = match Owner::claim(state) {
        Ok(me) => me,
        Err(error) => return done.push(format!("could not recover sessions: {error}")),
    };
    match recover(store, state, &me, &OnEngine::new(engine.clone(), state)).await {
        Ok(recovered) => {
            done.extend(recovered.ended.iter().map(|id| format!("ended session {id}, whose runner had died")));
            done.extend(recovered.cleaned.iter().map(|id| format!("removed what session {id} had left")));
        }
        Err(error) => done.push(format!("could not recover sessions: {error}")),
    }
}

/// Ends a container that carries our token, when it is proven to be ours by what no label says: its /app is the folder
/// that this state directory has for its session. Others are left alone.
async fn end_ownerless(engine: &Engine, state: &State, id: &str, session: &str) -> Option<Result<(), String>> {
    let found = engine.inspect(id).await.ok()?;
    let folder = state.session_folder(session);
    let mounts = found.whole.mounts.iter().flatten();
    let ours = mounts
        .filter(|mount| mount.destination.as_deref() == Some("/app"))
        .any(|mount| mount.source.as_deref().is_some_and(|source| Path::new(source) == folder));
    if !ours {
        return None;
    }
    Some(engine.end(&found.id).await.map_err(|error| error.to_string()))
}

/// Links inside are removed, never followed.
fn remove_folder(path: &Path) -> Result<(), String> {
    let found = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err("it is not a folder of yours".to_owned());
    }
    fs::remove_dir_all(path).map_err(|error| error.to_string())
}

/// The folders that must be there, and the modes of our own files.
fn folders_and_modes(state: &State, done: &mut Vec<String>) {
    for name in ["sessions", "owners"] {
        let path = state.root().join(name);
        let before = fs::symlink_metadata(&path).ok();
        if before.as_ref().is_some_and(|found| found.is_dir() && found.mode() & 0o7777 == 0o700) {
            continue;
        }
        done.push(match (state.folder(name), before) {
            (Ok(path), None) => format!("made {}", path.display()),
            (Ok(path), Some(_)) => format!("closed {} to others", path.display()),
            (Err(error), _) => format!("could not make {}: {error}", path.display()),
        });
    }
    for name in ["token", "store.db", "store.db-wal", "store.db-shm", "store.lock", "runner.log", "runner.log.old"] {
        let path = state.root().join(name);
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if !found.is_file() || found.uid() != geteuid().as_raw() || found.mode() & 0o7777 == 0o600 {
            continue;
        }
        done.push(match fs::set_permissions(&path, fs::Permissions::from_mode(0o600)) {
            Ok(()) => format!("closed {} to others: its mode was {:04o}", path.display(), found.mode() & 0o7777),
            Err(error) => format!("could not close {} to others: {error}", path.display()),
        });
    }
}
