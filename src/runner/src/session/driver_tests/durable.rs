//! What a session shares with others, and how it goes on: waits, locks, leaving, taking over.

use super::*;

fn tool(id: &str, tool: &str, args: Value) -> Value {
    json!({"id": id, "tool": tool, "args": args})
}

fn lock(id: &str, resource: &str) -> Value {
    tool(id, "acquire_lock", json!({"resource_key": resource}))
}

fn wait(id: &str) -> Value {
    tool(id, "wait_for_trigger", json!({"type": "webhook", "event": "push"}))
}

/// An event that wakes whoever waits for a push.
async fn push(world: &World) {
    let event = NewInboxEvent {
        project: "/p".to_owned(),
        source: "hub".to_owned(),
        event: "push".to_owned(),
        fields: json!({"repo": "acme/app"}),
        raw: json!({}),
    };
    let event = world.store.accept(event).await.unwrap();
    let waits = world.store.waits(Some("/p".to_owned()), 0).await.unwrap();
    world.store.wake(event, waits.iter().map(|wait| wait.id).collect()).await.unwrap();
}

/// S-3: transport calls run at once, scheduler calls beside them one by one, and a wait when all others have ended;
/// results come in the order asked.
#[test]
fn calls_of_a_turn_keep_their_order() {
    test(|| async {
        let mut world = World::new().await;
        let calls = [
            wait("w"),
            lock("a", "lock://one"),
            bash("b", "later 1"),
            tool("r", "release_lock", json!({"resource_key": "lock://one"})),
            lock("c", "lock://two"),
        ];
        let turns = json!([
            {"calls": calls, "expect": {
                "a": {"contains": "\"acquired\":true"}, "r": {"contains": "\"released\":true"},
                "c": {"contains": "\"acquired\":true"}, "w": {"contains": "acme/app"}}},
            {"text": "${b.text}"}
        ]);
        assert_eq!(world.drive(turns.clone()).await, Stop::Suspended);
        let journal = world.journal().await;
        let at =
            |line: &str| journal.iter().position(|seen| seen.starts_with(line)).unwrap_or_else(|| panic!("{line}"));
        assert!(at("finished s/1/1") < at("started s/1/3") && at("finished s/1/3") < at("started s/1/4"));
        assert!(at("finished s/1/4") < at("finished s/1/2"), "they did not wait for the slow command: {journal:?}");
        assert!(at("finished s/1/2") < at("started s/1/0") && at("started s/1/0") < at("suspended"));
        push(&world).await;
        world.claim().await;
        finish_wait(&world).await;
        assert_eq!(ended_of(world.drive(turns).await), conclusion(EndCause::Done, "the agent is done", "1"));
    });
}

/// Answers the call that waited as the driver's start does.
async fn finish_wait(world: &World) {
    assert!(crate::session::drive::answer_wait(&world.store, world.seat).await.unwrap());
}

/// S-WAIT-11: a second wait of the same turn begins when the first is over.
#[test]
fn waits_of_one_turn_come_one_after_the_other() {
    test(|| async {
        let mut world = World::new().await;
        let turns = json!([{"calls": [wait("a"), wait("b")]}, {"text": "both"}]);
        for _ in 0..2 {
            assert_eq!(world.drive(turns.clone()).await, Stop::Suspended);
            push(&world).await;
            world.claim().await;
            finish_wait(&world).await;
        }
        assert_eq!(world.run(turns).await.text, "both");
        let kinds: Vec<String> =
            world.journal().await.iter().map(|line| line.split(' ').next().unwrap().into()).collect();
        let wait = ["started", "suspended", "resumed", "finished"];
        assert_eq!(kinds, [&["assistant"][..], &wait, &wait, &["assistant"]].concat());
    });
}

/// S-2: a scheduler call whose line is in the journal is not made again, one without is.
#[test]
fn a_scheduler_call_is_made_once_whatever_happens() {
    test(|| async {
        let mut world = World::new().await;
        let turns = json!([{"calls": [lock("a", "lock://one"), bash("b", "sleep")]}, {"text": "${a.text}"}]);
        let dies = async {
            while world.hands.running.get() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            stop = world.drive(turns) => panic!("{stop:?}"),
            () = dies => {}
        }
        world.take_over().await;
        let turns = json!([{"calls": [lock("a", "lock://one"), bash("b", "say x")]}, {"text": "${a.text}"}]);
        world.run(turns).await;
        let journal = world.journal().await;
        let grants = journal.iter().filter(|line| line.starts_with("finished s/1/0")).count();
        assert_eq!(grants, 1, "{journal:?}");
        assert_eq!(world.store.locks(None).await.unwrap().len(), 1);
    });
}

/// A runner that leaves lets its calls go on in the container, and the next one takes them up: nothing ends.
#[test]
fn a_runner_that_leaves_cancels_nothing() {
    test(|| async {
        let mut world = World::new().await;
        let turns = json!([{"calls": [bash("a", "sleep"), wait("w")]}, {"text": "done"}]);
        let leave = world.signals.leave.clone();
        let leaves = async {
            while world.hands.running.get() == 0 {
                tokio::task::yield_now().await;
            }
            leave.cancel();
        };
        let (stop, ()) = tokio::join!(world.drive(turns), leaves);
        assert_eq!(stop, Stop::Left);
        assert!(world.hands.let_go.get());
        assert_eq!(world.journal().await, ["assistant 1 \"\" 2 calls", "started s/1/0"]);
        world.take_over().await;
        world.signals = Signals::default();
        world.signals.leave.cancel();
        assert_eq!(world.drive(json!([{"text": "not asked"}])).await, Stop::Left);
    });
}

/// What is asked of a model is void when the runner leaves: it is asked again.
#[test]
fn a_runner_leaves_in_mid_thought() {
    test(|| async {
        let mut world = World::new().await;
        world.signals.leave.cancel();
        assert_eq!(world.drive(json!([{"text": "hello"}])).await, Stop::Left);
        assert_eq!(world.journal().await, Vec::<String>::new());
        world.signals = Signals::default();
        assert_eq!(world.run(json!([{"text": "hello"}])).await.text, "hello");
    });
}

/// A runner died after the last turn and before the end: the session is done, and the model is not asked again.
#[test]
fn a_last_turn_is_the_last() {
    test(|| async {
        let mut world = World::new().await;
        let turns = json!([{"text": "bye"}, {"text": "again"}]);
        assert_eq!(world.run(turns.clone()).await.text, "bye");
        world.take_over().await;
        assert_eq!(world.run(turns).await.text, "bye");
        assert_eq!(world.journal().await.len(), 1);
    });
}

/// What PID 1 keeps of a call is forgotten when its result is in the journal.
#[test]
fn settled_calls_are_forgotten() {
    test(|| async {
        let world = World::new().await;
        world.run(json!([{"calls": [bash("a", "say x"), bash("b", "say y")]}, {"text": "bye"}])).await;
        assert_eq!(*world.hands.forgotten.borrow(), ["s/1/0", "s/1/1"]);
    });
}

/// Who kills does not wait for the calls.
#[test]
fn a_kill_waits_for_nothing() {
    test(|| async {
        let world = World::new().await;
        let request = async {
            while world.hands.running.get() == 0 {
                tokio::task::yield_now().await;
            }
            world.store.request_stop(world.key, "somebody".to_owned(), StopHow::Kill).await.unwrap();
        };
        let (end, ()) = tokio::join!(world.run(json!([{"calls": [bash("a", "sleep")]}])), request);
        assert_eq!(end, conclusion(EndCause::Killed, "killed by somebody", ""));
        assert_eq!(end.cause.exit_code(), 125);
        assert_eq!(world.journal().await.len(), 2, "no result was waited for");
    });
}

/// S-LOCK-6: whoever lost a lock is told at the next call, also when another process makes it.
#[test]
fn a_lost_lock_is_told_at_the_next_call() {
    test(|| async {
        let mut world = World::new().await;
        let short = tool("a", "acquire_lock", json!({"resource_key": "lock://one", "ttl_seconds": 0.001}));
        let turns = json!([{"calls": [short]}, {"calls": [bash("b", "later x")]}, {"calls": [bash("c", "say y")]}, {"text": "${b.text}|${c.text}"}]);
        let end = world.run(turns).await;
        assert_eq!(end.text, "[your lock of lock://one/ has expired: somebody else may hold it now]\nx|y");
        world.take_over().await;
        let events = load(&*world.store, world.key).await.unwrap();
        let held = Held::default();
        for event in &events {
            if let Event::ToolFinished(finished) = event {
                held.note(&finished.details);
            }
        }
        assert_eq!(held.lost(&*world.store).await.unwrap(), None, "it has been told");
    });
}
