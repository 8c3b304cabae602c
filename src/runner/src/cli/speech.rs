//! What a model says, line by line as it writes.
//!
//! Only whole lines are shown, so that each is sanitised as one and can be marked when the answer breaks off. Blank lines
//! wait for what follows them.

use crate::observe::sanitise;

/// The text of one turn that is being written.
#[derive(Debug, Default)]
pub(super) struct Speech {
    /// The line that is not whole yet.
    line: String,
    /// Blank lines that were held back.
    blank: usize,
    /// Something of this turn was shown.
    begun: bool,
}

impl Speech {
    /// More of the text; returns the lines that are whole now.
    pub(super) fn write(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        // What came before has no end of line: to look at it again with each piece would be quadratic.
        let mut rest = text;
        while let Some((end, after)) = rest.split_once('\n') {
            self.line.push_str(end);
            let line = std::mem::take(&mut self.line);
            self.show(line.trim_end(), &mut lines);
            rest = after;
        }
        self.line.push_str(rest);
        lines
    }

    /// The turn is over and this is all of its text; returns the lines that were not shown yet.
    pub(super) fn end(&mut self, whole: &str) -> Vec<String> {
        let mut speech = std::mem::take(self);
        let came_in_parts = speech.begun || !speech.line.is_empty() || speech.blank > 0;
        let mut lines = if came_in_parts { Vec::new() } else { speech.write(whole) };
        let line = std::mem::take(&mut speech.line);
        speech.show(line.trim_end(), &mut lines);
        lines
    }

    /// The answer broke off and is void; returns what says so, if something of it was shown.
    pub(super) fn break_off(&mut self) -> Vec<String> {
        let speech = std::mem::take(self);
        if speech.begun { vec![marked("… (broken off: what it said above does not count)")] } else { Vec::new() }
    }

    /// The end of the line that is being written, for a spinner. Sanitised.
    pub(super) fn tail(&self, characters: usize) -> Option<String> {
        let line = self.line.trim();
        // From the end: a line may be megabytes, and this is asked with each word.
        let begin = line.char_indices().rev().take(characters).last().map_or(0, |(at, _)| at);
        let tail = &line[begin..];
        (!tail.is_empty()).then(|| sanitise::line(tail).into_owned())
    }

    fn show(&mut self, line: &str, lines: &mut Vec<String>) {
        if line.is_empty() {
            self.blank += 1;
            return;
        }
        lines.extend((0..std::mem::take(&mut self.blank)).map(|_| marked("")));
        lines.push(marked(&sanitise::block(line)));
        self.begun = true;
    }
}

/// A line of the model's, which cannot pass for one of ours.
fn marked(line: &str) -> String {
    format!("│ {line}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_shown_when_they_are_whole() {
        let mut speech = Speech::default();
        assert_eq!(speech.write("Fir"), Vec::<String>::new());
        assert_eq!(speech.tail(2).as_deref(), Some("ir"));
        assert_eq!(speech.write("st\n\nsec"), ["│ First"]);
        assert_eq!(speech.end("First\n\nsec\n"), ["│ ", "│ sec"]);
        assert_eq!(speech.end("whole\n\n"), ["│ whole"]);
        assert_eq!(speech.end(""), Vec::<String>::new());
    }

    /// A line without an end, a word at a time, costs what its bytes cost. Looking at all of it each time would be 10¹² steps.
    #[test]
    fn a_line_without_an_end_is_looked_at_once() {
        let mut speech = Speech::default();
        for _ in 0..1_000_000 {
            assert!(speech.write("é").is_empty());
            assert!(speech.tail(3).is_some());
        }
        assert_eq!(speech.tail(3).as_deref(), Some("ééé"));
        assert_eq!(speech.write("\n").concat().chars().count(), 1_000_002);
    }

    /// M-STREAM-1: half an answer is not shown as if it had been said.
    #[test]
    fn an_answer_that_breaks_off_is_marked() {
        let mut speech = Speech::default();
        speech.write("All is\nwell, an");
        assert_eq!(speech.break_off(), ["│ … (broken off: what it said above does not count)"]);
        assert_eq!(speech.write("All is\n"), ["│ All is"]);
        assert_eq!(speech.end("All is\nlost").len(), 0, "what did not come was not said");
        speech.write("nothing shown yet");
        assert_eq!(speech.break_off(), Vec::<String>::new());
        assert_eq!(speech.end("other"), ["│ other"]);
    }

    proptest! {
        /// bug 18: in whatever pieces text comes, it is shown like the whole, and nothing in it reaches the terminal.
        #[test]
        fn pieces_are_shown_like_the_whole(pieces in prop::collection::vec("[a-c\n \u{1b}\u{9b}\r\u{202e}é]{0,6}", 0..8)) {
            let whole = pieces.concat();
            let mut speech = Speech::default();
            let mut shown: Vec<String> = pieces.iter().flat_map(|piece| speech.write(piece)).collect();
            shown.extend(speech.end(&whole));
            prop_assert!(!shown.concat().chars().any(sanitise::is_unsafe));
            prop_assert_eq!(shown, Speech::default().end(&whole));
        }
    }
}
