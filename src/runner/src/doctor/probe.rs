//! Limits that bite: a sandbox made the ordinary way, and what it does when its limits are met and its walls are tried.
//!
//! It is a session like any other, of an agent called `doctor`: recorded before it is made, so that whatever happens to
//! this process, the next one removes it.

use std::sync::Arc;
use std::time::Duration;

use protocol::Cause;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Finding, NO_ENGINE, Usable};
use crate::sandbox::limits::{Limits, Wanted};
use crate::sandbox::{Order, Sandbox};
use crate::session::journal::{EndCause, Event, Journal, Started};
use crate::session::owner::Owner;
use crate::state::{State, random_hex};
use crate::store::{Container, Generation, NewSession, Store};
use crate::tools::{Context, Registry, ToolResult, ToolSession};

/// How long the sandbox may take to start.
const START: Duration = Duration::from_mins(1);

/// How long one try may take.
const TRY: u64 = 20;

/// The tries, and the shell command of each. They need a bash or a plain sh, head and sleep.
const TRIES: [(&str, &str); 6] = [
    ("memory-limit", "x=x; while :; do x=$x$x; done"),
    (
        "pids-limit",
        "sh -c 'for i in 0 1 2 3 4 5; do for j in 0 1 2 3 4 5 6 7; do sleep 30 & done; done' 2>/dev/null; exit 1",
    ),
    ("tmp-size", "head -c 16777216 /dev/zero >/tmp/fill"),
    // Interfaces but the loopback, and routes.
    (
        "network",
        "rm -f /tmp/fill; while IFS=: read -r name rest; do case $name in *'|'*|*' lo') ;; *) [ -z \"$rest\" ] || echo \"interface$name\" ;; esac; \
         done </proc/net/dev; while read -r name rest; do case $name in Iface) ;; *) echo \"route by $name\" ;; esac; done </proc/net/route",
    ),
    // A filter is on, and a call that it must refuse and that a plain user may make elsewhere is refused.
    (
        "syscall-filter",
        "while read -r name value; do case $name in Seccomp:) [ \"$value\" = 2 ] || echo \"seccomp mode $value\" ;; esac; done \
         </proc/self/status; if command -v unshare >/dev/null 2>&1; then unshare -U true 2>/dev/null && echo 'unshare works'; fi; :",
    ),
    // /proc/1/mem and its like are under the kernel's check for ptrace.
    (
        "pid-1",
        "kill -9 1 2>/dev/null && echo 'kill reached it'; for file in environ mem maps auxv; do { read -r -n 1 x </proc/1/$file; } \
         2>/dev/null && echo \"/proc/1/$file can be read\"; { : >>/proc/1/$file; } 2>/dev/null && echo \"/proc/1/$file can be written\"; \
         done; for link in exe root cwd; do [ -r /proc/1/$link ] && echo \"/proc/1/$link can be followed\"; done; :",
    ),
];

pub(super) async fn examine(
    engine: Option<&Usable>,
    state: Option<&State>,
    store: Option<&Arc<dyn Store>>,
    image: Option<&str>,
    see: &mut impl FnMut(Finding),
) {
    let skip = |why: &str, see: &mut dyn FnMut(Finding)| {
        for check in ["sandbox"].into_iter().chain(TRIES.map(|(check, _)| check)) {
            see(Finding::skipped(check, why));
        }
    };
    let Some(usable) = engine else { return skip(NO_ENGINE, see) };
    let (Some(state), Some(store)) = (state, store) else {
        return skip("not tried: without records nobody would know whose the sandbox is", see);
    };
    let Some(image) = image else { return skip("not tried: none of our images is there", see) };
    let probe = Probe { usable, state, store, image };
    match probe.begin().await {
        Ok(running) => {
            see(Finding::fine(
                "sandbox",
                format!("started from {image}, landlock {}", running.sandbox.facts().landlock),
            ));
            for (check, command) in TRIES {
                see(running.try_out(check, command).await);
            }
            if let Err(why) = running.end().await {
                see(Finding::error(
                    "sandbox",
                    format!("it could not be removed: {why}"),
                    "`runner doctor --fix` tries again",
                ));
            }
        }
        Err(why) => {
            let (seen, remedy) = why.split_once("; ").unwrap_or((&why, "see runner.log in the state directory"));
            see(Finding::error("sandbox", format!("it did not start: {seen}"), remedy));
            for (check, _) in TRIES {
                see(Finding::skipped(check, "not tried: there is no sandbox"));
            }
        }
    }
}

struct Probe<'a> {
    usable: &'a Usable,
    state: &'a State,
    store: &'a Arc<dyn Store>,
    image: &'a str,
}

/// A sandbox to try things in.
struct Running {
    sandbox: Sandbox,
    journal: Journal,
    limits: Limits,
    id: String,
    _owner: Owner,
    _agent: tempfile::TempDir,
}

impl Probe<'_> {
    /// Records a session and makes its sandbox.
    async fn begin(self) -> Result<Running, String> {
        let wanted = Wanted {
            memory: Some("64m".to_owned()),
            pids: Some(32),
            tmp_size: Some("4m".to_owned()),
            tmp_inodes: Some(1024),
            cpus: None,
        };
        let limits =
            Limits::resolve(&wanted, self.usable.engine.facts().ncpu).map_err(|errors| errors[0].to_string())?;
        let agent = agent_folder().map_err(|error| format!("a folder for the agent: {error}"))?;
        let owner = Owner::claim(self.state).map_err(|error| error.to_string())?;
        let (id, name) = (Uuid::now_v7().to_string(), random_hex());
        let started = Started { agent: "doctor".to_owned(), image: self.image.to_owned(), ..Started::default() };
        let session = NewSession {
            id: id.clone(),
            project: self.state.root().display().to_string(),
            agent: "doctor".to_owned(),
            owner: owner.id().clone(),
            container: Some(name.clone()),
            keep: false,
            place: crate::store::Place::default(),
        };
        let key = self
            .store
            .create_session(session, Event::Started(started).to_row())
            .await
            .map_err(|error| error.to_string())?;
        let journal = Journal::new(Arc::clone(self.store), key, Generation::FIRST);
        let order = Order {
            session: id.clone(),
            name: name.clone(),
            image: self.image.to_owned(),
            limits,
            runtime: None,
            orphan_grace: 10,
            agent: agent.path().to_owned(),
        };
        let started = timeout(START, Sandbox::start(&self.usable.engine, self.state, order)).await;
        let failed = match started {
            Ok(Ok(sandbox)) => {
                let container = Container { name, id: Some(sandbox.container_id().to_owned()) };
                // A container without a recorded id is found by its name.
                let _ = self.store.set_container(key, Generation::FIRST, container).await;
                return Ok(Running { sandbox, journal, limits, id, _owner: owner, _agent: agent });
            }
            Ok(Err(error)) => crate::exit::chain(&error),
            Err(_) => format!("nothing came of it in {} s", START.as_secs()),
        };
        let removed = Sandbox::remove(&self.usable.engine, self.state, &id, &name).await.is_ok();
        // The failure is what is reported; a record that cannot be closed is closed by the next runner.
        let _ = journal.end(EndCause::Failed, failed.clone(), removed).await;
        Err(failed)
    }
}

/// An agent's folder with nothing in it that matters.
fn agent_folder() -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("runner-doctor-").tempdir()?;
    std::fs::write(folder.path().join("SKILL.md"), "Be tried out.\n")?;
    Ok(folder)
}

impl Running {
    async fn try_out(&self, check: &'static str, command: &str) -> Finding {
        let registry = Registry::transport();
        let session = ToolSession::new(Duration::from_secs(TRY), self.limits, false);
        let result = match registry.prepare("bash", json!({"command": command, "timeout": TRY})) {
            Ok(ready) => {
                let context = Context {
                    hands: &self.sandbox,
                    session: &session,
                    key: &format!("{}/1/{check}", self.id),
                    remaining: Duration::from_secs(TRY),
                    cancel: &CancellationToken::new(),
                    fleet: None,
                };
                ready.result(context).await
            }
            Err(refused) => *refused,
        };
        judge(check, &result)
    }

    /// Removes the sandbox and records the end.
    async fn end(self) -> Result<(), String> {
        let stopped = self.sandbox.stop().await;
        let ended = self.journal.end(EndCause::Done, "the doctor is done".to_owned(), stopped.is_ok()).await;
        stopped.map_err(|error| error.to_string()).and(ended.map_err(|error| error.to_string()))
    }
}

/// What a try shows: a limit must have been the cause, and what must not be possible says nothing.
fn judge(check: &'static str, result: &ToolResult) -> Finding {
    let bites = |cause: Cause, fine: &str| {
        if result.cause == Some(cause) {
            return Finding::fine(check, fine);
        }
        let seen = format!("it did not bite: {}", shown(result));
        Finding::error(check, seen, "see which cgroup controllers containers have, and what the engine's runtime is")
    };
    match check {
        "memory-limit" => bites(Cause::Oom, "a command that ate 64 MiB was killed, its sandbox lives"),
        "pids-limit" => bites(Cause::Pids, "a command that started 48 processes met the limit of 32"),
        "tmp-size" => bites(Cause::NoSpace, "a file of 16 MiB did not fit into a /tmp of 4 MiB"),
        _ if !result.is_error && result.text == "(no output)" => Finding::fine(
            check,
            match check {
                "network" => "no interface but the loopback, and no route",
                "syscall-filter" => "on, and unshare is refused",
                _ => "its memory, environment and links cannot be reached, nor can it be killed",
            },
        ),
        _ => {
            let remedy =
                "do not run agents here; see docs/troubleshooting.md and report it with the output of `docker info`";
            Finding::error(check, shown(result), remedy)
        }
    }
}

fn shown(result: &ToolResult) -> String {
    let text: String = result.text.chars().take(300).collect();
    text.replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::super::Level;
    use super::*;

    /// A try's command with paths of /proc replaced by files of a test, and what it prints.
    fn printed(check: &str, replace: &[(&str, &str)]) -> String {
        let (_, command) = TRIES.into_iter().find(|(name, _)| *name == check).unwrap();
        let command = replace.iter().fold(command.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{text} lacks {from}");
            text.replace(from, to)
        });
        let ran = Command::new("bash").args(["-c", &command]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// The tries see what they are for: elsewhere they do find something.
    #[test]
    fn a_hole_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let heads = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n";
        let (closed, open) =
            (file("lo", &format!("{heads}    lo: 1 2\n")), file("eth", &format!("{heads}    lo: 1 2\n  eth0: 1\n")));
        let (none, one) = (file("none", "Iface\tDestination\n"), file("one", "Iface\tDestination\neth0\t00000000\n"));
        let network = |dev: &str, route: &str| {
            printed("network", &[("rm -f /tmp/fill; ", ""), ("/proc/net/dev", dev), ("/proc/net/route", route)])
        };
        assert_eq!(network(&closed, &none), "");
        assert_eq!(network(&open, &one), "interface  eth0\nroute by eth0\n");

        let status = file("status", "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n");
        let seccomp =
            |unshare| printed("syscall-filter", &[("/proc/self/status", &status), ("unshare -U true", unshare)]);
        assert!(seccomp("true").starts_with("seccomp mode 0\n") && seccomp("true").lines().count() <= 2);
        assert_eq!(seccomp("false"), "seccomp mode 0\n");

        for name in ["environ", "mem", "maps", "auxv", "exe", "root", "cwd"] {
            file(name, "x");
        }
        let init = format!("{}/", place.path().display());
        let pid_1 = |init: &str, kill: &str| printed("pid-1", &[("kill -9 1", kill), ("/proc/1/", init)]);
        let all = pid_1(&init, "true");
        assert_eq!(all.lines().count(), 1 + 4 * 2 + 3, "{all}");
        assert_eq!(pid_1("/nowhere/", "false"), "");
    }

    #[test]
    fn a_limit_must_have_been_the_cause() {
        let result = |cause: Option<Cause>, text: &str| ToolResult {
            is_error: cause.is_some(),
            cause,
            text: text.to_owned(),
            ..ToolResult::default()
        };
        assert_eq!(judge("memory-limit", &result(Some(Cause::Oom), "")).level, Level::Fine);
        for (check, cause, text) in [
            ("memory-limit", None, "(no output)"),
            ("memory-limit", Some(Cause::Timeout), ""),
            ("pids-limit", Some(Cause::Exit), ""),
            ("tmp-size", None, "(no output)"),
            ("network", None, "interface eth0"),
            ("pid-1", Some(Cause::Exit), "(no output)"),
            ("syscall-filter", None, "unshare works"),
        ] {
            let finding = judge(check, &result(cause, text));
            assert_eq!((finding.level, finding.remedy.is_some()), (Level::Error, true), "{finding:?}");
        }
    }
}
