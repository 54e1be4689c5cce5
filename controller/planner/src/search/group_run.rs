//! A contest played in the fluid model: how much of the time each of its jobs computes.
//!
//! The engine is built once and started again for every assignment of levels, which is what makes
//! trying many of them cheap.

use fluid::{Engine, EngineOptions, FluidError, FluidNetwork, JobIndex};

use super::contention_group::ContentionGroup;

/// The part of a run that is judged, in seconds; what is before it is warming up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasureWindow {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub until: f64,
}

/// A contest ready to be played from given starts.
#[derive(Clone, Debug)]
pub struct GroupRun {
    engine: Engine,
    jobs: Vec<JobIndex>,
}

impl GroupRun {
    /// `contest` with its jobs starting at `starts`, seconds, in the order of its parties.
    ///
    /// # Errors
    /// A job that the fluid model refuses.
    pub fn new(contest: &ContentionGroup, starts: &[f64]) -> Result<Self, FluidError> {
        let network = FluidNetwork::new(contest.capacities().to_vec())?;
        let mut engine = Engine::new(&network, EngineOptions::default())?;
        let jobs =
            contest.fluid_jobs().iter().zip(starts).map(|(job, start)| {
                engine.add_job(&fluid::FluidJob { start: *start, ..job.clone() })
            });
        let jobs = jobs.collect::<Result<_, _>>()?;
        Ok(Self { engine, jobs })
    }

    /// Share of the window's time during which each job computes, if jobs have these `levels`;
    /// none if that takes more than `most` events.
    ///
    /// # Errors
    /// A window that is none.
    pub fn busy_shares(
        &mut self,
        levels: &[u8],
        window: MeasureWindow,
        most: u64,
    ) -> Result<Option<Vec<f64>>, FluidError> {
        self.engine.reset();
        for (job, level) in self.jobs.iter().zip(levels) {
            self.engine.set_level(*job, u32::from(*level))?;
        }
        let Some(before) = self.busy_seconds_at(window.from, most)? else {
            return Ok(None);
        };
        let Some(after) = self.busy_seconds_at(window.until, most)? else {
            return Ok(None);
        };
        let share = |(before, after): (&f64, &f64)| (after - before) / (window.until - window.from);
        Ok(Some(before.iter().zip(&after).map(share).collect()))
    }

    /// Seconds that each job has computed by then; none if there are more than `most` events first.
    fn busy_seconds_at(&mut self, until: f64, most: u64) -> Result<Option<Vec<f64>>, FluidError> {
        while self.engine.step_until(until)? {
            if self.engine.event_count() > most {
                return Ok(None);
            }
        }
        self.engine.run_until(until)?;
        let busy = |job: &JobIndex| Ok(self.engine.job_tally(*job)?.busy_seconds);
        self.jobs.iter().map(busy).collect::<Result<_, _>>().map(Some)
    }

    /// Events of the last run.
    pub fn event_count(&self) -> u64 {
        self.engine.event_count()
    }
}
