//! The rules of `ClusterJobs`, the reference policies by hand, and invariants of every policy.

use proptest::prelude::*;
use topology::clos::{self, ClosSpec};

use super::*;

/// Leaves of three hosts with 8 GPUs.
fn cluster(leaves: u32) -> GpuCluster {
    let spec = ClosSpec { leaves, ..ClosSpec::default() };
    GpuCluster::from_fabric(&clos::build_clos("lab", &spec).unwrap())
}

fn context(seed: u64) -> PlacementContext {
    PlacementContext {
        models: crate::ModelTable::built_in(),
        nic_bytes_per_second: 25e9,
        fragmentation: crate::queue::JobFragmentation::CALIBRATED,
        quotas: std::collections::BTreeMap::new(),
        seed,
    }
}

fn request(job: u32, gpus: u32) -> PlacementRequest {
    PlacementRequest {
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

fn gpus(of: &[(u32, u32)]) -> GpusByHost {
    of.iter().map(|(host, gpus)| (HostId(*host), *gpus)).collect()
}

/// GPUs of a job that asks for `wanted` while `taken` are in use.
fn check(placement: PlacementAlgorithm, taken: &[(u32, u32)], wanted: u32, expect: &[(u32, u32)]) {
    let cluster = cluster(2);
    let mut policy = placement.create_policy(&cluster, &context(1)).unwrap();
    let mut cluster_jobs = ClusterJobs::new(cluster);
    cluster_jobs.submit_job(request(0, 1)).unwrap();
    cluster_jobs.apply_decision(&StartDecision::new(0, gpus(taken)).into()).unwrap();
    cluster_jobs.submit_job(request(1, wanted)).unwrap();
    let decisions = policy.make_decisions(&cluster_jobs.state_at(1.0));
    let expected = (!expect.is_empty()).then(|| StartDecision::new(1, gpus(expect)).into());
    assert_eq!(decisions, expected.into_iter().collect::<Vec<_>>(), "{placement}");
}

#[test]
fn references_by_hand() {
    use PlacementAlgorithm::{FirstFit, LeastLoaded, SameLeaf};
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
fn cluster_jobs_refuse_invalid_decisions() {
    let mut cluster_jobs = ClusterJobs::new(cluster(1));
    let start = |job, of: &[(u32, u32)], group| {
        let start = StartDecision::new(job, gpus(of));
        PlacementDecision::Start(StartDecision { group, ..start })
    };
    for job in 1..=4 {
        cluster_jobs.submit_job(request(job, 8)).unwrap();
    }
    assert_eq!(
        cluster_jobs.submit_job(request(1, 8)),
        Err(PlacementDecisionError::DuplicateJob(1))
    );
    cluster_jobs.apply_decision(&start(1, &[(0, 8)], Some(7))).unwrap();
    cluster_jobs.apply_decision(&start(2, &[(0, 8)], Some(7))).unwrap();
    assert_eq!(cluster_jobs.state_at(0.0).free_gpus().total_free(), 16);
    let group = PlacementDecisionError::GroupMismatch { job: 3, group: 7 };
    assert_eq!(cluster_jobs.apply_decision(&start(3, &[(1, 8)], Some(7))), Err(group));
    let taken = gpus(&[(0, 1)]);
    let taken = PlacementDecisionError::NotFree { job: 3, gpus: taken };
    assert_eq!(cluster_jobs.apply_decision(&start(3, &[(0, 1)], None)), Err(taken));
    let nowhere = cluster_jobs.apply_decision(&start(3, &[(99, 1)], None)).unwrap_err();
    assert!(nowhere.to_string().starts_with("job 3: not all GPUs are free"));
    assert_eq!(
        cluster_jobs.apply_decision(&start(3, &[(1, 0)], None)),
        Err(PlacementDecisionError::NoGpus(3))
    );
    assert_eq!(
        cluster_jobs.apply_decision(&start(2, &[(1, 1)], None)),
        Err(PlacementDecisionError::NotWaiting(2))
    );
    assert_eq!(cluster_jobs.finish_job(3).unwrap_err(), PlacementDecisionError::NotRunning(3));
    cluster_jobs.apply_decision(&PlacementDecision::Suspend { job: 1 }).unwrap();
    let waiting: Vec<u32> = cluster_jobs.state_at(0.0).waiting.iter().map(|job| job.job).collect();
    assert_eq!(waiting, [1, 3, 4]);
    assert_eq!(cluster_jobs.state_at(0.0).free_gpus().total_free(), 16);
    cluster_jobs.finish_job(2).unwrap();
    assert_eq!(cluster_jobs.state_at(0.0).free_gpus().total_free(), 24);
}

#[test]
fn names_are_read_back_and_listed_in_the_error() {
    for placement in PlacementAlgorithm::ALL {
        assert_eq!(placement.name().parse(), Ok(placement));
        assert!(UnknownPlacement("x".to_owned()).to_string().contains(placement.name()));
    }
    assert!("First-fit".parse::<PlacementAlgorithm>().is_err());
}

#[test]
fn a_job_larger_than_the_cluster_does_not_hold_back_others() {
    for placement in PlacementAlgorithm::ALL {
        let mut cluster_jobs = ClusterJobs::new(cluster(1));
        let mut policy = placement.create_policy(&cluster(1), &context(1)).unwrap();
        for (job, gpus) in [(1, 25), (2, 0), (3, 24)] {
            cluster_jobs.submit_job(request(job, gpus)).unwrap();
        }
        for decision in policy.make_decisions(&cluster_jobs.state_at(0.0)) {
            cluster_jobs.apply_decision(&decision).unwrap();
        }
        let state = cluster_jobs.state_at(0.0);
        assert_eq!((state.waiting.len(), state.running.len()), (0, 1), "{placement}");
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
        for placement in PlacementAlgorithm::ALL {
            let once = drain(placement, &sizes, seed, |policy| policy);
            // As in a run that is interrupted after every decision.
            let renewed = drain(placement, &sizes, seed, |policy| {
                let memory = policy.save_state();
                let mut fresh = placement.create_policy(&cluster(2), &context(seed)).unwrap();
                fresh.restore_state(&memory).unwrap();
                fresh
            });
            prop_assert_eq!(once, renewed);
        }
    }
}

/// Starts as jobs come and go until none is left; before each step the policy is `renewed`.
fn drain(
    placement: PlacementAlgorithm,
    sizes: &[u32],
    seed: u64,
    renewed: impl Fn(Box<dyn PlacementPolicy>) -> Box<dyn PlacementPolicy>,
) -> Vec<(u32, GpusByHost)> {
    let cluster = cluster(2);
    let mut policy = placement.create_policy(&cluster, &context(seed)).unwrap();
    let mut cluster_jobs = ClusterJobs::new(cluster);
    for (job, gpus) in (0..).zip(sizes) {
        cluster_jobs.submit_job(request(job, *gpus)).unwrap();
    }
    let mut starts = Vec::new();
    for step in 0..10 * sizes.len() {
        policy = renewed(policy);
        for decision in policy.make_decisions(&cluster_jobs.state_at(step as f64)) {
            cluster_jobs.apply_decision(&decision).unwrap();
            if let PlacementDecision::Start(StartDecision { job, gpus, .. }) = decision {
                let given: u32 = gpus.values().sum();
                // Crius decides that itself.
                assert!(given == sizes[job as usize] || placement == PlacementAlgorithm::Crius);
                starts.push((job, gpus));
            }
        }
        let Some(next) = cluster_jobs.state_at(0.0).running.first().map(|job| job.request.job)
        else {
            break;
        };
        cluster_jobs.finish_job(next).unwrap();
    }
    assert!(cluster_jobs.state_at(0.0).waiting.is_empty(), "{placement}");
    starts
}

/// Sixteen leaves of two hosts of 8 GPUs.
#[test]
fn a_share_of_jobs_is_scattered_and_the_rest_is_packed() {
    use crate::queue::{FragmentedHosts, GpuChoice, JobFragmentation};
    let host = |number: u32| ClusterHost { gpus: 8, leaf: number / 2, kind: 0 };
    let cluster = GpuCluster { hosts: (0..32).map(host).collect(), kinds: vec!["GPU".to_owned()] };
    let free = FreeGpus::all_free(&cluster);
    let fragmentation = JobFragmentation { share: 0.25, gpus_per_host: 2 };
    let choice = FragmentedHosts { fragmentation, seed: 1 };
    let placed: Vec<GpusByHost> =
        (0..1_000).filter_map(|job| choice.choose_gpus(job, 16, &cluster, &free)).collect();
    assert!(placed.iter().all(|gpus| gpus.values().sum::<u32>() == 16));
    let scattered: Vec<&GpusByHost> = placed.iter().filter(|gpus| gpus.len() > 2).collect();
    assert!((200..300).contains(&scattered.len()), "{}", scattered.len());
    assert!(scattered.iter().all(|gpus| gpus.values().all(|gpus| *gpus == 2)));
    // 100 GPUs do not fit in twos; the rest is taken where there is room.
    let choice = FragmentedHosts {
        fragmentation: JobFragmentation { share: 1.0, gpus_per_host: 2 },
        seed: 1,
    };
    let large = choice.choose_gpus(1, 100, &cluster, &free).unwrap();
    assert_eq!((large.len(), large.values().sum::<u32>()), (32, 100));
    assert_eq!(choice.choose_gpus(1, 257, &cluster, &free), None);
}
