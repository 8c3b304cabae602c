//! Lengths of time as people and models write them: `45s`, `30m`, `2h`, `1h30m`, `2d`.

use std::fmt;
use std::time::Duration;

/// What [`parse`] takes, for error messages.
pub const GRAMMAR: &str = "whole numbers with the units d, h, m and s, each at most once and the larger first: \"45s\", \"30m\", \"1h30m\", \"2d\"";

/// The units, the largest first, and their seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Reads a length of time; none when the text does not follow the [`GRAMMAR`] or is too large for any use.
pub fn parse(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest, mut units) = (0_u64, text, UNITS.as_slice());
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let at = units.iter().position(|(name, _)| *name == unit)?;
        seconds = seconds.checked_add(number.checked_mul(units[at].1)?)?;
        rest = &rest[digits + unit.len_utf8()..];
        units = &units[at + 1..];
    }
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
}

/// A length of whole seconds in the same words, the shortest that there are.
pub fn written(duration: Duration) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut rest = duration.as_secs();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, seconds) in UNITS {
            let number = rest / seconds;
            rest %= seconds;
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// S-WAIT-1: the grammar.
    #[test]
    fn lengths_of_time_are_read() {
        let seconds = |text| parse(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("45s"), Some(45));
        assert_eq!(seconds("30m"), Some(1_800));
        assert_eq!(seconds("2h"), Some(7_200));
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("2d"), Some(172_800));
        assert_eq!(seconds("1d2h3m4s"), Some(93_784));
        for wrong in ["", "30", "m", "1.5h", "-1s", "+1s", "30 m", "30M", "1m1h", "1h1h", "5w", "1h30", "٣s", "30µ"] {
            assert_eq!(seconds(wrong), None, "{wrong:?}");
        }
        assert_eq!(seconds("99999999999999999999s"), None);
        assert_eq!(seconds("999999999999999999d"), None);
    }

    proptest! {
        /// S-WAIT-1: whatever is written is read as the same.
        #[test]
        fn what_is_written_is_read_again(seconds in 0_u64..=400 * 86_400) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse(&written(duration).to_string()), Some(duration));
        }

        /// S-WAIT-1: no text makes the reader fail, and what it takes follows the grammar.
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9dhms]{0,8}|\\PC{0,12}") {
            if let Some(duration) = parse(&text) {
                prop_assert!(text.chars().all(|c| c.is_ascii_digit() || "dhms".contains(c)), "{:?}", text);
                prop_assert_eq!(parse(&written(duration).to_string()), Some(duration));
            }
        }
    }
}
