//! Bytes to events: server-sent events (WHATWG HTML, 9.2) or a JSON value a line. Nothing here waits or reads.

use super::fault::Fault;
use crate::model::FailKind;

/// Most bytes of one event. An event is a few words, or a whole tool call at most.
const MOST: usize = 4 * 1024 * 1024;

/// How a stream is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// `data:` lines up to an empty one. The names of events say nothing that their data does not.
    ServerSentEvents,
    /// One event a line.
    Lines,
}

/// Takes bytes as they come and gives the data of whole events.
pub(super) struct Decoder {
    framing: Framing,
    /// What is not yet a line, and how much of it has been searched for an end.
    bytes: Vec<u8>,
    searched: usize,
    /// The data lines of the event that is under way.
    data: Option<String>,
}

impl Decoder {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, bytes: Vec::new(), searched: 0, data: None }
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The data of the next whole event.
    pub(super) fn next(&mut self) -> Result<Option<String>, Fault> {
        // Lines are cut off the front at once when no more is whole: a move for each would be quadratic.
        let mut used = 0;
        let found = loop {
            let Some(end) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.bytes.len();
                break None;
            };
            let end = self.searched + end;
            let line = String::from_utf8_lossy(&self.bytes[used..end]).into_owned();
            used = end + 1;
            self.searched = used;
            if let Some(data) = self.line(line.strip_suffix('\r').unwrap_or(&line)) {
                break Some(data);
            }
        };
        self.bytes.drain(..used);
        self.searched -= used;
        let held = self.bytes.len().max(self.data.as_ref().map_or(0, String::len));
        if found.is_none() && held > MOST {
            return Err(Fault::new(FailKind::Network, "an event of the answer is longer than 4 MiB"));
        }
        Ok(found)
    }

    /// What is left when the stream has ended: not every server writes the last end of line.
    pub(super) fn rest(&mut self) -> Option<String> {
        let bytes = std::mem::take(&mut self.bytes);
        self.searched = 0;
        let line = String::from_utf8_lossy(&bytes).into_owned();
        let whole = self.line(line.trim_end_matches('\r'));
        whole.or_else(|| self.data.take())
    }

    /// Takes one line; the data of an event that it ends.
    fn line(&mut self, line: &str) -> Option<String> {
        match self.framing {
            Framing::Lines => Some(line.to_owned()).filter(|line| !line.trim().is_empty()),
            Framing::ServerSentEvents if line.is_empty() => self.data.take(),
            Framing::ServerSentEvents => {
                let value = line.strip_prefix("data:")?;
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(framing: Framing, pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::new(framing);
        let mut found = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(data) = decoder.next().unwrap() {
                found.push(data);
            }
        }
        found.extend(decoder.rest());
        found
    }

    #[test]
    fn events_are_their_data_lines() {
        let text =
            b": hello\r\nevent: a\r\ndata: one\r\ndata:two\r\n\r\nid: 7\n\ndata: {\"x\": 1}\n\nretry: 5\ndata: [DONE]";
        assert_eq!(decode(Framing::ServerSentEvents, &[text]), ["one\ntwo", "{\"x\": 1}", "[DONE]"]);
    }

    #[test]
    fn lines_are_events() {
        assert_eq!(
            decode(Framing::Lines, &[b"{\"a\":1}\r\n\n{\"b\"", b":2}\n{\"c\":3}"]),
            ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]
        );
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut decoder = Decoder::new(Framing::ServerSentEvents);
        let mut refused = false;
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..200 {
            decoder.push(&piece);
            refused |= decoder.next().is_err();
            assert!(refused || decoder.bytes.len() <= MOST + 64 * 1024);
        }
        assert!(refused);
    }

    #[test]
    fn an_event_of_endless_lines_is_refused() {
        let mut decoder = Decoder::new(Framing::ServerSentEvents);
        let line = [b"data: ".as_slice(), &[b'x'; 1024], b"\n"].concat();
        let refused = (0..8192).any(|_| {
            decoder.push(&line);
            decoder.next().is_err()
        });
        assert!(refused);
    }

    proptest! {
        /// Where the network cuts a stream changes nothing, also inside a character.
        #[test]
        fn cuts_do_not_matter(texts in prop::collection::vec("[^\r\n]{1,20}", 1..6), size in 1_usize..9) {
            let events: Vec<String> = texts.iter().map(|text| format!("event: x\ndata: {text}\n\n")).collect();
            let stream = events.concat();
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            let found = decode(Framing::ServerSentEvents, &pieces);
            prop_assert_eq!(found, texts);
        }
    }
}
