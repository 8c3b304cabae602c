//! Wildcards of ignore files, matched byte by byte as git's `wildmatch.c` does with `WM_PATHNAME`.
//!
//! globset's are close to these but not the same: braces, classes such as `[:digit:]`, an unclosed `[` and stars that
//! stand together differ. There are no expressions to compile here either, so that an ignore file costs what its bytes cost.

/// One step of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// This byte.
    Byte(u8),
    /// `?`: any byte but `/`.
    Any,
    /// `[…]`: the bytes whose bit is set; never `/`.
    Class(Box<[u64; 4]>),
    /// `*`: any number of bytes but `/`.
    Star,
    /// `**/`: nothing, or anything that ends in `/`.
    Folders,
    /// `**` before an escaped `/` or the end: anything.
    All,
}

/// A pattern with wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wildcards(Vec<Token>);

/// Bytes that make a pattern more than plain text.
pub(super) fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

impl Wildcards {
    /// Understands a pattern; none when nothing can match it, because something in it is not closed.
    pub(super) fn new(pattern: &[u8]) -> Option<Self> {
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(&byte) = pattern.get(at) {
            let begin = at;
            at += 1;
            tokens.push(match byte {
                b'?' => Token::Any,
                b'\\' => {
                    at += 1;
                    Token::Byte(*pattern.get(at - 1)?)
                }
                b'[' => {
                    let (class, length) = class(&pattern[at..])?;
                    at += length;
                    Token::Class(Box::new(class))
                }
                b'*' => {
                    at += pattern[at..].iter().take_while(|byte| **byte == b'*').count();
                    let rest = &pattern[at..];
                    let own_part = begin == 0 || pattern[begin - 1] == b'/';
                    if at - begin == 1 || !own_part {
                        Token::Star
                    } else if rest.first() == Some(&b'/') {
                        at += 1;
                        Token::Folders
                    } else if rest.is_empty() || rest.starts_with(b"\\/") {
                        Token::All
                    } else {
                        Token::Star
                    }
                }
                other => Token::Byte(other),
            });
        }
        Some(Self(tokens))
    }

    /// True when the whole of `text` matches.
    ///
    /// Only the last star and the last of the deep tokens are ever tried again: whatever an earlier one could take in
    /// addition, the later one can take as well. So the time is bounded by the lengths, whatever the pattern.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let tokens = &self.0;
        let (mut token, mut at) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        let mut deep: Option<(usize, usize)> = None;
        loop {
            let fits = match tokens.get(token) {
                None if at == text.len() => return true,
                None => false,
                Some(Token::Star) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(Token::Folders | Token::All) => {
                    if token + 1 == tokens.len() && tokens[token] == Token::All {
                        return true;
                    }
                    (star, deep) = (None, Some((token, at)));
                    token += 1;
                    continue;
                }
                Some(one) => text.get(at).is_some_and(|byte| one.takes(*byte)),
            };
            if fits {
                (token, at) = (token + 1, at + 1);
                continue;
            }
            if let Some((number, from)) = star
                && text.get(from).is_some_and(|byte| *byte != b'/')
            {
                star = Some((number, from + 1));
                (token, at) = (number + 1, from + 1);
            } else if let Some((number, from)) = deep {
                let step = match tokens[number] {
                    Token::Folders => memchr::memchr(b'/', &text[from..]).map(|slash| slash + 1),
                    _ => (from < text.len()).then_some(1),
                };
                let Some(step) = step else { return false };
                (star, deep) = (None, Some((number, from + step)));
                (token, at) = (number + 1, from + step);
            } else {
                return false;
            }
        }
    }
}

impl Token {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::Any => byte != b'/',
            Self::Class(class) => class[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
            Self::Star | Self::Folders | Self::All => false,
        }
    }
}

/// The class that stands behind `[`, and how many bytes of `text` it takes; none when it is not closed.
fn class(text: &[u8]) -> Option<([u64; 4], usize)> {
    let mut bits = [0u64; 4];
    let mut set = |first: u8, last: u8| {
        for byte in first..=last {
            bits[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
    };
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let mut previous = None;
    // A `]` that comes first stands for itself.
    let begin = at;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        previous = match byte {
            b']' if at - 1 > begin => break,
            b'\\' => {
                let escaped = *text.get(at)?;
                at += 1;
                set(escaped, escaped);
                Some(escaped)
            }
            b'-' if previous.is_some() && !matches!(text.get(at), None | Some(b']')) => {
                let mut last = text[at];
                at += 1;
                if last == b'\\' {
                    last = *text.get(at)?;
                    at += 1;
                }
                set(previous.unwrap_or(last), last);
                None
            }
            b'[' if text.get(at) == Some(&b':') => {
                let name = &text[at + 1..];
                let end = name.iter().position(|byte| *byte == b']')?;
                if let Some(name) = name[..end].strip_suffix(b":") {
                    let member = named(name)?;
                    (0..128u8).filter(member).for_each(|byte| set(byte, byte));
                    at += 1 + end + 1;
                    None
                } else {
                    set(b'[', b'[');
                    Some(b'[')
                }
            }
            other => {
                set(other, other);
                Some(other)
            }
        };
    }
    if negated {
        bits = bits.map(|part| !part);
    }
    bits[0] &= !(1 << b'/');
    Some((bits, at))
}

/// The members of a class with a name, of ASCII.
fn named(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| byte.is_ascii_whitespace() || *byte == 0x0b,
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Wildcards::new(pattern.as_bytes()).is_some_and(|wildcards| wildcards.matches(text.as_bytes()))
    }

    /// T-GREP-1: the cases of git's own tests (t3070) that the random ones rarely meet.
    #[test]
    fn as_git_matches() {
        for (pattern, text) in [
            ("*foo*", "foo"),
            ("f?o", "foo"),
            ("\\*", "*"),
            ("[a-c]b*", "bb"),
            ("[!a]", "b"),
            ("[]-]", "]"),
            ("[]-]", "-"),
            ("[a-]", "-"),
            ("[[:digit:]x]", "7"),
            ("[[:]ab]", ":ab]"),
            ("**/foo", "foo"),
            ("**/foo", "a/b/foo"),
            ("a/**/b", "a/b"),
            ("a/**/b", "a/x/y/b"),
            ("a/**", "a/x/y"),
            ("a/***/b", "a/x/b"),
            ("*/*/*", "a/b/c"),
            ("**/a*/**/b", "x/ab/c/ad/e/b"),
            ("{a,b}", "{a,b}"),
        ] {
            assert!(matches(pattern, text), "{pattern} and {text}");
        }
        for (pattern, text) in [
            ("*", "a/b"),
            ("a?b", "a/b"),
            ("a[/]b", "a/b"),
            ("a[!x]b", "a/b"),
            ("[a", "[a"),
            ("a\\", "a\\"),
            ("[[:nothing:]]", "n"),
            ("a/**", "a"),
            ("a**b", "a/b"),
            ("**/foo", "xfoo"),
            ("{a,b}", "a"),
            ("*/*", "a/b/c"),
        ] {
            assert!(!matches(pattern, text), "{pattern} and {text}");
        }
    }

    /// T-7: a pattern made to be slow is not.
    #[test]
    fn stars_do_not_multiply() {
        let text = "a/".repeat(100) + &"a".repeat(200);
        assert!(!matches(&("**/".to_owned() + &"*a".repeat(60) + "/**/" + &"*a*/**/".repeat(20) + "b"), &text));
    }
}
