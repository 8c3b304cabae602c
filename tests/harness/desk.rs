//! One sandbox that takes tool calls, as other programs drive it: `runner tool --agent X -`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::place::Ran;
use super::processes::Block;

/// A running `runner tool --agent X -`.
pub(crate) struct Desk {
    child: Child,
    calls: Option<ChildStdin>,
    results: BufReader<ChildStdout>,
    count: u64,
}

/// One result line.
#[derive(Debug, Clone)]
pub(crate) struct Answer(pub(crate) Value);

impl Desk {
    /// Starts it; the first call waits until the sandbox is up.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let calls = child.stdin.take();
        let results = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, calls, results, count: 0 }
    }

    /// Process id of the runner.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes a call and waits for its answer.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, args: &Value) -> Answer {
        self.send(tool, args);
        self.answer()
    }

    /// Runs a command and waits for its answer.
    #[track_caller]
    pub(crate) fn bash(&mut self, command: &str) -> Answer {
        self.call("bash", &json!({"command": command}))
    }

    /// Runs a command with a timeout in seconds and waits for its answer.
    #[track_caller]
    pub(crate) fn bash_for(&mut self, timeout: f64, command: &str) -> Answer {
        self.call("bash", &json!({"command": command, "timeout": timeout}))
    }

    /// Starts a job; gives its name and the path of its log.
    #[track_caller]
    pub(crate) fn job(&mut self, command: &str) -> (String, String) {
        let started = self.call("bash", &json!({"command": command, "background": true}));
        let job: Value = serde_json::from_str(started.ok()).expect("a job's answer is JSON");
        let part = |name: &str| job[name].as_str().unwrap_or_else(|| panic!("no {name} in {job}")).to_owned();
        (part("job"), part("log"))
    }

    /// Makes calls at once and gives their answers in the order asked. The desk needs `--parallel`; few enough that
    /// they fit into the pipe.
    #[track_caller]
    pub(crate) fn together<'a>(&mut self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<Answer> {
        let mut count = 0;
        for (tool, args) in calls {
            self.send(tool, &args);
            count += 1;
        }
        (0..count).map(|_| self.answer()).collect()
    }

    /// The ids of the session.
    #[track_caller]
    pub(crate) fn block(&mut self) -> Block {
        Block::of(self.bash("id -u").ok().trim().parse().expect("a user id"))
    }

    /// Sends the runner what Ctrl-C sends.
    pub(crate) fn interrupt(&self) {
        let pid = i32::try_from(self.pid()).expect("a process id");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT).expect("it is ours");
    }

    /// Sends a call without waiting.
    #[track_caller]
    pub(crate) fn send(&mut self, tool: &str, args: &Value) {
        self.count += 1;
        let line = json!({"id": self.count.to_string(), "tool": tool, "args": args});
        let calls = self.calls.as_mut().expect("the desk is open");
        writeln!(calls, "{line}").and_then(|()| calls.flush()).expect("the runner reads calls");
    }

    /// Waits for the next answer.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.results.read_line(&mut line).expect("the runner answers");
        if line.is_empty() {
            let mut complaint = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut complaint);
            }
            panic!("the runner ended without an answer: {:?}\n{complaint}", self.child.wait());
        }
        Answer(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}")))
    }

    /// Ends the calls and waits for the program.
    pub(crate) fn close(mut self) -> Ran {
        drop(self.calls.take());
        self.wait()
    }

    /// Waits for the program, which has a reason to end although more calls could come.
    pub(crate) fn wait(mut self) -> Ran {
        let mut stdout = String::new();
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut self.results, &mut stdout).expect("it is UTF-8");
        if let Some(mut pipe) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("it is UTF-8");
        }
        let status = self.child.wait().expect("it ends");
        Ran { code: status.code().unwrap_or(-1), stdout, stderr }
    }

    /// Kills the runner at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Desk {
    /// Lets the runner clean up, so that the place finds nothing left.
    fn drop(&mut self) {
        drop(self.calls.take());
        if std::thread::panicking() {
            // A call may be under way that nobody waits for; the place removes what is left.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Answer {
    /// The text for the model.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        self.0["text"].as_str().unwrap_or_else(|| panic!("no text in {}", self.0))
    }

    /// True for an error result.
    pub(crate) fn is_error(&self) -> bool {
        self.0["is_error"] == true
    }

    /// The machine-readable cause of an error result.
    pub(crate) fn cause(&self) -> &str {
        self.0["cause"].as_str().unwrap_or_default()
    }

    /// What else the result holds.
    pub(crate) fn details(&self) -> &Value {
        &self.0["details"]
    }

    /// How long a command took.
    #[track_caller]
    pub(crate) fn duration(&self) -> Duration {
        let duration = self.details()["duration_ms"].as_u64();
        Duration::from_millis(duration.unwrap_or_else(|| panic!("no duration in {}", self.0)))
    }

    /// Asserts that it is no error and returns the text.
    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert!(!self.is_error(), "{}", self.0);
        self.text()
    }

    /// Asserts that it is an error with this cause and returns the text.
    #[track_caller]
    pub(crate) fn fails(&self, cause: &str) -> &str {
        assert!(self.is_error() && self.cause() == cause, "not {cause}: {}", self.0);
        self.text()
    }
}
