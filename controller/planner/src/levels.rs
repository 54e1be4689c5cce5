//! Levels of all jobs: compression for the jobs that policy leaves free, then the bounds of policy.
//!
//! Compression must not choose the level of a job that an operator bounds, and such a job would
//! bound its neighbours if it stayed in the DAG. So the free jobs are compressed separately, and
//! each bounded job then takes, within its bounds, the level that cuts the most weight to jobs
//! already assigned.
//!
//! Jobs whose levels are compared with others afterwards share links with no other jobs and are
//! compressed separately too, and without regard to the plan in force: the levels that they get in
//! the end must neither move another job nor change this candidate the next time.

use crate::compression::{CompressionProblem, compress_priorities};
use crate::contention::{ContentionDag, LinkSharing};
use crate::input::Job;
use crate::policy::{JobOverride, Policy};
use crate::previous_plan::PreviousPlan;
use crate::traffic::IndexedTraffic;

/// Jobs in descending priority, and the input of their levels.
pub(crate) struct RankedJobs<'a> {
    /// Jobs by descending priority.
    pub(crate) order: &'a [usize],
    /// Place of each job in that order.
    pub(crate) places: &'a [usize],
    /// `I_j` by job.
    pub(crate) intensities: &'a [f64],
    /// Which jobs share a link.
    pub(crate) sharing: &'a LinkSharing,
    /// What compression may use.
    pub(crate) scope: LevelScope<'a>,
}

/// What compression may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelScope<'a> {
    /// Jobs whose levels are compared with others afterwards.
    pub(crate) compared: &'a [usize],
    /// Levels to compress to, the highest of those that jobs may have; at least one.
    pub(crate) level_count: usize,
}

impl LevelScope<'_> {
    /// All levels, and nothing is compared afterwards.
    pub(crate) const ALL: Self = Self { compared: &[], level_count: usize::MAX };
}

/// Levels by job.
pub(crate) fn assign_levels(
    traffic: &IndexedTraffic<'_>,
    ranked: &RankedJobs<'_>,
    policy: &Policy,
    previous: &PreviousPlan<'_>,
) -> Vec<u8> {
    let job_levels = policy.job_levels();
    let unused = job_levels.len().saturating_sub(ranked.scope.level_count.max(1));
    let rules = LevelRules { traffic, policy, previous, job_levels, unused };
    let (bounded, free): (Vec<usize>, Vec<usize>) =
        ranked.order.iter().partition(|job| policy.bounds_level(traffic.jobs[**job]));
    let supply = match free.len() <= rules.used_levels().len() {
        true => LevelSupply::OnePerJob,
        false => LevelSupply::Scarce,
    };
    let mut is_compared = vec![false; traffic.jobs.len()];
    for job in ranked.scope.compared {
        is_compared[*job] = true;
    }
    let (compared, others): (Vec<usize>, Vec<usize>) =
        free.into_iter().partition(|job| is_compared[*job]);
    let mut levels: Vec<Option<u8>> = vec![None; traffic.jobs.len()];
    let parts = [(compared, LevelHints::Ignored), (others, LevelHints::InForce)];
    for (part, hints) in parts {
        let problem = FreeJobs { jobs: &part, supply, hints };
        for (job, level) in rules.compress_free_jobs(&problem, ranked) {
            levels[job] = Some(level);
        }
    }
    // After the free jobs, one after the other: each bounded job counts those assigned before it.
    for job in bounded {
        let choice = BoundedLevelChoice { job, current_level: rules.current_level(job) };
        levels[job] = Some(choice.best_level(rules.allowed_levels(job), ranked, &levels));
    }
    levels.into_iter().enumerate().map(|(job, level)| rules.raised_level(job, level)).collect()
}

/// Whether the levels suffice for the free jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LevelSupply {
    /// There are no more free jobs than levels.
    OnePerJob,
    /// There are more jobs than levels.
    Scarce,
}

/// Whether compression prefers the levels in force among equals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LevelHints {
    InForce,
    Ignored,
}

/// Jobs that compression gives levels.
struct FreeJobs<'a> {
    /// By descending priority.
    jobs: &'a [usize],
    supply: LevelSupply,
    hints: LevelHints,
}

/// The levels that policy gives to jobs, and its rules for each job.
struct LevelRules<'a> {
    traffic: &'a IndexedTraffic<'a>,
    policy: &'a Policy,
    previous: &'a PreviousPlan<'a>,
    job_levels: Vec<u8>,
    /// How many of them, the lowest, compression leaves out.
    unused: usize,
}

impl LevelRules<'_> {
    fn used_levels(&self) -> &[u8] {
        &self.job_levels[self.unused..]
    }

    fn rule_of(&self, job: usize) -> Option<&JobOverride> {
        self.policy.override_for(self.traffic.jobs[job])
    }

    fn allowed_levels(&self, job: usize) -> &[u8] {
        let allowed = self.policy.allowed_levels(self.traffic.jobs[job], &self.job_levels);
        &self.job_levels[usize::from(*allowed.start())..=usize::from(*allowed.end())]
    }

    fn is_below_floor(&self, job: usize) -> bool {
        let job_of = self.traffic.jobs[job];
        self.rule_of(job).is_some_and(|rule| is_below_throughput_floor(job_of, rule))
    }

    /// The level in force, except for a job that is to be raised: it must not hold its low level.
    fn current_level(&self, job: usize) -> Option<u8> {
        self.previous.job_level(job).filter(|_| !self.is_below_floor(job))
    }

    fn raised_level(&self, job: usize, level: Option<u8>) -> u8 {
        let assigned = level.unwrap_or(self.job_levels[0]);
        match self.is_below_floor(job) {
            true => raise_level(assigned, &self.job_levels, self.rule_of(job)),
            false => assigned,
        }
    }

    /// Free jobs with their levels. Enough levels for all: every job has its own. Otherwise those
    /// without contention get the highest, and the rest are compressed.
    fn compress_free_jobs(
        &self,
        problem: &FreeJobs<'_>,
        ranked: &RankedJobs<'_>,
    ) -> Vec<(usize, u8)> {
        let FreeJobs { jobs: free, supply, hints } = *problem;
        let (has_room, used) = (supply == LevelSupply::OnePerJob, self.used_levels());
        let all = ContentionDag::new(ranked.sharing, free, ranked.intensities);
        let contended = contended_nodes(&all);
        let (in_dag, alone): (Vec<usize>, Vec<usize>) =
            (0..free.len()).partition(|node| has_room || contended[*node]);
        let jobs: Vec<usize> = in_dag.into_iter().map(|node| free[node]).collect();
        let dag = match has_room {
            true => ContentionDag::from_chain(jobs.iter().map(|job| ranked.intensities[*job])),
            false => ContentionDag::new(ranked.sharing, &jobs, ranked.intensities),
        };
        let problem = CompressionProblem {
            dag: &dag,
            level_count: u8::try_from(used.len()).unwrap_or(u8::MAX),
            current_levels: jobs
                .iter()
                .map(|job| match hints {
                    LevelHints::InForce => self.index_of(self.current_level(*job)?),
                    LevelHints::Ignored => None,
                })
                .collect(),
        };
        let compressed = compress_priorities(&problem, self.policy.compression)
            .into_iter()
            .map(|index| used[usize::from(index)]);
        let highest = used[used.len() - 1];
        let uncontended = alone.into_iter().map(|node| (free[node], highest));
        jobs.iter().copied().zip(compressed).chain(uncontended).collect()
    }

    /// Position of `level` among the levels in use.
    fn index_of(&self, level: u8) -> Option<u8> {
        self.used_levels().binary_search(&level).ok().and_then(|index| u8::try_from(index).ok())
    }
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

/// Whether a job recently had less than the share of its undisturbed throughput that policy grants.
fn is_below_throughput_floor(job: &Job, rule: &JobOverride) -> bool {
    let throughput = 1.0 / (1.0 + job.measured.over_alone);
    rule.min_throughput.is_some_and(|floor| throughput < floor)
}

/// The next higher level within the job's bounds.
fn raise_level(level: u8, job_levels: &[u8], rule: Option<&JobOverride>) -> u8 {
    let highest = rule.and_then(|rule| rule.max_level).unwrap_or(u8::MAX);
    let is_fixed = rule.is_some_and(|rule| rule.exempt);
    let higher = job_levels.iter().find(|other| **other > level && **other <= highest && !is_fixed);
    higher.copied().unwrap_or(level)
}

/// The choice of a level for a job that policy bounds.
struct BoundedLevelChoice {
    job: usize,
    current_level: Option<u8>,
}

impl BoundedLevelChoice {
    /// Of the `allowed` levels the one that cuts the most weight to the jobs assigned so far; then
    /// the current one; then the highest.
    fn best_level(&self, allowed: &[u8], ranked: &RankedJobs<'_>, levels: &[Option<u8>]) -> u8 {
        let weighted =
            allowed.iter().map(|level| (self.cut_weight_at(*level, ranked, levels), *level));
        let best = weighted.max_by(|a, b| {
            let (keeps_a, keeps_b) =
                (self.current_level == Some(a.1), self.current_level == Some(b.1));
            a.0.total_cmp(&b.0).then(keeps_a.cmp(&keeps_b)).then(a.1.cmp(&b.1))
        });
        best.map_or(0, |(_, level)| level)
    }

    /// Weight of the edges between this job and assigned ones that `level` would cut.
    fn cut_weight_at(&self, level: u8, ranked: &RankedJobs<'_>, levels: &[Option<u8>]) -> f64 {
        let own = ranked.places[self.job];
        ranked
            .sharing
            .sharers_of(self.job)
            .map(|other| match levels[other] {
                Some(theirs) if ranked.places[other] > own && level > theirs => {
                    ranked.intensities[self.job]
                }
                Some(theirs) if ranked.places[other] < own && theirs > level => {
                    ranked.intensities[other]
                }
                _ => 0.0,
            })
            .sum()
    }
}
