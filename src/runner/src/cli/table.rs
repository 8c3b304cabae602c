//! Tables, times and colours for terminals. Everything that goes through here is sanitised here.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use crate::observe::sanitise;

/// Whether to colour, decided once per output.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// No colours.
    pub const PLAIN: Style = Style { coloured: false };

    /// Colours when standard output is a terminal that knows them, and NO_COLOR (no-color.org) does not forbid them.
    pub fn of_stdout() -> Style {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Style { coloured: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// Something to look at last.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// It went well.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// It went wrong.
    pub fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// It is under way.
    pub fn busy(self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        let text = sanitise::line(text);
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.into_owned() }
    }
}

/// A cell: its text, and how it is painted once the column's width is known.
pub(crate) struct Cell {
    text: String,
    paint: fn(Style, &str) -> String,
}

impl Cell {
    pub(crate) fn new(text: &str) -> Cell {
        Cell::painted(text, |_, text| text.to_owned())
    }

    pub(crate) fn painted(text: &str, paint: fn(Style, &str) -> String) -> Cell {
        Cell { text: sanitise::line(text).into_owned(), paint }
    }
}

/// Writes rows under headings, columns as wide as they must be.
pub(crate) fn write(out: &mut dyn Write, style: Style, headings: &[&str], rows: &[Vec<Cell>]) -> io::Result<()> {
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.width());
            cells.chain([headings[column].width()]).max().unwrap_or(0)
        })
        .collect();
    let headings: Vec<Cell> = headings.iter().map(|heading| Cell::painted(heading, Style::bold)).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(&(cell.paint)(style, &cell.text));
            if column + 1 < row.len() {
                let gap = widths[column] - cell.text.width() + 2;
                line.extend(std::iter::repeat_n(' ', gap));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A duration as people say it, from milliseconds.
pub(crate) fn duration(ms: i64) -> String {
    let ms = ms.max(0);
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// A size as people say it.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..10_000_000 => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        10_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

/// Text of at most so many characters; what is left out is marked.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A number of things: `1 file`, `2 files`.
pub(crate) fn count(number: impl Into<u64>, thing: &str) -> String {
    match number.into() {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// Date and time of milliseconds since 1970, here.
pub(crate) fn date_time(ms: i64) -> String {
    local(ms, "%Y-%m-%d %H:%M:%S")
}

/// Time of day with milliseconds, here.
pub(crate) fn time(ms: i64) -> String {
    local(ms, "%H:%M:%S%.3f")
}

/// RFC 3339 in UTC, for machines.
pub(crate) fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| format!("{at:.3}"))
}

fn local(ms: i64, format: &str) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(at) => at.to_zoned_datetime(TimeZone::system()).strftime(format).to_string(),
        Err(_) => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_what_is_in_them() {
        let rows = [
            vec![Cell::new("a"), Cell::new("日本"), Cell::new("x")],
            vec![Cell::new("long\u{1b}[2J"), Cell::painted("b", Style::bad), Cell::new("")],
        ];
        let mut out = Vec::new();
        write(&mut out, Style::PLAIN, &["ONE", "TWO", "THREE"], &rows).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        ONE            TWO   THREE
        a              日本  x
        long\u{1b}[2J  b
        ");
        let mut out = Vec::new();
        write(&mut out, Style { coloured: true }, &["ONE", "TWO", "THREE"], &rows).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("\u{1b}[31mb\u{1b}[0m") && !out.contains("\u{1b}[2J"), "{out:?}");
    }

    #[test]
    fn sizes_have_two_digits_or_three() {
        let said = [999, 4_320_000, 641_000_000, 1_250_000_000].map(size);
        assert_eq!(said, ["999 B", "4.3 MB", "641 MB", "1.2 GB"]);
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([0_u32, 1, 2].map(|number| count(number, "turn")), ["0 turns", "1 turn", "2 turns"]);
    }

    #[test]
    fn times_are_said_briefly() {
        let said: Vec<String> =
            [-5, 0, 999, 1000, 59_999, 60_000, 3_599_000, 3_600_000, 90_000_000].into_iter().map(duration).collect();
        assert_eq!(
            said,
            ["0 ms", "0 ms", "999 ms", "1.0 s", "59.9 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h"]
        );
        assert_eq!(rfc3339(1_700_000_000_001), "2023-11-14T22:13:20.001Z");
    }
}
