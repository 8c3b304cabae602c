//! When a search has to end.

use std::time::{Duration, Instant};

use protocol::Partial;

/// How long a search may take (T-GREP-2).
const LIMIT: Duration = Duration::from_secs(30);

/// How long a search that found all it may show goes on counting.
const COUNTING: Duration = Duration::from_secs(2);

/// How long one may take on the resident worker, which has to answer the next call soon.
const RESIDENT: Duration = Duration::from_millis(50);

/// A search has to end before it has seen everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum Stop {
    /// The result is marked so.
    Partial(Partial),
    /// Another server has to begin anew.
    NeedsChild,
}

/// The time of one search.
#[derive(Debug, Clone, Copy)]
pub(in crate::files) struct Clock {
    until: Instant,
    stop: Stop,
}

impl Clock {
    /// The time of a search that begins now and whose call ends at `deadline`.
    pub(in crate::files) fn start(deadline: Instant, resident: bool) -> Self {
        let (limit, stop) = if resident { (RESIDENT, Stop::NeedsChild) } else { (LIMIT, Stop::Partial(Partial::Time)) };
        Self { until: (Instant::now() + limit).min(deadline), stop }
    }

    /// Says that from now on matches are only counted.
    pub(in crate::files) fn only_count(&mut self) {
        let until = Instant::now() + COUNTING;
        if until < self.until {
            *self = Self { until, stop: Stop::Partial(Partial::Counting) };
        }
    }

    /// Fails when time is up.
    pub(in crate::files) fn check(&self) -> Result<(), Stop> {
        if Instant::now() < self.until { Ok(()) } else { Err(self.stop) }
    }

    /// Why it ends when time is up.
    pub(in crate::files) fn stop(&self) -> Stop {
        self.stop
    }
}
