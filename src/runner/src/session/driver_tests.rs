//! The loop against a scripted model, a real store and hands that live in memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::{BashEnd, End, Outcome, Request};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::calls::Caller;
use super::conversation;
use super::drive::Signals;
use super::driver::{Conclusion, Driver, LoopLimits, Stop};
use super::held::Held;
use super::journal::{EndCause, Event, Journal, Started, load};
use super::progress::{Progress, Watcher};
use crate::fleet::{Member, Newcomers, NoNewcomer, Rules};
use crate::model::script::ScriptModel;
use crate::model::{AssistantTurn, FailKind, Message, Model, ModelError, ModelEvent, PromptParts, TurnRequest};
use crate::sandbox::limits::{Limits, Wanted};
use crate::sandbox::{CallError, Gone, GoneKind, Reply, ToolCall};
use crate::store::{
    Generation, Lines, NewEvent, NewInboxEvent, NewSession, OwnerId, Place, Scope, Seat, SessionKey, Slots,
    SqliteStore, StopHow, Store,
};
use crate::tools::{Hands, Registry, ToolSession};
use futures_util::future::LocalBoxFuture;

mod durable;

/// Hands whose commands are a little language: `say X`, `sleep` (until cancelled), `die`, `later X` (after 50 ms).
#[derive(Default)]
struct Fake {
    gone: CancellationToken,
    running: Cell<usize>,
    most_running: Cell<usize>,
    /// What the journal held when each call began.
    journal_at_begin: RefCell<Vec<(String, Vec<String>)>>,
    store: Option<(Arc<dyn Store>, SessionKey)>,
    /// Calls that are forgotten, and whether they go on without their callers.
    forgotten: RefCell<Vec<String>>,
    let_go: Cell<bool>,
}

fn ended(end: End, output: &str) -> Reply {
    let end = BashEnd {
        end,
        head: output.len() as u64,
        total_bytes: output.len() as u64,
        total_lines: 1,
        omitted_bytes: 0,
        omitted_lines: 0,
        kept: None,
        kept_is_cut: false,
        full: None,
        duration_ms: 1,
    };
    reply(Outcome::Bash(end), output.as_bytes())
}

fn reply(outcome: Outcome, payload: &[u8]) -> Reply {
    Reply { outcome, payload: payload.to_vec(), streamed: Vec::new(), oom: false, pids: false }
}

fn died() -> Gone {
    Gone { kind: GoneKind::Died, message: "its container died".to_owned() }
}

impl Fake {
    async fn answer(&self, call: ToolCall) -> Result<Reply, CallError> {
        if let Some((store, key)) = &self.store {
            let events = store.events(*key, 0, 1000).await.unwrap();
            let kinds = events.iter().map(|row| row.kind.clone()).collect();
            self.journal_at_begin.borrow_mut().push((call.key.clone(), kinds));
        }
        let body = String::from_utf8(call.body.to_vec()).unwrap();
        match call.request {
            Request::Bash { .. } => {}
            Request::Ls { .. } => {
                let path = "/tmp".to_owned();
                return Ok(reply(Outcome::Listing { path, shown: 0, total: 0 }, b"[]"));
            }
            other => panic!("{other:?} is not asked for in these tests"),
        }
        match body.split_once(' ').unwrap_or((&body, "")) {
            ("say", text) => Ok(ended(End::Exited(0), text)),
            ("later", text) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(ended(End::Exited(0), text))
            }
            ("sleep", _) => tokio::select! {
                () = call.cancel.cancelled() => Ok(ended(End::Cancelled, "so far\n")),
                () = tokio::time::sleep(call.timeout) => Ok(ended(End::TimedOut, "so far\n")),
            },
            ("die", _) => {
                self.gone.cancel();
                Err(CallError::Gone(died()))
            }
            other => panic!("no command {other:?}"),
        }
    }
}

impl Hands for Fake {
    fn call(&self, call: ToolCall) -> LocalBoxFuture<'_, Result<Reply, CallError>> {
        Box::pin(async move {
            self.running.set(self.running.get() + 1);
            self.most_running.set(self.most_running.get().max(self.running.get()));
            let answer = self.answer(call).await;
            self.running.set(self.running.get() - 1);
            answer
        })
    }

    fn gone(&self) -> LocalBoxFuture<'_, Gone> {
        Box::pin(async {
            self.gone.cancelled().await;
            died()
        })
    }

    fn other_shell(&self) -> Option<String> {
        None
    }

    fn forget(&self, key: &str) {
        self.forgotten.borrow_mut().push(key.to_owned());
    }

    fn let_go(&self) {
        self.let_go.set(true);
    }
}

/// Remembers what it sees as `event name`.
#[derive(Default)]
struct Eyes(RefCell<Vec<String>>);

impl Watcher for Eyes {
    fn see(&self, progress: &Progress<'_>) {
        let seen = serde_json::to_value(progress).unwrap();
        let name = seen["key"].as_str().or(seen["error"].as_str()).unwrap_or_default();
        self.0.borrow_mut().push(format!("{} {name}", seen["event"].as_str().unwrap()).trim_end().to_owned());
    }
}

/// One session in a store of its own.
struct World {
    _folder: tempfile::TempDir,
    store: Arc<dyn Store>,
    key: SessionKey,
    hands: Fake,
    eyes: Eyes,
    signals: Signals,
    seat: Seat,
    newcomers: Arc<dyn Newcomers>,
    settings: (Duration, u64, Option<u64>),
}

/// Every agent can be called.
struct Anybody;

impl Newcomers for Anybody {
    fn session(&self, agent: &str, trigger: Value) -> Result<(NewSession, NewEvent), NoNewcomer> {
        let started = Event::Started(Started { trigger, ..Started::default() }).to_row();
        Ok((new_session(&format!("called-{agent}"), agent, None), started))
    }
}

fn new_session(id: &str, agent: &str, max_tokens: Option<u64>) -> NewSession {
    NewSession {
        id: id.to_owned(),
        project: "/p".to_owned(),
        agent: agent.to_owned(),
        owner: me(),
        container: None,
        keep: false,
        place: Place { queue: Some(10), max_tokens },
    }
}

fn me() -> OwnerId {
    OwnerId { id: "me".to_owned(), host: "here".to_owned() }
}

impl World {
    async fn new() -> Self {
        Self::limited(None).await
    }

    async fn limited(max_tokens: Option<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path()).unwrap());
        let started = Event::Started(Started::default()).to_row();
        let key = store.create_session(new_session("s", "a", max_tokens), started).await.unwrap();
        let hands = Fake { store: Some((Arc::clone(&store), key)), ..Fake::default() };
        let mut world = Self {
            _folder: folder,
            store,
            key,
            hands,
            eyes: Eyes::default(),
            signals: Signals::default(),
            seat: Seat { key, generation: Generation::FIRST },
            newcomers: Arc::new(Anybody),
            settings: (Duration::from_mins(1), 100, max_tokens),
        };
        world.claim().await;
        world
    }

    /// Gives the session a slot, first or after a wait.
    async fn claim(&mut self) {
        let slots = Slots { trees: None, agents: BTreeMap::new(), others: 9 };
        let claimed = self.store.claim("/p".into(), slots, Scope::Project, me(), "c".into(), Lines::none()).await;
        let session = claimed.unwrap().expect("a session waits for a slot").session;
        assert_eq!(session.key, self.key);
        self.seat.generation = session.generation;
    }

    /// The runner died; another one takes the session over.
    async fn take_over(&mut self) {
        self.seat.generation = self.store.take_over(self.key, self.seat.generation, me()).await.unwrap();
        self.hands.gone = CancellationToken::new();
    }

    async fn run(&self, turns: Value) -> Conclusion {
        ended_of(self.drive(turns).await)
    }

    async fn run_on(&self, model: &dyn Model) -> Conclusion {
        ended_of(self.drive_on(model).await)
    }

    async fn drive(&self, turns: Value) -> Stop {
        self.drive_on(&ScriptModel::parse(&json!({"turns": turns}).to_string()).unwrap()).await
    }

    /// Drives the session from where its journal is.
    async fn drive_on(&self, model: &dyn Model) -> Stop {
        let journal = Journal::new(Arc::clone(&self.store), self.key, self.seat.generation);
        let events = load(&*self.store, self.key).await.unwrap();
        let told = conversation::of("s", &events);
        let registry = Registry::session();
        let limits = Limits::resolve(&Wanted::default(), 1).unwrap();
        let tools = ToolSession::new(Duration::from_secs(20), limits, true);
        let held = Held::default();
        for event in &events {
            if let Event::ToolFinished(finished) = event {
                held.note(&finished.details);
            }
        }
        let rules = Rules {
            lock_timeout: Duration::from_secs(60),
            wait_timeout: Duration::from_secs(60),
            max_suspended: 9,
            max_call_depth: 3,
            sources: vec![("hub".to_owned(), "github".to_owned())],
        };
        let member = Member {
            store: Arc::clone(&self.store),
            seat: self.seat,
            session: "s".to_owned(),
            agent: "a".to_owned(),
            project: "/p".to_owned(),
            rules,
            newcomers: Arc::clone(&self.newcomers),
        };
        let caller = Caller {
            session: "s",
            journal: &journal,
            registry: &registry,
            hands: &self.hands,
            tools: &tools,
            watcher: &self.eyes,
            member: Some(&member),
            held: &held,
        };
        let (timeout, max_turns, max_tokens) = self.settings;
        let deadline = tokio::time::Instant::now() + timeout;
        let limits = LoopLimits { deadline, timeout, max_turns, max_tokens };
        let parts = PromptParts { task: Some("the task".to_owned()), ..PromptParts::default() };
        let request = TurnRequest { parts, messages: told.messages, ..TurnRequest::default() };
        let driver = Driver {
            caller,
            model,
            limits,
            request,
            room: told.room,
            turn: told.turns,
            open: told.open,
            said: told.said,
            since: told.since,
            signals: &self.signals,
        };
        driver.run().await
    }

    /// The journal after its first line, each event as its kind and what distinguishes it.
    async fn journal(&self) -> Vec<String> {
        self.store.flush(self.key).await.unwrap();
        let events = load(&*self.store, self.key).await.unwrap();
        let line = |event: &Event| match event {
            Event::Assistant(turn) => format!("assistant {} {:?} {} calls", turn.turn, turn.text, turn.calls.len()),
            Event::ToolStarted(started) => format!("started {}", started.key),
            Event::ToolFinished(end) => {
                let cause = end.cause.as_deref().unwrap_or("ok");
                format!("finished {} {cause}: {}", end.key, end.text.replace('\n', "|"))
            }
            other => other.kind().to_owned(),
        };
        events.iter().skip(1).map(line).collect()
    }
}

fn ended_of(stop: Stop) -> Conclusion {
    match stop {
        Stop::End(conclusion) => conclusion,
        other => panic!("it did not end: {other:?}"),
    }
}

fn test<F: Future<Output = ()>>(body: impl FnOnce() -> F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body());
}

fn bash(id: &str, command: &str) -> Value {
    json!({"id": id, "tool": "bash", "args": {"command": command}})
}

fn conclusion(cause: EndCause, message: &str, text: &str) -> Conclusion {
    Conclusion { cause, message: message.to_owned(), text: text.to_owned() }
}

#[test]
fn a_session_from_first_turn_to_last() {
    test(|| async {
        let world = World::new().await;
        let turns = json!([{"text": "first", "calls": [bash("a", "say ${task}")]}, {"text": "it said ${a.text}"}]);
        let end = world.run(turns).await;
        assert_eq!(end, conclusion(EndCause::Done, "the agent is done", "it said the task"));
        assert_eq!(
            world.journal().await,
            [
                "assistant 1 \"first\" 1 calls",
                "started s/1/0",
                "finished s/1/0 ok: the task",
                "assistant 2 \"it said the task\" 0 calls",
            ]
        );
        assert_eq!(
            *world.eyes.0.borrow(),
            ["thinking", "writing", "text", "tool_started s/1/0", "tool_finished s/1/0", "thinking", "writing", "text"]
        );
    });
}

/// T-8: calls of a turn run at once, and their results come in the order asked, not in that of their ends.
#[test]
fn calls_of_a_turn_run_at_once_and_answer_in_order() {
    test(|| async {
        let world = World::new().await;
        let calls = [bash("a", "later 1"), bash("b", "say 2"), json!({"id": "c", "tool": "ls"}), bash("d", "later 4")];
        let turns = json!([{"calls": calls}, {"text": "${a.text}${b.text}${d.text}"}]);
        assert_eq!(world.run(turns).await.text, "124");
        assert!(world.hands.most_running.get() >= 2);
        let finished: Vec<String> =
            world.eyes.0.borrow().iter().filter(|seen| seen.starts_with("tool_finished")).cloned().collect();
        assert_eq!(finished.len(), 4);
        assert_ne!(finished[0], "tool_finished s/1/0", "the slow one did not hold up the others");
    });
}

/// The intent of a call with effects is in the journal before it begins, together with the turn that asked for it.
#[test]
fn intents_are_durable_before_effects() {
    test(|| async {
        let world = World::new().await;
        world.run(json!([{"calls": [bash("a", "say x")]}])).await;
        let kinds = ["started", "assistant", "tool_started"].map(str::to_owned).to_vec();
        assert_eq!(*world.hands.journal_at_begin.borrow(), [("s/1/0".to_owned(), kinds)]);
    });
}

#[test]
fn unknown_tools_and_broken_arguments_go_back_to_the_model() {
    test(|| async {
        let world = World::new().await;
        let turns = json!([
            {"calls": [{"id": "a", "tool": "shell"}, {"id": "b", "tool": "bash", "args": {"cmd": 1}}],
             "expect": {"a": {"is_error": true, "contains": "there is no tool \"shell\""}, "b": {"is_error": true}}},
            {"text": "recovered"}
        ]);
        assert_eq!(world.run(turns).await, conclusion(EndCause::Done, "the agent is done", "recovered"));
        let journal = world.journal().await;
        assert!(journal.iter().any(|line| line.starts_with("finished s/1/0 not_found: ")), "{journal:?}");
        assert!(journal.iter().any(|line| line.starts_with("finished s/1/1 invalid: ")), "{journal:?}");
    });
}

#[test]
fn turns_and_tokens_are_limited() {
    test(|| async {
        let mut world = World::new().await;
        world.settings.1 = 2;
        let forever = json!([{"calls": [bash("a", "say x")], "repeat": {"until": {"a.text": "y"}}}]);
        let end = world.run(forever).await;
        assert_eq!(end, conclusion(EndCause::MaxTurns, "the limit of 2 turns was reached", ""));

        let world = World::limited(Some(100)).await;
        let turn = |id: &str| json!({"calls": [bash(id, "say x")], "usage": {"input": 40, "output": 10}});
        let end = world.run(json!([turn("a"), turn("b"), turn("c")])).await;
        assert_eq!(end, conclusion(EndCause::MaxTokens, "the limit of 100 tokens was reached: 100 were used", ""));
        assert_eq!(world.journal().await.len(), 4, "the calls of the turn that went over are not made");
    });
}

/// bug 7: a command that lasts longer than the session ends by its own limit and keeps its output; the session ends
/// then.
#[test]
fn the_inner_limit_comes_first() {
    test(|| async {
        let mut world = World::new().await;
        world.settings.0 = Duration::from_secs(1);
        let end = world.run(json!([{"text": "wait", "calls": [bash("a", "sleep")]}, {"text": "late"}])).await;
        assert_eq!(end, conclusion(EndCause::Timeout, "the session's time of 1 s was up", "wait"));
        let journal = world.journal().await;
        assert!(journal[2].starts_with("finished s/1/0 timeout: so far|[timed out after "), "{journal:?}");
        assert!(journal[2].ends_with(" s (all that the session had left)]"), "{journal:?}");
    });
}

#[test]
fn a_slow_model_is_ended_by_the_sessions_time() {
    test(|| async {
        let mut world = World::new().await;
        world.settings.0 = Duration::from_millis(300);
        let slow = json!({"until": {"a.text": "y"}, "everyMs": 60_000});
        let end = world.run(json!([{"calls": [bash("a", "say x")], "repeat": slow}])).await;
        assert_eq!(end.cause, EndCause::Timeout);
    });
}

/// bug 5: Ctrl-C in mid-command ends the command; its result says cancelled and is in the journal.
#[test]
fn an_interrupted_command_is_cancelled_and_recorded() {
    test(|| async {
        let world = World::new().await;
        let interrupt = world.signals.interrupt.clone();
        let ctrl_c = async {
            while world.hands.running.get() == 0 {
                tokio::task::yield_now().await;
            }
            interrupt.cancel();
        };
        let (end, ()) = tokio::join!(world.run(json!([{"calls": [bash("a", "sleep")]}])), ctrl_c);
        assert_eq!(end, conclusion(EndCause::Interrupted, "Ctrl-C or a signal ended it", ""));
        assert_eq!(world.journal().await[2], "finished s/1/0 cancelled: so far|[cancelled]");
    });
}

#[test]
fn a_stop_request_ends_the_session() {
    test(|| async {
        let world = World::new().await;
        let request = async {
            while world.hands.running.get() == 0 {
                tokio::task::yield_now().await;
            }
            world.store.request_stop(world.key, "somebody".to_owned(), StopHow::Orderly).await.unwrap();
        };
        let (end, ()) = tokio::join!(world.run(json!([{"calls": [bash("a", "sleep")]}])), request);
        assert_eq!(end, conclusion(EndCause::Stopped, "stopped by somebody", ""));
        assert_eq!(world.journal().await[2], "finished s/1/0 cancelled: so far|[cancelled]");
    });
}

#[test]
fn a_lost_sandbox_ends_the_session_with_its_cause() {
    test(|| async {
        let world = World::new().await;
        let end = world.run(json!([{"calls": [bash("a", "die")]}, {"text": "not said"}])).await;
        assert_eq!(end, conclusion(EndCause::SandboxLost, "the sandbox is gone: its container died", ""));
    });
}

#[test]
fn a_failed_model_is_never_a_success() {
    test(|| async {
        let world = World::new().await;
        let end = world.run(json!([{"calls": [bash("a", "say x")]}, {"text": "${a.nothing}"}])).await;
        let why = "turn 2 of the script: `${a.nothing}` has no value: the result is not JSON";
        assert_eq!(end, conclusion(EndCause::Model, why, ""));
        let end = World::new().await.run(json!([{"fail": {"kind": "auth"}}])).await;
        assert_eq!((end.cause, end.cause.exit_code()), (EndCause::Model, 4));
    });
}

/// A model with a small window: it fails while the conversation holds more bytes than that.
struct Narrow {
    script: ScriptModel,
    window: usize,
    asked: Cell<usize>,
}

impl Model for Narrow {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        self.asked.set(self.asked.get() + 1);
        let size = |message: &Message| match message {
            Message::Results(results) => results.iter().map(|result| result.text.len()).sum(),
            Message::Assistant(_) => 0,
        };
        if request.messages.iter().map(size).sum::<usize>() <= self.window {
            return self.script.turn(request, events, cancel);
        }
        Box::pin(async { Err(ModelError::new(FailKind::ContextLength, "prompt is too long")) })
    }

    fn takes_images(&self) -> bool {
        false
    }
}

fn narrow(window: usize, turns: &Value) -> Narrow {
    let script = ScriptModel::parse(&json!({"turns": turns}).to_string()).unwrap();
    Narrow { script, window, asked: Cell::new(0) }
}

/// M-ROOM-1, M-ROOM-3: old outputs make room, oldest first, until the conversation fits; the journal has the originals
/// and says what was removed.
#[test]
fn a_conversation_that_is_too_long_is_shortened() {
    test(|| async {
        let world = World::new().await;
        let say = |id: &str| json!({"calls": [bash(id, &format!("say {}", id.repeat(1000)))]});
        let turns = json!([say("a"), say("b"), say("c"), say("d"), {"text": "${d.text}"}]);
        let model = narrow(2500, &turns);
        let end = world.run_on(&model).await;
        assert_eq!(end, conclusion(EndCause::Done, "the agent is done", &"d".repeat(1000)));
        assert_eq!(model.asked.get(), 7, "two of five turns were asked for twice");
        let said = "retry prompt is too long; 1 old output with 1000 bytes removed to make room";
        assert_eq!(world.eyes.0.borrow().iter().filter(|seen| *seen == said).count(), 2);
        let events = load(&*world.store, world.key).await.unwrap();
        let informed: Vec<&Value> = events
            .iter()
            .filter_map(|event| match event {
                Event::Informed(informed) if informed.source == "context" => Some(&informed.content),
                _ => None,
            })
            .collect();
        assert_eq!(
            informed,
            [&json!({"removed": ["s/1/0"], "bytes": 1000}), &json!({"removed": ["s/2/0"], "bytes": 1000})]
        );
        assert!(world.journal().await.contains(&format!("finished s/1/0 ok: {}", "a".repeat(1000))));
    });
}

/// M-ROOM-4: a conversation that does not fit even so ends the session with the reason, after few requests.
#[test]
fn a_conversation_that_cannot_fit_ends_the_session() {
    test(|| async {
        let world = World::new().await;
        let calls: Vec<Value> = (0..40).map(|n| bash(&format!("c{n}"), &format!("say {}", "x".repeat(500)))).collect();
        let turns = json!([{"calls": calls}, {"calls": [bash("a", &format!("say {}", "y".repeat(30_000)))]}]);
        let model = narrow(25_000, &turns);
        let end = world.run_on(&model).await;
        let why =
            "the conversation is longer than the model takes, and no old output is left to remove: prompt is too long";
        assert_eq!(end, conclusion(EndCause::Model, why, ""));
        assert_eq!(end.cause.exit_code(), 4);
        assert_eq!(model.asked.get(), 2 + 1 + 6, "halves five times, then the rest");
        let world = World::new().await;
        let end = world.run(json!([{"fail": {"kind": "context_length", "times": 99}}])).await;
        assert_eq!(end.cause, EndCause::Model);
    });
}

/// A driver whose session was taken over stops before the next effect.
#[test]
fn a_fenced_driver_stops() {
    test(|| async {
        let world = World::new().await;
        let other = OwnerId { id: "other".to_owned(), host: "here".to_owned() };
        world.store.take_over(world.key, world.seat.generation, other).await.unwrap();
        let stop = world.drive(json!([{"calls": [bash("a", "say x")]}])).await;
        assert_eq!(stop, Stop::Fenced);
        assert!(world.hands.journal_at_begin.borrow().is_empty(), "nothing was done");
    });
}
