//! When an agent starts by itself: a cron pattern in a time zone.

use std::cmp::Ordering;

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ZonedDateTime};

/// The times at which an agent starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The pattern, as it was written.
    pub pattern: String,
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a pattern of five or six fields (the first of six is seconds).
    pub(crate) fn parse(pattern: &str, zone: TimeZone) -> Result<Self, String> {
        let fields = pattern.split_whitespace().count();
        if !(5..=6).contains(&fields) {
            return Err(format!("it has {fields} fields, and a pattern has five, or six with seconds in front"));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(pattern).map_err(|error| error.to_string())?;
        let schedule = Self { pattern: pattern.to_owned(), cron, zone };
        match schedule.next(Timestamp::now().as_millisecond()) {
            Some(_) => Ok(schedule),
            None => Err("that time never comes".to_owned()),
        }
    }

    /// The first time after `after`; both in milliseconds since 1970. None when there is none in this era.
    pub fn next(&self, after: i64) -> Option<i64> {
        let after = Timestamp::from_millisecond(after).ok()?.to_zoned_datetime(self.zone.clone());
        let next = self.cron.find_next_occurrence(&Moment(after), false).ok()?;
        Some(next.0.timestamp().as_millisecond())
    }

    /// Name of its time zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }
}

/// The time zone of this name, such as `Europe/Berlin`.
pub(super) fn zone(name: &str) -> Option<TimeZone> {
    // Other texts that jiff takes (POSIX rules, offsets) have no place in a file that people read.
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.contains([',', '<']) {
        return None;
    }
    TimeZone::get(name).ok()
}

/// A time in a zone, as croner wants to see it.
#[derive(Debug, Clone)]
struct Moment(ZonedDateTime);

impl CronDateTime for Moment {
    fn to_civil(&self) -> CivilDateTime {
        let unsigned = |part: i8| u32::from(part.unsigned_abs());
        let at = self.0.datetime();
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(i32::from(at.year()), unsigned(at.month()), unsigned(at.day())),
            CivilTime::from_parts_unchecked(unsigned(at.hour()), unsigned(at.minute()), unsigned(at.second())),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        Weekday::from_days_from_sunday(u32::from(self.0.weekday().to_sunday_zero_offset().unsigned_abs()))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let (month, day) = (part(civil.month())?, part(civil.day())?);
        let (hour, minute, second) = (part(civil.hour())?, part(civil.minute())?, part(civil.second())?);
        let at = DateTime::new(year, month, day, hour, minute, second, 0).map_err(|_| CronError::InvalidDate)?;
        let found = self.0.time_zone().to_ambiguous_zoned_datetime(at);
        let offset = found.offset();
        let zoned = |zoned: Result<ZonedDateTime, jiff::Error>| zoned.map(Moment).map_err(|_| CronError::InvalidTime);
        Ok(match offset {
            AmbiguousOffset::Unambiguous { .. } => Resolution::Single(zoned(found.unambiguous())?),
            AmbiguousOffset::Fold { .. } => {
                Resolution::Ambiguous(zoned(found.clone().earlier())?, zoned(found.later())?)
            }
            AmbiguousOffset::Gap { .. } => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(SignedDuration::from_secs(seconds)).ok().map(Moment)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.timestamp().cmp(&other.0.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(pattern: &str, name: &str, after: &str) -> String {
        let zone = zone(name).unwrap();
        let after: Timestamp = after.parse().unwrap();
        let next = Schedule::parse(pattern, zone).unwrap().next(after.as_millisecond()).unwrap();
        Timestamp::from_millisecond(next).unwrap().to_string()
    }

    #[test]
    fn the_next_time_follows_the_pattern() {
        assert_eq!(next("*/5 * * * *", "UTC", "2026-03-01T12:00:00Z"), "2026-03-01T12:05:00Z");
        assert_eq!(next("*/5 * * * *", "UTC", "2026-03-01T12:04:59.999Z"), "2026-03-01T12:05:00Z");
        assert_eq!(next("30 */5 * * * *", "UTC", "2026-03-01T12:00:00Z"), "2026-03-01T12:00:30Z");
        assert_eq!(next("0 9 * * MON-FRI", "Europe/Berlin", "2026-03-07T00:00:00Z"), "2026-03-09T08:00:00Z");
    }

    /// A time that the clock jumps over comes when the jump is over, and one that comes twice comes once.
    #[test]
    fn clocks_that_are_changed() {
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(next("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let refused = |pattern: &str| Schedule::parse(pattern, TimeZone::UTC).unwrap_err();
        assert!(refused("").contains("0 fields"));
        assert!(refused("@daily").contains("1 fields"));
        assert!(refused("0 0 0 1 1 * 2030").contains("7 fields"));
        assert_eq!(refused("0 0 31 2 *"), "that time never comes");
        for pattern in ["61 * * * *", "* 25 * * *", "x * * * *", "*/0 * * * *", "* * * * 9"] {
            assert!(!refused(pattern).is_empty(), "{pattern}");
        }
        assert!(zone("Mars/Base").is_none() && zone("").is_none() && zone("EST5EDT,M3.2.0,M11.1.0").is_none());
    }
}
