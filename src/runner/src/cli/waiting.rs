//! What is shown of a session while nobody drives it: that it is queued or waits, and for what.

use std::borrow::Cow;

use nix::unistd::{Uid, User};
use serde_json::Value;

use crate::project::Project;
use crate::session::progress::{Progress, Watcher};
use crate::store::{Session, SessionFilter, SessionState, Status, Store, StoreError, Wait, Woken};

/// Shows once why a session is queued, and again when the reason changes.
#[derive(Default)]
pub(super) struct Queue {
    shown: Option<String>,
}

impl Queue {
    /// Looks at a session, and says why it is queued if it is.
    pub(super) async fn show(
        &mut self,
        store: &dyn Store,
        session: &Session,
        watcher: &dyn Watcher,
    ) -> Result<(), StoreError> {
        if session.state != SessionState::Queued {
            return Ok(());
        }
        let why = reason(store, session).await?;
        if why.is_some() && why != self.shown {
            let words = why.as_deref().unwrap_or_default();
            watcher.see(&Progress::Queued { session: &session.id, agent: &session.agent, why: words });
            self.shown = why;
        }
        Ok(())
    }
}

/// Why a queued session has no slot; nothing when it is about to get one.
async fn reason(store: &dyn Store, session: &Session) -> Result<Option<String>, StoreError> {
    let paused = store.paused_agents(session.project.clone()).await?;
    if paused.iter().any(String::is_empty) {
        return Ok(Some("the project is paused; `runner unpause` lets it go on".to_owned()));
    }
    if paused.contains(&session.agent) {
        return Ok(Some(format!("agent {0} is paused; `runner unpause {0}` lets it go on", session.agent)));
    }
    let filter =
        SessionFilter { project: Some(session.project.clone()), status: Status::Live, ..SessionFilter::default() };
    let live = store.sessions(filter).await?;
    // It may have got a slot since it was looked at.
    if !live.iter().any(|other| other.key == session.key && other.state == SessionState::Queued) {
        return Ok(None);
    }
    let active = || live.iter().filter(|other| other.slotted && other.state == SessionState::Active);
    // As it is written now; a dispatcher goes by what was written when it began.
    let Ok(project) = Project::open(std::path::Path::new(&session.project)) else { return Ok(None) };
    let scale = project.agent_scales().get(&session.agent).copied().unwrap_or(project.fleet().agent_scale);
    let of_agent = active().filter(|other| other.agent == session.agent).count();
    if of_agent >= scale as usize {
        return Ok(Some(format!(
            "{of_agent} of at most {scale} sessions of agent {} are at work (its `scale`)",
            session.agent
        )));
    }
    let mut trees: Vec<_> = active().map(|other| other.root).collect();
    trees.sort_unstable();
    trees.dedup();
    Ok(project
        .fleet()
        .scale
        .filter(|scale| trees.len() >= *scale as usize && !trees.contains(&session.root))
        .map(|scale| format!("{} of at most {scale} call trees of the project are at work (its `scale`)", trees.len())))
}

/// Shows that a session waits.
pub(super) fn show_wait(session: &str, wait: &Wait, watcher: &dyn Watcher) {
    watcher.see(&Progress::Waiting { session, on: &wait.words, deadline: wait.deadline });
}

/// What made a session that waited go on, in words.
pub(super) fn woken(wait: &Wait) -> Cow<'static, str> {
    match &wait.woken {
        Some(Woken::Trigger(trigger)) => words(trigger).into_owned().into(),
        Some(Woken::Timeout) => "nothing came in time".into(),
        None => "a slot is free".into(),
    }
}

/// A trigger, or another reason to go on, in words.
pub(super) fn words(by: &Value) -> Cow<'_, str> {
    let text = |name: &str| by.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("type"), text("kind")) {
        ("webhook", _) => format!("{} {} came", text("source"), text("event")).into(),
        ("agent_trigger", "call") => format!("{} called it", text("source_agent")).into(),
        ("agent_trigger", _) => format!("{} answered", text("source_agent")).into(),
        ("timeout", _) => "nothing came in time".into(),
        ("" | "slot", _) => "it has a slot again".into(),
        (other, _) => other.replace('_', " ").into(),
    }
}

/// Shows the recorded end of a session; `text` is what its model said last.
pub(super) fn show_end(session: &Session, text: &str, watcher: &dyn Watcher) {
    let Some((end, _)) = &session.end else { return };
    watcher.see(&Progress::Ended {
        session: &session.id,
        cause: &end.cause,
        exit_code: end.exit_code,
        message: &end.message,
        text,
        sandbox_removed: end.sandbox_removed,
    });
}

/// Who asks, for the record.
pub(super) fn who() -> String {
    let uid = Uid::current();
    User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}
