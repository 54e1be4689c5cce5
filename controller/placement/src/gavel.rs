//! Gavel (Narayanan et al., OSDI 2020) with the policy that maximises total throughput, as Crius is
//! compared with it: which kind of GPU each job gets, all jobs considered together.
//!
//! A job keeps the number of GPUs that it asked for. Whenever one asks to be admitted, all admitted
//! jobs are assigned to kinds anew so that their throughputs sum up to the most, no kind is asked
//! for more GPUs than it has, and at most three jobs change kind. If there is no such
//! assignment, the job waits (baselines/gavel_sched.py of sjtu-epcc/arena, which hands the integer
//! programme to a solver; here it is a dynamic programme over GPUs used). Gavel knows data
//! parallelism only, so its table should be one of those speeds.

use std::collections::BTreeMap;

use super::allocation::{ClusterAllocation, RestartStall};
use super::fcfs::admit_in_order;
use super::throughput::ThroughputTable;
use super::{ClusterState, PlacementDecision, PlacementPolicy, PlacementRequest};

/// Jobs that may change kind when one is admitted (`MAX_MGRT_JOB_NUM`).
const MOST_MOVES: u32 = 3;

/// Partial assignments that are followed, the best ones; two kinds of some hundred GPUs never have
/// so many that differ, and are solved exactly.
const MOST_PARTIAL: usize = 4096;

/// Gavel with the speeds that it assumes.
#[derive(Clone, Debug)]
pub struct GavelPolicy {
    /// The assumed speeds of models.
    pub table: ThroughputTable,
    /// What a start costs.
    pub stall: RestartStall,
}

impl PlacementPolicy for GavelPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let allocation = ClusterAllocation::from_state(state, &self.table);
        let (allocation, mut decisions) = admit_in_order(
            state.waiting,
            allocation,
            |allocation, request| speeds_by_kind(allocation, request).iter().any(Option::is_some),
            admit_job,
        );
        decisions.extend(allocation.to_decisions(state, self.stall));
        decisions
    }
}

/// The allocation with one more job, after those that change kind have moved; none if there is no
/// room.
fn admit_job<'a>(
    allocation: &ClusterAllocation<'a>,
    request: &PlacementRequest,
) -> Option<ClusterAllocation<'a>> {
    let held = allocation.allocated_jobs().map(|held| &held.request);
    let jobs: Vec<&PlacementRequest> = held.chain([request]).collect();
    let before: Vec<Option<u32>> =
        allocation.allocated_jobs().map(|held| Some(held.shape.kind)).chain([None]).collect();
    let kinds = 0..allocation.throughput_table().kind_count();
    let assignment = assign_kinds(&KindAssignment {
        gpus: jobs.iter().map(|job| job.gpus).collect(),
        speeds: jobs.iter().map(|job| speeds_by_kind(allocation, job)).collect(),
        before: before.clone(),
        capacities: kinds.map(|kind| allocation.gpus_of_kind(kind)).collect(),
    })?;
    let changed =
        jobs.iter().zip(before).zip(assignment).filter(|((_, before), now)| *before != Some(*now));
    let changed: Vec<(&PlacementRequest, u32)> =
        changed.map(|((job, _), now)| (*job, now)).collect();
    let mut after = allocation.clone();
    for (job, _) in &changed {
        after.release_job(job.job);
    }
    let mut put = changed.iter();
    put.all(|(job, kind)| after.place_anywhere(job, *kind, job.gpus)).then_some(after)
}

/// Speed of a job on the requested number of GPUs of each kind.
fn speeds_by_kind(allocation: &ClusterAllocation<'_>, job: &PlacementRequest) -> Vec<Option<f64>> {
    let table = allocation.throughput_table();
    (0..table.kind_count())
        .map(|kind| allocation.speed_in(job, table.best_shape(kind, job.gpus)?))
        .collect()
}

/// Jobs to assign to kinds of GPU.
struct KindAssignment {
    /// GPUs of each job.
    gpus: Vec<u32>,
    /// Throughput of each job on each kind; none where it cannot run.
    speeds: Vec<Vec<Option<f64>>>,
    /// The kind that each job has.
    before: Vec<Option<u32>>,
    /// GPUs of each kind.
    capacities: Vec<u32>,
}

/// A kind for every job, with the greatest sum of throughputs; none if they do not all fit.
fn assign_kinds(problem: &KindAssignment) -> Option<Vec<u32>> {
    if problem.gpus.iter().sum::<u32>() > problem.capacities.iter().sum() {
        return None;
    }
    // What was used and moved -> the best sum, and how.
    type Partial = BTreeMap<(Vec<u32>, u32), (f64, Vec<u32>)>;
    let none = (vec![0; problem.capacities.len()], 0);
    let mut partial = Partial::from([(none, (0.0, Vec::new()))]);
    for (job, speeds) in problem.speeds.iter().enumerate() {
        let mut next = Partial::new();
        for ((used, moves), (sum, kinds)) in &partial {
            for (kind, speed) in speeds.iter().enumerate() {
                let Some(speed) = speed else { continue };
                let mut used = used.clone();
                used[kind] += problem.gpus[job];
                let moves =
                    moves + u32::from(problem.before[job].is_some_and(|k| k != kind as u32));
                if used[kind] > problem.capacities[kind] || moves > MOST_MOVES {
                    continue;
                }
                let known = next.get(&(used.clone(), moves));
                if known.is_none_or(|(best, _)| sum + speed > *best) {
                    let kinds = kinds.iter().copied().chain([kind as u32]).collect();
                    next.insert((used, moves), (sum + speed, kinds));
                }
            }
        }
        // The bound is a sum, not a count: equal sums stay, so that no tie is broken by chance.
        if next.len() > MOST_PARTIAL {
            let mut sums: Vec<f64> = next.values().map(|(sum, _)| *sum).collect();
            sums.sort_by(|a, b| b.total_cmp(a));
            let bound = sums[MOST_PARTIAL];
            next.retain(|_, (sum, _)| *sum >= bound);
        }
        partial = next;
    }
    let best = partial.into_values().max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, kinds)| kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of baselines/gavel_sched.py: jobs A to D with 2, 4, 4 and 8 GPUs, of which A and
    /// B get the first kind, C the second and D the third.
    fn example() -> KindAssignment {
        let speeds = [[9.0, 5.0, 1.0], [9.0, 6.0, 1.0], [7.0, 6.0, 1.0], [9.0, 9.0, 8.0]];
        KindAssignment {
            gpus: vec![2, 4, 4, 8],
            speeds: speeds.map(|row| row.map(Some).to_vec()).to_vec(),
            before: vec![None; 4],
            capacities: vec![6, 4, 8],
        }
    }

    #[test]
    fn jobs_go_where_all_of_them_together_are_fastest() {
        assert_eq!(assign_kinds(&example()), Some(vec![0, 0, 1, 2]));
    }

    #[test]
    fn an_admitted_job_counts_even_if_all_others_get_slower() {
        let mut crowded = example();
        crowded.capacities = vec![2, 4, 8];
        assert_eq!(assign_kinds(&crowded), None);
    }

    #[test]
    fn at_most_three_jobs_change_kind() {
        let mut settled = KindAssignment {
            gpus: vec![1; 4],
            speeds: vec![vec![Some(1.0), Some(2.0)]; 4],
            before: vec![Some(0); 4],
            capacities: vec![4, 4],
        };
        let moved = |problem: &KindAssignment| assign_kinds(problem).unwrap().iter().sum::<u32>();
        assert_eq!(moved(&settled), 3);
        settled.before = vec![None; 4];
        assert_eq!(moved(&settled), 4);
    }

    #[test]
    fn a_job_gets_no_kind_that_it_cannot_run_on() {
        let mut fussy = example();
        fussy.speeds[0] = vec![None, Some(5.0), None];
        fussy.capacities = vec![8, 4, 8];
        assert_eq!(assign_kinds(&fussy), Some(vec![1, 0, 0, 2]));
    }
}
