//! Bytes to frames and back; knows no commands.
//!
//! A frame is a big-endian `u32` length of all that follows, a big-endian `u16` length of the header, the header (JSON)
//! and the payload (raw bytes, to the end of the frame).

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest header in bytes.
pub const MAX_HEADER: usize = u16::MAX as usize;

/// Largest payload of one frame in bytes.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// Bytes before the header: the frame's length and the header's length.
pub const PREFIX: usize = 6;

const MAX_LENGTH: usize = 2 + MAX_HEADER + MAX_PAYLOAD;

/// What is wrong with a frame. Each of these ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length field is over the cap or too small to hold a header.
    #[error("frame length {0} is outside 4..={MAX_LENGTH}")]
    Length(usize),
    /// The header does not fit into its frame.
    #[error("header length {header} does not fit a frame of {frame} bytes")]
    HeaderLength {
        /// Header length in bytes, as sent.
        header: usize,
        /// Frame length in bytes, as sent.
        frame: usize,
    },
    /// The payload is over its cap.
    #[error("payload of {0} bytes is over {MAX_PAYLOAD}")]
    Payload(usize),
    /// The header is not the JSON of a known message.
    #[error("header: {0}")]
    Header(#[from] serde_json::Error),
}

/// One decoded frame: a typed header and its raw payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<M> {
    /// The message.
    pub header: M,
    /// Raw bytes that belong to it; empty for most messages.
    pub payload: Vec<u8>,
}

/// Appends the frame of `header` and `payload` to `out`.
///
/// # Errors
/// [`FrameError::Payload`] or [`FrameError::HeaderLength`] when a part is over its cap; `out` is then unchanged.
pub fn encode<M: Serialize>(header: &M, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    if payload.len() > MAX_PAYLOAD {
        return Err(FrameError::Payload(payload.len()));
    }
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    if let Err(error) = serde_json::to_writer(&mut *out, header) {
        out.truncate(start);
        return Err(error.into());
    }
    let header_length = out.len() - start - PREFIX;
    let Ok(short) = u16::try_from(header_length) else {
        out.truncate(start);
        return Err(FrameError::HeaderLength { header: header_length, frame: header_length + payload.len() });
    };
    out.extend_from_slice(payload);
    let length = u32::try_from(2 + header_length + payload.len()).expect("both parts are capped");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + PREFIX].copy_from_slice(&short.to_be_bytes());
    Ok(())
}

/// Cuts a byte stream into frames. Feed it with [`Decoder::push`] and take frames with [`Decoder::next`]. Holds at most
/// one frame and one read more than that.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.compact();
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, `None` when more bytes are needed.
    ///
    /// # Errors
    /// Any [`FrameError`]; the stream cannot be trusted after one.
    // Not an iterator: an iterator's `next` cannot choose the type of its item.
    #[allow(clippy::should_implement_trait)]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<Frame<M>>, FrameError> {
        let bytes = &self.buffer[self.start..];
        let Some(length) = read_u32(bytes) else { return Ok(None) };
        if !(4..=MAX_LENGTH).contains(&length) {
            return Err(FrameError::Length(length));
        }
        let Some(header_length) = bytes.get(4..PREFIX).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]]))) else {
            return Ok(None);
        };
        if header_length + 2 > length {
            return Err(FrameError::HeaderLength { header: header_length, frame: length });
        }
        let payload_length = length - 2 - header_length;
        if payload_length > MAX_PAYLOAD {
            return Err(FrameError::Payload(payload_length));
        }
        let Some(body) = bytes.get(PREFIX..4 + length) else { return Ok(None) };
        let header = serde_json::from_slice(&body[..header_length])?;
        let payload = body[header_length..].to_vec();
        self.start += 4 + length;
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            // A burst of large frames must not stay allocated in an idle process.
            self.buffer.shrink_to(64 * 1024);
        }
        Ok(Some(Frame { header, payload }))
    }

    /// True when a frame has begun and is not whole yet.
    pub fn is_partial(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// Bytes held that no frame was made of yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

fn read_u32(bytes: &[u8]) -> Option<usize> {
    let bytes: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    struct Note {
        text: String,
    }

    proptest! {
        /// Frames survive being cut into pieces of any size.
        #[test]
        fn round_trip_in_pieces(
            notes in prop::collection::vec((".{0,40}", prop::collection::vec(any::<u8>(), 0..600)), 0..8),
            piece in 1usize..97,
        ) {
            let mut wire = Vec::new();
            for (text, payload) in &notes {
                encode(&Note { text: text.clone() }, payload, &mut wire).unwrap();
            }
            let mut decoder = Decoder::new();
            let mut seen = Vec::new();
            for bytes in wire.chunks(piece) {
                decoder.push(bytes);
                while let Some(frame) = decoder.next::<Note>().unwrap() {
                    seen.push((frame.header.text, frame.payload));
                }
            }
            prop_assert_eq!(seen, notes);
            prop_assert!(!decoder.is_partial());
        }

        /// Whatever arrives, the decoder answers with frames or an error and never holds more than it was given.
        #[test]
        fn hostile_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next::<Note>() {}
            prop_assert!(decoder.buffered() <= bytes.len());
        }
    }

    #[test]
    fn the_cap_is_checked_before_the_body_arrives() {
        let mut decoder = Decoder::new();
        decoder.push(&u32::MAX.to_be_bytes());
        assert!(matches!(decoder.next::<Note>(), Err(FrameError::Length(_))));
    }

    #[test]
    fn a_header_longer_than_its_frame_is_refused() {
        let mut decoder = Decoder::new();
        decoder.push(&[0, 0, 0, 8, 0xff, 0xff]);
        assert!(matches!(decoder.next::<Note>(), Err(FrameError::HeaderLength { .. })));
    }

    #[test]
    fn parts_over_their_caps_are_not_encoded() {
        let mut out = vec![7];
        let note = Note { text: String::new() };
        assert!(matches!(encode(&note, &vec![0; MAX_PAYLOAD + 1], &mut out), Err(FrameError::Payload(_))));
        let note = Note { text: "x".repeat(MAX_HEADER) };
        assert!(matches!(encode(&note, b"", &mut out), Err(FrameError::HeaderLength { .. })));
        assert_eq!(out, [7]);
    }
}
