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
    // No smaller bound has a smaller makespan, so the printed search keeps its first.
    let literal = find_schedule(&six_jobs(), BoundSearch::Literal).unwrap();
    assert_eq!((literal.theta, literal.makespan), (100, 37));
}

#[test]
fn the_printed_search_prefers_schedules_without_jobs() {
    // Two jobs of 12 slots on one GPU. The first bound, 15, admits one of them.
    let tight = PlacementProblem { horizon: 30, ..problem(&[1], &[(1, 1000), (1, 1000)]) };
    let found = find_schedule(&tight, BoundSearch::Feasible).unwrap();
    assert_eq!((found.theta, found.makespan), (24, 24));
    let literal = find_schedule(&tight, BoundSearch::Literal).unwrap();
    assert_eq!((literal.theta, literal.makespan), (7, 0));
    assert_eq!(literal.jobs, [None, None]);
}

#[test]
fn jobs_without_room_are_reported() {
    assert_eq!(find_schedule(&problem(&[4], &[(5, 1)]), BoundSearch::Feasible), None);
    // 90 iterations a slot at most.
    assert_eq!(find_schedule(&problem(&[4], &[(1, 90 * 201)]), BoundSearch::Feasible), None);
    let mut slow = problem(&[4], &[(1, 1)]);
    slow.communication.overhead = 2.0;
    assert_eq!(find_schedule(&slow, BoundSearch::Feasible), None);
    // The printed search takes what it has, unless that does not end within the horizon.
    let partial = find_schedule(&problem(&[4], &[(1, 1), (5, 1)]), BoundSearch::Literal).unwrap();
    assert_eq!(partial.jobs[1], None);
    assert_eq!(
        find_schedule(&problem(&[4], &[(1, 90 * 201)]), BoundSearch::Literal).unwrap().makespan,
        0
    );
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

/// Jobs of one GPU each that take these slots, and do not communicate.
fn single_gpu_jobs(gpus: u32, slots: &[u64]) -> PlacementProblem {
    let iteration = RingJob { gradient: 0.0, batch: 0.0, forward: 0.0, ..job(1, 1) };
    PlacementProblem {
        jobs: slots
            .iter()
            .map(|slots| RingJob { iterations: *slots, backward: 0.9, ..iteration })
            .collect(),
        ..problem(&[gpus], &[])
    }
}

#[test]
fn theorem_5_is_false_for_jobs_of_one_gpu() {
    let cases: [(&[u64], u64, u64); 3] = [
        // Slots, makespan, optimum.
        (&[1, 1, 2], 3, 2),
        (&[3, 3, 2, 2, 2], 7, 6),
        // This order of jobs of equal size, which the paper leaves open, is the best.
        (&[2, 1, 1], 2, 2),
    ];
    for (slots, makespan, optimum) in cases {
        let problem = single_gpu_jobs(2, slots);
        let bounds = MakespanBounds::from_problem(&problem);
        assert_eq!((bounds.printed_ratio(), bounds.proven_ratio()), (1.0, 1.5));
        assert_eq!(bounds.lower, optimum as f64);
        for search in [BoundSearch::Feasible, BoundSearch::Literal] {
            assert_eq!(find_schedule(&problem, search).unwrap().makespan, makespan);
        }
    }
}

#[test]
fn the_proven_ratio_is_attained() {
    for gpus in 2..6_u32 {
        let mut slots = vec![1; (gpus * (gpus - 1)) as usize];
        slots.push(u64::from(gpus));
        let problem = single_gpu_jobs(gpus, &slots);
        let bounds = MakespanBounds::from_problem(&problem);
        let found = find_schedule(&problem, BoundSearch::Feasible).unwrap();
        assert_eq!(found.makespan, u64::from(2 * gpus - 1));
        assert!((found.makespan as f64 - bounds.proven_ratio() * bounds.lower).abs() < 1e-9);
    }
}

#[test]
fn bounds_come_from_the_fewest_and_the_most_servers() {
    // Rates by servers and contention: see `an_iteration_is_as_long_as_the_model_says`.
    let spread = MakespanBounds::from_problem(&problem(&[4, 4, 2, 2], &[(4, 80 * 23), (4, 23)]));
    assert_eq!((spread.lower, spread.most_job_gpus, spread.cluster_gpus), (23.0, 4, 12));
    // On four servers with two rings: 0.02795 slots an iteration, 35 a slot.
    assert!((spread.stretch - 53.0 / 23.0).abs() < 1e-12, "{}", spread.stretch);
    assert_eq!(spread.estimate_error, spread.stretch);
    // On two servers of 2 with one ring 53 a slot, and nowhere more than two servers.
    let whole = MakespanBounds::from_problem(&problem(&[2, 2], &[(4, 5300)]));
    assert_eq!((whole.lower, whole.stretch), (100.0, 1.0));
    // Its estimate is for one server: 80 a slot.
    assert!((whole.estimate_error - 100.0 / 67.0).abs() < 1e-12);
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
    /// The makespan is within the proven ratio of the least possible, and for jobs of several GPUs
    /// within that of Theorem 5, whatever the constants and however many servers LBSGF considers.
    #[test]
    fn makespans_are_within_the_proven_ratio(
        servers in proptest::collection::vec(1..5_u32, 1..5),
        jobs in proptest::collection::vec((1..9_u32, 1..2000_u64, 0..5_usize), 1..10),
        server_slack in 1.0..4.0_f64,
    ) {
        let gpus: u32 = servers.iter().sum();
        let jobs = jobs.into_iter().map(|(wanted, iterations, gradient)| {
            let gradient = [0.0, 0.05, 0.2, 0.4, 2.0][gradient];
            RingJob { gradient, ..job((wanted - 1) % gpus + 1, iterations) }
        });
        let mut problem = PlacementProblem {
            jobs: jobs.collect(), server_slack, ..problem(&servers, &[])
        };
        let bounds = MakespanBounds::from_problem(&problem);
        prop_assume!(bounds.stretch.is_finite());
        problem.horizon = (4.0 * bounds.stretch * bounds.lower).ceil() as u64;
        let found = find_schedule(&problem, BoundSearch::Feasible).unwrap();
        let makespan = found.makespan as f64;
        prop_assert!(makespan >= bounds.lower - 1e-9);
        prop_assert!(makespan <= bounds.proven_ratio() * bounds.lower + 1e-9);
        if bounds.most_job_gpus > 1 {
            prop_assert!(makespan <= bounds.printed_ratio() * bounds.lower + 1e-9);
        }
    }
}
