//! Which file server a file call goes to, and what happens when one hangs or dies.

use std::cell::Cell;
use std::time::Duration;

use protocol::frame::MAX_PAYLOAD;
use protocol::{Cause, FromSandbox, INITIAL_CREDIT, Outcome, Request, TextWindow, ToSandbox};
use tokio::time::timeout;

use super::scripted::Peer;
use super::{Place, call, read, timing, write};
use crate::sandbox::link::Link;

fn text(path: &str) -> Outcome {
    Outcome::Text(TextWindow {
        path: path.to_owned(),
        first: 1,
        last: 1,
        total_lines: 1,
        total_bytes: 2,
        clipped: Vec::new(),
        cut: false,
    })
}

fn written(path: &str, bytes: usize) -> Outcome {
    Outcome::Written { path: path.to_owned(), bytes: bytes as u64, replaced: false }
}

async fn up(place: &Place) -> (Link, Peer, Peer) {
    let link = place.link(timing());
    let control = Peer::control(&place.socket()).await;
    let worker = Peer::files(&place.socket(), 0).await;
    link.ready().await.unwrap();
    (link, control, worker)
}

/// Answers the next `OpenFiles` and connects as that server.
async fn open(control: &mut Peer, place: &Place) -> (u64, Peer) {
    let (call, _) = control.next_call().await;
    let Request::OpenFiles { label } = call.request else { panic!("{call:?}") };
    // The server may connect before PID 1 answers, or after.
    let server = Peer::files(&place.socket(), label).await;
    control.done(call.id, Outcome::Nothing, b"").await;
    (label, server)
}

async fn close(control: &mut Peer, label: u64) {
    let (call, _) = control.next_call().await;
    assert_eq!(call.request, Request::CloseFiles { label });
    control.done(call.id, Outcome::Nothing, b"").await;
}

#[tokio::test]
async fn small_calls_go_to_the_worker() {
    let place = Place::new();
    let (link, _control, mut worker) = up(&place).await;
    let asked = read("s/1/0", "/tmp/a");
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        let (call, _) = worker.next_call().await;
        assert!(matches!(call.request, Request::Read { images: false, .. }), "the worker decodes no images");
        worker.done(call.id, text("/tmp/a"), b"hi").await;
    });
    assert_eq!(reply.unwrap().payload, b"hi");
}

#[tokio::test]
async fn images_and_large_bodies_get_a_server_of_their_own() {
    let place = Place::new();
    let (link, mut control, mut worker) = up(&place).await;
    let image: Vec<u8> = (0..3_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let outcome = Outcome::Image {
        media_type: "image/png".to_owned(),
        size: (10, 10),
        scaled_from: None,
        bytes: image.len() as u64,
    };
    let asked = read("s/1/0", "/tmp/a.png");
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        let (call, _) = worker.next_call().await;
        worker.done(call.id, Outcome::NeedsChild, b"").await;
        let (label, mut server) = open(&mut control, &place).await;
        let (call, _) = server.next_call().await;
        assert!(matches!(call.request, Request::Read { images: true, .. }));
        let mut credit = INITIAL_CREDIT as usize;
        for piece in image.chunks(100_000) {
            while credit < piece.len() {
                if let ToSandbox::Credit { bytes, .. } = server.receive().await.unwrap().header {
                    credit += bytes as usize;
                }
            }
            credit -= piece.len();
            server.send(&FromSandbox::Chunk { id: call.id }, piece).await;
        }
        server.done(call.id, outcome.clone(), b"").await;
        close(&mut control, label).await;
    });
    let reply = reply.unwrap();
    assert_eq!(reply.outcome, outcome);
    assert!(reply.streamed == image);

    let content = vec![b'x'; MAX_PAYLOAD + 100_000];
    let asked = write("s/1/1", "/tmp/b", content.clone());
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        let (label, mut server) = open(&mut control, &place).await;
        let (call, mut got) = server.next_call().await;
        while got.len() < content.len() {
            got.extend(server.receive().await.unwrap().payload);
        }
        assert!(got == content);
        server.done(call.id, written("/tmp/b", got.len()), b"").await;
        close(&mut control, label).await;
    });
    assert!(reply.unwrap().is_success());
}

/// Security 4: no answer in time: the worker is replaced first, then the call is made again elsewhere.
#[tokio::test]
async fn a_stuck_worker_is_replaced() {
    let place = Place::new();
    let (link, mut control, mut worker) = up(&place).await;
    let asked = write("s/1/0", "/tmp/a", "hi");
    let (reply, mut worker) = tokio::join!(link.call(&asked), async {
        worker.next_call().await;
        let (call, _) = control.next_call().await;
        assert_eq!(call.request, Request::OpenFiles { label: 0 });
        worker = Peer::files(&place.socket(), 0).await;
        control.done(call.id, Outcome::Nothing, b"").await;
        let (label, mut server) = open(&mut control, &place).await;
        let (call, body) = server.next_call().await;
        server.done(call.id, written("/tmp/a", body.len()), b"").await;
        close(&mut control, label).await;
        worker
    });
    assert!(reply.unwrap().is_success());
    let asked = read("s/1/1", "/tmp/a");
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        let (call, _) = worker.next_call().await;
        worker.done(call.id, text("/tmp/a"), b"hi").await;
    });
    assert_eq!(reply.unwrap().payload, b"hi");
}

/// A worker that is busy but alive keeps its calls.
#[tokio::test]
async fn a_busy_worker_is_left_alone() {
    let place = Place::new();
    let (link, _control, mut worker) = up(&place).await;
    let calls: Vec<_> = (0..6).map(|n| read(&format!("s/1/{n}"), "/tmp/a")).collect();
    let (replies, ()) = tokio::join!(futures_util::future::join_all(calls.iter().map(|call| link.call(call))), async {
        for _ in 0..6 {
            let (call, _) = worker.next_call().await;
            tokio::time::sleep(timing().stuck / 2).await;
            worker.done(call.id, text("/tmp/a"), b"hi").await;
        }
    });
    assert!(replies.into_iter().all(|reply| reply.is_ok_and(|reply| reply.payload == b"hi")));
}

/// A worker that dies has its call made again elsewhere, and PID 1 is asked for another.
#[tokio::test]
async fn a_dead_worker_loses_no_call() {
    let place = Place::new();
    let (link, mut control, mut worker) = up(&place).await;
    let asked = read("s/1/0", "/tmp/a");
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        worker.next_call().await;
        drop(worker);
        let (mut replaced, mut answered) = (false, false);
        while !(replaced && answered) {
            let (call, _) = control.next_call().await;
            match call.request {
                Request::OpenFiles { label: 0 } => {
                    replaced = true;
                    control.done(call.id, Outcome::Nothing, b"").await;
                }
                Request::OpenFiles { label } => {
                    let mut server = Peer::files(&place.socket(), label).await;
                    control.done(call.id, Outcome::Nothing, b"").await;
                    let (call, _) = server.next_call().await;
                    server.done(call.id, text("/tmp/a"), b"hi").await;
                    answered = true;
                }
                Request::CloseFiles { .. } => control.done(call.id, Outcome::Nothing, b"").await,
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(reply.unwrap().payload, b"hi");
}

/// T-10: cancelling a call in a server of its own has that server killed, and the call waits for that.
#[tokio::test]
async fn cancel_kills_the_server() {
    let place = Place::new();
    let (link, mut control, _worker) = up(&place).await;
    let asked = write("s/1/0", "/tmp/a", vec![0; MAX_PAYLOAD + 1]);
    let closed = Cell::new(false);
    let (reply, ()) = tokio::join!(
        async {
            let reply = link.call(&asked).await;
            assert!(closed.get(), "it did not wait for the kill");
            reply
        },
        async {
            let (label, mut server) = open(&mut control, &place).await;
            server.next_call().await;
            asked.cancel.cancel();
            let (call, _) = control.next_call().await;
            assert_eq!(call.request, Request::CloseFiles { label });
            closed.set(true);
            control.done(call.id, Outcome::Nothing, b"").await;
        }
    );
    assert!(matches!(reply.unwrap().outcome, Outcome::Failed { cause: Cause::Cancelled, .. }));
}

/// A server that is killed in mid-call is a failure of that call alone; PID 1's refusal is passed on.
#[tokio::test]
async fn a_dead_or_refused_server_fails_its_call() {
    let place = Place::new();
    let (link, mut control, _worker) = up(&place).await;
    let asked = write("s/1/0", "/tmp/a", vec![0; MAX_PAYLOAD + 1]);
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        let (label, mut server) = open(&mut control, &place).await;
        server.next_call().await;
        server.send(&FromSandbox::Credit { id: 1, bytes: 1 }, b"").await;
        drop(server);
        close(&mut control, label).await;
    });
    assert!(matches!(reply.unwrap().outcome, Outcome::Failed { cause: Cause::Signal, .. }));

    let refusal = Outcome::Failed { cause: Cause::Pids, message: "no process is left".to_owned() };
    let asked = write("s/1/1", "/tmp/a", vec![0; MAX_PAYLOAD + 1]);
    let (reply, ()) = tokio::join!(link.call(&asked), async {
        let (call, _) = control.next_call().await;
        control.done(call.id, refusal.clone(), b"").await;
    });
    assert_eq!(reply.unwrap().outcome, refusal);
}

/// T-8: writes run one after the other, reads beside them.
#[tokio::test]
async fn writes_are_serialised() {
    let place = Place::new();
    let (link, _control, mut worker) = up(&place).await;
    let (first, second) = (write("s/1/0", "/tmp/a", "1"), write("s/1/1", "/tmp/a", "2"));
    let beside = read("s/1/2", "/tmp/b");
    let (a, b, c, ()) = tokio::join!(link.call(&first), link.call(&second), link.call(&beside), async {
        let (one, _) = worker.next_call().await;
        let (reading, _) = worker.next_call().await;
        assert!(matches!(reading.request, Request::Read { .. }));
        assert!(timeout(Duration::from_millis(50), worker.receive()).await.is_err(), "two writes at once");
        worker.done(one.id, written("/tmp/a", 1), b"").await;
        worker.done(reading.id, text("/tmp/b"), b"hi").await;
        let (two, _) = worker.next_call().await;
        worker.done(two.id, written("/tmp/a", 1), b"").await;
    });
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
}

/// Only the worker and what was ordered may serve; calls that the link makes by itself are not for others.
#[tokio::test]
async fn the_links_own_calls_are_its_own() {
    let place = Place::new();
    let (link, _control, _worker) = up(&place).await;
    assert!(link.call(&call("s/1/0", Request::OpenFiles { label: 9 }, "")).await.is_err());
}
