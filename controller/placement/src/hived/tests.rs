//! Quotas by hand, packing by hand, and the guarantee as a law.

use proptest::prelude::*;
use topology::HostId;

use super::*;
use crate::{ClusterHost, ClusterJobs};

/// Two leaves of two hosts of 8 GPUs.
fn cluster() -> GpuCluster {
    let host = |leaf| ClusterHost { gpus: 8, leaf, kind: 0 };
    GpuCluster { hosts: [0, 0, 1, 1].map(host).to_vec(), kinds: vec!["GPU".to_owned()] }
}

fn request(job: u32, gpus: u32, tenant: &str) -> PlacementRequest {
    PlacementRequest {
        job,
        gpus,
        kind: None,
        submitted_seconds: f64::from(job),
        remaining_seconds: 1.0,
        remaining_iterations: 1.0,
        model: None,
        tenant: Some(tenant.to_owned()),
    }
}

fn quotas(quotas: &[(&str, &[(u32, u32)])]) -> BTreeMap<String, CellQuota> {
    let quota = |(tenant, cells): &(&str, &[(u32, u32)])| ((*tenant).to_owned(), cells.to_vec());
    quotas.iter().map(quota).collect()
}

/// Hosts and GPUs of each job, in order of arrival; jobs that wait have none.
fn check(policy: &mut HivedPolicy, jobs: &[(u32, &str)], expect: &[&[(u32, u32)]]) {
    let mut cluster_jobs = ClusterJobs::new(cluster());
    for (job, (gpus, tenant)) in (0..).zip(jobs) {
        cluster_jobs.submit_job(request(job, *gpus, tenant)).unwrap();
    }
    for decision in policy.make_decisions(&cluster_jobs.state_at(0.0)) {
        cluster_jobs.apply_decision(&decision).unwrap();
    }
    let placed = |job: u32| {
        let state = cluster_jobs.state_at(0.0);
        let running = state.running.iter().find(|running| running.request.job == job);
        running.map_or(Vec::new(), |running| {
            running.gpus.iter().map(|(host, gpus)| (host.0, *gpus)).collect()
        })
    };
    let found: Vec<Vec<(u32, u32)>> = (0..jobs.len() as u32).map(placed).collect();
    assert_eq!(found, expect);
}

#[test]
fn jobs_are_packed_into_the_smallest_block_with_room() {
    let mut policy = HivedPolicy::new(&cluster(), &BTreeMap::new()).unwrap();
    // 4 on host 0; 8 on a whole host of the same leaf; 2 beside the 4, and so does 1; 16 need a
    // leaf.
    check(
        &mut policy,
        &[(4, ""), (8, ""), (2, ""), (1, ""), (16, "")],
        &[&[(0, 4)], &[(1, 8)], &[(0, 2)], &[(0, 1)], &[(2, 8), (3, 8)]],
    );
}

/// As `crux place` asks about a running cluster: nothing of what runs was placed by this policy.
#[test]
fn jobs_that_others_placed_keep_their_gpus() {
    let mut cluster_jobs = ClusterJobs::new(cluster());
    let others = [(0, vec![(1, 8)]), (1, vec![(2, 8), (3, 5)]), (2, vec![(0, 2)])];
    for (job, hosts) in &others {
        let count = hosts.iter().map(|(_, gpus)| gpus).sum();
        cluster_jobs.submit_job(request(*job, count, "")).unwrap();
        let gpus = hosts.iter().map(|(host, gpus)| (HostId(*host), *gpus)).collect();
        cluster_jobs.apply_decision(&StartDecision::new(*job, gpus).into()).unwrap();
    }
    let mut policy = HivedPolicy::new(&cluster(), &BTreeMap::new()).unwrap();
    let mut place = |job, gpus| {
        cluster_jobs.submit_job(request(job, gpus, "")).unwrap();
        let decisions = policy.make_decisions(&cluster_jobs.state_at(0.0));
        decisions.iter().for_each(|decision| cluster_jobs.apply_decision(decision).unwrap());
        let state = cluster_jobs.state_at(0.0);
        let found = state.running.iter().find(|running| running.request.job == job);
        found.map(|running| running.gpus.iter().map(|(host, gpus)| (host.0, *gpus)).collect())
    };
    assert_eq!(place(3, 3), Some(vec![(3, 3)]));
    assert_eq!(place(4, 6), Some(vec![(0, 6)]));
    assert_eq!(place(5, 1), None);
}

#[test]
fn a_tenant_finds_its_cells_whatever_others_do() {
    let mut policy = HivedPolicy::new(&cluster(), &quotas(&[("a", &[(16, 1)]), ("b", &[(8, 2)])]));
    // b's third job has no room, so its fourth runs without a guarantee; a's job of 16 has a leaf.
    check(
        policy.as_mut().unwrap(),
        &[(1, "b"), (8, "b"), (16, "a"), (8, "b"), (1, "b")],
        &[&[(0, 1)], &[(1, 8)], &[(2, 8), (3, 8)], &[], &[(0, 1)]],
    );
}

/// Carries out what a policy decides; the suspended jobs.
fn decide(policy: &mut HivedPolicy, jobs: &mut ClusterJobs) -> Vec<u32> {
    let decisions = policy.make_decisions(&jobs.state_at(0.0));
    decisions.iter().for_each(|decision| jobs.apply_decision(decision).unwrap());
    let suspended = decisions.iter().filter_map(|decision| match decision {
        PlacementDecision::Suspend { job } => Some(*job),
        _ => None,
    });
    suspended.collect()
}

fn hosts_of(jobs: &ClusterJobs, job: u32) -> Vec<(u32, u32)> {
    let gpus = jobs.running_job(job).map(|running| running.gpus.clone()).unwrap_or_default();
    gpus.into_iter().map(|(host, gpus)| (host.0, gpus)).collect()
}

#[test]
fn jobs_beyond_a_quota_run_on_idle_cells_until_these_are_wanted() {
    let quotas = quotas(&[("a", &[(16, 1)]), ("b", &[(8, 2)])]);
    let mut policy = HivedPolicy::new(&cluster(), &quotas).unwrap();
    let mut jobs = ClusterJobs::new(cluster());
    // Tenant c has no quota, and the job of 9 is larger than b's largest cell.
    for (job, (gpus, tenant)) in (0..).zip([(8, "b"), (8, "b"), (9, "b"), (4, "c")]) {
        jobs.submit_job(request(job, gpus, tenant)).unwrap();
    }
    assert_eq!(decide(&mut policy, &mut jobs), [0; 0]);
    let placed: Vec<_> = (0..4).map(|job| hosts_of(&jobs, job)).collect();
    assert_eq!(placed, [vec![(0, 8)], vec![(1, 8)], vec![(2, 1), (3, 8)], vec![(2, 4)]]);

    // What is saved and restored decides alike.
    let mut policy_again = HivedPolicy::new(&cluster(), &quotas).unwrap();
    policy_again.restore_state(&policy.save_state()).unwrap();
    jobs.submit_job(request(4, 8, "a")).unwrap();
    let state = jobs.state_at(0.0);
    assert_eq!(policy.clone().make_decisions(&state), policy_again.make_decisions(&state));
    // a's job wants eight GPUs of its leaf. Both are in its way; the smaller one goes on beside.
    assert_eq!(decide(&mut policy, &mut jobs), [2, 3]);
    let placed: Vec<_> = (2..5).map(|job| hosts_of(&jobs, job)).collect();
    assert_eq!(placed, [vec![], vec![(3, 4)], vec![(2, 8)]]);

    jobs.finish_job(0).unwrap();
    assert_eq!(decide(&mut policy, &mut jobs), [0; 0]);
    assert_eq!(
        hosts_of(&jobs, 2),
        [(0, 5), (3, 4)],
        "the earliest job goes on where there is room"
    );
}

#[test]
fn quotas_that_do_not_fit_are_refused() {
    let refused = |of: &[(&str, &[(u32, u32)])]| {
        HivedPolicy::new(&cluster(), &quotas(of)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[("a", &[(16, 1)]), ("b", &[(8, 3)])]),
        "tenant b: the cluster has no cell of 8 GPUs left for its quota"
    );
    assert_eq!(
        refused(&[("a", &[(6, 1)])]),
        "tenant a: no cell has 6 GPUs; sizes are [1, 2, 4, 8, 16]"
    );
    let mut uneven = cluster();
    uneven.hosts[1].gpus = 4;
    let error = HivedPolicy::new(&uneven, &BTreeMap::new()).unwrap_err();
    assert_eq!(error, HivedError::UnevenHosts);
    let mut policy = HivedPolicy::new(&cluster(), &quotas(&[("a", &[(8, 1)])])).unwrap();
    let mut jobs = ClusterJobs::new(cluster());
    jobs.submit_job(request(1, 33, "a")).unwrap();
    let decisions = policy.make_decisions(&jobs.state_at(0.0));
    assert!(matches!(decisions[..], [PlacementDecision::Refuse { job: 1, .. }]), "{decisions:?}");
}

proptest! {
    /// A tenant with free GPUs in its quota is never turned away, whatever came and went before,
    /// and no job waits that idle GPUs would do for.
    #[test]
    fn the_quota_is_a_guarantee(
        moves in proptest::collection::vec((0..3_u32, 1..9_u32, any::<bool>()), 1..80),
    ) {
        let quotas = quotas(&[("0", &[(8, 1), (4, 1)]), ("1", &[(16, 1)]), ("2", &[(2, 2)])]);
        let sizes = [12, 16, 4];
        let mut policy = HivedPolicy::new(&cluster(), &quotas).unwrap();
        let mut cluster_jobs = ClusterJobs::new(cluster());
        for (job, (tenant, gpus, leaves)) in (0..).zip(moves) {
            let gpus = gpus.min(sizes[tenant as usize]);
            cluster_jobs.submit_job(request(job, gpus, &tenant.to_string())).unwrap();
            for decision in policy.make_decisions(&cluster_jobs.state_at(0.0)) {
                prop_assert_eq!(cluster_jobs.apply_decision(&decision), Ok(()));
            }
            for (tenant, size) in (0..3).zip(sizes) {
                let name = Some(tenant.to_string());
                let state = cluster_jobs.state_at(0.0);
                let used: u32 = state.running.iter()
                    .filter(|running| running.request.tenant == name)
                    .filter(|running| !policy.opportunistic.contains(running.request.job))
                    .map(|running| running.request.gpus)
                    .sum();
                let next = state.waiting.iter().find(|request| request.tenant == name);
                prop_assert!(next.is_none_or(|request| used + request.gpus > size));
            }
            let state = cluster_jobs.state_at(0.0);
            let idle = state.free_gpus().total_free();
            prop_assert!(state.waiting.iter().all(|request| request.gpus > idle));
            let running = state.running;
            let first = running.first().map(|job| job.request.job);
            if let (true, Some(first)) = (leaves, first) {
                cluster_jobs.finish_job(first).unwrap();
            }
        }
    }
}
