//! Counting characters of text that comes in pieces and may not be valid UTF-8 (T-6).
//!
//! An invalid sequence counts as the one U+FFFD it will be shown as, with its three bytes, so limits hold for what the
//! model gets. The sequences are those that `String::from_utf8_lossy` replaces, wherever the pieces are cut.

/// Bytes of U+FFFD in UTF-8.
const REPLACEMENT: u64 = 3;

/// Characters and bytes, as shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Characters.
    pub(super) chars: u64,
    /// Bytes of UTF-8.
    pub(super) bytes: u64,
}

impl Count {
    fn add(&mut self, text: &str) {
        self.chars += text.chars().count() as u64;
        self.bytes += text.len() as u64;
    }

    fn add_invalid(&mut self) {
        self.chars += 1;
        self.bytes += REPLACEMENT;
    }
}

/// Counts a text piece by piece.
#[derive(Debug, Default)]
pub(super) struct Counter {
    count: Count,
    /// The beginning of a character that the last piece ended in.
    begun: [u8; 4],
    begun_length: usize,
}

impl Counter {
    /// Counts the next piece.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while self.begun_length > 0 && !bytes.is_empty() {
            bytes = self.go_on(bytes);
        }
        while !bytes.is_empty() {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => return self.count.add(text),
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            self.count.add(std::str::from_utf8(valid).unwrap_or_default());
            if let Some(invalid) = error.error_len() {
                self.count.add_invalid();
                bytes = &rest[invalid..];
            } else {
                self.begun[..rest.len()].copy_from_slice(rest);
                self.begun_length = rest.len();
                return;
            }
        }
    }

    /// Counts as many NUL bytes, at least one of which was just fed.
    pub(super) fn add_zeros(&mut self, length: u64) {
        self.count.chars += length;
        self.count.bytes += length;
    }

    /// Adds one byte to the character that was begun, or ends it; returns what is left of `bytes`.
    fn go_on<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let length = self.begun_length;
        self.begun[length] = bytes[0];
        match std::str::from_utf8(&self.begun[..=length]) {
            Ok(text) => self.count.add(text),
            Err(error) if error.error_len().is_none() => {
                self.begun_length += 1;
                return &bytes[1..];
            }
            Err(_) => {
                // The new byte does not continue it: what was begun is invalid, the byte is looked at afresh.
                self.count.add_invalid();
                self.begun_length = 0;
                return bytes;
            }
        }
        self.begun_length = 0;
        &bytes[1..]
    }

    /// Ends the text and starts anew.
    pub(super) fn finish(&mut self) -> Count {
        if std::mem::take(&mut self.begun_length) > 0 {
            self.count.add_invalid();
        }
        std::mem::take(&mut self.count)
    }
}

/// The longest beginning of `bytes` with at most `chars` characters: its length as it stands and its count as shown.
pub(super) fn prefix(bytes: &[u8], chars: u64) -> (usize, Count) {
    let mut count = Count::default();
    let mut length = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if count.chars == chars {
                return (length, count);
            }
            count.chars += 1;
            count.bytes += character.len_utf8() as u64;
            length += character.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            if count.chars == chars {
                return (length, count);
            }
            count.add_invalid();
            length += chunk.invalid().len();
        }
    }
    (length, count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hard_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            (any::<char>(), 1usize..4).prop_map(|(c, keep)| c
                .to_string()
                .into_bytes()
                .into_iter()
                .take(keep)
                .collect()),
            Just(b"\xf0\x9f\x99".to_vec()),
            Just(b"\xed\xa0\x80".to_vec()),
            Just("日本語🙂".as_bytes().to_vec()),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// T-6: wherever a text is cut into pieces, it counts as what `from_utf8_lossy` shows of the whole.
        #[test]
        fn pieces_count_like_the_whole(bytes in hard_bytes(), size in 1usize..9) {
            let mut counter = Counter::default();
            for piece in bytes.chunks(size) {
                counter.feed(piece);
            }
            let shown = String::from_utf8_lossy(&bytes);
            let expected = Count { chars: shown.chars().count() as u64, bytes: shown.len() as u64 };
            prop_assert_eq!(counter.finish(), expected);
            prop_assert_eq!(counter.finish(), Count::default());
        }

        /// T-5: a beginning ends on a character and is what the same number of characters looks like.
        #[test]
        fn beginnings_end_on_characters(bytes in hard_bytes(), chars in 0u64..50) {
            let (length, count) = prefix(&bytes, chars);
            let shown: String = String::from_utf8_lossy(&bytes).chars().take(usize::try_from(chars).unwrap()).collect();
            prop_assert_eq!(String::from_utf8_lossy(&bytes[..length]), shown.as_str());
            prop_assert_eq!(count.bytes, shown.len() as u64);
        }
    }
}
