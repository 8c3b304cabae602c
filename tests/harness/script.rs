//! Turns of the script model, as tests of fleets write them.

use serde_json::{Value, json};

use super::host::{long_sleep, processes, until};

/// A turn that makes one call.
pub(crate) fn call(id: &str, tool: &str, args: &Value) -> Value {
    json!({"calls": [{"id": id, "tool": tool, "args": args}]})
}

/// A turn that makes these calls together.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Value {
    let calls: Vec<Value> =
        calls.iter().map(|(id, tool, args)| json!({"id": id, "tool": tool, "args": args})).collect();
    json!({"calls": calls})
}

/// A turn that runs a command.
pub(crate) fn bash(id: &str, command: &str) -> Value {
    call(id, "bash", &json!({"command": command, "timeout": 600}))
}

/// A turn that makes a call again and again until a part of its answer is this.
pub(crate) fn poll(id: &str, tool: &str, args: &Value, part: &str, value: &Value) -> Value {
    let mut turn = call(id, tool, args);
    let path = format!("{id}.{part}");
    turn["repeat"] = json!({"until": {path: value}, "max": 5000, "everyMs": 20});
    turn
}

/// A turn that waits for an event of the source `github`.
pub(crate) fn wait(id: &str, filter: &Value, timeout: &str) -> Value {
    call(id, "wait_for_trigger", &json!({"type": "webhook", "source": "github", "match": filter, "timeout": timeout}))
}

/// The last turn.
pub(crate) fn say(text: &str) -> Value {
    json!({"text": text})
}

/// A command that takes until the test lets it end. Needs to be root, whom every process on this host obeys.
pub(crate) struct Gate(String);

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Self {
        Self(long_sleep())
    }

    /// The turn that stands before the gate.
    pub(crate) fn turn(&self, id: &str) -> Value {
        bash(id, &format!("{}; true", self.0))
    }

    /// The command that does not end before it is opened.
    pub(crate) fn command(&self) -> &str {
        &self.0
    }

    /// How many stand before it.
    pub(crate) fn waiting(&self) -> usize {
        processes(&self.0).len()
    }

    /// Waits until somebody stands before it.
    #[track_caller]
    pub(crate) fn reached(&self) {
        until("the gate is reached", || self.waiting() > 0);
    }

    /// Lets all pass who stand before it, and waits until they have.
    #[track_caller]
    pub(crate) fn open(&self) {
        let before = processes(&self.0);
        for pid in &before {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(*pid).expect("a process id"));
            // One that has ended by now needs nothing.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        until("those at the gate have passed", || processes(&self.0).iter().all(|pid| !before.contains(pid)));
    }
}
