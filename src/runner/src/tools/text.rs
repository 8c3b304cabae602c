//! Bytes from the sandbox as text for a model: always UTF-8, never over the limit, never cut inside a character.

/// Most bytes of text in one result (T-5).
pub(super) const MAX_BYTES: usize = 50 * 1024;

/// Bytes as text, invalid UTF-8 as U+FFFD (T-6).
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As much of the beginning of `bytes` as fits into `limit` bytes of text, and how many bytes that took.
pub(super) fn fitting_head(bytes: &[u8], limit: usize) -> (String, usize) {
    let (mut text, mut taken) = (String::new(), 0);
    for chunk in bytes.utf8_chunks() {
        let mut room = limit - text.len();
        let valid = chunk.valid();
        if valid.len() > room {
            while !valid.is_char_boundary(room) {
                room -= 1;
            }
            text.push_str(&valid[..room]);
            return (text, taken + room);
        }
        text.push_str(valid);
        taken += valid.len();
        if !chunk.invalid().is_empty() {
            if text.len() + char::REPLACEMENT_CHARACTER.len_utf8() > limit {
                return (text, taken);
            }
            text.push(char::REPLACEMENT_CHARACTER);
            taken += chunk.invalid().len();
        }
    }
    (text, taken)
}

/// As much of the end of `bytes` as fits into `limit` bytes of text, and how many bytes were left out before it.
pub(super) fn fitting_tail(bytes: &[u8], limit: usize) -> (String, usize) {
    let text = lossy(bytes);
    if text.len() <= limit {
        return (text, 0);
    }
    // Walk the same chunks as `lossy` did, to know which byte the cut falls on.
    let mut surplus = text.len() - limit;
    let (mut from_text, mut from_bytes) = (0, 0);
    'chunks: for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if surplus == 0 {
                break 'chunks;
            }
            surplus = surplus.saturating_sub(c.len_utf8());
            from_text += c.len_utf8();
            from_bytes += c.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            if surplus == 0 {
                break;
            }
            surplus = surplus.saturating_sub(char::REPLACEMENT_CHARACTER.len_utf8());
            from_text += char::REPLACEMENT_CHARACTER.len_utf8();
            from_bytes += chunk.invalid().len();
        }
    }
    (text[from_text..].to_owned(), from_bytes)
}

/// At most `most` characters of `text`, with a mark when there were more.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A number with its noun.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Appends a note on a line of its own.
pub(super) fn note(text: &mut String, note: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(note);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// T-5, T-6: whatever the bytes, head and tail fit, are what `lossy` shows, and say where they were cut.
        #[test]
        fn parts_fit_and_agree_with_the_whole(
            bytes in prop::collection::vec(prop_oneof![
                "[a日🙂é]".prop_map(String::into_bytes),
                any::<u8>().prop_map(|byte| vec![byte]),
            ], 0..60).prop_map(|parts| parts.concat()),
            limit in 0usize..100,
        ) {
            let whole = lossy(&bytes);
            let (head, taken) = fitting_head(&bytes, limit);
            prop_assert!(head.len() <= limit && whole.starts_with(&head));
            prop_assert_eq!(lossy(&bytes[..taken]), head.clone());
            prop_assert!(taken == bytes.len() || head.len() + 4 > limit);
            let (tail, skipped) = fitting_tail(&bytes, limit);
            prop_assert!(tail.len() <= limit && whole.ends_with(&tail));
            prop_assert_eq!(lossy(&bytes[skipped..]), tail.clone());
            prop_assert!(skipped == 0 || tail.len() + 4 > limit);
        }
    }
}
