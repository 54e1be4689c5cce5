//! Progress of a long simulation, on standard error: nothing in the first seconds, then a line now
//! and then.

use std::time::{Duration, Instant};

/// How far one simulation has come.
#[derive(Debug)]
pub(crate) struct SimulationProgress {
    name: &'static str,
    whole: f64,
    unit: &'static str,
    reported: Instant,
}

/// Time between lines.
const PAUSE: Duration = Duration::from_secs(2);

impl SimulationProgress {
    /// A simulation of `seconds` under a scheduler of that name, which begins now.
    pub(crate) fn new(name: &'static str, seconds: f64) -> Self {
        Self::with_unit(name, seconds, "s")
    }

    /// Work of that name on a `whole` counted in `unit`, which begins now.
    pub(crate) fn with_unit(name: &'static str, whole: f64, unit: &'static str) -> Self {
        Self { name, whole, unit, reported: Instant::now() }
    }

    /// So much of the whole is behind.
    pub(crate) fn report_position(&mut self, now: f64) {
        if self.reported.elapsed() >= PAUSE {
            let share = now / self.whole * 100.0;
            eprintln!("{}: {now:.0} of {} {} ({share:.0} %)", self.name, self.whole, self.unit);
            self.reported = Instant::now();
        }
    }
}
