//! `ElasticFlow` (Gu et al., ASPLOS 2023) without deadlines, as Crius is compared with it: how many
//! GPUs each job gets, of the kind that it asked for.
//!
//! Admission: every job has a *minimum satisfactory share*, the fewest GPUs with which it runs at
//! all; a job is admitted if those of all jobs of its kind fit. Allocation: all get their minimum,
//! then one job after the other doubles, each time the one whose throughput grows most
//! (baselines/elasticflow_sched.py of sjtu-epcc/arena). It knows data parallelism only, so its
//! table should be one of those speeds.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::allocation::{self, ClusterAllocation, RestartStall};
use super::fcfs::admit_in_order;
use super::throughput::ThroughputTable;
use super::{ClusterState, PlacementDecision, PlacementPolicy, PlacementRequest};

/// GPUs of a job at most.
pub const MOST_GPUS: u32 = 16;

/// When GPUs are shared anew, and which jobs then move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElasticSharing {
    /// When a job comes or ends; a job whose share is unchanged stays in place if it can.
    KeepPlaces,
    /// When a job comes, all jobs of its kind anew, the new one first among equals, as in
    /// sjtu-epcc/arena.
    PlaceAnew,
}

/// ElasticFlow with the speeds that it assumes.
#[derive(Clone, Debug)]
pub struct ElasticFlowPolicy {
    /// How it shares.
    pub sharing: ElasticSharing,
    /// The assumed speeds of models.
    pub table: ThroughputTable,
    /// What a start or another number of GPUs costs.
    pub stall: RestartStall,
}

impl PlacementPolicy for ElasticFlowPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let allocation = ClusterAllocation::from_state(state, &self.table);
        let (mut allocation, mut decisions) = admit_in_order(
            state.waiting,
            allocation,
            |allocation, request| least_share(allocation, request).is_some(),
            |allocation, request| {
                let kind = allocation::requested_kind(request);
                share_kind(allocation, kind, Some(request), self.sharing)
            },
        );
        if self.sharing == ElasticSharing::KeepPlaces {
            // Jobs that ended have left room.
            for kind in 0..self.table.kind_count() {
                let shared = share_kind(&allocation, kind, None, self.sharing);
                allocation = shared.unwrap_or(allocation);
            }
        }
        decisions.extend(allocation.to_decisions(state, self.stall));
        decisions
    }
}

/// The allocation with the GPUs of a kind shared anew, among those that hold some and one that
/// comes; none if their shares do not fit.
fn share_kind<'a>(
    allocation: &ClusterAllocation<'a>,
    kind: u32,
    comes: Option<&PlacementRequest>,
    sharing: ElasticSharing,
) -> Option<ClusterAllocation<'a>> {
    let held = allocation.allocated_jobs().filter(|held| held.shape.kind == kind);
    let held = held.map(|held| held.request.clone());
    let mut jobs: Vec<PlacementRequest> = comes.cloned().into_iter().chain(held).collect();
    if sharing == ElasticSharing::KeepPlaces {
        jobs.sort_by_key(|job| job.job);
    }
    let shares = assign_shares(allocation, &jobs, allocation.gpus_of_kind(kind))?;
    let kept = match sharing {
        ElasticSharing::KeepPlaces => keep_unchanged(allocation, &jobs, &shares),
        ElasticSharing::PlaceAnew => None,
    };
    kept.or_else(|| repack_all(allocation, &jobs, &shares))
}

/// The fewest GPUs with which a job runs on its kind.
fn least_share(allocation: &ClusterAllocation<'_>, request: &PlacementRequest) -> Option<u32> {
    let powers = (0..).map(|power| 1 << power);
    let mut counts = powers.take_while(|gpus| *gpus <= MOST_GPUS);
    counts.find(|gpus| compact_speed(allocation, request, *gpus).is_some())
}

fn compact_speed(
    allocation: &ClusterAllocation<'_>,
    request: &PlacementRequest,
    gpus: u32,
) -> Option<f64> {
    let best =
        allocation.throughput_table().best_shape(allocation::requested_kind(request), gpus)?;
    allocation.speed_in(request, best)
}

/// GPUs of each job: its minimum, doubled while that makes the jobs faster and GPUs are left; none
/// if there are too few for the minima.
fn assign_shares(
    allocation: &ClusterAllocation<'_>,
    jobs: &[PlacementRequest],
    gpus: u32,
) -> Option<Vec<u32>> {
    let least = jobs.iter().map(|job| least_share(allocation, job));
    let mut shares: Vec<u32> = least.collect::<Option<_>>()?;
    let mut left = gpus.checked_sub(shares.iter().sum())?;
    loop {
        let gain = |job: usize| {
            let now = shares[job];
            let may = now <= left && 2 * now <= MOST_GPUS;
            let twice = compact_speed(allocation, &jobs[job], 2 * now).filter(|_| may)?;
            Some(twice - compact_speed(allocation, &jobs[job], now)?).filter(|gain| *gain > 0.0)
        };
        let gains = (0..jobs.len()).filter_map(|job| Some((job, gain(job)?)));
        let Some((job, _)) = gains.max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a))) else {
            return Some(shares);
        };
        left -= shares[job];
        shares[job] *= 2;
    }
}

/// The jobs on their new numbers of GPUs; a job whose number is unchanged stays in place.
fn keep_unchanged<'a>(
    allocation: &ClusterAllocation<'a>,
    jobs: &[PlacementRequest],
    shares: &[u32],
) -> Option<ClusterAllocation<'a>> {
    let had: BTreeMap<u32, u32> = allocation
        .allocated_jobs()
        .map(|held| (held.request.job, held.shape.gpu_count()))
        .collect();
    let changed = jobs.iter().zip(shares).filter(|(job, gpus)| had.get(&job.job) != Some(gpus));
    pack_jobs(allocation.clone(), changed.collect())
}

/// The jobs on as many GPUs as they now have, all placed anew.
fn repack_all<'a>(
    allocation: &ClusterAllocation<'a>,
    jobs: &[PlacementRequest],
    shares: &[u32],
) -> Option<ClusterAllocation<'a>> {
    pack_jobs(allocation.clone(), jobs.iter().zip(shares).collect())
}

/// These jobs on so many GPUs, the largest first and of equals the first, which leaves no gap.
fn pack_jobs<'a>(
    mut allocation: ClusterAllocation<'a>,
    mut jobs: Vec<(&PlacementRequest, &u32)>,
) -> Option<ClusterAllocation<'a>> {
    for (job, _) in &jobs {
        allocation.release_job(job.job);
    }
    jobs.sort_by_key(|(_, gpus)| Reverse(**gpus));
    let mut placed = jobs.iter();
    let all = placed.all(|(job, gpus)| {
        allocation.place_compactly(job, allocation::requested_kind(job), **gpus)
    });
    all.then_some(allocation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::{TestCluster, request};

    /// Speeds of three models on 1, 2, 4 and 8 GPUs of one kind, on hosts of four.
    fn lab() -> TestCluster {
        let mut lab = TestCluster::new(&[(4, 2)]);
        lab.set_speeds("steady", &[(1, 10.0), (2, 19.0), (4, 36.0), (8, 68.0)]);
        lab.set_speeds("flat", &[(1, 12.0), (2, 14.0), (4, 15.0), (8, 14.0)]);
        lab.set_speeds("large", &[(4, 8.0), (8, 15.0)]);
        lab
    }

    fn check(jobs: &[&str], gpus: u32, expect: Option<&[u32]>) {
        let lab = lab();
        let allocation = lab.empty_allocation();
        let jobs = jobs.iter().enumerate();
        let jobs: Vec<PlacementRequest> =
            jobs.map(|(job, model)| request(job as u32, 1, model)).collect();
        assert_eq!(assign_shares(&allocation, &jobs, gpus).as_deref(), expect);
    }

    #[test]
    fn a_minimum_is_found_by_doubling() {
        let lab = lab();
        let least = |model| least_share(&lab.empty_allocation(), &request(1, 1, model));
        assert_eq!([least("steady"), least("large"), least("none")], [Some(1), Some(4), None]);
    }

    #[test]
    fn gpus_go_where_they_add_most() {
        check(&["steady", "flat"], 6, Some(&[4, 2]));
        check(&["flat"], 8, Some(&[4]));
        check(&["steady", "large"], 8, Some(&[4, 4]));
    }

    /// A job on four of eight GPUs, and another of four that comes.
    #[test]
    fn a_job_keeps_its_place_unless_all_are_placed_anew() {
        let lab = lab();
        let (first, second) = (request(1, 4, "large"), request(2, 4, "large"));
        let mut before = lab.empty_allocation();
        assert!(before.place_compactly(&first, 0, 4));
        let hosts = |sharing| {
            let after = share_kind(&before, 0, Some(&second), sharing).unwrap();
            let hosts = after.allocated_jobs().flat_map(|held| held.gpus.keys().copied());
            hosts.collect::<Vec<_>>()
        };
        let [one, other] = [topology::HostId(0), topology::HostId(1)];
        assert_eq!(hosts(ElasticSharing::KeepPlaces), [one, other]);
        assert_eq!(hosts(ElasticSharing::PlaceAnew), [other, one]);
    }

    #[test]
    fn jobs_whose_minima_do_not_fit_are_not_admitted() {
        check(&["large", "large"], 8, Some(&[4, 4]));
        check(&["large", "large", "flat"], 8, None);
    }
}
