//! Interleaved blocks of two sides and what is said of them.

use std::time::{Duration, Instant};

use serde::Serialize;

/// One line of `target/bench/summary.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    /// Its name in the README's table.
    pub(crate) name: &'static str,
    /// Median over the blocks.
    pub(crate) value: f64,
    /// `ratio`, `MiB`, `ms` or `fraction`.
    pub(crate) unit: &'static str,
    /// What the value is held against.
    pub(crate) bound: f64,
    /// The value keeps its bound.
    pub(crate) ok: bool,
    /// Both sides in words: medians, 99th percentiles, blocks, machine load.
    pub(crate) detail: String,
}

/// Which side of its bound a value must stay on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    /// At most this much.
    AtMost(f64),
    /// At least this much.
    AtLeast(f64),
}

impl Figure {
    /// Judges `value` by its bound and notes the machine's load beside `detail`.
    pub(crate) fn judge(name: &'static str, value: f64, unit: &'static str, bound: Bound, detail: &str) -> Self {
        let (limit, ok) = match bound {
            Bound::AtMost(limit) => (limit, value <= limit),
            Bound::AtLeast(limit) => (limit, value >= limit),
        };
        let value = (value * 1000.0).round() / 1000.0;
        Self { name, value, unit, bound: limit, ok, detail: format!("{detail}; {}", load()) }
    }
}

/// Timings of the two sides, block by block.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    floor: Vec<Vec<Duration>>,
    ours: Vec<Vec<Duration>>,
}

impl Pair {
    /// Adds a block of the floor.
    pub(crate) fn floor(&mut self, block: Vec<Duration>) {
        self.floor.push(block);
    }

    /// Adds a block of ours.
    pub(crate) fn ours(&mut self, block: Vec<Duration>) {
        self.ours.push(block);
    }

    /// The median over the blocks of the ratio of the two sides' medians.
    pub(crate) fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> = self
            .floor
            .iter()
            .zip(&self.ours)
            .map(|(floor, ours)| percentile(ours, 50).as_secs_f64() / percentile(floor, 50).as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    /// Both sides in words.
    pub(crate) fn detail(&self, floor_name: &str, our_name: &str) -> String {
        let side = |name: &str, blocks: &[Vec<Duration>]| {
            let all: Vec<Duration> = blocks.iter().flatten().copied().collect();
            format!("{name} p50 {:.1?} p99 {:.1?}", percentile(&all, 50), percentile(&all, 99))
        };
        let calls = self.ours.first().map_or(0, Vec::len);
        format!(
            "{}, {}, {} blocks of {calls}",
            side(floor_name, &self.floor),
            side(our_name, &self.ours),
            self.ours.len()
        )
    }
}

/// Times one call.
pub(crate) async fn timed<F: Future>(call: F) -> (Duration, F::Output) {
    let start = Instant::now();
    let output = call.await;
    (start.elapsed(), output)
}

/// The sample below which this many percent lie.
pub(crate) fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("machine load {}", text.split(' ').next().unwrap_or("?"))
}
