//! The floors: a bare Unix socket to an echo process, and the unconfined twin of the toolbox.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Argument that makes this program the echo process.
pub(crate) const ECHO: &str = "echo-process";

/// A blocking connection to an echo process that nothing confines. A request is a length and that many bytes asked back.
pub(crate) struct Echo {
    child: Child,
    link: UnixStream,
}

impl Echo {
    /// Starts the process, this program under [`ECHO`], and connects.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let path = folder.join("echo");
        let listener = UnixListener::bind(&path)?;
        let child = Command::new(std::env::current_exe()?).arg(ECHO).arg(&path).stdin(Stdio::null()).spawn()?;
        let (link, _) = listener.accept()?;
        Ok(Self { child, link })
    }

    /// Process id of the echo process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends `request` bytes and reads an answer of `answer` bytes; returns the time of the round trip.
    pub(crate) fn round_trip(&mut self, request: &[u8], answer: &mut [u8]) -> io::Result<Duration> {
        let start = Instant::now();
        let mut frame = Vec::with_capacity(8 + request.len());
        frame.extend_from_slice(&u32::try_from(request.len()).expect("short").to_be_bytes());
        frame.extend_from_slice(&u32::try_from(answer.len()).expect("short").to_be_bytes());
        frame.extend_from_slice(request);
        self.link.write_all(&frame)?;
        self.link.read_exact(answer)?;
        Ok(start.elapsed())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The end of the connection ends the process; killing it first only makes sure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps this program on the first processor and its peers on the last, as long as it lives. Left to itself the kernel
/// wakes a peer now on the same processor and now on another, which takes ten times as long: the two sides of a figure
/// could not be compared.
pub(crate) struct Apart {
    cores: usize,
}

impl Apart {
    /// Places this program.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        put(std::process::id(), "0");
        Self { cores }
    }

    /// Places a peer.
    pub(crate) fn place(&self, peer: u32) {
        put(peer, &(self.cores - 1).to_string());
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        put(std::process::id(), &format!("0-{}", self.cores - 1));
    }
}

fn put(process: u32, cores: &str) {
    let put = Command::new("taskset").args(["-cp", cores, &process.to_string()]).output();
    if !put.is_ok_and(|put| put.status.success()) {
        eprintln!("notice: process {process} could not be put on processor {cores}");
    }
}

/// The echo process itself: answers until the connection ends.
pub(crate) fn echo_process(path: &Path) -> io::Result<()> {
    let mut link = UnixStream::connect(path)?;
    let mut buffer = vec![0; (1 << 20) + 8];
    let mut held = 0;
    loop {
        // A short request arrives in one read.
        match link.read(&mut buffer[held..])? {
            0 => return Ok(()),
            count => held += count,
        }
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes")) as usize;
        if held < 8 || held < 8 + number(&buffer[..4]) {
            continue;
        }
        held = 0;
        let answer = number(&buffer[4..8]);
        link.write_all(&buffer[8..8 + answer])?;
    }
}
