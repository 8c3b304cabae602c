//! What a session's PID 1 is told, and how long the link waits for what.

use std::time::Duration;

use protocol::Ids;

/// What the host tells PID 1 of this session.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) ids: Ids,
    pub(super) environment: Vec<(String, String)>,
    pub(super) directory: String,
    pub(super) orphan_grace: u32,
    /// The group that opens the socket.
    pub(super) gid: u32,
}

/// How long the link waits for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// For each step of a handshake.
    pub(super) hello: Duration,
    /// For a whole frame once it has begun.
    pub(super) frame: Duration,
    /// For a new control connection after the old one dropped.
    pub(super) reconnect: Duration,
    /// For the end of a call after its own time limit.
    pub(super) grace: Duration,
    /// For the end of a call after it was cancelled: PID 1 gives it 2 s between SIGTERM and SIGKILL.
    pub(super) cancel: Duration,
    /// For any sign of life from the resident worker while it has calls.
    pub(super) stuck: Duration,
    /// For the start or end of a file server.
    pub(super) server: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            frame: Duration::from_secs(10),
            reconnect: Duration::from_secs(10),
            grace: Duration::from_secs(4),
            cancel: Duration::from_secs(6),
            stuck: Duration::from_secs(1),
            server: Duration::from_secs(20),
        }
    }
}
