//! The model and the examples of the specification, number by number.

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;

const CONSTANTS: CommunicationModel = CommunicationModel {
    external: 100.0,
    internal: 1_000.0,
    reduction: 400.0,
    contention: 1.0,
    overhead: 0.001,
    degradation: 0.2,
    progress: SlotProgress::Whole,
};

fn job(gpus: u32, iterations: u64) -> RingJob {
    RingJob { gpus, iterations, gradient: 0.4, batch: 40.0, forward: 1e-4, backward: 6e-3 }
}

fn problem(servers: &[u32], jobs: &[(u32, u64)]) -> PlacementProblem {
    PlacementProblem {
        servers: servers.to_vec(),
        jobs: jobs.iter().map(|(gpus, iterations)| job(*gpus, *iterations)).collect(),
        running: Vec::new(),
        communication: CONSTANTS,
        horizon: 200,
        estimate_divisor: 1.0,
        server_slack: 1.0,
    }
}

#[test]
fn an_iteration_is_as_long_as_the_model_says() {
    let cases = [
        // Servers, contention, slots of an iteration, iterations a slot.
        (1, 0, 0.01235, 80.0),
        (2, 1, 0.01875, 53.0),
        (2, 2, 0.02595, 38.0),
        (4, 4, 0.04235, 23.0),
    ];
    for (servers, contention, iteration, rate) in cases {
        let span = RingSpan { servers, contention };
        assert!((CONSTANTS.iteration_slots(&job(4, 1), span) - iteration).abs() < 1e-12);
        assert_eq!(CONSTANTS.iterations_per_slot(&job(4, 1), span), rate);
    }
    assert!((CONSTANTS.worst_iteration(&job(4, 1), 4) - 0.04235).abs() < 1e-12);
    let real = CommunicationModel { progress: SlotProgress::Fractional, ..CONSTANTS };
    let span = RingSpan { servers: 1, contention: 0 };
    assert!((real.iterations_per_slot(&job(4, 1), span) - 1.0 / 0.01235).abs() < 1e-9);
}

#[test]
fn contention_slows_more_than_sharing() {
    let slowdowns = [1.0, 2.0, 3.0, 4.0].map(|rings| CONSTANTS.contention_slowdown(rings));
    for (found, expect) in slowdowns.into_iter().zip([1.0, 2.2, 3.4, 4.6]) {
        assert!((found - expect).abs() < 1e-12);
    }
}

#[test]
fn contention_counts_rings_that_leave_a_server() {
    // A[1,1,0,0] B[0,1,1,0] D[0,1,0,1] F[0,0,1,1] S[0,0,2,0].
    let jobs: [&[usize]; 5] = [&[0, 1], &[1, 2], &[1, 3], &[2, 3], &[2]];
    assert_eq!(ring_contention(&jobs), [3, 3, 3, 2, 0]);
}

/// Jobs a, b, c, d, e, g of the specification on two servers of 4.
fn six_jobs() -> PlacementProblem {
    problem(&[4, 4], &[(1, 1000), (1, 1000), (2, 2000), (2, 1000), (4, 2000), (4, 1000)])
}

fn placed(schedule: &BatchSchedule, job: usize) -> (u64, u64, Vec<u32>) {
    let placed = schedule.jobs[job].clone().unwrap();
    (placed.start, placed.end, placed.gpus_by_server)
}

#[test]
fn small_bounds_keep_large_jobs_together() {
    for kappa in 1..=3 {
        let found = place_jobs(&six_jobs(), &mut PlacementRule::Kappa(kappa), 37);
        assert_eq!(found.makespan, 37, "kappa {kappa}");
        for (job, start) in [(4, 12), (5, 24)] {
            let (begins, ends, on) = placed(&found, job);
            assert_eq!((begins, ends), (start, 37), "kappa {kappa}, job {job}");
            assert!(on.contains(&4), "on one server");
        }
    }
    let split = place_jobs(&six_jobs(), &mut PlacementRule::Kappa(4), 37);
    assert_eq!(placed(&split, 4), (12, 58, vec![2, 2]));
    assert_eq!(placed(&split, 5), (24, 51, vec![2, 2]));
    assert_eq!(split.makespan, 58);
}

#[test]
fn the_smallest_feasible_bound_and_the_printed_search() {
    let found = find_schedule(&six_jobs(), BoundSearch::Feasible).unwrap();
    assert_eq!((found.theta, found.makespan), (37, 37));
    let literal = find_schedule(&six_jobs(), BoundSearch::Literal).unwrap();
    assert_eq!((literal.theta, literal.makespan), (200, 37));
}

#[test]
fn jobs_without_room_are_reported() {
    assert_eq!(find_schedule(&problem(&[4], &[(5, 1)]), BoundSearch::Feasible), None);
    // 90 iterations a slot at most.
    assert_eq!(find_schedule(&problem(&[4], &[(1, 90 * 201)]), BoundSearch::Feasible), None);
    let mut slow = problem(&[4], &[(1, 1)]);
    slow.communication.overhead = 2.0;
    assert_eq!(find_schedule(&slow, BoundSearch::Feasible), None);
    // The printed search takes what it has.
    let partial = find_schedule(&problem(&[4], &[(1, 1), (5, 1)]), BoundSearch::Literal).unwrap();
    assert_eq!(partial.jobs[1], None);
    let nothing = find_schedule(&problem(&[4], &[]), BoundSearch::Feasible).unwrap();
    assert_eq!((nothing.makespan, nothing.jobs), (0, vec![]));
}

#[test]
fn jobs_that_run_are_waited_for() {
    let mut busy = problem(&[4], &[(4, 1000)]);
    busy.running.push((job(1, 1000), vec![1]));
    let found = find_schedule(&busy, BoundSearch::Feasible).unwrap();
    // One ring of one worker: 1000 at 90 a slot, 12 slots; then 1000 at 80, 13 slots.
    assert_eq!(placed(&found, 0), (12, 25, vec![4]));
}

proptest! {
    /// No GPU has two jobs at once, every job gets its GPUs, loads stay within the bound.
    #[test]
    fn schedules_are_sound(
        jobs in proptest::collection::vec((1..5_u32, 1..2000_u64), 1..12), seed in 0..99_u64,
    ) {
        let problem = problem(&[4, 2, 3], &jobs);
        let found = find_schedule(&problem, BoundSearch::Feasible);
        let random = PlacementRule::Random(Box::new(ChaCha8Rng::seed_from_u64(seed)));
        let others = [PlacementRule::ListScheduling, PlacementRule::FirstFit, random];
        let others = others.map(|mut rule| place_jobs(&problem, &mut rule, u64::MAX));
        for found in found.iter().chain(&others) {
            let placed: Vec<&JobPlacement> = found.jobs.iter().flatten().collect();
            for (one, wanted) in placed.iter().zip(&jobs) {
                prop_assert_eq!(one.gpus_by_server.iter().sum::<u32>(), wanted.0);
                for (server, gpus) in problem.servers.iter().enumerate() {
                    let there = placed.iter().filter(|other| {
                        other.start <= one.start && one.start < other.end
                    });
                    let used: u32 = there.map(|other| other.gpus_by_server[server]).sum();
                    prop_assert!(used <= *gpus);
                }
            }
            let last = placed.iter().map(|placed| placed.end).max().unwrap_or(0);
            prop_assert!(placed.len() < jobs.len() || last == found.makespan);
        }
        if let Some(found) = found {
            prop_assert!(found.makespan <= problem.horizon);
        }
    }
}
