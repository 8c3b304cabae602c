//! What a dispatcher offers to those who speak to it, and how handlers reach it.
//!
//! Handlers may be moved between threads, as axum wants it; a dispatcher stays on its own. So they leave their orders at a
//! desk, and whoever is on the dispatcher's thread takes them one by one.

use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

use crate::exit::Failure;

/// Orders that wait to be taken; whoever has more of them waits.
const MAX_WAITING: usize = 64;

/// What a dispatcher does when it is asked to.
pub trait Control {
    /// Records a new session, queued, and returns its id. What is refused has the CLI's words and exit code.
    fn start(&self, new: NewStart) -> LocalBoxFuture<'_, Result<String, Failure>>;

    /// Looks at the store now, and not when it hears of the change.
    fn nudge(&self);

    /// Takes no new call trees, and ends when those at work have come to their ends.
    fn drain(&self);
}

/// A session that is to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStart {
    /// Name of an agent of the project, or the absolute path of an agent's folder.
    pub agent: String,
    /// What it is to do.
    #[serde(default)]
    pub task: Option<String>,
    /// Models of the project that it thinks with instead of its own.
    #[serde(default)]
    pub models: Vec<String>,
    /// What is copied into its sandbox first.
    #[serde(default)]
    pub copy_in: Vec<CopyIn>,
    /// What is copied out of its sandbox at the end.
    #[serde(default)]
    pub copy_out: Vec<CopyOut>,
    /// Leave the sandbox when the session ends.
    #[serde(default)]
    pub keep: bool,
}

/// What is copied into a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyIn {
    /// The absolute path of a file or folder of this machine.
    #[schema(value_type = String)]
    pub from: PathBuf,
    /// A path below `/tmp` of the sandbox.
    pub to: String,
}

/// What is copied out of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyOut {
    /// A path below `/tmp` of the sandbox.
    pub from: String,
    /// The absolute path of a folder of this machine.
    #[schema(value_type = String)]
    pub to: PathBuf,
}

/// What was ordered.
pub(super) enum Order {
    Start(NewStart, oneshot::Sender<Result<String, Failure>>),
    Nudge,
    Drain,
}

/// Where orders are left.
pub(super) struct Desk(mpsc::Sender<Order>);

pub(super) fn desk() -> (Desk, mpsc::Receiver<Order>) {
    let (send, receive) = mpsc::channel(MAX_WAITING);
    (Desk(send), receive)
}

impl Desk {
    pub(super) async fn start(&self, new: NewStart) -> Result<String, Failure> {
        let (answer, answered) = oneshot::channel();
        self.leave(Order::Start(new, answer)).await?;
        answered.await.map_err(|_| going_down())?
    }

    pub(super) async fn nudge(&self) -> Result<(), Failure> {
        self.leave(Order::Nudge).await
    }

    pub(super) async fn drain(&self) -> Result<(), Failure> {
        self.leave(Order::Drain).await
    }

    async fn leave(&self, order: Order) -> Result<(), Failure> {
        self.0.send(order).await.map_err(|_| going_down())
    }
}

fn going_down() -> Failure {
    let hint = Some("ask again when it is up".to_owned());
    Failure { code: 1, message: "the runner that serves this project is going down".to_owned(), hint }
}

/// Does what is ordered, until nobody can order any more.
pub(super) async fn answer(control: &dyn Control, mut orders: mpsc::Receiver<Order>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Start(new, answer) => {
                // Whoever has gone away meanwhile finds the session in the list.
                let _ = answer.send(control.start(new).await);
            }
            Order::Nudge => control.nudge(),
            Order::Drain => control.drain(),
        }
    }
}
