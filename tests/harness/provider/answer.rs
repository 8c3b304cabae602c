//! What a test says the provider answers.

use serde_json::Value;

/// One answer.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A turn of the model, perhaps with a fault on the way.
    Turn(Turn),
    /// A status with headers and a body, instead of a turn.
    Status {
        /// As in 429.
        status: u16,
        /// As in `("retry-after", "2")`.
        headers: Vec<(String, String)>,
        /// The body; the wire's own error body when absent.
        body: Option<String>,
    },
    /// Status 200 with this body, which need not be of the wire's format.
    Raw {
        /// The content type.
        content_type: &'static str,
        /// The body.
        body: Vec<u8>,
    },
    /// Status 200 with `bytes` of `x`, without an end of line among them.
    Huge {
        /// How many.
        bytes: u64,
        /// The status, for a huge error body.
        status: u16,
    },
    /// The request is read and never answered.
    Silence,
}

/// A turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    /// What it is made of, in this order.
    pub(crate) parts: Vec<Part>,
    /// Tokens: read in all, of these cached, written.
    pub(crate) usage: (u64, u64, u64),
    /// The reason for its end, in the wire's words; the usual one when absent.
    pub(crate) stop: Option<String>,
    /// What goes wrong, and after how many of its events.
    pub(crate) fault: Option<(usize, Fault)>,
    /// The body is sent in pieces of this many bytes, which cut characters in two.
    pub(crate) pieces: Option<usize>,
}

/// A part of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// Text; streamed word by word.
    Text(String),
    /// Thinking with its signature.
    Thinking(String, String),
    /// Thinking that only the provider can read.
    Redacted(String),
    /// A tool call: id, name, and its arguments as they are written.
    Call(String, String, String),
}

/// What goes wrong in the middle of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The body ends as if it were whole.
    Ends,
    /// The connection breaks: no proper end of the body.
    Breaks,
    /// Nothing more comes.
    Stalls,
    /// An event that is an error of this kind and with these words.
    Error(String, String),
    /// A line that is not of the format.
    Garbage,
}

impl Turn {
    /// An empty turn.
    pub(crate) fn new() -> Self {
        Self { usage: (12, 0, 3), ..Self::default() }
    }

    /// Adds text.
    pub(crate) fn say(mut self, text: &str) -> Self {
        self.parts.push(Part::Text(text.to_owned()));
        self
    }

    /// Adds thinking.
    pub(crate) fn think(mut self, thinking: &str, signature: &str) -> Self {
        self.parts.push(Part::Thinking(thinking.to_owned(), signature.to_owned()));
        self
    }

    /// Adds thinking that is not shown.
    pub(crate) fn redacted(mut self, data: &str) -> Self {
        self.parts.push(Part::Redacted(data.to_owned()));
        self
    }

    /// Adds a call.
    pub(crate) fn call(self, id: &str, name: &str, args: &Value) -> Self {
        self.call_as_written(id, name, &args.to_string())
    }

    /// Adds a call whose arguments are whatever this says.
    pub(crate) fn call_as_written(mut self, id: &str, name: &str, args: &str) -> Self {
        self.parts.push(Part::Call(id.to_owned(), name.to_owned(), args.to_owned()));
        self
    }

    /// Sets the tokens: read in all, of these cached, written.
    pub(crate) fn usage(mut self, input: u64, cached: u64, output: u64) -> Self {
        self.usage = (input, cached, output);
        self
    }

    /// Sets the reason for its end.
    pub(crate) fn stops(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Sets what goes wrong after this many events.
    pub(crate) fn fails(mut self, after: usize, fault: Fault) -> Self {
        self.fault = Some((after, fault));
        self
    }

    /// Sends the body in pieces of this many bytes.
    pub(crate) fn in_pieces(mut self, bytes: usize) -> Self {
        self.pieces = Some(bytes);
        self
    }

    /// True when it asks for a tool.
    pub(crate) fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call(..)))
    }
}

impl Answer {
    /// A status with the wire's own error body.
    pub(crate) fn status(status: u16) -> Self {
        Self::Status { status, headers: Vec::new(), body: None }
    }

    /// Adds a header to a status.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Status { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body of a status.
    pub(crate) fn body(mut self, text: &str) -> Self {
        if let Self::Status { body, .. } = &mut self {
            *body = Some(text.to_owned());
        }
        self
    }
}

impl From<Turn> for Answer {
    fn from(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}
