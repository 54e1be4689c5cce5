//! Muri (Zhao et al., SIGCOMM'22): jobs that need different resources take turns on the same GPUs.
//!
//! An iteration is stages on storage, CPU, GPU and network. Up to four jobs with the same number of
//! GPUs run as a group in lockstep: while one is on the network, the next computes. A group's
//! *efficiency* is the share of resource time that it uses ([`efficiency`]). Who shares with whom
//! is decided in rounds:
//!
//! 1. jobs in order of remaining GPU time, shortest first, as many as four to a GPU could hold;
//! 2. in buckets of equal GPU count, matched in pairs so that the sum of efficiencies is the
//!    largest ([`matching`]), and the pairs matched again;
//! 3. groups in that order as far as the GPUs go, each on as few leaves as it can have.
//!
//! If all jobs fit side by side, nobody shares. A group that stays as it is keeps its GPUs. The
//! paper leaves open how large a bucket is matched at once: 64 jobs here, in order.

pub mod matching;
mod stages;

use std::collections::{BTreeMap, BTreeSet};

pub use stages::{RESOURCES, StageTable, Stages};

use super::queue::{Choice, SameLeaf, refusal};
use super::{Decision, Gpus, Pace, Policy, Request, Start, State};

/// How much longer an iteration of a group of 1 to 4 jobs takes than its stages say, as measured by
/// Muri's authors.
pub const OVERHEAD: [f64; RESOURCES] = [1.015, 1.33, 1.5, 1.37];

/// Jobs matched at once.
const BUCKET: usize = 64;

/// Time between rounds, in seconds (SIGCOMM'22 §5).
const ROUND_SECONDS: f64 = 360.0;

/// Seconds of an iteration of a group, overhead not counted: jobs begin at different resources and
/// move on together, so each phase is as long as its longest stage. The best distinct beginnings
/// are taken, the first job's being fixed.
pub fn period_seconds(group: &[Stages]) -> f64 {
    let mut best = f64::INFINITY;
    each_rotation(group.len().min(RESOURCES), &mut vec![0], &mut |offsets| {
        let phase = |phase: usize| {
            let stage = |(stages, offset): (&Stages, &usize)| {
                stages[(phase + RESOURCES - offset) % RESOURCES]
            };
            group.iter().zip(offsets).map(stage).fold(0.0, f64::max)
        };
        best = best.min((0..RESOURCES).map(phase).sum());
    });
    best
}

/// Calls `see` with every choice of `jobs` distinct offsets that begins with `offsets`.
fn each_rotation(jobs: usize, offsets: &mut Vec<usize>, see: &mut impl FnMut(&[usize])) {
    if offsets.len() >= jobs {
        return see(offsets);
    }
    for offset in 0..RESOURCES {
        if !offsets.contains(&offset) {
            offsets.push(offset);
            each_rotation(jobs, offsets, see);
            offsets.pop();
        }
    }
}

/// The share of resource time that a group uses: the sum of its stages over all resources for one
/// period, 0..=1.
pub fn efficiency(group: &[Stages]) -> f64 {
    let busy: f64 = group.iter().flatten().sum();
    let period = period_seconds(group);
    if busy > 0.0 {
        busy / (RESOURCES as f64 * period)
    } else {
        0.0
    }
}

/// Groups of up to four of `jobs`, as lists of positions: matched in pairs, then pairs of pairs.
pub fn group(jobs: &[Stages]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = (0..jobs.len()).map(|job| vec![job]).collect();
    for _ in 0..RESOURCES.ilog2() {
        groups = pair(jobs, &groups);
    }
    groups
}

/// Merges groups in pairs by a matching of maximum weight; who finds no partner stays.
fn pair(jobs: &[Stages], groups: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let together = |a: usize, b: usize| {
        let members = groups[a].iter().chain(&groups[b]);
        let stages: Vec<Stages> = members.map(|job| jobs[*job]).collect();
        if stages.len() > RESOURCES {
            0.0
        } else {
            efficiency(&stages)
        }
    };
    let partners = matching::maximum(groups.len(), together);
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

/// The policy.
#[derive(Clone, Debug)]
pub struct Muri {
    table: StageTable,
}

impl Muri {
    /// The policy with the stage times that it is to believe.
    pub fn new(table: StageTable) -> Self {
        Self { table }
    }

    /// How many times as long an iteration of `job` takes in its group as alone.
    fn pace(&self, job: &Request, group: &[&Request]) -> Pace {
        if group.len() < 2 {
            return Pace::Model;
        }
        let factor = self.iteration_seconds(group) / self.iteration_seconds(&[job]);
        // A model without stages takes no time at all.
        Pace::Shared(if factor.is_finite() {
            factor.max(1.0)
        } else {
            1.0
        })
    }

    /// Seconds of an iteration of each job of a group, overhead counted: what sharing costs.
    pub fn iteration_seconds(&self, group: &[&Request]) -> f64 {
        let overhead = OVERHEAD[group.len().clamp(1, RESOURCES) - 1];
        let stages: Vec<Stages> = group.iter().map(|job| self.stages(job)).collect();
        period_seconds(&stages) * overhead
    }

    fn stages(&self, job: &Request) -> Stages {
        self.table.stages(job.model.as_deref(), job.gpus)
    }

    /// Groups of the jobs in the order in which they are to run.
    fn groups<'a>(&self, jobs: &[&'a Request], cluster_gpus: u32) -> Vec<Vec<&'a Request>> {
        let wanted: u64 = jobs.iter().map(|job| u64::from(job.gpus)).sum();
        if wanted <= u64::from(cluster_gpus) {
            return jobs.iter().map(|job| vec![*job]).collect();
        }
        let mut buckets: BTreeMap<u32, Vec<&Request>> = BTreeMap::new();
        for job in held(jobs, cluster_gpus) {
            buckets.entry(job.gpus).or_default().push(job);
        }
        let mut groups = Vec::new();
        for bucket in buckets.values().flat_map(|bucket| bucket.chunks(BUCKET)) {
            let stages: Vec<Stages> = bucket.iter().map(|job| self.stages(job)).collect();
            let members = |group: Vec<usize>| group.iter().map(|job| bucket[*job]).collect();
            groups.extend(group(&stages).into_iter().map(members));
        }
        let first = |group: &Vec<&Request>| {
            let jobs = group.iter().map(|job| urgency(job));
            jobs.min_by(compare)
        };
        groups.sort_by(|a: &Vec<&Request>, b| match (first(a), first(b)) {
            (Some(a), Some(b)) => compare(&a, &b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        groups
    }

    /// Suspends the groups that are not among `chosen`, and starts those that do not run.
    fn rearrange(
        &self,
        state: &State<'_>,
        jobs: &[&Request],
        mut chosen: Vec<(u32, Members)>,
    ) -> Vec<Decision> {
        let mut present: BTreeMap<(bool, u32), (Members, &Gpus)> = BTreeMap::new();
        for job in state.running {
            // Groups and single jobs have numbers of their own.
            let key = (job.group.is_some(), job.group.unwrap_or(job.request.job));
            let entry = present
                .entry(key)
                .or_insert_with(|| (Members::new(), &job.gpus));
            entry.0.insert(job.request.job);
        }
        let mut free = state.free();
        let mut decisions = Vec::new();
        for (members, gpus) in present.values() {
            if !chosen.iter().any(|(_, group)| group == members) {
                free.give(gpus);
                decisions.extend(members.iter().map(|job| Decision::Suspend { job: *job }));
            }
        }
        chosen.retain(|(_, group)| !present.values().any(|(members, _)| members == group));
        // Large ones first, which find a leaf of their own more easily.
        chosen.sort_by_key(|(gpus, _)| std::cmp::Reverse(*gpus));
        for (wanted, members) in chosen {
            let first = members.first().copied().unwrap_or_default();
            let Some(gpus) = SameLeaf.choose(first, wanted, state.cluster, &free) else {
                continue;
            };
            free.take(&gpus);
            let in_group = jobs.iter().filter(|job| members.contains(&job.job));
            let group: Vec<&Request> = in_group.copied().collect();
            let start = |job: &&Request| {
                Decision::Start(Start {
                    group: (group.len() > 1).then_some(first),
                    pace: self.pace(job, &group),
                    ..Start::new(job.job, gpus.clone())
                })
            };
            decisions.extend(group.iter().map(start));
        }
        decisions
    }
}

/// What orders jobs: remaining GPU seconds, then arrival.
fn urgency(job: &Request) -> (f64, u32) {
    (job.remaining_seconds * f64::from(job.gpus), job.job)
}

fn compare(a: &(f64, u32), b: &(f64, u32)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// The first jobs that four to a GPU could hold.
fn held<'a>(jobs: &[&'a Request], cluster_gpus: u32) -> Vec<&'a Request> {
    let mut left = u64::from(cluster_gpus) * RESOURCES as u64;
    let mut fits = |job: &&&Request| {
        let fits = u64::from(job.gpus) <= left;
        left -= if fits { u64::from(job.gpus) } else { 0 };
        fits
    };
    jobs.iter().filter(|job| fits(job)).copied().collect()
}

/// Jobs of a group by number, as policy and board tell groups apart.
type Members = BTreeSet<u32>;

impl Policy for Muri {
    fn decide(&mut self, state: &State<'_>) -> Vec<Decision> {
        let cluster = state.cluster;
        let refused = |job: &Request| refusal(cluster, job.job, job.gpus);
        let mut decisions: Vec<Decision> = state.waiting.iter().filter_map(refused).collect();
        let running = state.running.iter().map(|job| &job.request);
        let waiting = state.waiting.iter().filter(|job| refused(job).is_none());
        let mut jobs: Vec<&Request> = running.chain(waiting).collect();
        jobs.sort_by(|a, b| compare(&urgency(a), &urgency(b)));

        let mut left = cluster.gpus();
        let mut chosen: Vec<(u32, Members)> = Vec::new();
        for group in self.groups(&jobs, cluster.gpus()) {
            let gpus = group[0].gpus;
            if gpus <= left {
                left -= gpus;
                chosen.push((gpus, group.iter().map(|job| job.job).collect()));
            }
        }
        decisions.extend(self.rearrange(state, &jobs, chosen));
        decisions
    }

    fn round_seconds(&self) -> Option<f64> {
        Some(ROUND_SECONDS)
    }
}

#[cfg(test)]
mod tests;
