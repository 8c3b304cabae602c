//! The connection, or the host, dies at every byte of a session: every call still has one right end.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use protocol::Outcome;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::scripted::{Cut, Faithful};
use super::{Place, bash, timing};
use crate::sandbox::call::{CallError, GoneKind, Reply};
use crate::sandbox::link::Link;

const COMMANDS: [&str; 3] = ["true", "echo a longer command", "ls"];

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new()
        .block_on(&runtime, async { timeout(Duration::from_secs(30), work).await.expect("a session that ends") })
}

fn start(pid1: &Rc<Faithful>, socket: PathBuf) {
    tokio::task::spawn_local(Rc::clone(pid1).run(socket));
}

fn keys() -> Vec<String> {
    (0..COMMANDS.len()).map(|index| format!("s/1/{index}")).collect()
}

/// The three commands of the session at once, then each forgotten.
async fn session(link: &Link) -> Vec<Result<Reply, CallError>> {
    let keys = keys();
    let calls: Vec<_> = keys.iter().zip(COMMANDS).map(|(key, command)| bash(key, command)).collect();
    let replies = futures_util::future::join_all(calls.iter().map(|call| link.call(call))).await;
    for key in &keys {
        link.forget(key);
    }
    replies
}

/// Every call has the right reply and ran once, or is interrupted and did not run.
fn judge(pid1: &Faithful, replies: &[Result<Reply, CallError>], bodies: &[usize]) -> Result<(), String> {
    for ((key, reply), body) in keys().iter().zip(replies).zip(bodies) {
        let begun = pid1.begun.borrow().get(key).copied().unwrap_or_default();
        match reply {
            Ok(Reply { outcome: Outcome::Bash(_), payload, .. })
                if begun == 1 && *payload == format!("{body} bytes").into_bytes() => {}
            Err(CallError::Interrupted) if begun == 0 => {}
            other => return Err(format!("{key} begun {begun} times: {other:?}")),
        }
    }
    Ok(())
}

fn sizes() -> Vec<usize> {
    COMMANDS.iter().map(|command| command.len()).collect()
}

/// A whole session over connections that break at `cuts`.
fn with_cuts(cuts: Vec<Cut>) -> Result<Rc<Faithful>, String> {
    run(async {
        let place = Place::new();
        let pid1 = Faithful::new(cuts);
        let link = place.link(timing());
        start(&pid1, place.socket());
        let replies = session(&link).await;
        judge(&pid1, &replies, &sizes())?;
        // What was forgotten is not kept, even when the connection broke just then.
        while !pid1.kept().is_empty() {
            link.ping().await.map_err(|gone| gone.to_string())?;
        }
        Ok(pid1)
    })
}

/// The connection drops after every count of bytes in either direction.
#[test]
fn every_call_ends_right_wherever_the_connection_breaks() {
    let whole = with_cuts(Vec::new()).unwrap();
    let (heard, said) = (whole.heard.get(), whole.said.get());
    assert!(heard > 500 && said > 500, "{heard} {said}");
    for count in 1..=heard {
        with_cuts(vec![Cut::Heard(count)]).unwrap_or_else(|error| panic!("after {count} bytes heard: {error}"));
    }
    for count in 1..=said {
        with_cuts(vec![Cut::Said(count)]).unwrap_or_else(|error| panic!("after {count} bytes said: {error}"));
    }
}

/// The runner dies after every count of bytes that PID 1 heard or said; another takes over.
#[test]
fn every_call_ends_right_wherever_the_runner_dies() {
    let whole = with_cuts(Vec::new()).unwrap();
    let cuts = (1..=whole.heard.get()).map(Cut::Heard).chain((1..=whole.said.get()).map(Cut::Said));
    for cut in cuts {
        let result = run(async {
            let place = Place::new();
            let pid1 = Faithful::new(vec![cut]);
            let (send, mut broken) = mpsc::unbounded_channel();
            *pid1.on_cut.borrow_mut() = Some(send);
            let link = place.link(timing());
            start(&pid1, place.socket());
            let mut first: Vec<Option<Result<Reply, CallError>>> = {
                let calls = session(&link);
                let mut calls = std::pin::pin!(calls);
                tokio::select! {
                    biased;
                    replies = &mut calls => replies.into_iter().map(Some).collect(),
                    _ = broken.recv() => {
                        link.end(crate::sandbox::call::Gone::new(GoneKind::Stopped, "killed"));
                        let replies = calls.await;
                        replies.into_iter().map(|reply| Some(reply).filter(|reply| !is_gone(reply))).collect()
                    }
                }
            };
            drop(link);
            let unfinished: Vec<String> =
                keys().into_iter().zip(&first).filter(|(_, reply)| reply.is_none()).map(|(key, _)| key).collect();
            let link = place.resume(timing(), &unfinished);
            for (key, reply) in keys().iter().zip(&mut first) {
                if reply.is_none() {
                    *reply = Some(link.take_up(key, Duration::from_secs(20), &CancellationToken::new()).await);
                }
            }
            let replies: Vec<_> = first.into_iter().flatten().collect();
            judge(&pid1, &replies, &sizes())
        });
        result.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
    }
}

fn is_gone(reply: &Result<Reply, CallError>) -> bool {
    matches!(reply, Err(CallError::Gone(_)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Commands of every size over connections that break again and again.
    #[test]
    fn large_bodies_over_many_breaks(
        cuts in prop::collection::vec(
            prop_oneof![(1usize..700_000).prop_map(Cut::Heard), (1usize..2_000).prop_map(Cut::Said)], 0..6),
        bodies in prop::collection::vec(0usize..900_000, COMMANDS.len()),
    ) {
        let result = run(async {
            let place = Place::new();
            let pid1 = Faithful::new(cuts);
            let link = place.link(timing());
            start(&pid1, place.socket());
            let calls: Vec<_> = keys().iter().zip(&bodies).map(|(key, size)| bash(key, vec![b'x'; *size])).collect();
            let replies = futures_util::future::join_all(calls.iter().map(|call| link.call(call))).await;
            judge(&pid1, &replies, &bodies)
        });
        prop_assert_eq!(result, Ok(()));
    }
}

/// A control connection that does not come back ends the sandbox, and its calls with it.
#[tokio::test]
async fn a_lost_link_has_a_deadline() {
    let place = Place::new();
    let link = place.link(super::Timing { reconnect: Duration::from_millis(100), ..timing() });
    let mut peer = super::scripted::Peer::control(&place.socket()).await;
    let call = bash("s/1/0", "sleep 9");
    let (reply, ()) = tokio::join!(link.call(&call), async {
        peer.next_call().await;
        drop(peer);
    });
    let CallError::Gone(gone) = reply.unwrap_err() else { panic!("not gone") };
    assert_eq!(gone.kind, GoneKind::Lost);
    assert_eq!(link.gone().await, gone);
}
