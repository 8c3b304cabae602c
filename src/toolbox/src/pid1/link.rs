//! The control connection: bytes in and out without ever blocking, bounded in both directions.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, send, socket, sockopt,
};
use protocol::{Decoder, Frame, FrameError, FromSandbox, ToSandbox};

/// Where the host listens.
const SOCKET: &str = "/app/link/sock";
/// While more than this waits for a host that does not read, nothing more is read from it either.
const PATIENCE: usize = 1024 * 1024;
/// What may stay allocated for writing while nothing is written.
const IDLE: usize = 64 * 1024;

/// Connects to the host, and makes sure that it is the host: a process outside this container's PID namespace.
pub(super) fn dial() -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // A Unix socket connects at once or answers EAGAIN when the host does not accept: then another tick tries again.
    connect(fd.as_raw_fd(), &UnixAddr::new(SOCKET)?)?;
    let peer = getsockopt(&fd, sockopt::PeerCredentials)?;
    if peer.pid() != 0 {
        return Err(io::Error::other(format!("the process that listens at {SOCKET} is in this container")));
    }
    Ok(UnixStream::from(fd))
}

/// The connection.
pub(super) struct Link {
    socket: UnixStream,
    decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
    broken: bool,
    /// What epoll watches it for.
    pub(super) watched: EpollFlags,
    /// The host has said who it is and what the session is.
    pub(super) welcomed: bool,
    /// The largest call id of this connection.
    pub(super) last_id: u64,
}

impl Link {
    /// Takes over a connected, non-blocking socket.
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            out: Vec::new(),
            sent: 0,
            broken: false,
            watched: EpollFlags::EPOLLIN,
            welcomed: false,
            last_id: 0,
        }
    }

    /// Queues a message and writes what the socket takes.
    pub(super) fn send(&mut self, message: &FromSandbox, payload: &[u8]) {
        if let Err(error) = protocol::encode(message, payload, &mut self.out) {
            // Every message of PID 1 is bounded far below the caps.
            say!("a message does not fit a frame: {error}");
            self.broken = true;
        }
        self.flush();
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self) {
        while !self.broken && self.sent < self.out.len() {
            match send(self.socket.as_raw_fd(), &self.out[self.sent..], MsgFlags::MSG_NOSIGNAL) {
                Ok(length) => self.sent += length,
                Err(nix::Error::EAGAIN) => break,
                Err(nix::Error::EINTR) => {}
                Err(_) => self.broken = true,
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.out.shrink_to(IDLE);
            self.sent = 0;
        } else if self.sent > PATIENCE {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Reads once. False when the host is gone.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> bool {
        match self.socket.read(scratch) {
            Ok(0) => false,
            Ok(length) => {
                self.decoder.push(&scratch[..length]);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    /// The next whole message.
    pub(super) fn next(&mut self) -> Result<Option<Frame<ToSandbox>>, FrameError> {
        self.decoder.next()
    }

    /// What to wait for.
    pub(super) fn wants(&self) -> EpollFlags {
        let waiting = self.out.len() - self.sent;
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, waiting <= PATIENCE);
        wanted.set(EpollFlags::EPOLLOUT, waiting > 0);
        wanted
    }

    /// A write failed: the host is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Makes `socket` a blocking one, for a file server.
pub(super) fn blocking(socket: OwnedFd) -> io::Result<UnixStream> {
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Two connected sockets, the second non-blocking.
#[cfg(test)]
pub(super) fn pair() -> (UnixStream, UnixStream) {
    let (host, sandbox) = UnixStream::pair().unwrap();
    sandbox.set_nonblocking(true).unwrap();
    (host, sandbox)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pong(link: &mut Link, payload: &[u8]) {
        link.send(&FromSandbox::Pong { nonce: 1 }, payload);
    }

    /// T-7: a host that does not read stops being read, and nothing is lost once it reads again.
    #[test]
    fn a_host_that_does_not_read_is_not_read_either() {
        let (mut host, sandbox) = pair();
        let mut link = Link::new(sandbox);
        assert_eq!(link.wants(), EpollFlags::EPOLLIN);
        for _ in 0..8 {
            pong(&mut link, &vec![7; 200 * 1024]);
        }
        assert_eq!(link.wants(), EpollFlags::EPOLLOUT);
        let mut decoder = Decoder::new();
        let mut frames = 0;
        let mut buffer = vec![0; 64 * 1024];
        while frames < 8 {
            let length = host.read(&mut buffer).unwrap();
            decoder.push(&buffer[..length]);
            link.flush();
            while let Some(frame) = decoder.next::<FromSandbox>().unwrap() {
                assert_eq!(frame.payload.len(), 200 * 1024);
                frames += 1;
            }
        }
        assert_eq!(link.wants(), EpollFlags::EPOLLIN);
        assert!(link.out.capacity() <= IDLE);
    }

    #[test]
    fn half_a_frame_and_then_the_end_is_only_an_end() {
        let (mut host, sandbox) = pair();
        let mut link = Link::new(sandbox);
        let mut scratch = [0; 64];
        assert!(link.receive(&mut scratch), "nothing there yet is no end");
        host.write_all(&[0, 0, 0, 60, 0]).unwrap();
        assert!(link.receive(&mut scratch));
        assert!(link.next().unwrap().is_none());
        drop(host);
        assert!(!link.receive(&mut scratch));
        pong(&mut link, b"");
        assert!(link.is_broken());
    }
}
