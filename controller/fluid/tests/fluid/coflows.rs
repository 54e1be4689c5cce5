//! Coflows one after the other (Varys): by hand, and as properties.

use fluid::{
    Engine, EngineOptions, FluidFlow, FluidJob, FluidNetwork, JobIndex, ServiceDiscipline,
};
use proptest::prelude::*;

use crate::scenario::{close, flow, job, rates};

fn coflow_engine(capacity: &[f64], jobs: &[FluidJob]) -> Engine {
    let network = FluidNetwork::new(capacity.to_vec()).unwrap();
    let discipline = ServiceDiscipline::Coflows;
    let options = EngineOptions { discipline, ..EngineOptions::default() };
    let mut engine = Engine::new(&network, options).unwrap();
    for job in jobs {
        engine.add_job(job).unwrap();
    }
    engine
}

/// A coflow of a single iteration without computation.
fn once(flows: Vec<FluidFlow>) -> FluidJob {
    FluidJob { iterations: Some(1), ..job(0, 0.0, flows) }
}

fn seconds(engine: &Engine, job: u32) -> f64 {
    engine.job_tally(JobIndex(job)).unwrap().iteration_seconds
}

#[test]
fn a_fast_flow_takes_no_more_than_it_needs_to_end_with_the_slow_one() {
    // The first needs 80 / 10 = 8 s of link 0, so its 20 bytes on link 1 go at 2.5 and leave 7.5 to
    // the second, which needs 9 s alone and 90 / 7.5 = 12 s so: after 8 s 30 are left, for 3 s.
    let first = once(vec![flow(&[0], 80.0), flow(&[1], 20.0)]);
    let mut run = coflow_engine(&[10.0, 10.0], &[first, once(vec![flow(&[1], 90.0)])]);
    run.run_until(1.0).unwrap();
    assert_eq!(rates(&run, 2), [10.0, 7.5]);
    close(run.flow_rate(JobIndex(0), 1).unwrap(), 2.5);
    close(run.flow_bytes_left(JobIndex(0), 1).unwrap(), 17.5);
    run.run_until(20.0).unwrap();
    close(seconds(&run, 0), 8.0);
    close(seconds(&run, 1), 11.0);
    close(run.link_tally(1).iter().map(|level| level.bytes).sum(), 110.0);
}

#[test]
fn a_coflow_blocked_on_one_link_goes_on_over_others() {
    // The first holds link 0 for 2 s. The second cannot end before, but sends on link 1 meanwhile
    // (backfilling): 40 / 10 = 4 s there, and from 2 s on 60 / 10 = 6 s on link 0.
    let second = once(vec![flow(&[0], 60.0), flow(&[1], 40.0)]);
    let mut run = coflow_engine(&[10.0, 10.0], &[once(vec![flow(&[0], 20.0)]), second]);
    run.run_until(1.0).unwrap();
    close(run.flow_rate(JobIndex(1), 0).unwrap(), 0.0);
    close(run.flow_rate(JobIndex(1), 1).unwrap(), 10.0);
    run.run_until(20.0).unwrap();
    close(seconds(&run, 1), 8.0);
}

#[test]
fn the_coflow_with_less_left_comes_first() {
    // At 9 s the first has 10 of 100 bytes left, less than the 50 of the second: 10 s and 6 s. The
    // third begins with 5 of them and does not wait.
    let later = |start: f64, bytes: f64| FluidJob { start, ..once(vec![flow(&[0], bytes)]) };
    let jobs = [later(0.0, 100.0), later(9.0, 50.0), later(9.5, 4.0)];
    let mut run = coflow_engine(&[10.0], &jobs);
    run.run_until(30.0).unwrap();
    close(seconds(&run, 0), 10.4);
    close(seconds(&run, 2), 0.4);
    close(seconds(&run, 1), 6.4);
}

#[test]
fn a_coflow_goes_on_over_other_links_after_a_failure() {
    // At 2 s both flows have sent a fifth, 10 bytes. Then the second has a link of its own.
    let mut run = coflow_engine(&[10.0, 20.0], &[once(vec![flow(&[0], 50.0), flow(&[0], 50.0)])]);
    run.run_until(2.0).unwrap();
    run.set_path(JobIndex(0), 1, &[1]).unwrap();
    run.run_until(2.5).unwrap();
    close(run.flow_rate(JobIndex(0), 0).unwrap(), 10.0);
    // Nobody else wants what MADD leaves of link 1.
    close(run.flow_rate(JobIndex(0), 1).unwrap(), 20.0);
    run.set_capacity(0, 0.0).unwrap();
    run.run_until(9.0).unwrap();
    close(run.flow_bytes_left(JobIndex(0), 0).unwrap(), 35.0);
    close(run.flow_bytes_left(JobIndex(0), 1).unwrap(), 0.0);
    run.set_capacity(0, 10.0).unwrap();
    run.run_until(30.0).unwrap();
    close(seconds(&run, 0), 12.5);
}

fn flows() -> impl Strategy<Value = Vec<(Vec<u32>, f64)>> {
    let path = prop::sample::subsequence((0..6_u32).collect::<Vec<_>>(), 1..4);
    prop::collection::vec((path, 1.0..100.0), 1..6)
}

/// Seconds of the link that needs most (Varys, Eq. 1).
fn effective_bottleneck(capacity: &[f64], flows: &[(Vec<u32>, f64)]) -> f64 {
    let on = |link: u32| {
        let passing = flows.iter().filter(|(path, _)| path.contains(&link));
        passing.map(|(_, bytes)| bytes).sum::<f64>()
    };
    (0..).zip(capacity).map(|(link, capacity)| on(link) / capacity).fold(0.0, f64::max)
}

proptest! {
    /// The coflow with the smallest effective bottleneck takes exactly that. No link ever carries
    /// more than its capacity, every flow that has bytes left is on a full link, and every byte
    /// arrives.
    #[test]
    fn the_first_coflow_takes_its_bottleneck_and_no_link_is_idle(
        capacity in prop::collection::vec(1.0..20.0_f64, 6),
        coflows in prop::collection::vec(flows(), 1..5),
        instant in 0.05..0.95_f64,
    ) {
        let jobs: Vec<FluidJob> = coflows
            .iter()
            .map(|flows| once(flows.iter().map(|(path, bytes)| flow(path, *bytes)).collect()))
            .collect();
        let mut run = coflow_engine(&capacity, &jobs);
        let alone = coflows.iter().map(|flows| effective_bottleneck(&capacity, flows));
        let (first, shortest) =
            (0..).zip(alone).min_by(|a: &(u32, f64), b| a.1.total_cmp(&b.1)).unwrap();
        run.run_until(instant * shortest).unwrap();
        let mut load = vec![0.0; capacity.len()];
        let each = || (0..).zip(&coflows).flat_map(|(job, flows)| {
            (0..).zip(flows).map(move |(number, (path, _))| (JobIndex(job), number, path))
        });
        for (job, number, path) in each() {
            let rate = run.flow_rate(job, number).unwrap();
            path.iter().for_each(|link| load[*link as usize] += rate);
        }
        let is_full = |link: &u32| load[*link as usize] >= capacity[*link as usize] * (1.0 - 1e-6);
        for (job, number, path) in each() {
            let left = run.flow_bytes_left(job, number).unwrap();
            let is_held_up = left < 1e-6 || path.iter().any(is_full);
            prop_assert!(is_held_up, "{job:?} {number} could have more");
        }
        for (load, capacity) in load.iter().zip(&capacity) {
            prop_assert!(*load <= capacity * (1.0 + 1e-6), "{load} of {capacity}");
        }
        run.run_until(1e6).unwrap();
        prop_assert!((seconds(&run, first) - shortest).abs() <= 1e-6 * shortest.max(1.0));
        for (job, flows) in (0..).zip(&coflows) {
            let all: f64 = flows.iter().map(|(_, bytes)| bytes).sum();
            let sent = run.job_tally(JobIndex(job)).unwrap().bytes;
            prop_assert!((sent - all).abs() <= 1e-9 * all);
        }
    }
}
