//! The pattern of a `grep`, compiled within bounds, and what is wrong with it in words.

use grep_matcher::LineTerminator;
use grep_regex::{Error, ErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ast::{self, Ast};

use crate::files::fault::Fault;

/// Most bytes of a compiled pattern, and of the states that are kept while it matches.
const MAX_SIZE: usize = 4 * 1024 * 1024;

/// The same on the resident worker, whose time compiling takes as well.
const MAX_RESIDENT_SIZE: usize = 512 * 1024;

/// What is to be compiled.
#[derive(Debug, Clone, Copy)]
pub(in crate::files) struct Wanted<'a> {
    /// As the model gave it.
    pub(in crate::files) pattern: &'a str,
    /// It means itself.
    pub(in crate::files) literal: bool,
    /// Letters match in either case.
    pub(in crate::files) ignore_case: bool,
}

/// A compiled pattern.
#[derive(Debug)]
pub(in crate::files) struct Pattern {
    /// Matches within lines.
    pub(in crate::files) matcher: RegexMatcher,
    /// What ends a line for it.
    pub(in crate::files) line_end: LineTerminator,
}

impl Pattern {
    /// Compiles; none when it is too large for the resident worker.
    pub(in crate::files) fn new(wanted: Wanted, resident: bool) -> Result<Option<Self>, Fault> {
        let size = if resident { MAX_RESIDENT_SIZE } else { MAX_SIZE };
        // With this `$` matches before CR LF, too; but then the pattern cannot speak of CR.
        let crlf = !speaks_of_cr(wanted);
        let mut builder = RegexMatcherBuilder::new();
        builder
            .multi_line(true)
            .case_insensitive(wanted.ignore_case)
            .fixed_strings(wanted.literal)
            .size_limit(size)
            .dfa_size_limit(size)
            .line_terminator(Some(b'\n'));
        if crlf {
            builder.crlf(true);
        }
        match builder.build(wanted.pattern) {
            Ok(matcher) => {
                let line_end = if crlf { LineTerminator::crlf() } else { LineTerminator::byte(b'\n') };
                Ok(Some(Self { matcher, line_end }))
            }
            Err(error) if resident && is_too_large(&error) => Ok(None),
            Err(error) => Err(Fault::Argument(words(&error, wanted))),
        }
    }
}

/// True when the pattern names CR, as a character or within a range. What is not named, as in `\s` or `[^a]`, does not count.
fn speaks_of_cr(wanted: Wanted) -> bool {
    let escapes = ["\\r", "\\x", "\\u", "\\U"];
    if wanted.literal || !escapes.iter().any(|escape| wanted.pattern.contains(escape)) {
        return wanted.pattern.contains('\r');
    }
    // One that cannot be parsed is refused soon, whatever it speaks of.
    ast::parse::Parser::new()
        .parse(wanted.pattern)
        .is_ok_and(|parsed| ast::visit(&parsed, SpeaksOfCr::default()) == Ok(true))
}

/// Looks for CR in a parsed pattern.
#[derive(Default)]
struct SpeaksOfCr {
    found: bool,
    negated: bool,
}

impl ast::Visitor for SpeaksOfCr {
    type Output = bool;
    type Err = ();

    fn finish(self) -> Result<bool, ()> {
        Ok(self.found)
    }

    fn visit_pre(&mut self, part: &Ast) -> Result<(), ()> {
        match part {
            Ast::Literal(literal) => self.found |= literal.c == '\r',
            Ast::ClassBracketed(class) => self.negated = class.negated,
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), ()> {
        self.found |= match item {
            ast::ClassSetItem::Literal(literal) => literal.c == '\r',
            ast::ClassSetItem::Range(range) => !self.negated && (range.start.c..=range.end.c).contains(&'\r'),
            _ => false,
        };
        Ok(())
    }
}

fn is_too_large(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Regex(message) if message.contains("size limit"))
}

fn words(error: &Error, wanted: Wanted) -> String {
    match error.kind() {
        _ if is_too_large(error) => {
            format!("the pattern needs more than {} MiB when it is compiled: repeat less in it", MAX_SIZE >> 20)
        }
        ErrorKind::NotAllowed(_) => {
            let place = line_break(wanted).map_or(String::new(), |at| format!(" (character {at})"));
            format!(
                "the pattern holds a line break{place}, but lines are searched one by one: search for a part of one line"
            )
        }
        ErrorKind::Regex(message) => {
            // The matcher puts the pattern into a group before it is parsed, which moves positions and hides what is not
            // closed; so it is parsed again as it was given.
            let (place, message) = match regex_syntax::parse(wanted.pattern) {
                Err(regex_syntax::Error::Parse(error)) => (Some(error.span().start), error.to_string()),
                Err(regex_syntax::Error::Translate(error)) => (Some(error.span().start), error.to_string()),
                _ => (None, message.clone()),
            };
            let place =
                place.map_or(String::new(), |place| format!(" (line {}, character {})", place.line, place.column));
            let place = place.replace("line 1, ", "");
            format!(
                "the pattern is no regular expression in Rust's syntax{place}; with literal: true it would mean \
                 itself\n{message}"
            )
        }
        _ => format!("the pattern cannot be searched for: {error}"),
    }
}

/// Which character of the pattern is a line break, or the escape of one outside a class, from 1.
fn line_break(wanted: Wanted) -> Option<usize> {
    let (mut escaped, mut depth) = (false, 0usize);
    for (at, character) in wanted.pattern.chars().enumerate() {
        match character {
            '\n' => return Some(at + 1),
            _ if wanted.literal => {}
            'n' if escaped && depth == 0 => return Some(at),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use grep_matcher::Matcher as _;

    use super::*;

    fn compiled(pattern: &str) -> Pattern {
        Pattern::new(Wanted { pattern, literal: false, ignore_case: false }, false).unwrap().unwrap()
    }

    fn refused(pattern: &str, literal: bool) -> String {
        Pattern::new(Wanted { pattern, literal, ignore_case: false }, false).unwrap_err().to_string()
    }

    /// T-GREP-2: the parser's message, with the position in the pattern as it was given.
    #[test]
    fn bad_patterns() {
        for (pattern, place, why) in [
            ("a(b", "character 2", "unclosed group"),
            ("ab)", "character 3", "unopened group"),
            ("日本[", "character 3", "unclosed character class"),
            ("x{2,1}", "character 2", "invalid repetition count range"),
            ("*", "character 1", "repetition operator missing expression"),
            ("a\\q", "character 2", "unrecognized escape sequence"),
            ("(?=a)", "character 1", "look-around"),
        ] {
            let message = refused(pattern, false);
            assert!(message.contains(place) && message.contains(why), "{message}");
        }
        assert_eq!(
            refused("ab\\ncd", false),
            "the pattern holds a line break (character 3), but lines are searched one by one: search for a part of one line"
        );
        assert!(refused("a\nb", true).contains("(character 2)"));
        assert!(refused("[^\\n]\\n", false).contains("(character 6)"));
    }

    /// T-7: patterns that would take much memory are refused, and never compiled on the resident worker.
    #[test]
    fn huge_patterns() {
        let huge = "(?:\\w{100}){100}";
        assert!(refused(huge, false).starts_with("the pattern needs more than 4 MiB"));
        let some = Wanted { pattern: "\\w{60}", literal: false, ignore_case: false };
        assert!(Pattern::new(some, true).unwrap().is_none());
        assert!(Pattern::new(some, false).unwrap().is_some());
        assert!(refused(&"(".repeat(1000), false).contains("character"));
    }

    /// T-GREP-1: the end of a line is before CR LF, and a pattern may still ask for CR.
    #[test]
    fn ends_of_lines() {
        assert!(compiled("foo$").matcher.is_match(b"foo\r\nbar\r\n").unwrap());
        assert!(compiled("\\x6f$").matcher.is_match(b"foo\r\n").unwrap());
        assert!(compiled("[^\\x00-\\x7f]$").matcher.is_match("fö\r\n".as_bytes()).unwrap());
        assert!(compiled("[\\x00-\\x1f]").matcher.is_match(b"foo\r\n").unwrap());
        assert!(compiled("o\\x{d}").matcher.is_match(b"foo\r\n").unwrap());
        assert!(compiled("o\\r").matcher.is_match(b"foo\r\n").unwrap());
        assert!(compiled("[^\\n]r").matcher.is_match(b"bar\n").unwrap());
        assert!(!compiled("o\\sb").matcher.is_match(b"foo\nbar\n").unwrap());
    }
}
