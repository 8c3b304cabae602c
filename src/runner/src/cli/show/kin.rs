//! A session's place among others: who called it, whom it called, and its whole call tree.

use std::io;

use serde_json::{Value, json};

use super::super::calls;
use super::super::ps::short;
use super::super::records::{Records, RecordsError};
use super::super::table;
use super::Fields;
use crate::store::{CallRecord, Session, SessionFilter};

/// Sessions of the same call tree, and calls without an answer.
pub(super) struct Kin {
    parent: Option<Session>,
    root: Option<Session>,
    children: Vec<(Session, String)>,
    /// Sessions of the tree, itself included.
    size: usize,
    tokens: u64,
    max_tokens: Option<u64>,
    made: Vec<CallRecord>,
    served: Vec<CallRecord>,
}

impl Kin {
    pub(super) async fn of(records: &Records, session: &Session) -> Result<Kin, RecordsError> {
        let store = &records.store;
        let filter = SessionFilter { tree: Some(session.root), ..SessionFilter::default() };
        let tree = store.sessions(filter).await?;
        let (tokens, max_tokens) = store.tree_tokens(session.key).await?;
        let (mut made, mut served) = (Vec::new(), Vec::new());
        for call in store.calls(Some(session.project.clone())).await? {
            if call.caller == session.key {
                made.push(call);
            } else if call.session == session.id {
                served.push(call);
            }
        }
        let mut children = Vec::new();
        // Newest first in the store, and in the order of the calls here.
        for child in tree.iter().rev().filter(|other| other.parent.as_ref() == Some(&session.id)) {
            let wait = match child.end {
                Some(_) => None,
                None => store.wait_of(child.key).await?,
            };
            let condition = records.condition(child, wait.as_ref())?;
            children.push((child.clone(), condition.words()));
        }
        let parent = tree.iter().find(|other| session.parent.as_ref() == Some(&other.id)).cloned();
        let root = tree.iter().find(|other| other.key == session.root).cloned();
        Ok(Kin { parent, root, children, size: tree.len(), tokens, max_tokens, made, served })
    }

    pub(super) fn add_to(&self, value: &mut Value) {
        let child = |(child, state): &(Session, String)| json!({"session": child.id, "agent": child.agent, "state": state, "tokens": child.tokens});
        value["tree"] = json!({
            "root": self.root.as_ref().map(|root| &root.id),
            "sessions": self.size,
            "tokens": self.tokens,
            "max_tokens": self.max_tokens,
        });
        value["called"] = self.children.iter().map(child).collect();
        value["calls_made"] = self.made.iter().map(calls::object).collect();
        value["calls_served"] = self.served.iter().map(calls::object).collect();
    }

    pub(super) fn write(&self, fields: &mut Fields<'_>) -> io::Result<()> {
        if let Some(parent) = &self.parent {
            fields.write("called by", &format!("{} {}", parent.agent, parent.id))?;
        }
        if self.size > 1 || self.max_tokens.is_some() {
            let most = self.max_tokens.map(|most| format!(" of at most {most}")).unwrap_or_default();
            let root = self.root.as_ref().map_or("", |root| short(&root.id));
            let sessions = table::count(self.size as u64, "session");
            fields.write("tree", &format!("{sessions} below and with {root}, {} tokens{most}", self.tokens))?;
        }
        let mut called: Vec<String> =
            self.children.iter().map(|(child, state)| format!("{} {}: {state}", child.agent, child.id)).collect();
        let delivered = self.made.iter().filter(|call| call.delivered);
        called.extend(delivered.map(|call| format!("{} {}: {}", call.target_agent, call.session, calls::words(call))));
        if !called.is_empty() {
            fields.write("called", &called.join("\n"))?;
        }
        let served: Vec<String> =
            self.served.iter().map(|call| format!("{} {}", call.caller_agent, call.caller_session)).collect();
        if !served.is_empty() {
            fields.write("serves", &served.join("\n"))?;
        }
        Ok(())
    }
}
