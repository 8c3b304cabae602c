//! The processes of a sandbox as the host sees them: nothing inside can hide from that.

use std::fs;
use std::time::{Duration, Instant};

/// The user and group ids of one session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// The agent's; the worker's follows, then the tags of commands.
    agent: u32,
}

/// Ids of a session.
const IDS: u32 = 64;

impl Block {
    /// The block whose agent has this user id.
    pub(crate) fn of(agent: u32) -> Self {
        assert!(agent >= 20_000, "{agent} is no id of a session");
        Self { agent }
    }

    /// Every process with an id of the session, but for PID 1 (root's) and file workers: what commands left. Zombies count.
    pub(crate) fn commands(self) -> Vec<String> {
        let entries =
            fs::read_dir("/proc").expect("Linux").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = entries.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // One that ends in the meantime is none.
        pids.filter_map(|pid| self.command(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)).collect()
    }

    /// Asserts that no command left a process.
    #[track_caller]
    pub(crate) fn assert_empty(self) {
        assert_eq!(self.commands(), Vec::<String>::new(), "processes of commands are left");
    }

    /// Waits until at least this many processes of commands are there.
    #[track_caller]
    pub(crate) fn wait_for(self, count: usize) {
        self.wait_until(|commands| commands.len() >= count);
    }

    /// Waits until no process of a command is there.
    #[track_caller]
    pub(crate) fn wait_until_empty(self) {
        self.wait_until(<[String]>::is_empty);
    }

    #[track_caller]
    fn wait_until(self, holds: impl Fn(&[String]) -> bool) {
        let begun = Instant::now();
        loop {
            let commands = self.commands();
            if holds(&commands) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "30 s passed and there are: {commands:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process in words, when it is a command's.
    fn command(self, status: &str) -> Option<String> {
        let ours = self.agent..self.agent + IDS;
        let ids = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
        };
        let users = ids("Uid:");
        let is_worker = users.first() == Some(&(self.agent + 1));
        let any = users.iter().chain(&ids("Gid:")).chain(&ids("Groups:")).any(|id| ours.contains(id));
        let shown = |line: &&str| ["Name:", "State:", "Pid:", "Uid:"].iter().any(|name| line.starts_with(name));
        (any && !is_worker).then(|| status.lines().filter(shown).collect::<Vec<_>>().join(" "))
    }
}

/// Memory that a process has in use, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes * 1024
}
