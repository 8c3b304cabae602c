//! Hears at once when a container's PID 1 dies.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
