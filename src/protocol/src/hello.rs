//! The first frames of a connection: who speaks, what version, and what is still unfinished.

use serde::{Deserialize, Serialize};

use crate::call::Done;

/// The sandbox's first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Newest protocol version the sandbox speaks.
    pub version: u16,
    /// Oldest protocol version the sandbox speaks.
    pub oldest: u16,
    /// What this connection is for.
    pub role: Role,
}

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Role {
    /// PID 1 itself, with what it found out about its own confinement.
    Control(Box<Facts>),
    /// A file server that PID 1 opened this connection for.
    Files {
        /// The label that `Request::OpenFiles` gave; 0 is the resident worker that PID 1 starts on its own.
        label: u64,
    },
}

/// What PID 1 sees of its own confinement. The host refuses a sandbox whose facts are not as ordered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, checked by name")]
pub struct Facts {
    /// Its process id; must be 1.
    pub pid: u32,
    /// Its supplementary groups, sorted.
    pub groups: Vec<u32>,
    /// Capability sets from /proc/self/status, as bit masks: inheritable, permitted, effective, bounding, ambient.
    pub capabilities: [u64; 5],
    /// `no_new_privs` is set.
    pub no_new_privs: bool,
    /// Seccomp mode from /proc/self/status: 2 is a filter.
    pub seccomp: u32,
    /// It is non-dumpable.
    pub undumpable: bool,
    /// / refuses writes.
    pub root_read_only: bool,
    /// /tmp is a tmpfs of its own.
    pub tmp_is_tmpfs: bool,
    /// Shell that commands run under: `/bin/bash` or another path to bash, else to sh; none when the image has none.
    pub shell: Option<String>,
    /// Paths that must be folders of their own and are links in the image (`/tmp`, `/proc`, `/dev`, `/sys`, `/app`, …).
    pub links: Vec<String>,
    /// Landlock ABI of the kernel, 0 without Landlock.
    pub landlock: u32,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
}

/// The host's first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The version both sides speak from here on.
    pub version: u16,
    /// User and group ids of this session.
    pub ids: Ids,
    /// The whole environment of commands, in order.
    pub environment: Vec<(String, String)>,
    /// Working directory of commands and base of relative paths.
    pub directory: String,
    /// Seconds of PID 1's own running without a host after which it exits.
    pub orphan_grace: u32,
    /// Calls of earlier connections that the host still waits for (control role only).
    pub unfinished: Vec<Unfinished>,
}

/// The ids of a session: one block of 64, never shared with another session on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// uid and gid of commands, and owner of files.
    pub agent: u32,
    /// uid and gid of file servers, whose file-system ids are the agent's.
    pub worker: u32,
    /// First of the gids that tag the processes of one command each.
    pub first_tag: u32,
    /// How many there are.
    pub tags: u32,
}

/// A call of an earlier connection that has no result yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unfinished {
    /// The call's key.
    pub key: String,
    /// Its id on this connection, if it is still running.
    pub id: u64,
}

/// What PID 1 knows of an unfinished call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The call's key.
    pub key: String,
    /// Its state.
    pub state: CallState,
}

/// State of an unfinished call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallState {
    /// It ended; its kept result follows at once as a `Done` frame under the new id.
    Finished,
    /// It runs on and will be answered under the new id.
    Running,
    /// PID 1 never saw it, or its result was dropped.
    Unknown,
}

/// A kept result, as PID 1 stores it between connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The call's key.
    pub key: String,
    /// Its end; the id is replaced on replay.
    pub done: Done,
    /// Its payload.
    pub payload: Vec<u8>,
}
