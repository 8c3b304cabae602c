//! One unfinished call, as the host keeps it.

use protocol::{Entry, INITIAL_CREDIT, Outcome, Request};
use tokio::sync::{mpsc, oneshot};

/// Streamed items that may wait for their reader; their bytes are bounded by the window too.
const STREAM_ITEMS: usize = 16;

/// Bytes of stream that may be in flight for one call; more than every call starts with, so that few pauses are made.
pub(super) const WINDOW: u32 = 1024 * 1024;

/// What became of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// It ended.
    Done {
        /// How.
        outcome: Outcome,
        /// The text or bytes the outcome speaks of.
        payload: Vec<u8>,
    },
    /// Its connection dropped before all of it was sent: the other side cannot have begun it.
    NotSent,
    /// The other side does not know it: nobody can say what it did.
    Unknown,
}

/// An item of a streamed result.
#[derive(Debug)]
pub(super) enum Item {
    /// Bytes, never empty.
    Chunk(Vec<u8>),
    /// A file, folder or link.
    Entry(Entry),
}

/// An unfinished call.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: String,
    pub(super) shape: Shape,
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) stream: Option<mpsc::Sender<Item>>,
    /// Stream bytes that the sandbox may still send.
    pub(super) window: u64,
    /// Chunk bytes that the host may still send.
    pub(super) credit: u64,
    /// Where the last byte of the call and its body ends in the connection's output; none while more is to come.
    pub(super) body_end: Option<u64>,
    /// Somebody cancelled it.
    pub(super) cancelled: bool,
}

/// Where the caller hears of its call.
#[derive(Debug)]
pub(super) struct Ears {
    pub(super) answer: oneshot::Receiver<Answer>,
    pub(super) stream: Option<mpsc::Receiver<Item>>,
}

impl Slot {
    /// A slot and its caller's ears.
    pub(super) fn new(key: String, shape: Shape) -> (Self, Ears) {
        let (answer, hear) = oneshot::channel();
        let (stream, listen) = match shape {
            Shape::Read | Shape::Get => Some(mpsc::channel(STREAM_ITEMS)).unzip(),
            _ => (None, None),
        };
        let window = u64::from(if stream.is_some() { WINDOW } else { 0 });
        let credit = u64::from(INITIAL_CREDIT);
        let slot = Self { key, shape, answer, stream, window, credit, body_end: None, cancelled: false };
        (slot, Ears { answer: hear, stream: listen })
    }
}

/// The form of a call: which answers fit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Bash,
    Background,
    StopJob,
    Nothing,
    /// A read that may not stream an image.
    ReadText,
    Read,
    Write,
    Edit,
    Ls,
    Grep,
    Find,
    Put,
    Get,
    /// A control call of an earlier runner process; its request is not known any more.
    TakenUp,
}

impl From<&Request> for Shape {
    fn from(request: &Request) -> Self {
        match request {
            Request::Bash { background: false } => Self::Bash,
            Request::Bash { background: true } => Self::Background,
            Request::StopJob { .. } => Self::StopJob,
            Request::OpenFiles { .. } | Request::CloseFiles { .. } => Self::Nothing,
            Request::Read { images: false, .. } => Self::ReadText,
            Request::Read { images: true, .. } => Self::Read,
            Request::Write { .. } => Self::Write,
            Request::Edit { .. } => Self::Edit,
            Request::Ls { .. } => Self::Ls,
            Request::Grep { .. } => Self::Grep,
            Request::Find { .. } => Self::Find,
            Request::Put { .. } => Self::Put,
            Request::Get { .. } => Self::Get,
        }
    }
}

impl Shape {
    /// True when a call of this form may end so, with a payload of so many bytes.
    pub(super) fn allows(self, outcome: &Outcome, payload: usize) -> bool {
        let fits = match outcome {
            Outcome::Failed { .. } => return payload == 0,
            Outcome::Nothing => matches!(self, Self::Nothing | Self::TakenUp),
            Outcome::Bash(end) => {
                // The counts must not contradict the payload.
                let counts = end.head <= payload as u64 && end.omitted_bytes <= end.total_bytes;
                return counts && matches!(self, Self::Bash | Self::TakenUp);
            }
            Outcome::Job { .. } => matches!(self, Self::Background | Self::TakenUp),
            Outcome::JobEnded { .. } => matches!(self, Self::StopJob | Self::TakenUp),
            Outcome::Text(_) => return matches!(self, Self::Read | Self::ReadText),
            Outcome::Image { .. } => self == Self::Read,
            Outcome::Binary { .. } => matches!(self, Self::Read | Self::ReadText),
            Outcome::NeedsChild => {
                matches!(self, Self::ReadText | Self::Write | Self::Edit | Self::Ls | Self::Grep | Self::Find)
            }
            Outcome::Written { .. } => self == Self::Write,
            Outcome::Edited(_) => return self == Self::Edit,
            Outcome::Listing { .. } => return self == Self::Ls,
            Outcome::Matches(_) => return self == Self::Grep,
            Outcome::Found(_) => return self == Self::Find,
            Outcome::Copied { .. } => matches!(self, Self::Put | Self::Get),
        };
        fits && payload == 0
    }
}
