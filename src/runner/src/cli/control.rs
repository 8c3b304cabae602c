//! What `runner serve` does when it is asked to over its socket.

use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::json;

use super::driving::Sessions;
use super::start::admit;
use crate::dispatch::Dispatch;
use crate::exit::Failure;
use crate::gateway::{Control, NewStart};
use crate::model::PromptParts;
use crate::project::Project;
use crate::session::begin::{self, Order};
use crate::session::life::Means;

/// The dispatcher of this process, and what its sessions are made with.
pub(super) struct Steward {
    pub(super) dispatch: Rc<Dispatch<Sessions>>,
    pub(super) means: Rc<Means>,
    pub(super) project: Rc<Project>,
}

impl Control for Steward {
    fn start(&self, new: NewStart) -> LocalBoxFuture<'_, Result<String, Failure>> {
        async move {
            let agent = self.project.agent_on(&new.agent, &new.models)?;
            admit(&agent)?;
            let order = Order {
                parts: PromptParts { task: new.task, trigger: json!({"type": "manual"}), params: agent.params.clone() },
                copy_in: new.copy_in.into_iter().map(|copy| (copy.from, copy.to)).collect(),
                copy_out: new.copy_out.into_iter().map(|copy| (copy.from, copy.to)).collect(),
                keep: new.keep,
                models: new.models,
            };
            let (session, started) = begin::begin(&self.project, &agent, order, self.means.owner.id())?;
            let id = session.id.clone();
            self.means.store.create_session(session, started).await?;
            self.dispatch.nudge();
            Ok(id)
        }
        .boxed_local()
    }

    fn nudge(&self) {
        self.dispatch.nudge();
    }

    fn drain(&self) {
        tracing::info!(sessions = self.dispatch.at_work(), "finishing; no new work is taken");
        self.dispatch.drain();
    }
}
