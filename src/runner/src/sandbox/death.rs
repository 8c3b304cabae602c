//! Hears at once when a container's PID 1 dies, and says of what.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::call::{Gone, GoneKind};
use super::engine::{Engine, EngineError, Status};
use super::link::Shared;

/// How long a death waits for the engine's word on it.
const WORD: Duration = Duration::from_secs(2);

/// A handle on one process, which no other can take the place of.
#[derive(Debug)]
pub(super) struct Init {
    handle: AsyncFd<OwnedFd>,
}

impl Init {
    /// Opens it. The caller knows by other means that the pid still is the process he means: PID 1 answers on its link.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "an owned descriptor is what the newer, unsafe constructor asks for")]
        let handle = AsyncFd::with_interest(handle, Interest::READABLE)?;
        Ok(Self { handle })
    }

    /// Waits until it has ended.
    pub(super) async fn died(&self) {
        // A pidfd becomes readable when the process ends (pidfd_open(2)); an error can only mean that it is gone too.
        let _ = self.handle.readable().await;
    }
}

/// Hears of PID 1's death, and kills the container of a sandbox that is gone for another reason.
pub(super) async fn watch(init: Init, link: Arc<Shared>, engine: Engine, id: String) {
    tokio::select! {
        () = init.died() => link.end(Gone::new(GoneKind::Died, last_word(&engine, &id).await)),
        gone = link.gone() => {
            warn!(%gone, "killing a sandbox");
            if let Err(error) = engine.kill(&id).await {
                warn!(%error, "killing a sandbox");
            }
        }
    }
}

/// What the engine says of a container whose PID 1 died. The engine hears of it a moment later than we do.
pub(super) async fn last_word(engine: &Engine, id: &str) -> String {
    let begin = Instant::now();
    let asking = async {
        loop {
            match engine.inspect(id).await {
                Err(EngineError::NoContainer(_)) => return "its container was removed by somebody else".to_owned(),
                Ok(found) if !matches!(found.status, Status::Running | Status::Paused) => {
                    let mut word = format!("its PID 1 ended with exit code {}", found.exit_code);
                    if found.oom_killed {
                        word.push_str("; the kernel had killed something in it at the memory limit");
                    }
                    if !found.error.is_empty() {
                        word.push_str(": ");
                        word.push_str(&found.error);
                    }
                    return word;
                }
                Err(error) if error.is_gone() => return format!("its PID 1 ended, and {error}"),
                _ if begin.elapsed() > WORD => return "its PID 1 ended".to_owned(),
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(WORD, asking).await.unwrap_or_else(|_| "its PID 1 ended".to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn death_is_heard() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let init = Init::open(child.id()).unwrap();
        assert!(timeout(Duration::from_millis(30), init.died()).await.is_err());
        child.kill().unwrap();
        timeout(Duration::from_secs(5), init.died()).await.unwrap();
        child.wait().unwrap();
        assert!(Init::open(child.id()).is_err());
    }
}
