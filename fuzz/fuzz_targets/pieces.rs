//! What both targets hold: a decoder's frames do not depend on how the stream was cut, it holds no more than it was
//! given, and what it accepts is what `encode` writes.

use std::fmt::Debug;

use arbitrary::Arbitrary;
use protocol::{Decoder, Frame, FrameError, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A stream and where it is cut.
#[derive(Debug, Arbitrary)]
pub struct Input {
    /// Lengths of the pieces, used in turn; 0 stands for the rest.
    cuts: Vec<u8>,
    /// Frames whose length fields are right, so that the fuzzer gets as far as the headers.
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes as they come.
    rest: Vec<u8>,
}

impl Input {
    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        for (header, payload) in &self.frames {
            let (Ok(short), Ok(length)) =
                (u16::try_from(header.len()), u32::try_from(2 + header.len() + payload.len()))
            else {
                continue;
            };
            stream.extend_from_slice(&length.to_be_bytes());
            stream.extend_from_slice(&short.to_be_bytes());
            stream.extend_from_slice(header);
            stream.extend_from_slice(payload);
        }
        stream.extend_from_slice(&self.rest);
        stream
    }
}

/// Decodes the stream whole and in pieces, and compares.
pub fn decode<M: Serialize + DeserializeOwned + PartialEq + Debug>(input: &Input) {
    let stream = input.stream();

    let mut whole = Decoder::new();
    whole.push(&stream);
    let mut frames = Vec::new();
    let failed = drain::<M>(&mut whole, &mut frames).is_err();
    assert!(whole.buffered() <= stream.len());

    let mut pieces = Decoder::new();
    let mut seen = Vec::new();
    let mut failed_in_pieces = false;
    let mut rest = stream.as_slice();
    let mut cuts = input.cuts.iter().cycle();
    while !rest.is_empty() && !failed_in_pieces {
        let cut = match cuts.next() {
            None | Some(0) => rest.len(),
            Some(cut) => rest.len().min(usize::from(*cut)),
        };
        let (piece, later) = rest.split_at(cut);
        pieces.push(piece);
        failed_in_pieces = drain::<M>(&mut pieces, &mut seen).is_err();
        rest = later;
    }
    assert_eq!(seen, frames);
    assert_eq!(failed_in_pieces, failed);

    for frame in &frames {
        let mut wire = Vec::new();
        // A header's JSON may be longer when we write it than when it was sent (escapes), and then be over the cap.
        if encode(&frame.header, &frame.payload, &mut wire).is_ok() {
            let mut decoder = Decoder::new();
            decoder.push(&wire);
            assert_eq!(decoder.next::<M>().unwrap().as_ref(), Some(frame));
            assert!(!decoder.is_partial());
        }
    }
}

fn drain<M: DeserializeOwned>(decoder: &mut Decoder, frames: &mut Vec<Frame<M>>) -> Result<(), FrameError> {
    while let Some(frame) = decoder.next::<M>()? {
        frames.push(frame);
    }
    Ok(())
}
