//! The control API over a real socket, with a real store and a scripted dispatcher.

mod api;
mod hostile;
mod requests;
mod sockets;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::dispatch::seat;
use crate::exit::Failure;
use crate::state::State;
use crate::store::{
    Lines, NewEvent, NewSession, OwnerId, Place, Scope, Seat, Session, Slots, SqliteStore, WaitOn, WaitRequest,
};
use crate::trigger::Filter;

/// A dispatcher that starts sessions of any agent but `nobody`.
struct Scripted {
    store: Arc<dyn Store>,
    project: String,
    asked: RefCell<Vec<NewStart>>,
    told: Cell<Told>,
    /// Starts of the agent `slow` wait for it.
    go: Notify,
}

/// How often it was told something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    nudges: u32,
    drains: u32,
}

impl Control for Scripted {
    fn start(&self, new: NewStart) -> LocalBoxFuture<'_, Result<String, Failure>> {
        Box::pin(async move {
            self.asked.borrow_mut().push(new.clone());
            match new.agent.as_str() {
                "nobody" => return Err(Failure::usage("no agent \"nobody\"", "the project has a")),
                "untrusted" => {
                    let message = "the image is not trusted".to_owned();
                    return Err(Failure { code: crate::exit::POLICY, message, hint: None });
                }
                "slow" => self.go.notified().await,
                _ => {}
            }
            Ok(queue(&*self.store, &self.project, &new.agent).await.id)
        })
    }

    fn nudge(&self) {
        let told = self.told.get();
        self.told.set(Told { nudges: told.nudges + 1, ..told });
    }

    fn drain(&self) {
        let told = self.told.get();
        self.told.set(Told { drains: told.drains + 1, ..told });
    }
}

/// A project that is served.
struct Stage {
    folder: tempfile::TempDir,
    state: State,
    store: Arc<dyn Store>,
    control: Rc<Scripted>,
    project: String,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    seat: seat::Seat,
}

/// Runs a test on a served project.
async fn staged(deadlines: Deadlines, test: impl AsyncFnOnce(Stage)) {
    LocalSet::new().run_until(async { test(Stage::new(deadlines)).await }).await;
}

impl Stage {
    fn new(deadlines: Deadlines) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state.root()).unwrap());
        let root = folder.path().join("project");
        std::fs::create_dir_all(root.join("agents/a")).unwrap();
        std::fs::write(root.join("agents/a/SKILL.md"), "---\nname: a\ndescription: d\n---\nDo it.\n").unwrap();
        std::fs::write(
            root.join("config.toml"),
            "[webhooks.github]\ntype = \"github\"\n[webhooks.app]\ntype = \"sentry\"\n[webhooks.one]\ntype = \"generic\"\n\
             [webhooks.two]\ntype = \"generic\"\n",
        )
        .unwrap();
        let loaded = Project::open(&root).unwrap();
        let project = loaded.root.display().to_string();
        let control = Rc::new(Scripted {
            store: Arc::clone(&store),
            project: project.clone(),
            asked: RefCell::default(),
            told: Cell::default(),
            go: Notify::new(),
        });
        let seat = seat::Seat::claim(&state, &project).unwrap();
        let listener = bind(&seat).unwrap();
        let shutdown = CancellationToken::new();
        let served = serve_within(
            deadlines,
            listener,
            Rc::clone(&control) as Rc<dyn Control>,
            Arc::clone(&store),
            loaded,
            shutdown.clone().cancelled_owned(),
        );
        let serving = spawn_local(served);
        Stage { folder, state, store, control, project, shutdown, serving, seat }
    }

    fn socket(&self) -> PathBuf {
        self.seat.folder().join("control.sock")
    }

    async fn client(&self) -> Client {
        Client::find(&self.state, &self.project).await.unwrap().unwrap()
    }

    /// Sends bytes and reads until the other end closes.
    async fn raw(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// Asks as curl would; returns the status and the JSON of the answer.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let head = format!("{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        parse(&self.raw(&(head + body)).await)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Waits until the dispatcher has done what it was asked: it answers in the order in which it hears.
    async fn heard(&self) {
        self.client().await.start(&NewStart { agent: "a".to_owned(), ..NewStart::default() }).await.unwrap();
    }

    async fn queue(&self, agent: &str) -> Session {
        queue(&*self.store, &self.project, agent).await
    }

    /// A session that waits for a pull request of this repository.
    async fn waiting(&self, agent: &str, repo: &str) -> Session {
        let session = self.queue(agent).await;
        let slots = Slots { trees: None, agents: BTreeMap::new(), others: 100 };
        let scope = Scope::Trees(vec![session.root]);
        let claimed = self.store.claim(self.project.clone(), slots, scope, owner(), "c".to_owned(), Lines::none());
        let session = claimed.await.unwrap().unwrap().session;
        let wait = WaitRequest {
            call: format!("{}/1/0", session.id),
            on: WaitOn::Webhook {
                sources: vec!["github".to_owned()],
                event: Some("pull_request".to_owned()),
                filter: Filter::parse(&json!({"repo": repo})).unwrap(),
            },
            timeout: 60_000,
            since: 0,
            most: 50,
            words: "a pull request".to_owned(),
        };
        let seat = Seat { key: session.key, generation: session.generation };
        self.store.wait(seat, wait, Lines::none()).await.unwrap();
        session
    }
}

fn parse(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() })
}

fn owner() -> OwnerId {
    OwnerId { id: "o".to_owned(), host: "h".to_owned() }
}

async fn queue(store: &dyn Store, project: &str, agent: &str) -> Session {
    let session = NewSession {
        id: Uuid::now_v7().to_string(),
        project: project.to_owned(),
        agent: agent.to_owned(),
        owner: owner(),
        container: None,
        keep: false,
        place: Place { queue: Some(100), max_tokens: None },
    };
    let id = session.id.clone();
    let started = NewEvent { kind: "started".into(), body: "{\"task\":\"x\"}".to_owned(), ..NewEvent::default() };
    store.create_session(session, started).await.unwrap();
    store.session(&id).await.unwrap()
}
