//! Retries and fallback, with time that passes only when everything waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use proptest::prelude::*;
use secrecy::SecretString;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::fallback::{Entry, Fallback};
use super::retry::{ATTEMPTS, PATIENCE, Retrying};
use super::tests::{request, run};
use super::*;

/// A model that answers from a queue, and then for ever that it is overloaded.
#[derive(Default)]
struct Fake {
    name: &'static str,
    answers: RefCell<VecDeque<Result<&'static str, ModelError>>>,
    /// Every request that came, of all fakes that share it, by name.
    asked: Rc<RefCell<Vec<(&'static str, TurnRequest)>>>,
    blind: bool,
}

impl Model for Fake {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        _cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        Box::pin(async move {
            self.asked.borrow_mut().push((self.name, request.clone()));
            let answer = self.answers.borrow_mut().pop_front();
            let text = answer.unwrap_or_else(|| Err(error(FailKind::Overloaded, "busy")))?;
            let _ = events.send(ModelEvent::Text(text.to_owned()));
            Ok(AssistantTurn { text: text.to_owned(), model: self.name.to_owned(), ..AssistantTurn::default() })
        })
    }

    fn takes_images(&self) -> bool {
        !self.blind
    }
}

fn error(kind: FailKind, message: &str) -> ModelError {
    ModelError::new(kind, message)
}

fn later(kind: FailKind, seconds: u64) -> ModelError {
    ModelError { retry_after: Some(Duration::from_secs(seconds)), ..error(kind, "slow down") }
}

/// Asks once; returns the answer's text or the error, what happened on the way, and the time that passed.
fn ask(model: &dyn Model, request: &TurnRequest) -> (Result<String, String>, Vec<String>, Duration) {
    run(async {
        let (events, mut seen) = unbounded_channel();
        let begun = tokio::time::Instant::now();
        let answer = model.turn(request, &events, &CancellationToken::new()).await;
        let answer = answer.map(|turn| turn.text).map_err(|error| format!("{:?}: {error}", error.kind));
        let mut said = Vec::new();
        while let Ok(event) = seen.try_recv() {
            said.push(match event {
                ModelEvent::Text(text) => text,
                ModelEvent::Retry { error, wait } => format!("{error}; again in {wait:?}"),
                ModelEvent::Fallback { from, to, error } => format!("{from} -> {to}: {error}"),
            });
        }
        (answer, said, begun.elapsed())
    })
}

/// The paused clock goes in whole milliseconds, a wait after the other.
const TICKS: Duration = Duration::from_millis(20);

fn about(took: Duration, milliseconds: u64) -> bool {
    took.abs_diff(Duration::from_millis(milliseconds)) < TICKS
}

fn retrying(
    answers: impl IntoIterator<Item = Result<&'static str, ModelError>>,
    jitter: fn(Duration) -> Duration,
) -> Retrying<Fake> {
    let fake = Fake { answers: RefCell::new(answers.into_iter().collect()), ..Fake::default() };
    Retrying::with_jitter(fake, Box::new(jitter))
}

/// M-RETRY-1: what may pass is asked again, later each time, and not for ever.
#[test]
fn waits_double_until_the_last_attempt() {
    let (answer, said, took) = ask(&retrying([], |most| most), &request());
    assert_eq!(answer.unwrap_err(), "Overloaded: busy (asked 6 times)");
    assert_eq!(
        said,
        ["busy; again in 500ms", "busy; again in 1s", "busy; again in 2s", "busy; again in 4s", "busy; again in 8s"]
    );
    assert!(about(took, 15_500), "{took:?}");
    for kind in [FailKind::RateLimit, FailKind::Overloaded, FailKind::Timeout, FailKind::Network] {
        let (answer, ..) = ask(&retrying([Err(error(kind, "x")), Ok("there")], |most| most), &request());
        assert_eq!(answer.as_deref(), Ok("there"), "{kind:?}");
    }
}

/// M-RETRY-1: a server of this machine that is not started does not come by itself.
#[test]
fn a_server_that_is_not_there_is_asked_three_times() {
    let absent = || Err(ModelError { absent: true, ..error(FailKind::Network, "no") });
    let (answer, said, _) = ask(&retrying([absent(), absent(), absent(), absent()], |most| most), &request());
    assert_eq!(answer.unwrap_err(), "Network: no (asked 3 times)");
    assert_eq!(said, ["no; again in 500ms", "no; again in 1s"]);
}

/// M-RETRY-1: what will not pass is not asked again.
#[test]
fn what_cannot_pass_fails_at_once() {
    for kind in [
        FailKind::Auth,
        FailKind::Invalid,
        FailKind::ContextLength,
        FailKind::Refused,
        FailKind::Script,
        FailKind::Cancelled,
    ] {
        let (answer, said, took) = ask(&retrying([Err(error(kind, "no")), Ok("there")], |most| most), &request());
        assert_eq!(answer.unwrap_err(), format!("{kind:?}: no"));
        assert_eq!((said.len(), took), (0, Duration::ZERO));
    }
}

/// M-RETRY-2: a provider that says when is waited for at least that long; one that wants too much has failed.
#[test]
fn retry_after_is_honoured() {
    let model = retrying([Err(later(FailKind::RateLimit, 7)), Ok("there")], |most| most / 2);
    let (answer, said, took) = ask(&model, &request());
    assert_eq!((answer.as_deref(), said[0].as_str()), (Ok("there"), "slow down; again in 7.25s"));
    assert!(about(took, 7250), "{took:?}");
    let (answer, said, took) = ask(&retrying([Err(later(FailKind::RateLimit, 3600))], |_| Duration::ZERO), &request());
    assert_eq!(
        answer.unwrap_err(),
        "RateLimit: slow down (it may be asked again in 3600 s, which is too long to wait)"
    );
    assert_eq!((said.len(), took), (0, Duration::ZERO));
    let forever = ModelError { retry_after: Some(Duration::MAX), ..error(FailKind::Overloaded, "busy") };
    assert!(ask(&retrying([Err(forever)], |most| most), &request()).0.is_err());
    let much = [40, 40, 40].map(|seconds| Err(later(FailKind::Overloaded, seconds)));
    let (answer, said, _) = ask(&retrying(much, |_| Duration::ZERO), &request());
    assert!(answer.unwrap_err().contains("40 s, which is too long to wait") && said.len() == 2, "{said:?}");
}

proptest! {
    /// M-RETRY-1, M-RETRY-2: whatever a provider asks for and chance adds, a turn has its last attempt, and waits no longer
    /// than its patience and no less than it was asked to.
    #[test]
    fn waits_are_bounded(asked in prop::collection::vec(prop::option::of(0u64..200), 0..10), part in 0.0f64..=1.0) {
        let answers = asked.iter().map(|after| Err(match after {
            Some(seconds) => later(FailKind::RateLimit, *seconds),
            None => error(FailKind::Network, "gone"),
        }));
        let fake = Fake { answers: RefCell::new(answers.collect()), ..Fake::default() };
        let counted = Rc::clone(&fake.asked);
        let model = Retrying::with_jitter(fake, Box::new(move |most| most.mul_f64(part)));
        let (answer, said, took) = ask(&model, &request());
        prop_assert!(answer.is_err());
        let attempts = counted.borrow().len();
        prop_assert!(attempts <= ATTEMPTS as usize && said.len() + 1 == attempts);
        prop_assert!(took <= PATIENCE + TICKS, "{:?}", took);
        let least: u64 = asked.iter().take(said.len()).map(|after| after.unwrap_or(0)).sum();
        prop_assert!(took + TICKS >= Duration::from_secs(least), "{:?} < {} s", took, least);
    }
}

/// A list of models that share a record of what they were asked.
struct List {
    model: Fallback,
    asked: Rc<RefCell<Vec<(&'static str, TurnRequest)>>>,
}

impl List {
    fn of(fakes: Vec<Fake>) -> Self {
        let asked = Rc::<RefCell<Vec<_>>>::default();
        let entry = |fake: Fake| Entry {
            name: fake.name.to_owned(),
            identity: fake.name.to_owned(),
            model: Box::new(Retrying::with_jitter(
                Fake { asked: Rc::clone(&asked), ..fake },
                Box::new(|_| Duration::ZERO),
            )),
            key: Some(SecretString::from("sk-secret")),
        };
        Self { model: Fallback::new(fakes.into_iter().map(entry).collect()), asked }
    }

    /// Who was asked, in order.
    fn order(&self) -> String {
        self.asked.borrow().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }
}

fn fake(name: &'static str, answers: impl IntoIterator<Item = Result<&'static str, ModelError>>) -> Fake {
    Fake { name, answers: RefCell::new(answers.into_iter().collect()), ..Fake::default() }
}

/// M-FALL-1: the next of the list is asked when one has failed for good, and it is said.
#[test]
fn the_next_model_is_asked() {
    let list =
        List::of(vec![fake("a", []), fake("b", [Err(error(FailKind::Auth, "no key"))]), fake("c", [Ok("here")])]);
    let (answer, said, _) = ask(&list.model, &request());
    assert_eq!(answer.as_deref(), Ok("here"));
    assert_eq!(said[ATTEMPTS as usize - 1..], ["a -> b: busy (asked 6 times)", "b -> c: no key", "here"]);
    assert_eq!(list.order(), "a a a a a a b c");
    let hour = [Err(later(FailKind::RateLimit, 3600))];
    let list = List::of(vec![fake("a", hour), fake("b", [Ok("here")])]);
    assert_eq!(ask(&list.model, &request()).2, Duration::ZERO, "nobody waits an hour while another model is there");
}

/// M-FALL-1: when all have failed, the last one's failure is the turn's.
#[test]
fn the_last_failure_is_the_turns() {
    let list = List::of(vec![
        fake("a", [Err(error(FailKind::Refused, "no"))]),
        fake("b", [Err(error(FailKind::Invalid, "not so"))]),
    ]);
    let (answer, said, _) = ask(&list.model, &request());
    assert_eq!(answer.unwrap_err(), "Invalid: not so (as the last of 2 models)");
    assert_eq!(said, ["a -> b: no"]);
    let list = List::of(vec![fake("a", [Err(error(FailKind::Auth, "no"))])]);
    assert_eq!(ask(&list.model, &request()).0.unwrap_err(), "Auth: no");
}

/// M-FALL-2: what another model cannot mend does not fall over.
#[test]
fn some_failures_stay_where_they_are() {
    for kind in [FailKind::ContextLength, FailKind::Script, FailKind::Cancelled] {
        let list = List::of(vec![fake("a", [Err(error(kind, "no"))]), fake("b", [Ok("here")])]);
        assert_eq!(ask(&list.model, &request()).0.unwrap_err(), format!("{kind:?}: no"));
        assert_eq!(list.order(), "a");
    }
}

/// M-FALL-3: who answered last goes on, also in a new process; the others are behind it, around the end of the list.
#[test]
fn a_conversation_stays_with_who_leads_it() {
    let mut request = request();
    let turn = AssistantTurn { model: "b".to_owned(), ..AssistantTurn::default() };
    request.messages.push(Message::Assistant(turn));
    request.messages.push(Message::Results(Vec::new()));
    let down = |name| fake(name, [Err(error(FailKind::Auth, "no"))]);
    let list = List::of(vec![down("a"), down("b"), down("c")]);
    assert_eq!(ask(&list.model, &request).1, ["b -> c: no", "c -> a: no"]);
    assert_eq!(list.order(), "b c a");
    let list = List::of(vec![fake("x", [Ok("mine")]), down("y")]);
    assert_eq!(ask(&list.model, &request).0.as_deref(), Ok("mine"), "a stranger's turns lead to the first");
}

/// M-KEY-4: a server that repeats the key does not bring it into a message; a page is cut.
#[test]
fn messages_hold_no_key_and_are_short() {
    let page: &'static str = Box::leak(format!("wrong key sk-secret: {}", "é".repeat(5000)).into_boxed_str());
    let list =
        List::of(vec![fake("a", [Err(error(FailKind::Auth, page))]), fake("b", [Err(error(FailKind::Auth, page))])]);
    let (answer, said, _) = ask(&list.model, &request());
    for message in [&answer.unwrap_err(), &said[0]] {
        assert!(message.contains("wrong key [the key]: é") && !message.contains("secret"), "{message}");
        assert!(message.chars().count() < 1100, "{message}");
    }
}

#[test]
fn a_model_that_takes_no_images_is_told_of_them() {
    let mut request = request();
    let result = CallResult {
        provider_id: "a".to_owned(),
        name: "read".to_owned(),
        is_error: false,
        text: "a picture".to_owned(),
        image: Some(("image/png".to_owned(), vec![1, 2, 3])),
    };
    request.messages.push(Message::Results(vec![result]));
    let blind = Fake { blind: true, ..fake("b", [Ok("dark")]) };
    let list = List::of(vec![fake("a", [Err(error(FailKind::Auth, "no"))]), blind]);
    assert!(list.model.takes_images());
    assert_eq!(ask(&list.model, &request).0.as_deref(), Ok("dark"));
    let asked = list.asked.borrow();
    assert_eq!(asked[0].1, request);
    let Message::Results(results) = &asked[1].1.messages[0] else { panic!("results") };
    assert_eq!(results[0].text, "a picture\n[an image (image/png, 3 bytes) that this model does not take]");
    assert_eq!(results[0].image, None);
}

/// M-FALL-4: a script may stand in a list, and each one goes on where it was itself.
#[test]
fn scripts_fall_over_too() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        crate::project::ModelSettings { name: name.to_owned(), source: crate::project::ModelSource::Script { file } }
    };
    let first = settings(
        "a",
        r#"{"turns": [{"text": "one", "calls": [{"id": "x", "tool": "ls"}]}, {"fail": {"kind": "overloaded", "times": 6}}, {"text": "two"}]}"#,
    );
    let second = settings(
        "b",
        r#"{"turns": [{"text": "after ${x.text}", "calls": [{"id": "y", "tool": "ls"}]}, {"fail": {"kind": "auth"}}]}"#,
    );
    let model = open(&[first, second]).unwrap();
    let (events, mut seen) = unbounded_channel();
    let mut request = request();
    let mut said = Vec::new();
    run(async {
        for _ in 0..3 {
            let turn = model.turn(&request, &events, &CancellationToken::new()).await.unwrap();
            said.push(format!("{}: {}", turn.model, turn.text));
            let result = |call: &ToolCallRequest| CallResult {
                provider_id: call.provider_id.clone(),
                name: call.name.clone(),
                is_error: false,
                text: "files".to_owned(),
                image: None,
            };
            let results = turn.calls.iter().map(result).collect();
            request.messages.extend([Message::Assistant(turn), Message::Results(results)]);
        }
    });
    assert_eq!(said, ["script/a: one", "script/b: after files", "script/a: two"]);
    let mut moves = Vec::new();
    while let Ok(event) = seen.try_recv() {
        if let ModelEvent::Fallback { from, to, .. } = event {
            moves.push(format!("{from}{to}"));
        }
    }
    assert_eq!(moves, ["ab", "ba"]);
}
