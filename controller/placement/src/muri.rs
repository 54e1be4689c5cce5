//! Muri (Zhao et al., SIGCOMM'22): jobs that need different resources take turns on the same GPUs.
//!
//! An iteration is stages on storage, CPU, GPU and network. Up to four jobs with the same number of
//! GPUs run as a group in lockstep: while one is on the network, the next computes. A group's
//! *efficiency* is the share of resource time that it uses ([`group_efficiency`]). Who shares with
//! whom is decided in rounds:
//!
//! 1. jobs in order of remaining GPU time, shortest first, as many as four to a GPU could hold;
//! 2. in buckets of equal GPU count, matched in pairs so that the sum of efficiencies is the
//!    largest ([`matching`]), and the pairs matched again;
//! 3. groups in that order as far as the GPUs go, each on as few leaves as it can have.
//!
//! If all jobs fit side by side, no job shares GPUs. A group that stays as it is keeps its GPUs.
//! The paper leaves open how large a bucket is matched at once: 64 jobs here, in order.

pub mod matching;
mod stage_times;

use std::collections::{BTreeMap, BTreeSet};

pub use stage_times::{RESOURCES, StageSeconds, StageTable};

use super::queue::{GpuChoice, SameLeaf, refuse_oversized};
use super::{
    ClusterState, GpusByHost, IterationPace, PlacementDecision, PlacementPolicy, PlacementRequest,
    StartDecision,
};

/// How much longer an iteration of a group of 1 to 4 jobs takes than its stages say, as measured by
/// Muri's authors.
pub const OVERHEAD: [f64; RESOURCES] = [1.015, 1.33, 1.5, 1.37];

/// Jobs matched at once.
const BUCKET_JOBS: usize = 64;

/// Time between rounds, in seconds (SIGCOMM'22 §5).
const ROUND_SECONDS: f64 = 360.0;

/// Seconds of an iteration of a group, overhead not counted: jobs begin at different resources and
/// move on together, so each phase is as long as its longest stage. The best distinct beginnings
/// are taken, the first job's being fixed.
pub fn period_seconds(group: &[StageSeconds]) -> f64 {
    let mut best = f64::INFINITY;
    visit_rotations(group.len().min(RESOURCES), &mut vec![0], &mut |offsets| {
        best = best.min(
            (0..RESOURCES)
                .map(|phase| {
                    group
                        .iter()
                        .zip(offsets)
                        .map(|(stages, offset)| stages[(phase + RESOURCES - offset) % RESOURCES])
                        .fold(0.0, f64::max)
                })
                .sum(),
        );
    });
    best
}

/// Calls `see` with every choice of `jobs` distinct offsets that begins with `offsets`.
fn visit_rotations(jobs: usize, offsets: &mut Vec<usize>, see: &mut impl FnMut(&[usize])) {
    if offsets.len() >= jobs {
        return see(offsets);
    }
    for offset in 0..RESOURCES {
        if !offsets.contains(&offset) {
            offsets.push(offset);
            visit_rotations(jobs, offsets, see);
            offsets.pop();
        }
    }
}

/// The share of resource time that a group uses: the sum of its stages over all resources for one
/// period, 0..=1.
pub fn group_efficiency(group: &[StageSeconds]) -> f64 {
    let busy: f64 = group.iter().flatten().sum();
    let period = period_seconds(group);
    if busy > 0.0 { busy / (RESOURCES as f64 * period) } else { 0.0 }
}

/// Groups of up to four of `jobs`, as lists of positions: matched in pairs, then pairs of pairs.
pub fn group_jobs(jobs: &[StageSeconds]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = (0..jobs.len()).map(|job| vec![job]).collect();
    for _ in 0..RESOURCES.ilog2() {
        groups = merge_pairs(jobs, &groups);
    }
    groups
}

/// Merges groups in pairs by a matching of maximum weight; a group without a partner stays.
fn merge_pairs(jobs: &[StageSeconds], groups: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let partners = matching::maximum_matching(groups.len(), |a, b| {
        let members = groups[a].iter().chain(&groups[b]);
        let stages: Vec<StageSeconds> = members.map(|job| jobs[*job]).collect();
        if stages.len() > RESOURCES { 0.0 } else { group_efficiency(&stages) }
    });
    let mut merged = Vec::new();
    for (position, members) in groups.iter().enumerate() {
        match partners[position] {
            Some(partner) if partner < position => {}
            Some(partner) => merged.push(members.iter().chain(&groups[partner]).copied().collect()),
            None => merged.push(members.clone()),
        }
    }
    merged
}

/// Muri with a table of stage times.
#[derive(Clone, Debug)]
pub struct MuriPolicy {
    table: StageTable,
}

impl MuriPolicy {
    /// The policy for a table of stage times.
    pub fn new(table: StageTable) -> Self {
        Self { table }
    }

    /// How many times as long an iteration of `job` takes in its group as alone.
    fn shared_pace(&self, job: &PlacementRequest, group: &[&PlacementRequest]) -> IterationPace {
        if group.len() < 2 {
            return IterationPace::Model;
        }
        let factor = self.iteration_seconds(group) / self.iteration_seconds(&[job]);
        // A model without stages takes no time at all.
        IterationPace::Shared(if factor.is_finite() { factor.max(1.0) } else { 1.0 })
    }

    /// Seconds of an iteration of each job of a group, overhead counted: what sharing costs.
    pub fn iteration_seconds(&self, group: &[&PlacementRequest]) -> f64 {
        let overhead = OVERHEAD[group.len().clamp(1, RESOURCES) - 1];
        let stages: Vec<StageSeconds> = group.iter().map(|job| self.job_stages(job)).collect();
        period_seconds(&stages) * overhead
    }

    fn job_stages(&self, job: &PlacementRequest) -> StageSeconds {
        self.table.stage_seconds(job.model.as_deref(), job.gpus)
    }

    /// Groups of the jobs in the order in which they are to run.
    fn form_groups<'a>(
        &self,
        jobs: &[&'a PlacementRequest],
        cluster_gpus: u32,
    ) -> Vec<Vec<&'a PlacementRequest>> {
        let wanted: u64 = jobs.iter().map(|job| u64::from(job.gpus)).sum();
        if wanted <= u64::from(cluster_gpus) {
            return jobs.iter().map(|job| vec![*job]).collect();
        }
        let mut buckets: BTreeMap<u32, Vec<&PlacementRequest>> = BTreeMap::new();
        for job in first_fitting(jobs, cluster_gpus) {
            buckets.entry(job.gpus).or_default().push(job);
        }
        let mut groups: Vec<Vec<&PlacementRequest>> = Vec::new();
        for bucket in buckets.values().flat_map(|bucket| bucket.chunks(BUCKET_JOBS)) {
            let stages: Vec<StageSeconds> = bucket.iter().map(|job| self.job_stages(job)).collect();
            groups.extend(
                group_jobs(&stages)
                    .into_iter()
                    .map(|group| group.iter().map(|job| bucket[*job]).collect()),
            );
        }
        groups.sort_by(|a, b| match (most_urgent(a), most_urgent(b)) {
            (Some(a), Some(b)) => compare_urgency(&a, &b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        groups
    }

    /// Suspends the groups that are not among `chosen`, and starts those that do not run.
    fn rearrange_groups(
        &self,
        state: &ClusterState<'_>,
        jobs: &[&PlacementRequest],
        mut chosen: Vec<(u32, GroupMembers)>,
    ) -> Vec<PlacementDecision> {
        let mut present: BTreeMap<(bool, u32), (GroupMembers, &GpusByHost)> = BTreeMap::new();
        for job in state.running {
            // Groups and single jobs have numbers of their own.
            let key = (job.group.is_some(), job.group.unwrap_or(job.request.job));
            let entry = present.entry(key).or_insert_with(|| (GroupMembers::new(), &job.gpus));
            entry.0.insert(job.request.job);
        }
        let mut free = state.free_gpus();
        let mut decisions = Vec::new();
        for (members, gpus) in present.values() {
            if !chosen.iter().any(|(_, group)| group == members) {
                free.return_gpus(gpus);
                decisions
                    .extend(members.iter().map(|job| PlacementDecision::Suspend { job: *job }));
            }
        }
        chosen.retain(|(_, group)| !present.values().any(|(members, _)| members == group));
        // Large ones first, which find a leaf of their own more easily.
        chosen.sort_by_key(|(gpus, _)| std::cmp::Reverse(*gpus));
        for (wanted, members) in chosen {
            let first = members.first().copied().unwrap_or_default();
            let Some(gpus) = SameLeaf.choose_gpus(first, wanted, state.cluster, &free) else {
                continue;
            };
            free.take_gpus(&gpus);
            let in_group = jobs.iter().filter(|job| members.contains(&job.job));
            let group: Vec<&PlacementRequest> = in_group.copied().collect();
            decisions.extend(group.iter().map(|job| {
                PlacementDecision::Start(StartDecision {
                    group: (group.len() > 1).then_some(first),
                    pace: self.shared_pace(job, &group),
                    ..StartDecision::new(job.job, gpus.clone())
                })
            }));
        }
        decisions
    }
}

/// What orders jobs: remaining GPU seconds, then arrival.
fn urgency_key(job: &PlacementRequest) -> (f64, u32) {
    (job.remaining_seconds * f64::from(job.gpus), job.job)
}

fn compare_urgency(a: &(f64, u32), b: &(f64, u32)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// The smallest urgency key of a group.
fn most_urgent(group: &[&PlacementRequest]) -> Option<(f64, u32)> {
    group.iter().map(|job| urgency_key(job)).min_by(compare_urgency)
}

/// The first jobs that four to a GPU could hold.
fn first_fitting<'a>(
    jobs: &[&'a PlacementRequest],
    cluster_gpus: u32,
) -> Vec<&'a PlacementRequest> {
    let mut left = u64::from(cluster_gpus) * RESOURCES as u64;
    let fitting = jobs.iter().filter(|job| {
        let fits = u64::from(job.gpus) <= left;
        left -= if fits { u64::from(job.gpus) } else { 0 };
        fits
    });
    fitting.copied().collect()
}

/// The jobs of a group by number, which identify the group.
type GroupMembers = BTreeSet<u32>;

impl PlacementPolicy for MuriPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let cluster = state.cluster;
        let refused = |job: &PlacementRequest| refuse_oversized(cluster, job.job, job.gpus);
        let mut decisions: Vec<PlacementDecision> =
            state.waiting.iter().filter_map(refused).collect();
        let running = state.running.iter().map(|job| &job.request);
        let waiting = state.waiting.iter().filter(|job| refused(job).is_none());
        let mut jobs: Vec<&PlacementRequest> = running.chain(waiting).collect();
        jobs.sort_by(|a, b| compare_urgency(&urgency_key(a), &urgency_key(b)));

        let mut left = cluster.total_gpus();
        let mut chosen: Vec<(u32, GroupMembers)> = Vec::new();
        for group in self.form_groups(&jobs, cluster.total_gpus()) {
            let gpus = group[0].gpus;
            if gpus <= left {
                left -= gpus;
                chosen.push((gpus, group.iter().map(|job| job.job).collect()));
            }
        }
        decisions.extend(self.rearrange_groups(state, &jobs, chosen));
        decisions
    }

    fn round_seconds(&self) -> Option<f64> {
        Some(ROUND_SECONDS)
    }
}

#[cfg(test)]
mod tests;
