//! A contention group in the fluid model, with one of its jobs in a given mode.

use std::collections::BTreeMap;

use fluid::{FluidError, JobIndex, JobTally};
use planner::refine::group_run::{MeasureWindow, spread_starts};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::LinkId;

use super::mode_traffic::ModeTraffic;
use super::{ForwardingMode, ModeError, PlannedJobs};
use crate::demand::LinkDemand;
use crate::simulation::{create_model_engine, fluid_job};

/// What the jobs of a contention group do while one of them is in some mode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModeOutcome {
    /// Share of the group's GPU time in which GPUs compute.
    pub gpu_utilization: f64,
    /// Seconds of an iteration of the job itself; infinite if none ends.
    pub iteration_seconds: f64,
}

impl ModeOutcome {
    pub(super) fn mean_of(outcomes: &[Self]) -> Self {
        let share = 1.0 / outcomes.len().max(1) as f64;
        outcomes.iter().fold(Self::default(), |mean, outcome| Self {
            gpu_utilization: mean.gpu_utilization + share * outcome.gpu_utilization,
            iteration_seconds: mean.iteration_seconds + share * outcome.iteration_seconds,
        })
    }
}

/// Iterations of the slowest job of the group that a long run does not count, and those it counts.
const SETTLING: f64 = 10.0;
const COUNTED: f64 = 30.0;

/// What each of [`ForwardingMode::ALL`] is worth for a job, at length: the mean over `draws`, each
/// with random starts of all jobs and another hash. All modes have the same starts.
///
/// # Errors
/// The job has no path, or the fluid model rejects its group.
pub fn measure_modes(
    planned: &PlannedJobs<'_>,
    job: usize,
    draws: u64,
) -> Result<[ModeOutcome; 3], ModeError> {
    let group = ModeGroup::new(planned, job)?;
    let window = group.window(SETTLING, COUNTED);
    let mut modes = [ModeOutcome::default(); 3];
    for (mode, mean) in ForwardingMode::ALL.into_iter().zip(&mut modes) {
        let outcome_of = |draw: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(draw);
            let starts = group.seconds.iter().map(|seconds| seconds * random.random::<f64>());
            group.run_mode(mode, draw, &starts.collect::<Vec<_>>(), window)
        };
        let outcomes = (0..draws).map(outcome_of).collect::<Result<Vec<_>, _>>()?;
        *mean = ModeOutcome::mean_of(&outcomes);
    }
    Ok(modes)
}

/// A job with all that it contends with.
#[derive(Clone, Debug)]
pub(super) struct ModeGroup<'a> {
    pub(super) planned: &'a PlannedJobs<'a>,
    /// The job in question.
    pub(super) job: usize,
    /// Jobs of the group, ascending.
    pub(super) members: Vec<usize>,
    /// Seconds of an iteration of each by itself, as planned.
    seconds: Vec<f64>,
}

impl<'a> ModeGroup<'a> {
    pub(super) fn new(planned: &'a PlannedJobs<'a>, job: usize) -> Result<Self, ModeError> {
        let input = planned.input;
        if !planned.schedule.jobs[job].is_connected() {
            return Err(ModeError::NoPath(input.jobs[job].id.clone()));
        }
        let members = planned.contention_group(job);
        let seconds = members.iter().map(|member| {
            let (member, scheduled) = (&input.jobs[*member], &planned.schedule.jobs[*member]);
            let demand = LinkDemand::new(&input.fabric, member, &scheduled.paths);
            member.iteration_seconds(demand.bottleneck_seconds())
        });
        Ok(Self { planned, job, seconds: seconds.collect(), members })
    }

    /// A window of so many iterations of the slowest job.
    pub(super) fn window(&self, settling: f64, counted: f64) -> MeasureWindow {
        let slowest = self.seconds.iter().copied().fold(0.0, f64::max);
        MeasureWindow { from: settling * slowest, until: (settling + counted) * slowest }
    }

    /// Starts in one of several samples, evenly spread.
    pub(super) fn spread_starts(&self, sample: u32) -> Vec<f64> {
        spread_starts(self.seconds.iter().enumerate(), sample)
    }

    /// The share of its time that a member with this demand takes each link, if it never waits for
    /// others.
    pub(super) fn share_of_time(
        &self,
        member: usize,
        demand: &LinkDemand,
    ) -> BTreeMap<LinkId, f64> {
        let place = self.members.binary_search(&member).ok();
        let seconds = place.map_or(0.0, |place| self.seconds[place]);
        demand.links.iter().map(|(link, taken)| (*link, taken / seconds)).collect()
    }

    /// The group from `starts`, with the job in `mode` under a hash.
    pub(super) fn run_mode(
        &self,
        mode: ForwardingMode,
        draw: u64,
        starts: &[f64],
        window: MeasureWindow,
    ) -> Result<ModeOutcome, FluidError> {
        let PlannedJobs { input, schedule, .. } = self.planned;
        let traffic = ModeTraffic::new(self.planned, self.job, mode, draw);
        let mut engine = create_model_engine(&input.fabric, fluid::ServiceDiscipline::Levels)?;
        let mut running: Vec<(usize, JobIndex)> = Vec::new();
        for (member, start) in self.members.iter().zip(starts) {
            let (job, scheduled) = match *member == self.job {
                true => (&traffic.job, &traffic.scheduled),
                false => (&input.jobs[*member], &schedule.jobs[*member]),
            };
            let started =
                fluid::FluidJob { start: *start, ..fluid_job(&input.fabric, job, scheduled) };
            match engine.add_job(&started) {
                Err(FluidError::NothingToDo) => {}
                added => running.push((*member, added?)),
            }
        }
        let mut tallies_at = |seconds| {
            engine.run_until(seconds)?;
            let tallies = running.iter().map(|(_, place)| engine.job_tally(*place));
            tallies.collect::<Result<Vec<JobTally>, FluidError>>()
        };
        let (before, after) = (tallies_at(window.from)?, tallies_at(window.until)?);
        let passed = before.iter().zip(&after).map(|(before, after)| JobTally {
            iterations: after.iterations - before.iterations,
            iteration_seconds: after.iteration_seconds - before.iteration_seconds,
            busy_seconds: after.busy_seconds - before.busy_seconds,
            ..JobTally::default()
        });
        let jobs: Vec<(usize, JobTally)> =
            running.iter().map(|(member, _)| *member).zip(passed).collect();
        Ok(self.outcome_of(&jobs, window.until - window.from))
    }

    /// What came of jobs that did this in so many seconds.
    fn outcome_of(&self, jobs: &[(usize, JobTally)], seconds: f64) -> ModeOutcome {
        let (mut busy, mut gpus) = (0.0, 0.0);
        let mut iteration_seconds = f64::INFINITY;
        for (member, tally) in jobs {
            let job = &self.planned.input.jobs[*member];
            busy += f64::from(job.gpu_count()) * tally.busy_seconds / seconds;
            gpus += f64::from(job.gpu_count());
            if *member == self.job {
                iteration_seconds = match job.compute_seconds > 0.0 {
                    // Counts the iterations under way, too.
                    true => job.compute_seconds * seconds / tally.busy_seconds,
                    false => tally.mean_iteration_seconds().unwrap_or(f64::INFINITY),
                };
            }
        }
        let gpu_utilization = if gpus > 0.0 { busy / gpus } else { 0.0 };
        ModeOutcome { gpu_utilization, iteration_seconds }
    }
}
