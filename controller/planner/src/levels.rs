//! Every job's level: compression for the jobs that policy leaves free, then policy's own word.
//!
//! A job whose level an operator bounds is no longer the compression's to choose, and it would
//! bound its neighbours if it stayed in the DAG. So the free jobs are compressed by themselves, and
//! each bounded one then takes, within its bounds, the level that cuts the most weight to jobs
//! already placed.
//!
//! Jobs that are searched afterwards meet no others, and are compressed by themselves too: what a
//! search makes of their levels must not move anybody else the next time.

use crate::compression::{CompressionProblem, compress_priorities};
use crate::contention::{ContentionDag, LinkSharing};
use crate::input::Job;
use crate::policy::{JobOverride, Policy};
use crate::previous_plan::PreviousPlan;
use crate::traffic::IndexedTraffic;

/// Jobs in descending priority, and what levels depend on.
pub(crate) struct RankedJobs<'a> {
    /// Jobs by descending priority.
    pub(crate) order: &'a [usize],
    /// Place of each job in that order.
    pub(crate) places: &'a [usize],
    /// `I_j` by job.
    pub(crate) intensities: &'a [f64],
    /// Which jobs meet.
    pub(crate) sharing: &'a LinkSharing,
    /// Jobs that are searched afterwards.
    pub(crate) searched: &'a [usize],
}

/// Levels by job.
pub(crate) fn assign_levels(
    traffic: &IndexedTraffic<'_>,
    ranked: &RankedJobs<'_>,
    policy: &Policy,
    previous: &PreviousPlan<'_>,
) -> Vec<u8> {
    let given = policy.job_levels();
    let rule = |job: usize| policy.override_for(traffic.jobs[job]);
    let is_bounded = |job: &usize| rule(*job).is_some_and(JobOverride::bounds_level);
    let (bounded, free): (Vec<usize>, Vec<usize>) =
        ranked.order.iter().partition(|j| is_bounded(j));
    let (searched, others): (Vec<usize>, Vec<usize>) =
        free.iter().partition(|job| ranked.searched.contains(job));
    let mut levels: Vec<Option<u8>> = vec![None; traffic.jobs.len()];
    let is_floored =
        |job: usize| rule(job).is_some_and(|r| is_below_throughput_floor(traffic.jobs[job], r));
    let present = |job: usize| previous.job_level(job).filter(|_| !is_floored(job));
    let room = if free.len() <= given.len() { LevelSupply::OnePerJob } else { LevelSupply::Scarce };
    for part in [searched, others] {
        for (job, level) in compress_free_jobs((&part, room), ranked, policy, &present) {
            levels[job] = Some(level);
        }
    }
    for job in bounded {
        let choice = BoundedLevelChoice { job, rule: rule(job), current_level: present(job) };
        levels[job] = Some(choice.best_level(&given, ranked, &levels));
    }
    let level = |(job, level): (usize, Option<u8>)| {
        let level = level.unwrap_or(given[0]);
        if is_floored(job) { raise_level(level, &given, rule(job)) } else { level }
    };
    levels.into_iter().enumerate().map(level).collect()
}

/// How many free jobs there are for the levels given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LevelSupply {
    /// No more than levels.
    OnePerJob,
    /// More.
    Scarce,
}

/// Free jobs with their levels. Enough levels for all: every job has its own. Else those without
/// contention go to the highest, and the rest are compressed.
fn compress_free_jobs(
    (free, room): (&[usize], LevelSupply),
    ranked: &RankedJobs<'_>,
    policy: &Policy,
    present: &impl Fn(usize) -> Option<u8>,
) -> Vec<(usize, u8)> {
    let given = policy.job_levels();
    let dag = ContentionDag::new(ranked.sharing, free, ranked.intensities);
    let has_room = room == LevelSupply::OnePerJob;
    let contended = contended_nodes(&dag);
    let (in_dag, alone): (Vec<usize>, Vec<usize>) =
        (0..free.len()).partition(|node| has_room || contended[*node]);
    let jobs: Vec<usize> = in_dag.into_iter().map(|node| free[node]).collect();
    let dag = if has_room {
        ContentionDag::from_chain(jobs.iter().map(|job| ranked.intensities[*job]))
    } else {
        ContentionDag::new(ranked.sharing, &jobs, ranked.intensities)
    };
    let level = |level: u8| given.binary_search(&level).ok().and_then(|c| u8::try_from(c).ok());
    let problem = CompressionProblem {
        dag: &dag,
        level_count: u8::try_from(given.len()).unwrap_or(u8::MAX),
        current_levels: jobs.iter().map(|job| present(*job).and_then(level)).collect(),
    };
    let levels = compress_priorities(&problem, policy.compression);
    let levels = levels.into_iter().map(|level| given[usize::from(level)]);
    let highest = given[given.len() - 1];
    let alone = alone.into_iter().map(|node| (free[node], highest));
    jobs.iter().copied().zip(levels).chain(alone).collect()
}

/// Which nodes have an edge.
fn contended_nodes(dag: &ContentionDag) -> Vec<bool> {
    let mut contended = vec![false; dag.nodes];
    for edge in &dag.edges {
        contended[edge.above] = true;
        contended[edge.below] = true;
    }
    contended
}

/// Whether a job ran slower lately than the share of its throughput alone that policy grants it.
pub(crate) fn is_below_throughput_floor(job: &Job, rule: &JobOverride) -> bool {
    let throughput = 1.0 / (1.0 + job.recent_slowdown);
    rule.min_throughput.is_some_and(|floor| throughput < floor)
}

/// The next higher level within the job's bounds.
fn raise_level(level: u8, given: &[u8], rule: Option<&JobOverride>) -> u8 {
    let highest = rule.and_then(|rule| rule.max_level).unwrap_or(u8::MAX);
    let is_fixed = rule.is_some_and(|rule| rule.exempt);
    let higher = given.iter().find(|other| **other > level && **other <= highest && !is_fixed);
    higher.copied().unwrap_or(level)
}

/// The choice of a level for a job that policy bounds.
struct BoundedLevelChoice<'a> {
    job: usize,
    rule: Option<&'a JobOverride>,
    current_level: Option<u8>,
}

impl BoundedLevelChoice<'_> {
    /// The level that cuts the most weight to the jobs placed so far; then the present one; then
    /// the highest.
    fn best_level(&self, given: &[u8], ranked: &RankedJobs<'_>, levels: &[Option<u8>]) -> u8 {
        let allowed = given.iter().copied().filter(|level| self.allows_level(*level, given));
        let worth = |level: u8| {
            (self.cut_weight_at(level, ranked, levels), self.current_level == Some(level))
        };
        let best = allowed.max_by(|a, b| {
            let (x, y) = (worth(*a), worth(*b));
            x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)).then(a.cmp(b))
        });
        // Bounds between which every level is reserved leave the one nearest to them.
        best.unwrap_or_else(|| self.nearest_level(given))
    }

    fn allows_level(&self, level: u8, given: &[u8]) -> bool {
        match self.rule {
            Some(rule) if rule.exempt => level == given[0],
            Some(rule) => {
                (rule.min_level.unwrap_or(0)..=rule.max_level.unwrap_or(u8::MAX)).contains(&level)
            }
            None => true,
        }
    }

    fn nearest_level(&self, given: &[u8]) -> u8 {
        let wanted = self.rule.and_then(|rule| rule.min_level.or(rule.max_level)).unwrap_or(0);
        let nearest = given.iter().copied().min_by_key(|level| level.abs_diff(wanted));
        nearest.unwrap_or(given[0])
    }

    /// Weight of the edges between this job and placed ones that `level` would cut.
    fn cut_weight_at(&self, level: u8, ranked: &RankedJobs<'_>, levels: &[Option<u8>]) -> f64 {
        let place = |job: usize| ranked.places[job];
        let own = place(self.job);
        let weight = |other: usize| match levels[other] {
            Some(theirs) if place(other) > own && level > theirs => ranked.intensities[self.job],
            Some(theirs) if place(other) < own && theirs > level => ranked.intensities[other],
            _ => 0.0,
        };
        ranked.sharing.sharers_of(self.job).map(weight).sum()
    }
}
