//! One step of a build: a program that runs as root in namespaces of its own, so that nothing of it outlives this process.
//!
//! `unshare` gives it a mount namespace, in which mounts end with the step, and a process namespace, whose processes the
//! kernel kills together; `setpriv` ties the whole to this process. Both are of util-linux, which no Debian lacks.

use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::debian::{DebianError, Progress};

/// Where programs are looked for: root's usual places.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of ours that a step sees besides its own, in both spellings.
const PASSED: [&str; 4] = ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy"];

/// Lines of its output that are shown when it fails.
const KEPT: usize = 12;

/// Longest line of output in bytes that is looked at.
const LONGEST: u64 = 4096;

/// How long the processes of a killed step may take to be gone.
const KILLED: Duration = Duration::from_secs(10);

/// A program to run.
pub(super) struct Step<'a> {
    /// What it is for, as in "cannot {what}".
    pub(super) what: &'static str,
    /// The root directory that it sees, if not ours; it gets a /proc.
    pub(super) root: Option<&'a Path>,
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// The proxy, when the environment names none.
    pub(super) proxy: Option<&'a str>,
}

impl Step<'_> {
    /// Runs it to its end, or to nobody's interest in it.
    pub(super) async fn run(
        &self,
        progress: &dyn Fn(Progress<'_>),
        cancel: &CancellationToken,
    ) -> Result<(), DebianError> {
        let failed = |why: String, output: Vec<String>| DebianError::Step { what: self.what, why, output };
        let mut child = self.command().spawn().map_err(|error| failed(error.to_string(), Vec::new()))?;
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut last = VecDeque::new();
        let read = async {
            // All of its processes hold the pipe, so the end of it is the end of them.
            while let Some(line) = next_line(&mut output).await {
                progress(Progress::Line(&line));
                last.push_back(line);
                if last.len() > KEPT {
                    last.pop_front();
                }
            }
        };
        let cancelled = tokio::select! {
            () = read => false,
            () = cancel.cancelled() => true,
        };
        if cancelled {
            // It may have ended just now.
            let _ = child.start_kill();
            let _ = child.wait().await;
            let gone = async { while next_line(&mut output).await.is_some() {} };
            let _ = timeout(KILLED, gone).await;
            return Err(DebianError::Interrupted);
        }
        let status = child.wait().await.map_err(|error| failed(error.to_string(), Vec::new()))?;
        if status.success() { Ok(()) } else { Err(failed(status.to_string(), last.into())) }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
        if let Some(root) = self.root {
            let mut option = OsString::from("--root=");
            option.push(root);
            command.args([OsStr::new("--mount-proc"), &option]);
        }
        // Both streams go into one pipe, in the order in which they are written.
        command.args(["--", "/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"]).args(&self.command);
        command.env_clear().env("PATH", PATH).env("HOME", "/root").env("LC_ALL", "C.UTF-8");
        for name in PASSED {
            for name in [name.to_owned(), name.to_ascii_uppercase()] {
                if let Some(value) = env::var_os(&name) {
                    command.env(name, value);
                }
            }
        }
        if let Some(proxy) = self.proxy.filter(|_| env::var_os("http_proxy").is_none()) {
            command.env("http_proxy", proxy);
        }
        // A process group of its own: Ctrl-C is for us, and we end it in order.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
        command
    }
}

/// The next line, its end cut off when it is very long.
async fn next_line(output: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = (&mut *output).take(LONGEST).read_until(b'\n', &mut line).await;
    read.ok().filter(|bytes| *bytes > 0).map(|_| String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(script: &str, cancel: &CancellationToken) -> (Result<(), DebianError>, Vec<String>) {
        let lines = std::cell::RefCell::new(Vec::new());
        let step = Step {
            what: "try",
            root: None,
            command: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
            proxy: None,
        };
        let see = |progress: Progress<'_>| {
            if let Progress::Line(line) = progress {
                lines.borrow_mut().push(line.to_owned());
                if line == "cancel" {
                    cancel.cancel();
                }
            }
        };
        let ended = step.run(&see, cancel).await;
        (ended, lines.into_inner())
    }

    fn is_root() -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// Both streams in order; a failure keeps the last words.
    #[tokio::test]
    async fn output_is_seen_and_kept_for_the_message() {
        if !is_root() {
            return;
        }
        let token = CancellationToken::new();
        let (ended, lines) = run("echo out; echo err >&2; test \"$$\" -eq 1", &token).await;
        assert!(ended.is_ok());
        assert_eq!(lines, ["out", "err"]);
        let (ended, _) = run("seq 100; exit 3", &token).await;
        let Err(DebianError::Step { why, output, .. }) = ended else { panic!("{ended:?}") };
        assert_eq!((why.as_str(), output.len(), output[11].as_str()), ("exit status: 3", KEPT, "100"));
    }

    /// A cancelled step is gone with all that it started when it returns, daemons included.
    #[tokio::test]
    async fn a_cancelled_step_leaves_no_process_and_no_mount() {
        if !is_root() {
            return;
        }
        let token = CancellationToken::new();
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "mount -t tmpfs none {0} && touch {0}/inside; setsid sleep 654321 & trap '' TERM; echo cancel; sleep 654322",
            folder.path().display()
        );
        let (ended, _) = run(&script, &token).await;
        assert!(matches!(ended, Err(DebianError::Interrupted)), "{ended:?}");
        for entry in std::fs::read_dir("/proc").unwrap() {
            let line = std::fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            assert!(!line.starts_with("sleep 65432"), "{line}");
        }
        assert!(!folder.path().join("inside").exists());
    }
}
