//! Which tick of a schedule is due, whatever the clock does.
//!
//! Ticks that passed while nobody looked are not replayed: of those of the last minute the newest counts, older ones do
//! not. A clock that is set back by less than an hour repeats no tick; by more, the schedule goes on from there.

use crate::project::Schedule;

/// How late a tick may be, in milliseconds.
const LATE: i64 = 60_000;

/// How far back a clock may be set without a tick coming again, in milliseconds.
const SET_BACK: i64 = 3_600_000;

/// The ticks of one schedule. Times are milliseconds since 1970.
#[derive(Debug)]
pub(super) struct Ticks {
    schedule: Schedule,
    /// Ticks until here are settled.
    settled: i64,
}

/// What is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// The tick to act upon.
    pub(super) tick: Option<i64>,
    /// Ticks passed that are not acted upon.
    pub(super) missed: bool,
}

impl Ticks {
    /// Those after `now`.
    pub(super) fn new(schedule: Schedule, now: i64) -> Self {
        Self { schedule, settled: now }
    }

    /// When the next one comes; none when there is none in this era.
    pub(super) fn next(&self) -> Option<i64> {
        self.schedule.next(self.settled)
    }

    /// What has become due at `now`; it is settled with that.
    pub(super) fn due(&mut self, now: i64) -> Due {
        if now < self.settled.saturating_sub(SET_BACK) {
            self.settled = now;
        }
        let recent = self.settled.max(now.saturating_sub(LATE));
        let mut due = Due { tick: None, missed: self.next().is_some_and(|tick| tick <= recent) };
        let mut after = recent;
        while let Some(tick) = self.schedule.next(after).filter(|tick| *tick <= now) {
            due.missed |= due.tick.is_some();
            due.tick = Some(tick);
            after = tick;
        }
        self.settled = self.settled.max(now);
        due
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn schedule(pattern: &str, zone: &str) -> Schedule {
        Schedule::parse(pattern, TimeZone::get(zone).unwrap()).unwrap()
    }

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn a_tick_is_due_once() {
        let mut ticks = Ticks::new(schedule("*/5 * * * *", "UTC"), at("2026-03-01T12:01:00Z"));
        let tick = at("2026-03-01T12:05:00Z");
        assert_eq!(ticks.next(), Some(tick));
        assert_eq!(ticks.due(tick - 1), Due::default());
        assert_eq!(ticks.due(tick + 3), Due { tick: Some(tick), missed: false });
        assert_eq!(ticks.due(tick + 3), Due::default());
        // The clock is set back a little: the tick does not come again.
        assert_eq!(ticks.due(tick - 2_000), Due::default());
        assert_eq!(ticks.due(tick + 4), Due::default());
        assert_eq!(ticks.next(), Some(tick + 5 * MINUTE));
    }

    /// Missed ticks are not replayed.
    #[test]
    fn what_passed_while_nobody_looked_is_missed() {
        let begun = at("2026-03-01T12:01:00Z");
        let mut ticks = Ticks::new(schedule("*/5 * * * *", "UTC"), begun);
        assert_eq!(ticks.due(at("2026-03-04T12:02:30Z")), Due { tick: None, missed: true });
        let mut ticks = Ticks::new(schedule("*/5 * * * *", "UTC"), begun);
        let newest = at("2026-03-04T12:05:00Z");
        assert_eq!(ticks.due(newest + 2_000), Due { tick: Some(newest), missed: true });
        let mut ticks = Ticks::new(schedule("* * * * * *", "UTC"), begun);
        assert_eq!(ticks.due(begun + 2_500), Due { tick: Some(begun + 2_000), missed: true });
    }

    #[test]
    fn a_clock_that_was_wrong_does_not_silence_a_schedule() {
        let mut ticks = Ticks::new(schedule("0 * * * *", "UTC"), at("2036-01-01T00:30:00Z"));
        let now = at("2026-01-01T00:30:00Z");
        assert_eq!(ticks.due(now), Due::default());
        assert_eq!(ticks.next(), Some(at("2026-01-01T01:00:00Z")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// However often the clock is looked at, and through both changes of daylight saving time, each tick comes once, in
        /// order, and on time.
        #[test]
        fn each_tick_comes_once(
            pattern in prop::sample::select(vec!["*/5 * * * *", "30 2 * * *", "0 */2 * * *", "15 1-4 * * *", "20 */7 * * * *"]),
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
            day in prop::sample::select(vec!["2026-03-07T12:00:00Z", "2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-04-04T10:00:00Z"]),
            steps in prop::collection::vec(1i64..59_000, 200..1200),
        ) {
            let schedule = schedule(pattern, zone);
            let begun = at(day);
            let mut ticks = Ticks::new(schedule.clone(), begun);
            let (mut now, mut came) = (begun, Vec::new());
            for step in steps {
                now += step;
                let due = ticks.due(now);
                came.extend(due.tick);
                prop_assert!(due.tick.is_none_or(|tick| tick <= now && now - tick < MINUTE));
            }
            let expected: Vec<i64> = std::iter::successors(schedule.next(begun), |tick| schedule.next(*tick))
                .take_while(|tick| *tick <= now)
                .collect();
            prop_assert_eq!(came, expected);
        }

        /// Whatever the clock does, no tick comes twice unless the clock was set back by an hour, and none comes that lies
        /// ahead or is old.
        #[test]
        fn jumps_replay_nothing(jumps in prop::collection::vec(-3_000_000i64..20_000_000, 1..60)) {
            let begun = at("2026-03-28T20:00:00Z");
            let mut ticks = Ticks::new(schedule("*/5 * * * *", "Europe/Berlin"), begun);
            let (mut now, mut highest, mut last) = (begun, begun, begun);
            for jump in jumps {
                now += jump;
                let back = now < highest - SET_BACK;
                if back {
                    highest = now;
                    last = now;
                }
                if let Some(tick) = ticks.due(now).tick {
                    prop_assert!(!back && tick > last && tick <= now && now - tick <= LATE);
                    last = tick;
                }
                highest = highest.max(now);
            }
        }
    }
}
