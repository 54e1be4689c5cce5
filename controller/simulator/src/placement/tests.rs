//! The board's rules, the plain references by hand, and what every policy must keep.

use proptest::prelude::*;
use topology::clos::{self, ClosSpec};

use super::*;

/// Leaves of three hosts with 8 GPUs.
fn cluster(leaves: u32) -> Cluster {
    let spec = ClosSpec {
        leaves,
        ..ClosSpec::default()
    };
    Cluster::of(&clos::build("lab", &spec).unwrap())
}

fn beliefs(seed: u64) -> Beliefs {
    Beliefs {
        models: crate::workload::Models::built_in(),
        nic_bytes_per_second: 25e9,
        seed,
    }
}

fn request(job: u32, gpus: u32) -> Request {
    Request {
        job,
        gpus,
        kind: None,
        submitted_seconds: f64::from(job),
        remaining_seconds: 60.0,
        remaining_iterations: 60.0,
        model: None,
        tenant: None,
    }
}

fn gpus(of: &[(u32, u32)]) -> Gpus {
    of.iter()
        .map(|(host, gpus)| (HostId(*host), *gpus))
        .collect()
}

/// GPUs of a job that asks for `wanted` while `taken` are in use.
fn check(placement: Placement, taken: &[(u32, u32)], wanted: u32, expect: &[(u32, u32)]) {
    let cluster = cluster(2);
    let mut policy = placement.policy(&cluster, &beliefs(1)).unwrap();
    let mut board = Board::new(cluster);
    board.submit(request(0, 1)).unwrap();
    board.apply(&Start::new(0, gpus(taken)).into()).unwrap();
    board.submit(request(1, wanted)).unwrap();
    let decisions = policy.decide(&board.state(1.0));
    let expected = (!expect.is_empty()).then(|| Start::new(1, gpus(expect)).into());
    assert_eq!(
        decisions,
        expected.into_iter().collect::<Vec<_>>(),
        "{placement}"
    );
}

#[test]
fn references_by_hand() {
    use Placement::{FirstFit, LeastLoaded, SameLeaf};
    // Hosts 0, 1, 2 on one leaf, 3, 4, 5 on the other.
    let taken = [(0, 4), (1, 6), (3, 5)];
    check(FirstFit, &taken, 8, &[(0, 4), (1, 2), (2, 2)]);
    check(LeastLoaded, &taken, 3, &[(2, 3)]);
    check(LeastLoaded, &taken, 12, &[(2, 8), (4, 4)]);
    // The host with the least room that suffices, then the leaf.
    check(SameLeaf, &taken, 3, &[(3, 3)]);
    check(SameLeaf, &taken, 12, &[(0, 4), (2, 8)]);
    check(SameLeaf, &taken, 18, &[(3, 2), (4, 8), (5, 8)]);
    check(SameLeaf, &taken, 20, &[(2, 1), (3, 3), (4, 8), (5, 8)]);
    check(FirstFit, &taken, 40, &[]);
}

#[test]
fn the_board_refuses_what_makes_no_sense() {
    let mut board = Board::new(cluster(1));
    let start = |job, of: &[(u32, u32)], group| {
        let start = Start::new(job, gpus(of));
        Decision::Start(Start { group, ..start })
    };
    for job in 1..=4 {
        board.submit(request(job, 8)).unwrap();
    }
    assert_eq!(board.submit(request(1, 8)), Err(BoardError::Known(1)));
    board.apply(&start(1, &[(0, 8)], Some(7))).unwrap();
    board.apply(&start(2, &[(0, 8)], Some(7))).unwrap();
    assert_eq!(board.state(0.0).free().total(), 16);
    let group = BoardError::Group { job: 3, group: 7 };
    assert_eq!(board.apply(&start(3, &[(1, 8)], Some(7))), Err(group));
    let taken = gpus(&[(0, 1)]);
    let taken = BoardError::NotFree {
        job: 3,
        gpus: taken,
    };
    assert_eq!(board.apply(&start(3, &[(0, 1)], None)), Err(taken));
    let nowhere = board.apply(&start(3, &[(99, 1)], None)).unwrap_err();
    assert!(
        nowhere
            .to_string()
            .starts_with("job 3: not all GPUs are free")
    );
    assert_eq!(
        board.apply(&start(3, &[(1, 0)], None)),
        Err(BoardError::Empty(3))
    );
    assert_eq!(
        board.apply(&start(2, &[(1, 1)], None)),
        Err(BoardError::NotWaiting(2))
    );
    assert_eq!(board.finish(3).unwrap_err(), BoardError::NotRunning(3));
    board.apply(&Decision::Suspend { job: 1 }).unwrap();
    let waiting: Vec<u32> = board.state(0.0).waiting.iter().map(|job| job.job).collect();
    assert_eq!(waiting, [1, 3, 4]);
    assert_eq!(board.state(0.0).free().total(), 16);
    board.finish(2).unwrap();
    assert_eq!(board.state(0.0).free().total(), 24);
}

#[test]
fn names_are_read_back_and_listed_in_the_error() {
    for placement in Placement::ALL {
        assert_eq!(placement.name().parse(), Ok(placement));
        assert!(
            UnknownPlacement("x".to_owned())
                .to_string()
                .contains(placement.name())
        );
    }
    assert!("First-fit".parse::<Placement>().is_err());
}

#[test]
fn a_job_larger_than_the_cluster_does_not_hold_back_others() {
    for placement in Placement::ALL {
        let mut board = Board::new(cluster(1));
        let mut policy = placement.policy(&cluster(1), &beliefs(1)).unwrap();
        for (job, gpus) in [(1, 25), (2, 0), (3, 24)] {
            board.submit(request(job, gpus)).unwrap();
        }
        for decision in policy.decide(&board.state(0.0)) {
            board.apply(&decision).unwrap();
        }
        let state = board.state(0.0);
        assert_eq!(
            (state.waiting.len(), state.running.len()),
            (0, 1),
            "{placement}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Every policy gives free GPUs, as many as a job wants, in the same way each time; and when
    /// jobs stop coming, all of them end.
    #[test]
    fn every_policy_is_sound(
        sizes in proptest::collection::vec(1..30_u32, 1..14), seed in 0..9_u64,
    ) {
        for placement in Placement::ALL {
            let once = drain(placement, &sizes, seed, |policy| policy);
            // As in a run that is interrupted after every decision.
            let renewed = drain(placement, &sizes, seed, |policy| {
                let memory = policy.memory();
                let mut fresh = placement.policy(&cluster(2), &beliefs(seed)).unwrap();
                fresh.recall(&memory).unwrap();
                fresh
            });
            prop_assert_eq!(once, renewed);
        }
    }
}

/// Starts as jobs come and go until none is left; before each step the policy is `renewed`.
fn drain(
    placement: Placement,
    sizes: &[u32],
    seed: u64,
    renewed: impl Fn(Box<dyn Policy>) -> Box<dyn Policy>,
) -> Vec<(u32, Gpus)> {
    let cluster = cluster(2);
    let mut policy = placement.policy(&cluster, &beliefs(seed)).unwrap();
    let mut board = Board::new(cluster);
    for (job, gpus) in (0..).zip(sizes) {
        board.submit(request(job, *gpus)).unwrap();
    }
    let mut starts = Vec::new();
    for step in 0..10 * sizes.len() {
        policy = renewed(policy);
        for decision in policy.decide(&board.state(step as f64)) {
            board.apply(&decision).unwrap();
            if let Decision::Start(Start { job, gpus, .. }) = decision {
                let given: u32 = gpus.values().sum();
                // Crius decides that itself.
                assert!(given == sizes[job as usize] || placement == Placement::Crius);
                starts.push((job, gpus));
            }
        }
        let Some(next) = board.state(0.0).running.first().map(|job| job.request.job) else {
            break;
        };
        board.finish(next).unwrap();
    }
    assert!(board.state(0.0).waiting.is_empty(), "{placement}");
    starts
}
