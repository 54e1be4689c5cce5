//! Progress of a long simulation, on standard error: nothing in the first seconds, then a line now
//! and then.

use std::time::{Duration, Instant};

/// How far one simulation has come.
#[derive(Debug)]
pub(crate) struct Progress {
    name: &'static str,
    seconds: f64,
    told: Instant,
}

/// Time between lines.
const PAUSE: Duration = Duration::from_secs(2);

impl Progress {
    /// A simulation of `seconds` under a scheduler of that name, which begins now.
    pub(crate) fn new(name: &'static str, seconds: f64) -> Self {
        Self {
            name,
            seconds,
            told: Instant::now(),
        }
    }

    /// Simulated time is `now`.
    pub(crate) fn tell(&mut self, now: f64) {
        if self.told.elapsed() >= PAUSE {
            let share = now / self.seconds * 100.0;
            eprintln!(
                "{}: {now:.0} of {} s ({share:.0} %)",
                self.name, self.seconds
            );
            self.told = Instant::now();
        }
    }
}
