//! File servers: dropped children that serve file calls on a connection of their own.

use std::os::unix::net::UnixStream;

use crate::session::Session;

/// Serves file calls on `link` until the host closes it: reads the welcome, says ready, answers calls in order.
/// `resident` is true for the worker that lives as long as the session; it answers only what is quick and small.
///
/// Runs after lock-down in a process of its own, so it blocks freely and returns when there is nothing left to do.
pub(crate) fn serve(link: UnixStream, session: &Session, resident: bool) {
    let _ = (link, session, resident);
}
