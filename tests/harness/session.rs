//! A running `runner start`, watched while it runs.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::place::{Place, Ran};

/// A running program whose lines can be waited for.
pub(crate) struct Session {
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: String,
}

impl Place {
    /// Starts the agent `worker` with `--json` and these arguments.
    pub(crate) fn start(&self, more: &[&str]) -> Session {
        Session::of(self.start_command(more))
    }

    /// The command of [`Place::start`].
    pub(crate) fn start_command(&self, more: &[&str]) -> Command {
        let mut command = self.command(["start", "--agent", "worker", "--json"]);
        command.args(more);
        command
    }

    /// Makes one call in a fresh sandbox: the next command that drives sessions.
    #[track_caller]
    pub(crate) fn drive(&self) -> Ran {
        self.run(["tool", "--agent", "worker", "bash", r#"{"command": "echo next"}"#])
    }

    /// What `runner show --json` says of a session.
    #[track_caller]
    pub(crate) fn show(&self, session: &str) -> Value {
        let ran = self.run(["show", session, "--json"]);
        ran.exits(0).json()
    }

    /// The events of a session as `runner logs --json` tells them.
    #[track_caller]
    pub(crate) fn events(&self, session: &str) -> Vec<Value> {
        let ran = self.run(["logs", session, "--json"]);
        ran.exits(0).json_lines()
    }

    /// The bodies of a session's events of one kind.
    #[track_caller]
    pub(crate) fn bodies(&self, session: &str, kind: &str) -> Vec<Value> {
        let of_kind = |event: Value| (event["kind"] == kind).then(|| event["body"].clone());
        self.events(session).into_iter().filter_map(of_kind).collect()
    }

    /// Files of processes that drive sessions, or drove them and died.
    pub(crate) fn owners(&self) -> usize {
        std::fs::read_dir(self.state().join("owners")).map_or(0, Iterator::count)
    }
}

impl Session {
    /// Starts a command with piped output.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdout, seen: String::new() }
    }

    /// Waits for the next line that contains this.
    #[track_caller]
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            self.stdout.read_line(&mut line).expect("it prints UTF-8");
            if line.is_empty() {
                let mut complaint = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    let _ = stderr.read_to_string(&mut complaint);
                }
                panic!("it ended without {part:?}: {:?}\n{}\n{complaint}", self.child.wait(), self.seen);
            }
            self.seen.push_str(&line);
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits for the next line on standard error.
    #[track_caller]
    pub(crate) fn complaint(&mut self) -> String {
        let stderr = self.child.stderr.as_mut().expect("it is piped");
        let mut line = Vec::new();
        // Byte by byte, so that what comes after it is left for the end.
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            stderr.read_exact(&mut byte).expect("a whole line");
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("it prints UTF-8")
    }

    /// Waits for the next event of `--json` of this kind.
    #[track_caller]
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        let line = self.line_with(&format!("\"event\":\"{kind}\""));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    /// Waits until the session is recorded, and gives its id.
    #[track_caller]
    pub(crate) fn id(&mut self) -> String {
        self.event("started")["session"].as_str().expect("a session has an id").to_owned()
    }

    /// Waits until the sandbox is ready, and gives the container's id.
    #[track_caller]
    pub(crate) fn container(&mut self) -> String {
        self.event("sandbox_ready")["container"].as_str().expect("a container has an id").to_owned()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("it is ours and not waited for");
    }

    /// Kills it at once, as a crash would.
    pub(crate) fn crash(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let mut stdout = std::mem::take(&mut self.seen);
        let mut stderr = String::new();
        self.stdout.read_to_string(&mut stdout).expect("it prints UTF-8");
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).expect("it prints UTF-8");
        }
        let status = self.child.wait().expect("it is ours");
        let code = status.code().or_else(|| Some(128 + status.signal()?)).expect("it ended");
        Ran { code, stdout, stderr }
    }
}

impl Drop for Session {
    /// A test that failed leaves no program behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
