//! The first frames of a connection, before it carries calls.

use std::io;

use protocol::{Decoder, FromSandbox, Hello, OLDEST, ToSandbox, VERSION, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::crash;

/// Why a connection came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The other side closed it, or died.
    Dropped,
    /// This side closed it.
    Closed,
    /// The other side broke a rule.
    Violation(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        // A stream socket of this machine fails only when its peer is gone.
        Self::Dropped
    }
}

/// A connection that shakes hands: one frame at a time, in turn.
#[derive(Debug)]
pub(super) struct Framed {
    pub(super) stream: UnixStream,
    pub(super) decoder: Decoder,
}

impl Framed {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, decoder: Decoder::new() }
    }

    /// Waits for the next message, which must come without a payload. The caller sets the deadline.
    pub(super) async fn receive(&mut self) -> Result<FromSandbox, End> {
        let mut buffer = [0; 4096];
        loop {
            match self.decoder.next::<FromSandbox>() {
                Ok(Some(frame)) if frame.payload.is_empty() => {
                    crash::point("handshake.received");
                    return Ok(frame.header);
                }
                Ok(Some(_)) => return Err(End::Violation("a payload in the handshake".to_owned())),
                Ok(None) => {}
                Err(error) => return Err(End::Violation(error.to_string())),
            }
            match self.stream.read(&mut buffer).await? {
                0 => return Err(End::Dropped),
                count => self.decoder.push(&buffer[..count]),
            }
        }
    }

    /// Sends one message. The caller sets the deadline.
    pub(super) async fn send(&mut self, message: &ToSandbox) -> Result<(), End> {
        let mut bytes = Vec::new();
        encode(message, b"", &mut bytes).map_err(|error| End::Violation(format!("our own welcome: {error}")))?;
        crash::point("handshake.send");
        Ok(self.stream.write_all(&bytes).await?)
    }
}

/// The version that this runner and the speaker of `hello` share: the newest both know.
pub(super) fn negotiate(hello: &Hello) -> Result<u16, String> {
    let newest = hello.version.min(VERSION);
    if hello.oldest > hello.version || newest < OLDEST || newest < hello.oldest {
        return Err(format!(
            "it speaks protocol {} to {}, this runner {OLDEST} to {VERSION}; end the session with the runner that \
             started it, or start a new one",
            hello.oldest, hello.version
        ));
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use protocol::{Facts, Role};

    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken() {
        let hello = |oldest, version| Hello { version, oldest, role: Role::Control(Box::<Facts>::default()) };
        assert_eq!(negotiate(&hello(VERSION, VERSION)), Ok(VERSION));
        assert_eq!(negotiate(&hello(OLDEST, VERSION + 3)), Ok(VERSION));
        for (oldest, version) in [(VERSION + 1, VERSION + 1), (OLDEST - 1, OLDEST - 1), (VERSION, VERSION - 1)] {
            assert!(negotiate(&hello(oldest, version)).unwrap_err().contains("speaks protocol"));
        }
    }
}
