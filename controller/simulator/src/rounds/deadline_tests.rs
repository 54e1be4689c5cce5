//! Laws of schedules with deadlines, for both policies that know them.

use std::collections::BTreeMap;

use placement::allocation::RestartStall;
use placement::crius::CriusPolicy;
use placement::deadline::JobDeadlines;
use placement::elastic_flow::{ElasticFlowPolicy, ElasticSharing, LateJobs};
use placement::throughput::{GpuShape, ThroughputTable};
use placement::{ClusterHost, GpuCluster, PlacementPolicy, PlacementRequest};
use proptest::prelude::*;

use super::{ProgressCount, RoundExperiment, RoundOutcome, run_rounds};

const ROUND_SECONDS: f64 = 300.0;
const END_SECONDS: f64 = 9_000.0;

/// Two hosts of four GPUs of a fast kind, and one of a slow kind.
fn cluster() -> GpuCluster {
    let host = |kind| ClusterHost { gpus: 4, leaf: 0, kind };
    GpuCluster { hosts: vec![host(0), host(0), host(1)], kinds: ["X", "Y"].map(Into::into).into() }
}

fn table() -> ThroughputTable {
    let mut table = ThroughputTable::new(&cluster());
    for (kind, share) in [(0, 1.0), (1, 0.5)] {
        for (hosts, gpus_per_host, speed) in [(1, 1, 10.0), (1, 2, 19.0), (1, 4, 35.0)] {
            let shape = GpuShape { kind, hosts, gpus_per_host };
            table.insert("small/1", shape, share * speed);
        }
        table.insert("large/1", GpuShape { kind, hosts: 1, gpus_per_host: 4 }, share * 20.0);
    }
    for (model, speed) in [("small/1", 60.0), ("large/1", 38.0)] {
        table.insert(model, GpuShape { kind: 0, hosts: 2, gpus_per_host: 4 }, speed);
    }
    table
}

/// A job with a time budget, in seconds.
fn any_job() -> impl Strategy<Value = (PlacementRequest, f64)> {
    let (model, at) = (prop::sample::select(vec!["small/1", "large/1"]), 0.0..4_000.0);
    let drawn = (model, 0_u32..3, 0_u32..2, at, 100.0..40_000.0, 300.0..6_000.0);
    drawn.prop_map(|(model, power, kind, submitted_seconds, remaining_iterations, budget)| {
        let request = PlacementRequest {
            job: 0,
            gpus: if model == "large/1" { 4 } else { 1 << power },
            kind: Some(kind),
            submitted_seconds,
            remaining_seconds: remaining_iterations,
            remaining_iterations,
            model: Some(model.to_owned()),
            tenant: None,
        };
        (request, budget)
    })
}

/// Jobs by arrival, and their deadlines at a multiple of their budgets.
fn order_jobs(
    mut drawn: Vec<(PlacementRequest, f64)>,
    multiple: f64,
) -> (Vec<PlacementRequest>, JobDeadlines) {
    drawn.sort_by(|(one, _), (other, _)| one.submitted_seconds.total_cmp(&other.submitted_seconds));
    let mut by_job = BTreeMap::new();
    let numbered = drawn.into_iter().enumerate().map(|(place, (request, budget))| {
        let job = place as u32;
        by_job.insert(job, request.submitted_seconds + multiple * budget);
        PlacementRequest { job, ..request }
    });
    (numbered.collect(), JobDeadlines { by_job })
}

/// Crius, and `ElasticFlow` in each form, with these deadlines.
fn policies(deadlines: &JobDeadlines) -> Vec<Box<dyn PlacementPolicy>> {
    let mut policies: Vec<Box<dyn PlacementPolicy>> =
        vec![Box::new(CriusPolicy { deadlines: deadlines.clone(), ..CriusPolicy::new(table()) })];
    for sharing in [ElasticSharing::KeepPlaces, ElasticSharing::PlaceAnew] {
        for late_jobs in [LateJobs::GiveWay, LateJobs::BarKind] {
            policies.push(Box::new(ElasticFlowPolicy {
                deadlines: deadlines.clone(),
                late_jobs,
                ..ElasticFlowPolicy::new(sharing, table(), RestartStall::PRUNED)
            }));
        }
    }
    policies
}

fn replay(jobs: &[PlacementRequest], policy: &mut dyn PlacementPolicy) -> RoundOutcome {
    let experiment = RoundExperiment {
        cluster: &cluster(),
        truth: &table(),
        jobs,
        round_seconds: ROUND_SECONDS,
        end_seconds: END_SECONDS,
        count: ProgressCount::AsRun,
    };
    run_rounds(&experiment, policy).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_job_counts_that_ended_late_or_was_dropped(
        drawn in prop::collection::vec(any_job(), 1..12),
    ) {
        let (jobs, deadlines) = order_jobs(drawn, 1.0);
        for mut policy in policies(&deadlines) {
            let outcome = replay(&jobs, &mut *policy);
            let in_time = outcome.jobs_in_time(&jobs, &deadlines);
            for job in &jobs {
                let ended = outcome.completion_seconds.get(&job.job);
                let budget = deadlines.by_job[&job.job] - job.submitted_seconds;
                let expect = ended.is_some_and(|seconds| *seconds <= budget + 1e-6);
                prop_assert_eq!(in_time.contains(&job.job), expect, "{:?}", job);
                prop_assert!(ended.is_none() || !outcome.refused.contains(&job.job), "{:?}", job);
            }
        }
    }

    /// What no other job disturbs ends in time if it begins, and begins if there is more time.
    #[test]
    fn a_job_alone_is_in_time_or_dropped_and_gains_by_a_larger_budget(
        drawn in any_job(),
        more in 1.0..4.0_f64,
    ) {
        let run = |multiple| {
            let (jobs, deadlines) = order_jobs(vec![drawn.clone()], multiple);
            let outcomes = policies(&deadlines).into_iter().map(|mut policy| {
                let outcome = replay(&jobs, &mut *policy);
                let in_time = outcome.jobs_in_time(&jobs, &deadlines).len();
                (in_time, outcome.completion_seconds.len())
            });
            outcomes.collect::<Vec<_>>()
        };
        for ((few, few_ended), (many, _)) in run(1.0).into_iter().zip(run(more)) {
            prop_assert_eq!(few, few_ended);
            prop_assert!(few <= many);
        }
    }
}
