//! What happens in a session, as whoever watches is told.

use serde::Serialize;
use serde_json::Value;

/// One thing that happened. Texts are as they came: whoever shows them sanitises them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Progress<'a> {
    /// It waits for a slot.
    Queued {
        /// Its id.
        session: &'a str,
        /// The agent's name.
        agent: &'a str,
        /// Why, in words.
        why: &'a str,
    },
    /// The session has a slot; its sandbox is being made.
    Started {
        /// Its id.
        session: &'a str,
        /// The agent's name.
        agent: &'a str,
        /// The image of its sandbox.
        image: &'a str,
    },
    /// The sandbox is ready.
    SandboxReady {
        /// The container's id.
        container: &'a str,
        /// Milliseconds it took.
        duration_ms: u64,
    },
    /// Something was copied into the sandbox or out of it.
    Copied {
        /// From where.
        from: &'a str,
        /// To where.
        to: &'a str,
        /// Regular files.
        files: u64,
        /// Bytes of their contents.
        bytes: u64,
        /// What was left out and why.
        skipped: &'a [String],
    },
    /// The model is asked.
    Thinking {
        /// Number of the turn, from 1.
        turn: u32,
    },
    /// The model is writing. It has not been said until [`Progress::Text`] has all of it.
    Writing {
        /// More of its text.
        text: &'a str,
    },
    /// The model said something.
    Text {
        /// All of what it said in this turn.
        text: &'a str,
    },
    /// A request to the model failed and is repeated; what it has written since is void.
    Retry {
        /// Why it failed.
        error: &'a str,
        /// Milliseconds until the next try.
        wait_ms: u64,
    },
    /// A model failed and another one is asked; what it has written since is void.
    Fallback {
        /// The name of the one that failed.
        from: &'a str,
        /// The name of the other.
        to: &'a str,
        /// Why it failed.
        error: &'a str,
    },
    /// A tool call began.
    ToolStarted {
        /// `session/turn/index`.
        key: &'a str,
        /// The tool.
        name: &'a str,
        /// Its arguments.
        args: &'a Value,
    },
    /// A tool call ended.
    ToolFinished {
        /// `session/turn/index`.
        key: &'a str,
        /// The tool.
        name: &'a str,
        /// It failed.
        is_error: bool,
        /// Why, machine-readable.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<protocol::Cause>,
        /// What the model is told.
        text: &'a str,
        /// Milliseconds it took.
        duration_ms: u64,
    },
    /// It waits for a trigger; its container is paused and it holds no slot.
    Waiting {
        /// Its id.
        session: &'a str,
        /// For what, in words.
        on: &'a str,
        /// When it gives up, in milliseconds since 1970.
        deadline: i64,
    },
    /// It goes on.
    Resumed {
        /// Its id.
        session: &'a str,
        /// Why, in words.
        by: &'a str,
    },
    /// Something that whoever watches should know.
    Note {
        /// One sentence.
        message: &'a str,
    },
    /// The sandbox is being removed.
    Removing,
    /// The session ended.
    Ended {
        /// Its id.
        session: &'a str,
        /// Why, machine-readable.
        cause: &'a str,
        /// Exit code of `runner start`.
        exit_code: u8,
        /// One sentence.
        message: &'a str,
        /// What the model said last.
        text: &'a str,
        /// Container and folder are gone.
        sandbox_removed: bool,
    },
}

/// Somebody who watches a session.
pub trait Watcher {
    /// Called for each thing that happens, in order.
    fn see(&self, progress: &Progress<'_>);
}
