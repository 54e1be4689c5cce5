//! Making room for a job (Crius): place it as requested, or change the schedule in few steps so
//! that it fits and the total throughput is the highest.
//!
//! **Fit** looks for room on as few hosts as hold the job, then moves small jobs together, then
//! spreads the job. If that fails, a breadth-first search changes the schedule up to three times:
//! it halves a running job or moves one to another kind of GPU with the same number of GPUs, or
//! does the same to the demand of the job. Of all schedules in which the job fits, the one with the
//! highest total throughput is chosen, even if that is lower than before, because a waiting job has
//! no throughput. **Upgrade** does the opposite while GPUs are idle.

use super::CriusAbilities;
use crate::PlacementRequest;
use crate::allocation::{self, AllocatedJob, ClusterAllocation};
use crate::deadline::JobDeadlines;

/// Changes to a schedule for one job, and in a cluster of more than [`MANY`] jobs.
const DEPTH: usize = 3;
const DEPTH_OF_MANY: usize = 2;

/// Running jobs beyond which the search is shallower, as in scheduler.py of sjtu-epcc/arena.
const MANY: usize = 150;

/// Changes at one time that make running jobs faster.
const UPGRADES: usize = 10;

/// GPUs of a job at most.
pub const MOST_GPUS: u32 = 16;

/// What the search may do, and what it must respect.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleSearch<'a> {
    /// Which changes it may make.
    pub abilities: CriusAbilities,
    /// When jobs must be over.
    pub deadlines: &'a JobDeadlines,
    /// The time, in seconds.
    pub now_seconds: f64,
}

/// A schedule on the way to room for a job, and what the job asks for by now.
#[derive(Clone, Debug)]
struct SearchBranch<'a> {
    allocation: ClusterAllocation<'a>,
    kind: u32,
    gpus: u32,
}

impl ScheduleSearch<'_> {
    /// The schedule with a job in it; none if no few changes make room. A job that asks for another
    /// number of GPUs than a power of two is fitted with the one below.
    pub fn fit_job<'l>(
        &self,
        allocation: &ClusterAllocation<'l>,
        request: &PlacementRequest,
    ) -> Option<ClusterAllocation<'l>> {
        let (kind, gpus) = (allocation::requested_kind(request), floor_power_of_two(request.gpus));
        if let Some(placed) = self.with_placed_job(allocation, request, kind, gpus) {
            return Some(placed);
        }
        let many = allocation.allocated_jobs().count() > MANY;
        let depth = if many { DEPTH_OF_MANY } else { DEPTH };
        let allocation = allocation.clone();
        let mut level = vec![SearchBranch { allocation, kind, gpus }];
        let mut found: Vec<ClusterAllocation<'l>> = Vec::new();
        for _ in 0..depth {
            let mut next = Vec::new();
            let changed = level.iter().flat_map(|branch| self.next_branches(branch, request));
            for branch in changed {
                match self.with_placed_job(&branch.allocation, request, branch.kind, branch.gpus) {
                    Some(placed) => found.push(placed),
                    None => next.push(branch),
                }
            }
            level = next;
        }
        // Of equals the first, which took fewest changes.
        found.into_iter().reduce(|best, other| {
            if other.total_speed() > best.total_speed() + EPSILON { other } else { best }
        })
    }

    /// Makes running jobs faster, one after the other, each time the one that gains most: by
    /// another kind of GPU, or twice as many of its own.
    pub fn upgrade_jobs(&self, allocation: &mut ClusterAllocation<'_>) {
        for _ in 0..UPGRADES {
            let Some(better) = self.best_upgrade(allocation) else {
                return;
            };
            *allocation = better;
        }
    }

    /// Brings jobs that are spread over more hosts than need be together, where there is room.
    pub fn gather_spread_jobs(&self, allocation: &mut ClusterAllocation<'_>) {
        let jobs: Vec<u32> = allocation.allocated_jobs().map(|held| held.request.job).collect();
        for job in jobs {
            let Some(held) = allocation.release_job(job) else {
                continue;
            };
            let best =
                allocation.throughput_table().best_shape(held.shape.kind, held.shape.gpu_count());
            let spread = best.is_some_and(|best| best != held.shape);
            if !spread
                || !allocation.place_compactly(
                    &held.request,
                    held.shape.kind,
                    held.shape.gpu_count(),
                )
            {
                allocation.restore_job(held);
            }
        }
    }

    /// The schedule with the job on these GPUs; none if there is no room, or too little time.
    fn with_placed_job<'l>(
        &self,
        allocation: &ClusterAllocation<'l>,
        request: &PlacementRequest,
        kind: u32,
        gpus: u32,
    ) -> Option<ClusterAllocation<'l>> {
        let best = allocation.throughput_table().best_shape(kind, gpus)?;
        allocation.speed_in(request, best)?;
        let mut after = allocation.clone();
        let mut placed = after.place_job(request, best);
        if !placed && self.abilities.merging {
            after = after.with_merged_jobs(best).unwrap_or(after);
            placed = after.place_job(request, best);
        }
        placed |= !placed && after.place_anywhere(request, kind, gpus);
        self.if_in_time(after, request.job).filter(|_| placed)
    }

    fn if_in_time<'l>(
        &self,
        allocation: ClusterAllocation<'l>,
        job: u32,
    ) -> Option<ClusterAllocation<'l>> {
        let in_time = allocation
            .allocated_jobs()
            .filter(|held| held.request.job == job)
            .all(|held| self.deadlines.are_met_by(held, self.now_seconds));
        in_time.then_some(allocation)
    }

    /// What a schedule may become in one step: for each kind a running job halved, a running job
    /// moved, and the job itself asking for another kind, or for half.
    fn next_branches<'l>(
        &self,
        branch: &SearchBranch<'l>,
        request: &PlacementRequest,
    ) -> Vec<SearchBranch<'l>> {
        let SearchBranch { allocation, kind, gpus } = branch;
        let mut next = Vec::new();
        let with = |allocation| SearchBranch { allocation, ..branch.clone() };
        if self.abilities.scaling {
            let kinds = 0..allocation.throughput_table().kind_count();
            next.extend(kinds.filter_map(|kind| self.best_halved(allocation, kind)).map(with));
        }
        if self.abilities.moving {
            next.extend(self.best_moved(allocation).map(with));
            let others =
                (0..allocation.throughput_table().kind_count()).filter(|other| other != kind);
            next.extend(others.map(|kind| SearchBranch { kind, ..branch.clone() }));
        }
        if self.abilities.scaling && gpus / 2 > 0 {
            next.push(SearchBranch { gpus: gpus / 2, ..branch.clone() });
        }
        // A demand that cannot run even alone leads nowhere.
        next.retain(|branch| {
            let shape = branch.allocation.throughput_table().best_shape(branch.kind, branch.gpus);
            shape.is_some_and(|shape| branch.allocation.speed_in(request, shape).is_some())
        });
        next
    }

    /// Of the jobs of a kind with at least half of the most GPUs of any, the one halved that costs
    /// least throughput: a small job gives too few GPUs back to be worth it.
    fn best_halved<'l>(
        &self,
        allocation: &ClusterAllocation<'l>,
        kind: u32,
    ) -> Option<ClusterAllocation<'l>> {
        let of_kind = allocation.allocated_jobs().filter(|held| held.shape.kind == kind);
        let most = of_kind.clone().map(|held| held.shape.gpu_count()).max()?;
        let large = of_kind.filter(|held| 2 * held.shape.gpu_count() >= most);
        let halves = large.filter_map(|held| {
            GpuChange::to_gpus(allocation, held, kind, held.shape.gpu_count() / 2)
        });
        sort_by_gain(halves)
            .find_map(|change| self.if_in_time(allocation.with_halved_job(change.job)?, change.job))
    }

    /// The running job on another kind, with as many GPUs, that gains most there or costs least.
    fn best_moved<'l>(&self, allocation: &ClusterAllocation<'l>) -> Option<ClusterAllocation<'l>> {
        let moves =
            allocation.allocated_jobs().flat_map(|held| moves_to_other_kinds(allocation, held));
        sort_by_gain(moves).find_map(|change| self.apply_change(allocation, change))
    }

    /// The schedule after the change of one running job that gains most; none if none gains.
    fn best_upgrade<'l>(
        &self,
        allocation: &ClusterAllocation<'l>,
    ) -> Option<ClusterAllocation<'l>> {
        let upgrades = allocation.allocated_jobs().flat_map(|held| {
            let (kind, twice) = (held.shape.kind, 2 * held.shape.gpu_count());
            let may_grow = self.abilities.scaling && twice <= held.request.gpus.max(MOST_GPUS);
            let grown = may_grow.then(|| GpuChange::to_gpus(allocation, held, kind, twice));
            let moved = self.abilities.moving.then(|| moves_to_other_kinds(allocation, held));
            moved.into_iter().flatten().chain(grown.flatten())
        });
        // What is had may be less than what was in sight, if the job must be spread.
        let before = allocation.total_speed() + EPSILON;
        sort_by_gain(upgrades.filter(|change| change.gain > EPSILON))
            .filter_map(|change| self.apply_change(allocation, change))
            .find(|after| after.total_speed() > before)
    }

    /// The schedule after a change, if there is room for it.
    fn apply_change<'l>(
        &self,
        allocation: &ClusterAllocation<'l>,
        change: GpuChange,
    ) -> Option<ClusterAllocation<'l>> {
        let mut after = allocation.clone();
        let held = after.release_job(change.job)?;
        self.with_placed_job(&after, &held.request, change.kind, change.gpus)
    }
}

/// The greatest power of two that is not more than a number of GPUs.
fn floor_power_of_two(gpus: u32) -> u32 {
    gpus.checked_ilog2().map_or(0, |power| 1 << power)
}

/// Throughputs that differ by less are equal.
const EPSILON: f64 = 1e-9;

/// Other GPUs for a running job.
#[derive(Clone, Copy, Debug)]
struct GpuChange {
    job: u32,
    kind: u32,
    gpus: u32,
    /// The speed that it gains on as few hosts as hold them.
    gain: f64,
}

impl GpuChange {
    /// So many GPUs of a kind for a job; none if it cannot run there.
    fn to_gpus(
        allocation: &ClusterAllocation<'_>,
        held: &AllocatedJob,
        kind: u32,
        gpus: u32,
    ) -> Option<Self> {
        let best = allocation.throughput_table().best_shape(kind, gpus)?;
        Some(Self {
            job: held.request.job,
            kind,
            gpus,
            gain: allocation.speed_in(&held.request, best)? - held.speed,
        })
    }
}

/// As many GPUs of every other kind for a running job.
fn moves_to_other_kinds(
    allocation: &ClusterAllocation<'_>,
    held: &AllocatedJob,
) -> impl Iterator<Item = GpuChange> {
    let kinds =
        (0..allocation.throughput_table().kind_count()).filter(|kind| *kind != held.shape.kind);
    kinds.filter_map(|kind| GpuChange::to_gpus(allocation, held, kind, held.shape.gpu_count()))
}

/// Changes by gain, the greatest first; of equals the job that came first.
fn sort_by_gain(changes: impl Iterator<Item = GpuChange>) -> impl Iterator<Item = GpuChange> {
    let mut changes: Vec<GpuChange> = changes.collect();
    changes.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    changes.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::{TestCluster, request};

    fn search(deadlines: &JobDeadlines) -> ScheduleSearch<'_> {
        ScheduleSearch { abilities: CriusAbilities::ALL, deadlines, now_seconds: 0.0 }
    }

    /// Job, kind and number of GPUs of every job.
    fn held(allocation: &ClusterAllocation<'_>) -> Vec<(u32, u32, u32)> {
        let held = allocation.allocated_jobs();
        held.map(|held| (held.request.job, held.shape.kind, held.shape.gpu_count())).collect()
    }

    /// X has two hosts of four GPUs, Y one.
    fn lab() -> TestCluster {
        let mut lab = TestCluster::new(&[(4, 2), (4, 1)]);
        lab.set_speeds_on(0, "J1", &[(8, 100.0), (4, 70.0)]);
        lab.set_speeds_on(0, "J2", &[(4, 60.0), (2, 35.0)]);
        lab.set_speeds_on(1, "J2", &[(4, 40.0), (2, 25.0)]);
        lab
    }

    #[test]
    fn a_job_gets_another_kind_if_that_costs_less_than_halving_another_job() {
        let (lab, none) = (lab(), JobDeadlines::default());
        let mut allocation = lab.empty_allocation();
        assert!(allocation.place_compactly(&request(1, 8, "J1"), 0, 8));
        let after = search(&none).fit_job(&allocation, &request(2, 4, "J2")).unwrap();
        assert_eq!(held(&after), [(1, 0, 8), (2, 1, 4)]);
        assert_eq!(after.total_speed(), 140.0);
    }

    #[test]
    fn without_moves_a_running_job_is_halved() {
        let (lab, none) = (lab(), JobDeadlines::default());
        let mut allocation = lab.empty_allocation();
        assert!(allocation.place_compactly(&request(1, 8, "J1"), 0, 8));
        let mut search = search(&none);
        search.abilities.moving = false;
        let after = search.fit_job(&allocation, &request(2, 4, "J2")).unwrap();
        assert_eq!(held(&after), [(1, 0, 4), (2, 0, 4)]);
        search.abilities.scaling = false;
        assert!(search.fit_job(&allocation, &request(2, 4, "J2")).is_none());
    }

    #[test]
    fn upgrades_take_idle_gpus_the_greatest_gain_first() {
        let (lab, none) = (lab(), JobDeadlines::default());
        let mut allocation = lab.empty_allocation();
        assert!(allocation.place_compactly(&request(1, 4, "J1"), 0, 4));
        assert!(allocation.place_compactly(&request(2, 2, "J2"), 1, 2));
        // J1 gains 30 by the rest of X, J2 15 by the rest of Y and 10 by two GPUs of X.
        search(&none).upgrade_jobs(&mut allocation);
        assert_eq!(held(&allocation), [(1, 0, 8), (2, 1, 4)]);
    }

    #[test]
    fn a_spread_job_is_gathered_when_there_is_room() {
        let mut lab = TestCluster::new(&[(2, 2)]);
        lab.set_speeds("m", &[(1, 10.0), (2, 19.0)]);
        let none = JobDeadlines::default();
        let mut allocation = lab.empty_allocation();
        for job in [1, 2] {
            assert!(allocation.place_compactly(&request(job, 1, "m"), 0, 1));
        }
        assert!(allocation.place_anywhere(&request(3, 2, "m"), 0, 2));
        search(&none).gather_spread_jobs(&mut allocation);
        assert_eq!(allocation.total_speed(), 20.0 + 0.9 * 19.0);
        allocation.release_job(1);
        search(&none).gather_spread_jobs(&mut allocation);
        assert_eq!(allocation.total_speed(), 10.0 + 19.0);
    }
}
