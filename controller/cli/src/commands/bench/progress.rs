//! How many cases are done, on standard error: nothing in the first seconds, then a line now and
//! then.

use std::time::{Duration, Instant};

/// Time between lines.
const PAUSE: Duration = Duration::from_secs(5);

/// How far a run of many cases has come.
#[derive(Debug)]
pub(super) struct CaseProgress {
    cases: u32,
    done: u32,
    began: Instant,
    reported: Instant,
}

impl CaseProgress {
    /// A run of so many cases, which begins now.
    pub(super) fn new(cases: u32) -> Self {
        let now = Instant::now();
        Self { cases, done: 0, began: now, reported: now }
    }

    /// One more is done.
    pub(super) fn report_one(&mut self) {
        self.done += 1;
        if self.reported.elapsed() < PAUSE {
            return;
        }
        let each = self.began.elapsed().as_secs_f64() / f64::from(self.done);
        let left = each * f64::from(self.cases - self.done);
        eprintln!("{} of {} cases, about {left:.0} s left", self.done, self.cases);
        self.reported = Instant::now();
    }
}
