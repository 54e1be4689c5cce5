//! What an iteration of each job is to take under given decisions, and between which bounds.
//!
//! The judge compares many decisions, so its runs are short. A forecast is about one: it is followed
//! for longer, because jobs of nearly equal periods drift past each other over tens of iterations.
//! On one level they keep the phases that they began with, and elsewhere they find such that last
//! only after a while, so the mean over starts has a band: the least and the most of the means over a
//! stretch of a run, from any start, the first stretch included.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Range;

use fluid::{FluidError, JobGrid};
use topology::{Fabric, LinkPath};

use super::contention_group::ContentionGroup;
use super::group_run::{GroupRun, MeasureWindow, MemberProgress, spread_starts};
use super::horizon::SimulatedHorizon;
use super::judge::groups_on_paths;
use crate::hashed_paths::hashed_paths;
use crate::input::{Job, JobId};
use crate::parallel::map_in_threads;
use crate::plan::{MOST_CORRECTED, Plan, StartShift};
use crate::traffic::IndexedTraffic;
use crate::trunks::TrunkedFabric;

/// Starts of the jobs, of which the first is that all start at once; fewer where they cost more.
/// With four, iterations of jobs with nearly equal periods were off by up to 21 %.
const STARTS: Range<u32> = 0..16;

/// Parts of a run that have a mean of their own, beside the time before anything counts,
const COUNTED_STRETCHES: usize = 3;

/// and iterations that a job ends in one at least, or its mean is no stretch's.
const STRETCH_ITERATIONS: u64 = 10;

/// Draws of ECMP's hash, each from another start of the jobs.
const ECMP_DRAWS: u32 = 8;

/// What an iteration of a job is expected to take, seconds; infinite where it ends none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IterationForecast {
    /// The mean over iterations and starts.
    pub seconds: f64,
    /// The mean over the stretch of a run, from any start, where it is shortest.
    pub least: f64,
    /// The mean over the stretch where it is longest.
    pub most: f64,
}

/// What all jobs are expected to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanForecast {
    /// GPUs of all jobs.
    gpus: f64,
    /// Share of the jobs' GPU time in which they compute.
    pub gpu_utilization: f64,
    /// By job; none for one that is not planned or has a flow without a path.
    pub jobs: BTreeMap<JobId, IterationForecast>,
}

impl IterationForecast {
    /// Whether the job ends iterations from every start.
    pub(super) fn ends(&self) -> bool {
        self.seconds.is_finite()
    }
}

impl PlanForecast {
    /// The forecast of these jobs and of others that share no link with them.
    fn beside(mut self, other: Self) -> Self {
        let [own, more] = [&self, &other].map(|forecast| forecast.gpus);
        let busy = self.gpu_utilization * own + other.gpu_utilization * more;
        self.gpus = own + more;
        self.gpu_utilization = if self.gpus > 0.0 { busy / self.gpus } else { 0.0 };
        self.jobs.extend(other.jobs);
        self
    }

    /// The iteration of a job, if it ends any.
    pub fn iteration(&self, job: &JobId) -> Option<&IterationForecast> {
        self.jobs.get(job).filter(|forecast| forecast.ends())
    }

    /// Seconds of an iteration of a job, if it ends any.
    pub fn seconds(&self, job: &JobId) -> Option<f64> {
        Some(self.iteration(job)?.seconds)
    }
}

/// Forecasts `jobs` on `fabric` under `plan`, as it is, without planning again.
/// `bytes_on_wire` is the number of bytes on a link for each byte of a job.
pub fn forecast_plan(
    fabric: &Fabric,
    jobs: &[Job],
    plan: &Plan,
    bytes_on_wire: f64,
) -> PlanForecast {
    forecast_from(fabric, jobs, plan, &ForecastRuns { bytes_on_wire, ..ForecastRuns::default() })
}

/// As [`forecast_plan`] for bytes of jobs, from other starts and for ten times the time: to see how
/// far forecasts are off.
pub fn forecast_independently(fabric: &Fabric, jobs: &[Job], plan: &Plan) -> PlanForecast {
    // None of the starts that the plan was judged by, or the comparison would not be independent.
    let starts = STARTS.end..3 * STARTS.end;
    forecast_from(fabric, jobs, plan, &ForecastRuns { starts, times: 10.0, ..Default::default() })
}

/// Forecasts `jobs` on `fabric` as they would run without a controller: paths by hash, each draw
/// from another start, or sprayed, and all on one level.
pub fn forecast_ecmp(fabric: &Fabric, jobs: &[Job], bytes_on_wire: f64) -> PlanForecast {
    let fabric = match fabric.forwarding().sprays() {
        true => Cow::Owned(TrunkedFabric::new(fabric).fabric),
        false => Cow::Borrowed(fabric),
    };
    let traffic = IndexedTraffic::of_jobs(&fabric, jobs);
    let has_paths =
        |job: &usize| traffic.flows[traffic.spans[*job].clone()].iter().all(|flow| flow.has_path);
    let jobs: Vec<usize> = (0..traffic.jobs.len()).filter(has_paths).collect();
    let levels = vec![0; traffic.jobs.len()];
    let mut found = vec![Vec::new(); jobs.len()];
    for draw in 0..ECMP_DRAWS {
        let paths = hashed_paths(&traffic, draw);
        // Another start for each draw: the spread over both is what an operator meets.
        let runs = ForecastRuns { bytes_on_wire, starts: draw..draw + 1, ..Default::default() };
        let more = run_jobs(&traffic, &jobs, &paths, (&levels, &[]), &runs);
        found.iter_mut().zip(more).for_each(|(of, more)| of.extend(more));
    }
    summarise(&traffic, &jobs, &found)
}

/// What an iteration of each of `jobs`, ascending, is to take on `paths`, by flow of the plan, with
/// the levels and start shifts that are `decided`, by job of the plan.
pub(super) fn forecast_iterations(
    traffic: &IndexedTraffic<'_>,
    jobs: &[usize],
    paths: &[LinkPath],
    decided: (&[u8], &[Option<StartShift>]),
) -> Vec<IterationForecast> {
    let runs = run_jobs(traffic, jobs, paths, decided, &ForecastRuns::default());
    runs.iter().map(|runs| IterationForecast::of_runs(runs)).collect()
}

/// What is simulated for a forecast.
#[derive(Clone, Debug)]
struct ForecastRuns {
    /// Bytes on a link for each byte of a job.
    bytes_on_wire: f64,
    starts: Range<u32>,
    /// How many times as long as usual.
    times: f64,
}

impl Default for ForecastRuns {
    fn default() -> Self {
        Self { bytes_on_wire: 1.0, starts: STARTS, times: 1.0 }
    }
}

/// What a job does from one start.
#[derive(Clone, Copy, Debug)]
struct JobRun {
    /// Seconds of an iteration; infinite if it ends none.
    seconds: f64,
    /// The least and the most of the means over a stretch.
    band: [f64; 2],
    /// Share of time in which it computes.
    busy: f64,
}

impl IterationForecast {
    fn of_runs(runs: &[JobRun]) -> Self {
        Self {
            seconds: runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len() as f64,
            least: runs.iter().map(|run| run.band[0]).fold(f64::INFINITY, f64::min),
            most: runs.iter().map(|run| run.band[1]).fold(0.0, f64::max),
        }
    }
}

fn forecast_from(fabric: &Fabric, jobs: &[Job], plan: &Plan, runs: &ForecastRuns) -> PlanForecast {
    let is_sprayed = |job: &&Job| plan.job(&job.id).is_some_and(|(_, planned)| planned.sprayed);
    let (sprayed, pinned): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(is_sprayed);
    // Jobs of the two kinds share no link.
    let of_pins = forecast_jobs(fabric, &pinned, plan, runs);
    if sprayed.is_empty() {
        return of_pins;
    }
    let trunks = TrunkedFabric::new(fabric);
    of_pins.beside(forecast_jobs(&trunks.fabric, &sprayed, plan, runs))
}

/// Forecasts `jobs`, all of them pinned or all sprayed, on the fabric on which they were planned.
fn forecast_jobs(fabric: &Fabric, jobs: &[&Job], plan: &Plan, runs: &ForecastRuns) -> PlanForecast {
    let traffic = IndexedTraffic::of_jobs(fabric, jobs.iter().copied());
    // What is sprayed has one path, over trunks. Pinned plans, most of all, need no pass over all flows.
    let only_paths = LazyCell::new(|| hashed_paths(&traffic, 0));
    let mut paths = vec![LinkPath::EMPTY; traffic.flows.len()];
    let mut levels = vec![0; traffic.jobs.len()];
    let mut shifts = vec![None; traffic.jobs.len()];
    let mut planned = Vec::new();
    for (job, of) in traffic.jobs.iter().enumerate() {
        let Some((position, decided)) = plan.job(&of.id) else { continue };
        (levels[job], shifts[job]) = (decided.level, decided.start_shift);
        let span = traffic.spans[job].clone();
        let paths = &mut paths[span.clone()];
        match decided.sprayed {
            true => paths.copy_from_slice(&only_paths[span]),
            false => {
                let flows = paths.iter_mut().zip(plan.flows_of(position));
                flows.for_each(|(path, flow)| *path = flow.links);
            }
        }
        if paths.iter().all(|path| !path.is_empty()) {
            planned.push(job);
        }
    }
    let found = run_jobs(&traffic, &planned, &paths, (&levels, &shifts), runs);
    summarise(&traffic, &planned, &found)
}

/// The forecast from the runs of each of `jobs`; the others do nothing.
fn summarise(traffic: &IndexedTraffic<'_>, jobs: &[usize], found: &[Vec<JobRun>]) -> PlanForecast {
    let gpus = |job: usize| f64::from(traffic.jobs[job].gpu_count());
    let mut forecast = PlanForecast::default();
    let mut busy = 0.0;
    for (job, runs) in jobs.iter().zip(found) {
        busy += gpus(*job) * runs.iter().map(|run| run.busy).sum::<f64>() / runs.len() as f64;
        let id = traffic.jobs[*job].id.clone();
        forecast.jobs.insert(id, IterationForecast::of_runs(runs));
    }
    let all: f64 = (0..traffic.jobs.len()).map(gpus).sum();
    forecast.gpus = all;
    forecast.gpu_utilization = if all > 0.0 { busy / all } else { 0.0 };
    forecast
}

/// What each of `jobs` does from each start; a job that shares no link does the same from all and is
/// followed from one.
fn run_jobs(
    traffic: &IndexedTraffic<'_>,
    jobs: &[usize],
    paths: &[LinkPath],
    (levels, shifts): (&[u8], &[Option<StartShift>]),
    runs: &ForecastRuns,
) -> Vec<Vec<JobRun>> {
    let groups = groups_on_paths(traffic, jobs, paths, runs.bytes_on_wire);
    let mut cases = Vec::new();
    for group in &groups {
        let members: Vec<usize> = group.members.iter().map(|member| jobs[*member]).collect();
        let (window, most) = SimulatedHorizon::of_forecast(traffic, &members, runs.times);
        // A job that shares nothing has the same iteration from any start.
        let starts = runs.starts.clone().take(if members.len() == 1 { 1 } else { most });
        let of_job = |job: &usize| shifts.get(*job).copied().flatten();
        let shifts: Vec<Option<StartShift>> = members.iter().map(of_job).collect();
        let levels: Vec<u8> = members.iter().map(|job| levels[*job]).collect();
        let decided = (members, levels, shifts);
        cases.extend(starts.map(|start| (group, decided.clone(), window, start)));
    }
    // All cases in one list: a single large group would keep other threads idle.
    let found = map_in_threads(&cases, |(group, (members, levels, shifts), window, start)| {
        run_group(group, members, (levels, shifts), (*window, *start))
    });
    let mut by_job = vec![Vec::new(); jobs.len()];
    for ((group, ..), run) in cases.iter().zip(found) {
        group.members.iter().zip(run).for_each(|(member, run)| by_job[*member].push(run));
    }
    by_job
}

/// What each member of a group does from one start. What the fluid model rejects does nothing.
fn run_group(
    group: &ContentionGroup,
    jobs: &[usize],
    (levels, shifts): (&[u8], &[Option<StartShift>]),
    (window, start): (MeasureWindow, u32),
) -> Vec<JobRun> {
    let run = match shifts.iter().any(Option::is_some) {
        true => shifted_run(group, shifts, start),
        false => {
            let numbers = jobs.iter().copied();
            GroupRun::new(group, &spread_starts(numbers.zip(&group.alone_seconds()), start))
        }
    };
    job_runs(run, levels, window)
}

/// What each member does in a run.
fn job_runs(
    run: Result<GroupRun, FluidError>,
    levels: &[u8],
    window: MeasureWindow,
) -> Vec<JobRun> {
    let step = window.seconds() / COUNTED_STRETCHES as f64;
    let counted = (0..=COUNTED_STRETCHES).map(|number| window.from + step * number as f64);
    // The first stretch, from 0, counts for the band alone: jobs have not found their phases yet.
    let instants: Vec<f64> = std::iter::once(0.0).chain(counted).collect();
    let of_member = |stretches: &[Vec<MemberProgress>], member: usize| {
        let of_member = stretches.iter().map(|members| members[member]);
        let all = of_member.clone().skip(1).fold(MemberProgress::default(), MemberProgress::plus);
        let seconds = all.iteration_seconds().unwrap_or(f64::INFINITY);
        // The mean of a few iterations varies by itself, which is not what a band should show.
        let known = of_member.filter(|of| of.iterations >= STRETCH_ITERATIONS);
        let means = known.filter_map(|of| of.iteration_seconds());
        let band =
            means.fold([seconds; 2], |[least, most], mean| [least.min(mean), most.max(mean)]);
        JobRun { seconds, band, busy: all.busy_seconds / window.seconds() }
    };
    let found = run.and_then(|mut run| run.progress_between(levels, &instants));
    let members = 0..levels.len();
    match found {
        Ok(stretches) => members.map(|member| of_member(&stretches, member)).collect(),
        Err(_) => {
            let nothing = JobRun { seconds: f64::INFINITY, band: [f64::INFINITY; 2], busy: 0.0 };
            vec![nothing; levels.len()]
        }
    }
}

/// A run whose members begin near their slots: each is off its slot by up to the share of a period
/// that it corrects in an iteration.
fn shifted_run(
    group: &ContentionGroup,
    shifts: &[Option<StartShift>],
    start: u32,
) -> Result<GroupRun, FluidError> {
    let units = vec![1.0; shifts.len()];
    let off = spread_starts((0..).zip(&units), start);
    let starts = shifts.iter().zip(off).map(|(shift, off)| {
        let Some(shift) = shift else { return (0.0, None) };
        // From early to late, and all of it later, as nothing begins before 0.
        let drift = MOST_CORRECTED * shift.period_seconds;
        let grid = shift.to_grid();
        let grid = JobGrid { origin: grid.origin + drift, ..grid };
        (shift.seconds + 2.0 * off * drift, Some(grid))
    });
    GroupRun::on_grids(group, starts)
}

/// Runs of one group of the length of a forecast, with and without start shifts.
pub(super) struct ShiftedRuns<'a> {
    pub(super) traffic: &'a IndexedTraffic<'a>,
    pub(super) group: &'a ContentionGroup,
    /// Its members, as jobs of the plan.
    pub(super) jobs: &'a [usize],
}

impl ShiftedRuns<'_> {
    /// The starts from which runs without shifts begin.
    pub(super) fn all_spread_starts(&self) -> impl Iterator<Item = Vec<f64>> + '_ {
        STARTS.map(|start| self.spread_starts(start))
    }

    fn spread_starts(&self, start: u32) -> Vec<f64> {
        let numbers = self.jobs.iter().copied();
        spread_starts(numbers.zip(&self.group.alone_seconds()), start)
    }

    /// Share of time in which each member computes, the mean over starts.
    pub(super) fn busy_shares(&self, levels: &[u8], shifts: &[Option<StartShift>]) -> Vec<f64> {
        self.shares_from(usize::MAX, levels, shifts)
    }

    /// That mean over so many starts at most.
    pub(super) fn shares_from(
        &self,
        starts: usize,
        levels: &[u8],
        shifts: &[Option<StartShift>],
    ) -> Vec<f64> {
        let (window, most) = SimulatedHorizon::of_forecast(self.traffic, self.jobs, 1.0);
        let starts: Vec<u32> = STARTS.take(most.min(starts)).collect();
        let runs = map_in_threads(&starts, |start| {
            let run = match shifts {
                [] => {
                    let starts = self.spread_starts(*start).into_iter();
                    GroupRun::on_grids(self.group, starts.map(|start| (start, None)))
                }
                shifts => shifted_run(self.group, shifts, *start),
            };
            job_runs(run, levels, window)
        });
        let mean = |member: usize| runs.iter().map(|run| run[member].busy).sum::<f64>();
        (0..self.jobs.len()).map(|member| mean(member) / starts.len() as f64).collect()
    }
}
