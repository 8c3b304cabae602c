//! Tests of the link against a scripted PID 1 on a real socket.

mod copy;
mod files;
mod flow;
mod hostile;
mod paused;
mod real;
mod resync;
mod scripted;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use nix::unistd::Gid;
use protocol::{Ids, Request};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::call::ToolCall;
use super::link::Link;
use super::link::listener;
use super::terms::{Terms, Timing};

/// A folder with the socket of a link.
struct Place {
    _root: TempDir,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { folder: root.path().to_owned(), _root: root }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// A link that expects this process as its PID 1.
    fn link(&self, timing: Timing) -> Link {
        let link = Link::listen(bind(&self.folder), timing);
        link.expect(std::process::id(), terms());
        link
    }

    fn resume(&self, timing: Timing, unfinished: &[String]) -> Link {
        let link = Link::resume(bind(&self.folder), timing, unfinished);
        link.expect(std::process::id(), terms());
        link
    }
}

fn bind(folder: &Path) -> tokio::net::UnixListener {
    listener::bind(folder, Gid::effective()).unwrap()
}

fn terms() -> Terms {
    Terms {
        ids: Ids { agent: 20_000, worker: 20_001, first_tag: 20_002, tags: 62 },
        environment: vec![("HOME".to_owned(), "/tmp/home".to_owned())],
        directory: "/app/static".to_owned(),
        orphan_grace: 600,
        gid: 0,
    }
}

/// Times short enough for tests and long enough for a busy machine.
fn timing() -> Timing {
    Timing { stuck: Duration::from_millis(300), ..Timing::default() }
}

fn call(key: &str, request: Request, body: impl Into<Bytes>) -> ToolCall {
    ToolCall {
        key: key.to_owned(),
        request,
        body: body.into(),
        timeout: Duration::from_secs(20),
        cancel: CancellationToken::new(),
    }
}

fn bash(key: &str, command: impl Into<Bytes>) -> ToolCall {
    call(key, Request::Bash { background: false }, command)
}

fn read(key: &str, path: &str) -> ToolCall {
    call(key, Request::Read { path: path.to_owned(), offset: None, limit: None, images: true }, "")
}

fn write(key: &str, path: &str, content: impl Into<Bytes>) -> ToolCall {
    call(key, Request::Write { path: path.to_owned() }, content)
}
