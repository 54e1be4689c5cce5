//! Jobs that keep their iterations on a grid of instants, `origin + k * period`.

use crate::clock::Ticks;
use crate::error::FluidError;

/// How a job is held to its grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GridRule {
    /// An iteration that would begin off the grid by more than this share of the period waits for
    /// the next instant of it (CASSINI, NSDI 2024, section 5.7).
    Realign {
        /// Share of the period.
        tolerance: f64,
    },
    /// An iteration that would begin early waits, for this long at most, seconds. One that is late
    /// does not: its instant has passed.
    Wait {
        /// Seconds.
        most: f64,
    },
}

/// The grid of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobGrid {
    /// An instant of it, seconds.
    pub origin: f64,
    /// Between two iterations, seconds.
    pub period: f64,
    /// How the job is held to it.
    pub rule: GridRule,
}

impl JobGrid {
    pub(crate) fn check_fields(&self) -> Result<(), FluidError> {
        let limit = match self.rule {
            GridRule::Realign { tolerance } => tolerance,
            GridRule::Wait { most } => most,
        };
        for (what, seconds) in
            [("grid.origin", self.origin), ("grid.period", self.period), ("grid.rule", limit)]
        {
            Ticks::checked_seconds(what, seconds)?;
        }
        Ok(())
    }

    /// For how long an iteration that could begin `now` waits.
    pub(crate) fn wait_at(&self, now: Ticks) -> Ticks {
        let [origin, period] = [self.origin, self.period].map(Ticks::from_seconds);
        if period == Ticks(0) {
            return Ticks(0);
        }
        // In integers: a remainder of floats is off by a period where it is nearly one.
        let behind = origin.0 % period.0;
        let late = (now.0 % period.0 + period.0 - behind) % period.0;
        let early = period.0 - late;
        match self.rule {
            GridRule::Realign { tolerance } => {
                let is_off = late.min(early) as f64 > tolerance * period.0 as f64;
                Ticks(if is_off { early } else { 0 })
            }
            GridRule::Wait { most } if early < late => {
                Ticks(early.min(Ticks::from_seconds(most).0))
            }
            GridRule::Wait { .. } => Ticks(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(rule: GridRule, now: f64) -> f64 {
        let grid = JobGrid { origin: 10.0, period: 2.0, rule };
        grid.wait_at(Ticks::from_seconds(now)).as_seconds()
    }

    #[test]
    fn small_drift_is_let_pass_and_large_drift_waits_for_the_grid() {
        for (now, expected) in
            [(10.0, 0.0), (14.09, 0.0), (13.91, 0.0), (14.5, 1.5), (13.75, 0.25), (1.5, 0.5)]
        {
            assert_eq!(wait(GridRule::Realign { tolerance: 0.05 }, now), expected, "{now}");
        }
    }

    #[test]
    fn an_early_iteration_waits_and_a_late_one_does_not() {
        for (now, expected) in [(14.0, 0.0), (14.5, 0.0), (13.75, 0.04), (13.99, 0.01)] {
            assert_eq!(wait(GridRule::Wait { most: 0.04 }, now), expected, "{now}");
        }
    }
}
