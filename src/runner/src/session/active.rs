//! How long a session has been at work, read from its journal: time in which nobody drove it does not count.

use super::journal::Event;

/// Milliseconds of active time up to the last line, from lines with the times at which they were recorded.
///
/// A stretch of work begins with the first line after `started` (a session may have been queued for long) and with each
/// `resumed`; it ends with `suspended`, or with the last line of a runner that died.
pub(super) fn time<'a>(lines: impl IntoIterator<Item = (i64, &'a Event)>) -> i64 {
    let mut total = 0;
    let mut stretch: Option<(i64, i64)> = None;
    let mut begun = false;
    for (at, event) in lines {
        match event {
            Event::Started(_) => {}
            Event::Resumed(_) => {
                total += length(stretch);
                stretch = Some((at, at));
                begun = true;
            }
            Event::Suspended(_) => {
                total += length(stretch.map(|(from, _)| (from, at)));
                stretch = None;
            }
            _ => match &mut stretch {
                Some((_, to)) => *to = at,
                None if !begun => {
                    stretch = Some((at, at));
                    begun = true;
                }
                None => {}
            },
        }
    }
    total + length(stretch)
}

/// A clock that was set back takes nothing away.
fn length(stretch: Option<(i64, i64)>) -> i64 {
    stretch.map_or(0, |(from, to)| (to - from).max(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::journal::{Resumed, Started, Status, Suspended};

    fn started() -> Event {
        Event::Started(Started::default())
    }

    fn line() -> Event {
        Event::Status(Status::default())
    }

    fn suspended() -> Event {
        Event::Suspended(Suspended::default())
    }

    fn resumed() -> Event {
        Event::Resumed(Resumed::default())
    }

    fn of(lines: &[(i64, Event)]) -> i64 {
        time(lines.iter().map(|(at, event)| (*at, event)))
    }

    #[test]
    fn only_work_counts() {
        assert_eq!(of(&[(0, started())]), 0);
        let queued = [(0, started()), (1000, line()), (1500, line())];
        assert_eq!(of(&queued), 500);
        let waited = [(0, started()), (0, line()), (10, suspended()), (9000, resumed()), (9005, line())];
        assert_eq!(of(&waited), 15);
        let died = [(0, started()), (0, line()), (10, line()), (9000, resumed()), (9005, line())];
        assert_eq!(of(&died), 15);
        let set_back = [(0, started()), (100, line()), (50, line())];
        assert_eq!(of(&set_back), 0);
    }

    proptest! {
        /// Stretches of work add up, whatever lies between them and however each ended.
        #[test]
        fn gaps_do_not_count(
            queued in 0_i64..1_000_000,
            stretches in prop::collection::vec(
                (prop::collection::vec(0_i64..5_000, 1..5), 0_i64..1_000_000, any::<bool>()), 1..6),
        ) {
            let mut lines = vec![(0, started())];
            let (mut at, mut worked) = (queued, 0);
            for (number, (steps, gap, suspends)) in stretches.iter().enumerate() {
                lines.push((at, if number == 0 { line() } else { resumed() }));
                for step in steps {
                    at += step;
                    worked += step;
                    lines.push((at, line()));
                }
                if *suspends {
                    lines.push((at, suspended()));
                }
                at += gap;
            }
            prop_assert_eq!(of(&lines), worked);
            // Every beginning of a journal has at most as much.
            let mut before = 0;
            for end in 0..=lines.len() {
                let now = of(&lines[..end]);
                prop_assert!(now >= before);
                before = now;
            }
        }
    }
}
