//! A run of a contention group in the fluid model: how much of the time each of its jobs computes.
//!
//! The engine is built once and reset for every assignment of levels, which makes many of them
//! cheap.

use std::collections::{BTreeMap, BTreeSet};

use fluid::{Engine, EngineOptions, FluidError, FluidNetwork, JobGrid, JobIndex, JobTally};

use super::contention_group::ContentionGroup;

/// Ends of flows of a job that are nearer to each other than this share of the time since they
/// began count as one. Runs of a thousand flows cost a tenth by it, and iterations differ by less
/// than 0.5 %.
const MERGED_SHARE: f64 = 0.01;

/// Kinds of flows of a group up to which its runs are exact. With few of them an iteration is as long
/// as the last flow, and where jobs have nearly the same period, the share decides who misses a slot.
const EXACT_KINDS: usize = 64;

/// Rates that cost as much as the rest of an event.
const RATES_PER_EVENT: u64 = 8;

/// The measured part of a run, in seconds; the time before it is warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasureWindow {
    /// Start of the window, seconds.
    pub from: f64,
    /// End of the window, seconds.
    pub until: f64,
}

/// A contention group ready to run from given starts.
#[derive(Clone, Debug)]
pub struct GroupRun {
    engine: Engine,
    jobs: Vec<JobIndex>,
}

impl MeasureWindow {
    /// Its length.
    pub(super) fn seconds(self) -> f64 {
        self.until - self.from
    }
}

/// What a job does in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MemberProgress {
    /// Iterations that end in it, and the sum of their durations, seconds.
    pub(super) iterations: u64,
    seconds: f64,
    /// Seconds in which it computes.
    pub(super) busy_seconds: f64,
}

impl MemberProgress {
    /// The mean duration of an iteration, seconds, if one ends.
    pub(super) fn iteration_seconds(&self) -> Option<f64> {
        (self.iterations > 0).then(|| self.seconds / self.iterations as f64)
    }

    /// What it does in two windows together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            iterations: self.iterations + other.iterations,
            seconds: self.seconds + other.seconds,
            busy_seconds: self.busy_seconds + other.busy_seconds,
        }
    }
}

impl GroupRun {
    /// `group` with its jobs starting at `starts`, seconds, in the order of its members.
    ///
    /// # Errors
    /// A job that the fluid model rejects.
    pub fn new(group: &ContentionGroup, starts: &[f64]) -> Result<Self, FluidError> {
        let kinds: usize = group.fluid_jobs().iter().map(|job| job.flows.len()).sum();
        // Merging ends costs accuracy, and only large groups have so many ends that it saves time.
        let merged_share = if kinds <= EXACT_KINDS { 0.0 } else { MERGED_SHARE };
        Self::of_jobs(group, starts.iter().map(|start| (*start, None)), merged_share)
    }

    /// `group` with its jobs starting at these instants, seconds, each on its grid. Runs are exact:
    /// where slots touch, whether a flow ends in time decides everything.
    ///
    /// # Errors
    /// A job that the fluid model rejects.
    pub(super) fn on_grids(
        group: &ContentionGroup,
        starts: impl Iterator<Item = (f64, Option<JobGrid>)>,
    ) -> Result<Self, FluidError> {
        Self::of_jobs(group, starts, 0.0)
    }

    fn of_jobs(
        group: &ContentionGroup,
        starts: impl Iterator<Item = (f64, Option<JobGrid>)>,
        merged_share: f64,
    ) -> Result<Self, FluidError> {
        let links = group.links();
        let fifo = (0..).zip(links).filter(|(_, link)| link.is_fifo).map(|(number, _)| number);
        let capacities = links.iter().map(|link| link.capacity).collect();
        let network = FluidNetwork::new(capacities)?.with_fifo_links(fifo);
        let options = EngineOptions { merged_share, ..EngineOptions::default() };
        let mut engine = Engine::new(&network, options)?;
        let jobs = group
            .fluid_jobs()
            .iter()
            .zip(starts)
            .map(|(job, (start, grid))| {
                engine.add_job(&fluid::FluidJob { start, grid, ..job.clone() })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { engine, jobs })
    }

    /// Share of the window's time during which each job computes, if jobs have these `levels`.
    ///
    /// # Errors
    /// An invalid window.
    pub fn busy_shares(
        &mut self,
        levels: &[u8],
        window: MeasureWindow,
    ) -> Result<Vec<f64>, FluidError> {
        let progress = self.progress(levels, window)?;
        Ok(progress.iter().map(|of| of.busy_seconds / window.seconds()).collect())
    }

    /// What each job does in the window, if jobs have these `levels`.
    ///
    /// # Errors
    /// An invalid window.
    pub(super) fn progress(
        &mut self,
        levels: &[u8],
        window: MeasureWindow,
    ) -> Result<Vec<MemberProgress>, FluidError> {
        let stretches = self.progress_between(levels, &[window.from, window.until])?;
        Ok(stretches.into_iter().flatten().collect())
    }

    /// What each job does between each of these instants, ascending, and the next.
    ///
    /// # Errors
    /// An invalid instant.
    pub(super) fn progress_between(
        &mut self,
        levels: &[u8],
        instants: &[f64],
    ) -> Result<Vec<Vec<MemberProgress>>, FluidError> {
        // Before levels are set: a change of level at an instant in between would move flows that
        // send.
        self.engine.reset();
        // Levels in the same order are the same to the bit, whatever their numbers: rounding that
        // differs can starve another job where jobs are overloaded.
        let distinct: BTreeSet<u8> = levels.iter().copied().collect();
        let ranks: BTreeMap<u8, u32> = distinct.into_iter().zip(0..).collect();
        for (job, level) in self.jobs.iter().zip(levels) {
            self.engine.set_level(*job, ranks[level])?;
        }
        let tallies: Vec<Vec<JobTally>> =
            instants.iter().map(|at| self.tallies_at(*at)).collect::<Result<_, _>>()?;
        let passed = |before: &JobTally, after: &JobTally| MemberProgress {
            iterations: after.iterations - before.iterations,
            seconds: after.iteration_seconds + after.waited_seconds
                - before.iteration_seconds
                - before.waited_seconds,
            busy_seconds: after.busy_seconds - before.busy_seconds,
        };
        let of_jobs = tallies.windows(2).map(|pair| {
            pair[0].iter().zip(&pair[1]).map(|(before, after)| passed(before, after)).collect()
        });
        Ok(of_jobs.collect())
    }

    /// The longest time that a flow of each job has waited for service since the start of the run,
    /// seconds. A wait at its end is followed until it is over or longer than `limit`, for as many
    /// events at most as the run had.
    ///
    /// # Errors
    /// None after a run that had none.
    pub fn longest_waits(&mut self, limit: f64) -> Result<Vec<f64>, FluidError> {
        // As many events again as the run had; a wait that is still open then may last for ever.
        let most = 2 * self.engine.event_count();
        let mut open = self.longest_open_wait()?;
        while open > 0.0 && open <= limit && self.engine.event_count() < most {
            if !self.engine.step_until(fluid::MAX_SECONDS)? {
                break;
            }
            open = self.longest_open_wait()?;
        }
        let longest = |job: &JobIndex| -> Result<f64, FluidError> {
            let is_cut_short = open <= limit && self.engine.job_open_wait(*job)? > 0.0;
            // As good as for ever.
            let least = if is_cut_short { limit.next_up() } else { 0.0 };
            Ok(self.engine.job_longest_wait(*job)?.max(least))
        };
        self.jobs.iter().map(longest).collect()
    }

    fn longest_open_wait(&self) -> Result<f64, FluidError> {
        let mut longest: f64 = 0.0;
        for job in &self.jobs {
            longest = longest.max(self.engine.job_open_wait(*job)?);
        }
        Ok(longest)
    }

    fn tallies_at(&mut self, until: f64) -> Result<Vec<JobTally>, FluidError> {
        self.engine.run_until(until)?;
        self.jobs.iter().map(|job| self.engine.job_tally(*job)).collect()
    }

    /// Cost of the last run: its events, each with the rates that it computed, eight of which
    /// count as one event more. Where many flows share links, an event changes many rates.
    pub fn event_cost(&self) -> u64 {
        let work = self.engine.work_counters();
        work.events + work.groups_computed / RATES_PER_EVENT
    }
}

/// Starts of jobs, seconds, in one of several samples: spread evenly over the undisturbed iteration
/// of each and fixed, so that equal groups have equal values; in sample 0 all start at once. Jobs
/// come with a number each and the seconds of that iteration.
pub fn spread_starts<'s>(jobs: impl Iterator<Item = (usize, &'s f64)>, sample: u32) -> Vec<f64> {
    // The fractional parts of multiples of the golden ratio are spread evenly over 0..1.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let share = |number: usize| (GOLDEN * (number as f64 + 1.0) * f64::from(sample)).fract();
    jobs.map(|(number, seconds)| seconds * share(number)).collect()
}

/// Part of an iteration that is computation, of seconds each.
pub(crate) fn compute_share(compute: f64, iteration: f64) -> f64 {
    if iteration > 0.0 { compute / iteration } else { 1.0 }
}
