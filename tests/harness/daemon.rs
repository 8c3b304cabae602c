//! `runner serve` as a child of the test, which is killed and started again.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::host::until;
use super::place::{Place, Ran};

/// What `serve` says when it takes work.
const READY: &str = "serving ";

/// A running `runner serve`. What it says goes into files, so that nobody has to read for it to go on.
pub(crate) struct Daemon {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Place {
    /// Starts a daemon for the project and waits until it is ready.
    #[track_caller]
    pub(crate) fn serve(&self) -> Daemon {
        let mut daemon = Daemon::of(self, self.serve_command());
        daemon.ready();
        daemon
    }

    /// Starts a daemon that dies at this crash point, perhaps before it is ready.
    pub(crate) fn serve_until(&self, point: &str) -> Daemon {
        let mut command = self.serve_command();
        command.env("RUNNER_CRASH_AT", point);
        Daemon::of(self, command)
    }

    /// The command of [`Place::serve`].
    pub(crate) fn serve_command(&self) -> Command {
        self.command(["serve"])
    }
}

impl Daemon {
    /// Starts a command that serves.
    pub(crate) fn of(place: &Place, mut command: Command) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = |kind| place.folder().join(format!("daemon-{}.{kind}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let (stdout, stderr) = (name("stdout"), name("stderr"));
        let file = |path| File::create(path).expect("the place is writable");
        let child = command.stdout(file(&stdout)).stderr(file(&stderr)).spawn().expect("the program starts");
        Self { child, stdout, stderr }
    }

    /// Waits until it says that it is ready.
    #[track_caller]
    pub(crate) fn ready(&mut self) {
        until("the daemon is ready", || {
            let ended = self.child.try_wait().expect("it is ours");
            let said = self.said();
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{said}");
            said.contains(READY)
        });
    }

    /// Process id of the daemon.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has said so far.
    pub(crate) fn said(&self) -> String {
        let text = |path: &PathBuf| std::fs::read_to_string(path).expect("it says UTF-8");
        text(&self.stdout) + &text(&self.stderr)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("it is ours and not waited for");
    }

    /// Asks it to leave, as `systemctl stop` does, and waits for its end.
    #[track_caller]
    pub(crate) fn stop(self) -> Ran {
        self.signal(Signal::SIGTERM);
        self.end()
    }

    /// Kills it at once, as a crash would.
    pub(crate) fn kill_9(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Waits until it dies of SIGKILL while `pending` says that there is something that it still has to do. False when
    /// nothing is left to do and it lives.
    #[track_caller]
    pub(crate) fn dies(mut self, mut pending: impl FnMut() -> bool) -> bool {
        let mut status: Option<ExitStatus> = None;
        until("the daemon dies or has done it all", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some() || !pending()
        });
        if let Some(status) = status {
            assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{}", self.said());
        }
        status.is_some()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ran {
        let mut status = None;
        until("the daemon ends", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        let code = status.and_then(|status| status.code().or_else(|| Some(128 + status.signal()?))).expect("it ended");
        let text = |path: &PathBuf| std::fs::read_to_string(path).expect("it says UTF-8");
        Ran { code, stdout: text(&self.stdout), stderr: text(&self.stderr) }
    }
}

impl Drop for Daemon {
    /// A test that failed shows what the daemon said, and leaves none behind.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the daemon said\n{}", self.said());
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
