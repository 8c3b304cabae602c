//! Output without what differs from run to run.

use std::path::Path;

use regex::Regex;

use super::place::Place;

impl Place {
    /// Replaces ids by SESSION, ID, NAME and DIGEST, times by TIME, the place's folders by PROJECT and STATE.
    pub(crate) fn masked(&self, text: &str) -> String {
        let shown = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string();
        let mut text = text.to_owned();
        for (path, name) in [(self.project(), "PROJECT"), (self.state(), "STATE"), (self.folder().to_owned(), "PLACE")]
        {
            text = text.replace(&shown(&path), name).replace(&path.display().to_string(), name);
        }
        for (pattern, name) in [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "SESSION"),
            (r"(?m)^[0-9a-f]{8}  ", "SESSION  "),
            (r"sha256:[0-9a-f]{64}", "DIGEST"),
            (r"\b[0-9a-f]{64}\b", "ID"),
            (r"\b[0-9a-f]{32}\b", "NAME"),
            (r"\b[0-9a-f]{12}\b", "ID"),
            (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
            (r"\b\d\d:\d\d:\d\d\.\d{3}\b", "TIME"),
            (r"\b(\d+ ms|\d+\.\d s|\d+ min \d+ s)", "TIME"),
            (r#""duration_ms":\d+"#, r#""duration_ms":0"#),
        ] {
            text = Regex::new(pattern).expect("a pattern").replace_all(&text, name).into_owned();
        }
        text
    }
}
