//! Efficiency by hand, groups by hand, and rounds on a small cluster.

use super::*;
use crate::{ClusterHost, ClusterJobs, GpuCluster};

#[test]
fn jobs_of_different_needs_fill_each_others_gaps() {
    // One job of 1 s on the GPU and one of 1 s on the network: alone each uses a quarter.
    let (gpu, network) = ([0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(group_efficiency(&[gpu]), 0.25);
    // Shifted by one, both are busy in one phase: 2 / (4 * 1).
    assert_eq!((period_seconds(&[gpu, network]), group_efficiency(&[gpu, network])), (1.0, 0.5));
    // Two alike only share time: 2 / (4 * 2).
    assert_eq!((period_seconds(&[gpu, gpu]), group_efficiency(&[gpu, gpu])), (2.0, 0.25));
    // Four that use everything equally, shifted: always busy.
    assert_eq!(group_efficiency(&[[1.0; 4]; 4]), 1.0);
    // (2,1,0,1) and (1,0,2,1): of the shifts 1, 2, 3 of the second, phases are the maxima with
    // (1,1,0,2), (2,1,1,0), (0,2,1,1): (2,1,0,2) = 5, (2,1,1,1) = 5, (2,2,1,1) = 6.
    assert_eq!(period_seconds(&[[2.0, 1.0, 0.0, 1.0], [1.0, 0.0, 2.0, 1.0]]), 5.0);
    assert_eq!(group_efficiency(&[[0.0; 4]]), 0.0);
}

#[test]
fn groups_are_the_best_pairs_of_pairs() {
    let (gpu, network) = ([0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]);
    let pairs: Vec<BTreeSet<usize>> =
        merge_pairs(&[gpu, gpu, network, network], &[vec![0], vec![1], vec![2], vec![3]])
            .into_iter()
            .map(|group| group.into_iter().collect())
            .collect();
    assert!(pairs.iter().all(|pair| pair.len() == 2 && pair.iter().min() < Some(&2)));
    assert!(pairs.iter().all(|pair| pair.iter().max() >= Some(&2)));
    assert!(group_jobs(&[[1.0; 4]; 9]).iter().all(|group| group.len() <= 4));
    assert_eq!(group_jobs(&[[1.0; 4]; 9]).concat().len(), 9);
}

fn request(job: u32, gpus: u32, seconds: f64, model: &str) -> PlacementRequest {
    PlacementRequest {
        job,
        gpus,
        kind: None,
        submitted_seconds: f64::from(job),
        remaining_seconds: seconds,
        remaining_iterations: seconds,
        model: Some(model.to_owned()),
        tenant: None,
    }
}

fn cluster_jobs(hosts: usize) -> ClusterJobs {
    let host = ClusterHost { gpus: 8, leaf: 0, kind: 0 };
    ClusterJobs::new(GpuCluster { hosts: vec![host; hosts], kinds: vec!["GPU".to_owned()] })
}

fn round(policy: &mut MuriPolicy, cluster_jobs: &mut ClusterJobs) -> usize {
    let decisions = policy.make_decisions(&cluster_jobs.state_at(0.0));
    for decision in &decisions {
        cluster_jobs.apply_decision(decision).unwrap();
    }
    decisions.len()
}

#[test]
fn jobs_do_not_share_while_gpus_are_free() {
    let (mut policy, mut cluster_jobs) =
        (MuriPolicy::new(StageTable::from_published()), cluster_jobs(2));
    for job in 0..2 {
        cluster_jobs.submit_job(request(job, 8, 10.0, "a2c")).unwrap();
    }
    cluster_jobs.submit_job(request(9, 17, 10.0, "a2c")).unwrap();
    assert_eq!(round(&mut policy, &mut cluster_jobs), 3);
    assert!(cluster_jobs.state_at(0.0).running.iter().all(|job| job.group.is_none()));
    assert_eq!(cluster_jobs.state_at(0.0).waiting, []);
    assert_eq!(round(&mut policy, &mut cluster_jobs), 0);
}

#[test]
fn a_full_host_is_shared_by_those_who_need_different_things() {
    let (mut policy, mut cluster_jobs) =
        (MuriPolicy::new(StageTable::from_published()), cluster_jobs(1));
    // On 8 GPUs: a2c is on the CPU for 502 of 516 ms, gpt2 on the GPU for 419 of 469.
    for (job, model) in [(0, "a2c"), (1, "gpt2"), (2, "a2c"), (3, "gpt2"), (4, "a2c")] {
        cluster_jobs.submit_job(request(job, 8, 10.0 + f64::from(job), model)).unwrap();
    }
    round(&mut policy, &mut cluster_jobs);
    let state = cluster_jobs.state_at(0.0);
    assert!(state.running.len() >= 2, "{:?}", state.running);
    let models: BTreeSet<_> = state.running.iter().map(|job| &job.request.model).collect();
    assert_eq!(models.len(), 2);
    assert!(state.running.iter().all(|job| job.group == Some(0)));
    assert_eq!(round(&mut policy, &mut cluster_jobs), 0);
    // The other jobs of a group stay together when one ends; the next round may group anew.
    cluster_jobs.finish_job(0).unwrap();
    round(&mut policy, &mut cluster_jobs);
    assert_eq!(cluster_jobs.state_at(0.0).free_gpus().total_free(), 0);
}

#[test]
fn sharing_costs_what_was_measured() {
    let mut table = StageTable::default();
    table.insert("gpu", 1, [0.0, 0.0, 1.0, 0.0]);
    table.insert("net", 1, [0.0, 0.0, 0.0, 1.0]);
    let policy = MuriPolicy::new(table);
    let (gpu, net) = (request(0, 8, 1.0, "gpu"), request(1, 8, 1.0, "net"));
    assert_eq!(policy.iteration_seconds(&[&gpu]), 1.015);
    assert_eq!(policy.iteration_seconds(&[&gpu, &net]), 1.33);
}
