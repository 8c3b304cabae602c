//! Connections: from whom, how many, and for how long.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Most connections at once; others wait in the socket's backlog.
const MAX_CONNECTIONS: usize = 256;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// Until a request's head is there.
    pub(super) head: Duration,
    /// From the first byte of a request to the last one of its answer.
    pub(super) whole: Duration,
    /// What requests that have begun are given at the end.
    pub(super) grace: Duration,
}

impl Deadlines {
    /// Whoever asks is on this machine, and what is asked for is a few rows of the store.
    pub(super) const USUAL: Self =
        Self { head: Duration::from_secs(2), whole: Duration::from_mins(1), grace: Duration::from_secs(5) };
}

/// Most bytes of a request's head.
const MAX_HEAD: usize = 16 * 1024;

/// Accepts connections until `shutdown`, and returns when those that were accepted are done.
pub(super) async fn accept(
    listener: UnixListener,
    router: Router,
    deadlines: Deadlines,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let closing = CancellationToken::new();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) if is_ours(&stream) => {
                let (router, closing) = (router.clone(), closing.clone());
                connections.spawn(async move {
                    converse(stream, router, deadlines, closing).await;
                    drop(place);
                });
            }
            Ok(_) => tracing::warn!("closed a connection to the control socket from another user"),
            Err(error) => {
                // Out of file descriptors, most likely: the connection stays in the backlog meanwhile.
                tracing::warn!(%error, "accepting on the control socket");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    closing.cancel();
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(deadlines.grace, rest).await.is_err() {
        tracing::warn!("requests to the control socket were cut off: they took too long");
    }
}

/// The folder's mode keeps others out; this is for root's and for a mode that somebody has changed.
fn is_ours(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

/// Answers the one request of a connection.
async fn converse(stream: UnixStream, router: Router, deadlines: Deadlines, closing: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.head)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let whole = async {
        tokio::select! {
            done = &mut connection => return done,
            () = closing.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match timeout(deadlines.whole, whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the control socket"),
        Err(_) => tracing::warn!("cut off a connection to the control socket: it took too long"),
    }
}
