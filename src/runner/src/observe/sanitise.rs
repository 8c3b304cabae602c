//! The one sanitiser for everything that is shown to a person.
//!
//! Text from models, sandboxes, files and engines may hold terminal commands (C0, ESC, C1), characters that reorder a
//! line (bidi), or characters that nobody sees (zero-width, tags, variation selectors). Each is replaced by a visible
//! escape such as `\u{1b}`; everything else stays as it is. Journals and models get the text itself.

use std::borrow::Cow;
use std::fmt::Write;

/// Makes text safe for one line: also line ends and tabs are escaped.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe, |out, c| match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ => write!(out, "{}", c.escape_unicode()).expect("strings take everything"),
    })
}

/// Makes text safe for several lines: line ends and tabs stay.
pub fn block(text: &str) -> Cow<'_, str> {
    escape(
        text,
        |c| is_unsafe(c) && c != '\n' && c != '\t',
        |out, c| match c {
            '\r' => out.push_str("\\r"),
            _ => write!(out, "{}", c.escape_unicode()).expect("strings take everything"),
        },
    )
}

/// Makes serialized JSON safe to look at without changing what it says: such characters can only stand inside strings,
/// where JSON has its own escapes for them. Line ends stay, they separate lines of JSON.
pub fn json(text: &str) -> Cow<'_, str> {
    escape(
        text,
        |c| is_unsafe(c) && c != '\n',
        |out, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("strings take everything");
            }
        },
    )
}

fn escape(text: &str, unsafe_here: impl Fn(char) -> bool, put: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let Some(first) = text.find(&unsafe_here) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        if unsafe_here(c) { put(&mut out, c) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// True for characters that could steer a terminal or hide from whoever reads.
///
/// Unicode's Bidi_Control and Default_Ignorable_Code_Point, the separators of lines and paragraphs, and what terminals
/// obey. U+FE0F stays: it only asks for the coloured form of the character before it.
pub fn is_unsafe(c: char) -> bool {
    matches!(
        c,
        // C0, DEL, C1
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // soft hyphen, grapheme joiner, fillers and vowels that are drawn as nothing
        | '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{3164}' | '\u{ffa0}'
        // bidi
        | '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // zero-width, invisible operators, deprecated format characters, separators
        | '\u{200b}'..='\u{200d}' | '\u{2028}'..='\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        // variation selectors
        | '\u{fe00}'..='\u{fe0e}'
        // shorthand and musical format characters
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // tags, more variation selectors, reserved
        | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// bug 18: neither OSC 52, OSC 0, a clear screen, C1, nor a forged log line gets through.
    #[test]
    fn terminal_commands_become_visible() {
        assert_eq!(line("\u{1b}]52;c;AAAA\u{7}"), "\\u{1b}]52;c;AAAA\\u{7}");
        assert_eq!(line("\u{1b}]0;title\u{1b}\\"), "\\u{1b}]0;title\\u{1b}\\");
        assert_eq!(block("a\u{1b}[2Jb\n\tc\r"), "a\\u{1b}[2Jb\n\tc\\r");
        assert_eq!(line("\u{9b}2J"), "\\u{9b}2J");
        assert_eq!(line("x\n{\"level\":\"error\""), "x\\n{\"level\":\"error\"");
        assert_eq!(line("a\u{202e}txt.exe"), "a\\u{202e}txt.exe");
        assert_eq!(line("no\u{200b}thing"), "no\\u{200b}thing");
        assert_eq!(line("\u{e0041}\u{fe00}\u{feff}"), "\\u{e0041}\\u{fe00}\\u{feff}");
    }

    #[test]
    fn ordinary_text_is_not_touched() {
        for text in ["", "plain", "日本語🙂", "❤\u{fe0f}", "naïve – “quotes”\u{a0}…", "עברית", "\\u{1b}"]
        {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let nasty = prop::char::ranges(
            vec![
                '\0'..='\u{1f}',
                '\u{7f}'..='\u{ad}',
                '\u{200b}'..='\u{206f}',
                '\u{fe00}'..='\u{feff}',
                '\u{e0000}'..='\u{e01ef}',
            ]
            .into(),
        );
        prop::collection::vec(prop_oneof![any::<char>(), nasty, prop::char::range(' ', '~')], 0..60)
            .prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_left(text in text()) {
            prop_assert!(!line(&text).chars().any(is_unsafe));
            prop_assert!(!block(&text).chars().any(|c| is_unsafe(c) && c != '\n' && c != '\t'));
            prop_assert!(!line(&text).chars().any(char::is_control));
            prop_assert_eq!(line(&line(&text)).into_owned(), line(&text).into_owned());
            prop_assert_eq!(block(&text).lines().count(), text.split('\n').count() - usize::from(text.is_empty() || text.ends_with('\n')));
        }

        #[test]
        fn safe_characters_stay_in_order(text in text()) {
            // Text that spells an escape itself cannot be told from one.
            let text = text.replace('\\', "");
            let kept: String = text.chars().filter(|&c| !is_unsafe(c)).collect();
            let mut shown = line(&text).into_owned();
            for c in text.chars().filter(|&c| is_unsafe(c)) {
                let escape = line(&c.to_string()).into_owned();
                shown = shown.replacen(&escape, "", 1);
            }
            prop_assert_eq!(shown, kept);
        }

        #[test]
        fn json_says_the_same(text in text()) {
            let written = serde_json::to_string(&serde_json::json!({ text.as_str(): [text.as_str()] })).unwrap();
            let shown = json(&written);
            prop_assert!(!shown.chars().any(is_unsafe));
            let (a, b): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(&written).unwrap(), serde_json::from_str(&shown).unwrap());
            prop_assert_eq!(a, b);
        }
    }
}
