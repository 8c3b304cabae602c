//! Whole sandboxes on a real engine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use protocol::{Cause, End, ListEntry, Outcome, Request};
use tempfile::TempDir;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{bash, call, read, write};
use crate::sandbox::call::{CallError, GoneKind, Reply, ToolCall};
use crate::sandbox::engine::{Engine, EngineError};
use crate::sandbox::image::{MINIMAL, Programs};
use crate::sandbox::limits::{Limits, Wanted};
use crate::sandbox::{Order, Sandbox, SandboxError};
use crate::state::{State, random_hex};

/// A state directory, an agent's folder and an engine.
pub(super) struct Home {
    root: TempDir,
    pub(super) engine: Engine,
    pub(super) state: State,
}

impl Home {
    pub(super) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let state = State::open_at(&root.path().join("state")).unwrap();
        let agent = root.path().join("agent");
        std::fs::create_dir(&agent).unwrap();
        std::fs::write(agent.join("SKILL.md"), "---\nname: tester\n---\nTest.\n").unwrap();
        let engine = Engine::connect(None).await.unwrap();
        if let Err(EngineError::NoImage { .. }) = engine.image(MINIMAL).await {
            engine.build_minimal(&Programs::find().unwrap()).await.unwrap();
        }
        Self { root, engine, state }
    }

    pub(super) fn order(&self) -> Order {
        let wanted = Wanted {
            memory: Some("128m".to_owned()),
            pids: Some(64),
            tmp_size: Some("32m".to_owned()),
            ..Wanted::default()
        };
        Order {
            session: random_hex(),
            name: format!("link-{}", random_hex()),
            image: MINIMAL.to_owned(),
            limits: Limits::resolve(&wanted, self.engine.facts().ncpu).unwrap(),
            runtime: None,
            orphan_grace: 60,
            agent: self.root.path().join("agent"),
        }
    }

    pub(super) async fn start(&self) -> Sandbox {
        Sandbox::start(&self.engine, &self.state, self.order()).await.unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Nothing of any session is left.
    pub(super) async fn assert_clean(&self) {
        assert_eq!(self.engine.list_by_token(self.state.token()).await.unwrap(), []);
        assert!(self.state.session_folders().unwrap().is_empty());
    }

    pub(super) async fn stop(&self, sandbox: Sandbox) {
        sandbox.stop().await.unwrap();
        self.assert_clean().await;
    }
}

pub(super) async fn run(sandbox: &Sandbox, key: &str, command: &str) -> Reply {
    sandbox.call(bash(key, command.to_owned())).await.unwrap()
}

pub(super) fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.payload).into_owned()
}

fn ls(key: &str, path: &str) -> ToolCall {
    call(key, Request::Ls { path: Some(path.to_owned()), limit: 100 }, "")
}

/// All four tools and both copies, then nothing is left.
#[tokio::test]
async fn a_sandbox_works_and_leaves_nothing() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    assert!(sandbox.notices().is_empty(), "{:?}", sandbox.notices());
    sandbox.ping().await.unwrap();

    let reply = run(&sandbox, "s/1/0", "echo hi; pwd; id -u; cat SKILL.md").await;
    let agent = sandbox.ids().agent;
    assert_eq!(text(&reply), format!("hi\n/app/static\n{agent}\n---\nname: tester\n---\nTest.\n"));
    sandbox.forget("s/1/0");

    let reply = sandbox.call(write("s/1/1", "/tmp/a/b.txt", "one\ntwo\n")).await.unwrap();
    assert!(matches!(&reply.outcome, Outcome::Written { path, bytes: 8, replaced: false } if path == "/tmp/a/b.txt"));
    let reply = sandbox.call(read("s/1/2", "/tmp/a/b.txt")).await.unwrap();
    assert_eq!((text(&reply).as_str(), matches!(reply.outcome, Outcome::Text(_))), ("one\ntwo\n", true));
    let reply = sandbox.call(ls("s/1/3", "/tmp/a")).await.unwrap();
    let names: Vec<ListEntry> = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!(names.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["b.txt"]);
    let reply = sandbox.call(read("s/1/4", "/tmp/nothing")).await.unwrap();
    assert!(matches!(reply.outcome, Outcome::Failed { cause: Cause::NotFound, .. }), "{:?}", reply.outcome);

    let big = vec![b'z'; 5_000_000];
    let reply = sandbox.call(write("s/1/5", "/tmp/big", big.clone())).await.unwrap();
    assert!(matches!(reply.outcome, Outcome::Written { bytes: 5_000_000, .. }), "{:?}", reply.outcome);
    std::fs::create_dir_all(home.path("in/sub")).unwrap();
    std::fs::write(home.path("in/sub/file"), &big).unwrap();
    let put = sandbox.put(&home.path("in"), "/tmp/in").await.unwrap();
    assert_eq!((put.files, put.bytes), (1, 5_000_000));
    let reply = run(&sandbox, "s/2/0", "cmp /tmp/big /tmp/in/sub/file && stat -c %u /tmp/in/sub/file").await;
    assert_eq!(text(&reply), format!("{agent}\n"));
    let got = sandbox.get("/tmp/in", &home.path("out")).await.unwrap();
    assert_eq!((got.files, got.bytes), (1, 5_000_000));
    assert!(std::fs::read(home.path("out/in/sub/file")).unwrap() == big);

    let begin = Instant::now();
    home.stop(sandbox).await;
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}

/// bug 19, T-8: many calls at once keep their own output.
#[tokio::test]
async fn calls_run_at_once() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    for round in 0..10 {
        let calls = (0..20).map(|n| {
            let key = format!("s/{round}/{n}");
            let sandbox = &sandbox;
            async move {
                let reply = run(sandbox, &key, &format!("echo {key}")).await;
                sandbox.forget(&key);
                assert_eq!(text(&reply), format!("{key}\n"));
            }
        });
        futures_util::future::join_all(calls).await;
    }
    home.stop(sandbox).await;
}

/// bug 12 and 34: the container or its PID 1 is killed behind our back; the session knows and calls fail fast.
#[tokio::test]
async fn death_is_noticed() {
    let home = Home::new().await;
    for kill in [&["rm", "-f"][..], &["kill"]] {
        let sandbox = home.start().await;
        let call = bash("s/1/0", "sleep 60");
        let (reply, ()) = tokio::join!(sandbox.call(call), async {
            run(&sandbox, "s/1/1", "true").await;
            let status = tokio::process::Command::new("docker")
                .args(kill)
                .arg(sandbox.container_id())
                .stdout(std::process::Stdio::null())
                .status();
            assert!(status.await.unwrap().success());
        });
        let CallError::Gone(gone) = reply.unwrap_err() else { panic!("not gone") };
        assert_eq!(gone.kind, GoneKind::Died);
        // Between its death and its removal a container is still there.
        assert!(gone.message.contains("exit code 137") || gone.message.contains("removed"), "{gone}");
        assert_eq!(timeout(Duration::from_secs(10), sandbox.gone()).await.unwrap(), gone);
        let later = sandbox.call(read("s/1/2", "/tmp/x")).await;
        assert_eq!(later.unwrap_err().cause(), Cause::SandboxGone);
        home.stop(sandbox).await;
    }
}

/// bug 34, T-BASH-8: the memory limit and the process limit are told apart from other failures.
#[tokio::test]
async fn limits_are_named() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let reply = run(&sandbox, "s/1/0", "exit 3").await;
    assert!(!reply.oom && !reply.pids && !reply.is_success());
    let reply = run(&sandbox, "s/1/1", "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}").await;
    assert!(reply.oom, "{reply:?}");
    let reply = run(&sandbox, "s/1/2", "for i in $(seq 100); do sleep 5 & done; exit 1").await;
    assert!(reply.pids && !reply.oom, "{reply:?}");
    let reply = run(&sandbox, "s/1/3", "echo alive; exit 1").await;
    assert_eq!((text(&reply).as_str(), reply.oom, reply.pids), ("alive\n", false, false));
    home.stop(sandbox).await;
}

/// T-10, bug 5: cancel ends a command, and the sandbox works on.
#[tokio::test]
async fn cancel_ends_a_command() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let call = bash("s/1/0", "trap '' TERM; echo begun; while :; do sleep 1; done");
    let cancel = call.cancel.clone();
    let begin = Instant::now();
    let (reply, ()) = tokio::join!(sandbox.call(call), async {
        run(&sandbox, "s/1/1", "sleep 0.3").await;
        cancel.cancel();
    });
    let reply = reply.unwrap();
    assert!(matches!(&reply.outcome, Outcome::Bash(end) if end.end == End::Cancelled), "{reply:?}");
    assert_eq!(text(&reply), "begun\n");
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    let reply = run(&sandbox, "s/1/2", "echo on").await;
    assert_eq!(text(&reply), "on\n");
    home.stop(sandbox).await;
}

/// A runner process dies in the middle of calls; the next one takes them up: running, finished and never begun.
#[tokio::test]
async fn another_runner_takes_the_calls_up() {
    let home = Home::new().await;
    let order = home.order();
    let (session, name) = (order.session.clone(), order.name.clone());
    let sandbox = Sandbox::start(&home.engine, &home.state, order).await.unwrap();
    run(&sandbox, "s/1/0", "echo finished").await;
    let running = timeout(Duration::from_millis(300), async {
        let call = bash("s/1/1", "sleep 2; echo running");
        // The process dies before it can cancel anything: its link ends first.
        tokio::join!(sandbox.call(call), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sandbox.break_link();
        })
    });
    assert!(matches!(running.await.unwrap().0, Err(CallError::Gone(_))));
    drop(sandbox);
    let keys: Vec<String> = (0..3).map(|n| format!("s/1/{n}")).collect();
    let sandbox = Sandbox::resume(&home.engine, &home.state, &session, &name, 60, &keys).await.unwrap();
    let take = async |key: &str| sandbox.take_up(key, Duration::from_secs(20), &CancellationToken::new()).await;
    assert_eq!(text(&take("s/1/0").await.unwrap()), "finished\n");
    assert_eq!(text(&take("s/1/1").await.unwrap()), "running\n");
    assert!(matches!(take("s/1/2").await, Err(CallError::Interrupted)));
    let reply = sandbox.call(write("s/2/0", "/tmp/x", "works on")).await.unwrap();
    assert!(reply.is_success(), "{reply:?}");
    home.stop(sandbox).await;
}

/// The link breaks again and again under calls with small and large bodies: each runs once and has its one reply, or is
/// interrupted and did not run.
#[tokio::test]
async fn calls_outlive_their_connection() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let mut interrupted = Vec::new();
    for round in 0..60_u64 {
        let work = async |n: usize| {
            let key = format!("s/{round}/{n}");
            let padding = "#".repeat(n * 150_000);
            let reply = sandbox.call(bash(&key, format!("echo {key} >> /tmp/log; echo {key}\n{padding}"))).await;
            sandbox.forget(&key);
            match reply {
                Ok(reply) => assert_eq!(text(&reply), format!("{key}\n")),
                Err(CallError::Interrupted) => return Some(key),
                Err(error) => panic!("{key}: {error}"),
            }
            None
        };
        let (calls, ()) = tokio::join!(futures_util::future::join_all((0..5).map(work)), async {
            for step in 0..3 {
                tokio::time::sleep(Duration::from_micros(round * 137 % 3_000 + step * 500)).await;
                sandbox.sever();
            }
        });
        interrupted.extend(calls.into_iter().flatten());
    }
    let reply = run(&sandbox, "s/60/0", "wc -l < /tmp/log; sort -u /tmp/log | wc -l; tail -c 40000 /tmp/log").await;
    let log = text(&reply);
    let done = 300 - interrupted.len();
    assert!(log.starts_with(&format!("{done}\n{done}\n")), "{} interrupted: {log}", interrupted.len());
    assert!(interrupted.iter().all(|key| !log.lines().any(|line| line == key)));
    home.stop(sandbox).await;
}

/// Security 4: a worker that hangs or dies is replaced, and the call that met it is answered. Only root can do that to it.
#[tokio::test]
async fn a_hanging_or_dead_worker_is_replaced() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let home = Home::new().await;
    let sandbox = home.start().await;
    sandbox.call(write("s/0/0", "/tmp/x", "content")).await.unwrap();
    let mut seen = Vec::new();
    for (round, signal) in [Signal::SIGSTOP, Signal::SIGKILL].into_iter().enumerate() {
        let worker = processes_of(sandbox.ids().worker);
        assert!(worker.len() == 1 && !seen.contains(&worker[0]), "{worker:?} after {seen:?}");
        nix::sys::signal::kill(Pid::from_raw(worker[0]), signal).unwrap();
        seen.extend(worker);
        let reply = sandbox.call(read(&format!("s/1/{round}"), "/tmp/x")).await.unwrap();
        assert_eq!(text(&reply), "content");
        let replaced = async {
            while processes_of(sandbox.ids().worker).iter().all(|pid| seen.contains(pid)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), replaced).await.unwrap();
        // A server of its own for the call has the same uid and goes right after.
        let alone = async {
            while processes_of(sandbox.ids().worker).len() != 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), alone).await.unwrap();
    }
    let reply = sandbox.call(read("s/2/0", "/tmp/x")).await.unwrap();
    assert_eq!(text(&reply), "content");
    home.stop(sandbox).await;
}

/// Processes of this real uid that are not zombies, as the host numbers them.
fn processes_of(uid: u32) -> Vec<i32> {
    let line = format!("Uid:\t{uid}\t");
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|status| status.contains(&line) && !status.contains("State:\tZ"))
        })
        .collect()
}

/// T-7, bug 15: what a sandbox floods does not stay on the host.
#[tokio::test]
async fn floods_are_bounded_on_the_host() {
    let home = Home::new().await;
    let sandboxes = [home.start().await, home.start().await];
    let before = resident_kib();
    let floods = (0..8).map(|n| {
        let sandbox = &sandboxes[n % 2];
        async move {
            let mut call = bash(&format!("s/1/{n}"), "cat /dev/zero | tr '\\0' x".to_owned());
            call.timeout = Duration::from_secs(2);
            let reply = sandbox.call(call).await.unwrap();
            let Outcome::Bash(end) = &reply.outcome else { panic!("{reply:?}") };
            assert!(end.end == End::TimedOut && end.total_bytes > 1_000_000, "{end:?}");
            assert!(reply.payload.len() <= 51_200, "{}", reply.payload.len());
        }
    });
    futures_util::future::join_all(floods).await;
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB");
    for sandbox in sandboxes {
        sandbox.stop().await.unwrap();
    }
    home.assert_clean().await;
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Whatever makes a start fail, nothing is left; a start that nobody waits for is undone.
#[tokio::test]
async fn a_failed_start_leaves_nothing() {
    let home = Home::new().await;
    let missing = Order { image: "runner/no-such-image".to_owned(), ..home.order() };
    let error = Sandbox::start(&home.engine, &home.state, missing).await.unwrap_err();
    assert!(matches!(error, SandboxError::Engine(EngineError::NoImage { .. })), "{error}");
    let no_agent = Order { agent: PathBuf::from("/no/such/agent"), ..home.order() };
    let error = Sandbox::start(&home.engine, &home.state, no_agent).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/agent"), "{error}");
    let runtime = Order { runtime: Some("no-such-runtime".to_owned()), ..home.order() };
    let error = Sandbox::start(&home.engine, &home.state, runtime).await.unwrap_err();
    assert!(error.to_string().contains("no-such-runtime"), "{error}");
    home.assert_clean().await;

    let abandoned = timeout(Duration::from_millis(60), home.start()).await;
    assert!(abandoned.is_err());
    timeout(Duration::from_secs(30), async {
        while !home.state.session_folders().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    home.assert_clean().await;
}

/// The socket path may be longer than a socket's name can be.
#[tokio::test]
async fn a_long_state_path_works() {
    let home = Home::new().await;
    let long = home.path(&"x".repeat(100)).join("y".repeat(100));
    let state = State::open_at(Path::new(&long)).unwrap();
    let sandbox = Sandbox::start(&home.engine, &state, home.order()).await.unwrap();
    assert_eq!(text(&run(&sandbox, "s/1/0", "echo hi").await), "hi\n");
    sandbox.stop().await.unwrap();
    assert!(state.session_folders().unwrap().is_empty());
}
