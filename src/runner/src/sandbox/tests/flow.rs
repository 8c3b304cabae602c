//! Cancel, deadlines, concurrency and floods on the control connection.

use std::time::Duration;

use protocol::frame::MAX_PAYLOAD;
use protocol::{Cause, End, FromSandbox, INITIAL_CREDIT, MAX_CALLS, Outcome, ToSandbox};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::scripted::{Peer, bash_end, frame};
use super::{Place, bash, read, timing};
use crate::sandbox::call::{CallError, Gone, GoneKind, Reply};
use crate::sandbox::terms::Timing;

fn ended(end: End) -> Outcome {
    let Outcome::Bash(bash) = bash_end(b"") else { unreachable!() };
    Outcome::Bash(protocol::BashEnd { end, ..bash })
}

/// T-10: a cancel reaches the sandbox and the call still waits for its one end.
#[tokio::test]
async fn cancel_waits_for_the_end() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    let call = bash("s/1/0", "sleep 99");
    let (reply, ()) = tokio::join!(link.call(&call), async {
        let (sent, _) = peer.next_call().await;
        call.cancel.cancel();
        let cancel = peer.receive().await.unwrap().header;
        assert_eq!(cancel, ToSandbox::Cancel { id: sent.id });
        peer.done(sent.id, ended(End::Cancelled), b"").await;
    });
    assert_eq!(reply.unwrap().outcome, ended(End::Cancelled));
}

/// A call that is cancelled before there is a connection never reaches the sandbox.
#[tokio::test]
async fn cancel_before_the_first_connection() {
    let place = Place::new();
    let link = place.link(timing());
    let call = bash("s/1/0", "true");
    let (reply, ()) = tokio::join!(link.call(&call), async { call.cancel.cancel() });
    assert!(matches!(reply.unwrap().outcome, Outcome::Failed { cause: Cause::Cancelled, .. }));
    let mut peer = Peer::control(&place.socket()).await;
    let next = bash("s/1/1", "true");
    let (_, key) = tokio::join!(link.call(&next), async {
        let (sent, _) = peer.next_call().await;
        peer.done(sent.id, ended(End::Exited(0)), b"").await;
        sent.key
    });
    assert_eq!(key, "s/1/1");
}

/// T-2: a session whose sandbox died cancels what it still had in hand; that call is told of the death, not of the cancel.
#[tokio::test]
async fn a_cancelled_call_on_a_dead_sandbox_says_it_is_dead() {
    let place = Place::new();
    let link = place.link(timing());
    link.end(Gone::new(GoneKind::Died, "its PID 1 ended with exit code 137"));
    for call in [bash("s/1/0", "true"), read("s/1/1", "/tmp/x")] {
        call.cancel.cancel();
        let error = link.call(&call).await.unwrap_err();
        assert_eq!(error.cause(), Cause::SandboxGone, "{error}");
    }
}

/// A caller that goes away has its call cancelled, and PID 1 need not keep the result.
#[tokio::test]
async fn a_dropped_call_is_cancelled_and_forgotten() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    let call = bash("s/1/0", "sleep 99");
    assert!(timeout(Duration::from_millis(100), link.call(&call)).await.is_err());
    let (sent, _) = peer.next_call().await;
    assert_eq!(peer.receive().await.unwrap().header, ToSandbox::Cancel { id: sent.id });
    peer.done(sent.id, ended(End::Cancelled), b"").await;
    assert_eq!(peer.receive().await.unwrap().header, ToSandbox::Forget { key: call.key });
}

/// Security 5.3: the host's own timer ends a sandbox that does not end a call.
#[tokio::test]
async fn a_call_without_an_end_ends_the_sandbox() {
    let quick = Timing { grace: Duration::from_millis(100), cancel: Duration::from_millis(100), ..timing() };
    for cancelled in [false, true] {
        let place = Place::new();
        let link = place.link(quick);
        let _silent = Peer::control(&place.socket()).await;
        let mut call = bash("s/1/0", "sleep 99");
        if cancelled {
            let cancel = call.cancel.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(50)).await;
                cancel.cancel();
            });
        } else {
            call.timeout = Duration::from_millis(50);
        }
        let CallError::Gone(gone) = link.call(&call).await.unwrap_err() else { panic!("not gone") };
        assert_eq!(gone.kind, GoneKind::Stuck, "{gone}");
    }
}

/// Bodies wait for credit; the sandbox decides how fast they come.
#[tokio::test]
async fn bodies_wait_for_credit() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    let body: Vec<u8> = (0..2_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let call = bash("s/1/0", body.clone());
    let (reply, got) = tokio::join!(link.call(&call), async {
        let (sent, mut got) = peer.next_call().await;
        assert_eq!((sent.body, got.len()), (2_000_000, MAX_PAYLOAD));
        let mut credit = INITIAL_CREDIT as usize;
        while got.len() < body.len() {
            if let Ok(frame) = timeout(Duration::from_millis(50), peer.receive()).await {
                let frame = frame.unwrap();
                assert_eq!(frame.header, ToSandbox::Chunk { id: sent.id });
                credit = credit.checked_sub(frame.payload.len()).expect("no more than the credit");
                got.extend(frame.payload);
            } else {
                assert_eq!(credit, 0, "it stopped before its credit was used");
                credit = 700_001;
                peer.send(&FromSandbox::Credit { id: sent.id, bytes: 700_001 }, b"").await;
            }
        }
        peer.done(sent.id, ended(End::Exited(0)), b"").await;
        got
    });
    assert!(reply.unwrap().is_success());
    assert!(got == body);
}

/// T-8, bug 10: many calls at once, answered in any order; more than the connection takes wait for a place.
#[tokio::test]
async fn calls_run_at_once_and_are_bounded() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    let calls: Vec<_> = (0..MAX_CALLS + 44).map(|n| bash(&format!("s/1/{n}"), format!("{n}"))).collect();
    let answer = async {
        let mut waiting = Vec::new();
        for _ in 0..MAX_CALLS {
            waiting.push(peer.next_call().await);
        }
        assert!(timeout(Duration::from_millis(50), peer.receive()).await.is_err(), "more calls than allowed");
        for round in 0.. {
            let Some((call, body)) = waiting.pop() else { break };
            peer.done(call.id, bash_end(&body), &body).await;
            if round < 44 {
                waiting.insert(0, peer.next_call().await);
            }
        }
    };
    let (replies, ()) = tokio::join!(futures_util::future::join_all(calls.iter().map(|call| link.call(call))), answer);
    for (n, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.unwrap().payload, n.to_string().into_bytes());
    }
}

/// One key names one call.
#[tokio::test]
async fn a_key_runs_once_at_a_time() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    let call = bash("s/1/0", "true");
    let (first, second, ()) = tokio::join!(link.call(&call), link.call(&call), async {
        let (sent, _) = peer.next_call().await;
        peer.done(sent.id, ended(End::Exited(0)), b"").await;
    });
    assert!(first.is_ok());
    assert!(matches!(second, Err(CallError::Invalid(_))));
    let long = bash(&"k".repeat(161), "true");
    assert!(matches!(link.call(&long).await, Err(CallError::Invalid(_))));
}

/// T-7: a sandbox that does not read costs the host a bounded queue, not memory without end.
#[tokio::test]
async fn a_peer_that_does_not_read_stops_the_callers() {
    let place = Place::new();
    let link = place.link(Timing { grace: Duration::from_millis(200), ..timing() });
    let silent = Peer::control(&place.socket()).await;
    let mut calls: Vec<_> = (0..100).map(|n| bash(&format!("s/1/{n}"), vec![b'x'; MAX_PAYLOAD])).collect();
    for call in &mut calls {
        call.timeout = Duration::from_millis(200);
    }
    let replies = futures_util::future::join_all(calls.iter().map(|call| link.call(call))).await;
    assert!(replies.iter().all(|reply| matches!(reply, Err(CallError::Gone(_)))));
    drop(silent);
}

/// bug 10, bug 12: other calls go on while one hangs, and all end when the sandbox does.
#[tokio::test]
async fn one_hanging_call_holds_up_nobody() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    link.connected().await.unwrap();
    let stuck = bash("s/1/0", "sleep 99");
    let short = async {
        for n in 1..=20 {
            let reply = link.call(&bash(&format!("s/1/{n}"), "true")).await.unwrap();
            assert!(reply.is_success());
        }
        link.end(crate::sandbox::call::Gone::new(GoneKind::Died, "its container died"));
    };
    let (hung, (), ()) = tokio::join!(link.call(&stuck), short, async {
        peer.next_call().await;
        for _ in 1..=20 {
            let (call, _) = peer.next_call().await;
            peer.done(call.id, ended(End::Exited(0)), b"").await;
        }
    });
    assert!(matches!(hung, Err(CallError::Gone(gone)) if gone.kind == GoneKind::Died));
}

/// A reply that came just before the connection broke is not lost.
#[tokio::test]
async fn an_answer_before_the_end_counts() {
    let place = Place::new();
    let link = place.link(timing());
    let mut peer = Peer::control(&place.socket()).await;
    let call = bash("s/1/0", "true");
    let (reply, ()) = tokio::join!(link.call(&call), async {
        let (sent, _) = peer.next_call().await;
        let done = protocol::Done { id: sent.id, outcome: bash_end(b"ok") };
        peer.stream.write_all(&frame(&FromSandbox::Done(Box::new(done)), b"ok")).await.unwrap();
        drop(peer);
    });
    assert_eq!(reply.unwrap(), Reply::new(bash_end(b"ok"), b"ok".to_vec()));
}
