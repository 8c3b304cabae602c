//! An answer on its way: pieces, breaks and stalls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Response as HttpResponse, StatusCode};
use axum::response::Response;
use futures_util::stream;

use super::Shared;
use super::answer::{Answer, Fault, Turn};

/// One piece of a huge body.
const PIECE: usize = 64 * 1024;

/// Counts a client that hangs up before it has all of an answer.
struct Watch {
    shared: Arc<Shared>,
    done: bool,
}

impl Watch {
    /// The answer was sent at once.
    fn finish(mut self) {
        self.done = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.done {
            self.shared.change(|inner| inner.hung_up += 1);
        }
    }
}

/// What follows the last piece.
#[derive(Clone, Copy, PartialEq)]
enum After {
    End,
    Break,
    Stall,
}

pub(super) async fn respond(shared: &Arc<Shared>, answer: Answer) -> Response {
    let watch = Watch { shared: Arc::clone(shared), done: false };
    let build = |status: u16, content_type: &str, body: Body| {
        let response = HttpResponse::builder().status(status).header("content-type", content_type);
        response.body(body).expect("a valid response")
    };
    match answer {
        Answer::Turn(turn) => {
            let (pieces, after) = plan(shared, &turn);
            build(200, shared.wire.content_type(), Body::from_stream(send(watch, pieces, after)))
        }
        Answer::Status { status, headers, body } => {
            watch.finish();
            let code = StatusCode::from_u16(status).expect("a valid status");
            let words = code.canonical_reason().unwrap_or("failure").to_lowercase();
            let body = body.unwrap_or_else(|| shared.wire.error_body(code, &words));
            let kind = if body.starts_with('<') { "text/html" } else { "application/json" };
            let mut response = build(status, kind, Body::from(body));
            for (name, value) in headers {
                let name: axum::http::HeaderName = name.parse().expect("a header's name");
                response.headers_mut().insert(name, value.parse().expect("a header's value"));
            }
            response
        }
        Answer::Raw { content_type, body } => {
            build(200, content_type, Body::from_stream(send(watch, [Bytes::from(body)].into(), After::End)))
        }
        Answer::Huge { bytes, status } => {
            let piece = Bytes::from(vec![b'x'; PIECE]);
            let count = usize::try_from(bytes).expect("a test's number") / PIECE;
            let pieces = std::iter::repeat_n(piece, count).collect();
            build(status, shared.wire.content_type(), Body::from_stream(send(watch, pieces, After::End)))
        }
        Answer::Silence => {
            // Dropped with the connection.
            let _watch = watch;
            std::future::pending().await
        }
    }
}

/// The pieces of a turn's body, and what follows them.
fn plan(shared: &Shared, turn: &Turn) -> (VecDeque<Bytes>, After) {
    let mut events = shared.wire.events(turn);
    let mut after = After::End;
    if let Some((count, fault)) = &turn.fault {
        events.truncate(*count);
        events.extend(shared.wire.fault_event(fault));
        after = match fault {
            Fault::Ends | Fault::Error(..) | Fault::Garbage => After::End,
            Fault::Breaks => After::Break,
            Fault::Stalls => After::Stall,
        };
    }
    let Some(size) = turn.pieces else { return (events.into_iter().map(Bytes::from).collect(), after) };
    let whole = events.concat().into_bytes();
    (whole.chunks(size).map(Bytes::copy_from_slice).collect(), after)
}

fn send(
    watch: Watch,
    pieces: VecDeque<Bytes>,
    after: After,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((watch, pieces, after), |(mut watch, mut pieces, mut after)| async move {
        // Each piece is written by itself.
        tokio::task::yield_now().await;
        if let Some(piece) = pieces.pop_front() {
            // A client need not wait for the end of a body that has said everything.
            watch.done = pieces.is_empty() && after == After::End;
            return Some((Ok(piece), (watch, pieces, after)));
        }
        match after {
            After::End => {
                watch.finish();
                None
            }
            After::Break => {
                watch.done = true;
                after = After::End;
                Some((Err(io::Error::other("the test breaks the connection")), (watch, pieces, after)))
            }
            After::Stall => std::future::pending().await,
        }
    })
}
