//! Impossible input is an error with its name, and nothing runs for ever.

use fluid::{Engine, EngineOptions, FluidError, FluidFlow, FluidJob, FluidNetwork, JobIndex};

use crate::scenario::{engine, flow, job};

fn check(job: &FluidJob, expected: &str) {
    let mut engine = engine(&[10.0, 0.0], &[]);
    assert_eq!(engine.add_job(job).unwrap_err().to_string(), expected);
    assert_eq!(engine.tallies().jobs, [], "a refused job leaves nothing behind");
}

fn with(flows: Vec<FluidFlow>) -> FluidJob {
    job(0, 1.0, flows)
}

#[test]
fn jobs() {
    check(&with(vec![flow(&[], 1.0)]), "flow 0: it has no path");
    check(
        &with(vec![flow(&[0], 1.0), flow(&[0, 1], 1.0)]),
        "flow 1: its path uses link 1, which has no capacity",
    );
    check(&with(vec![flow(&[7], 1.0)]), "there is no link 7; the network has 2");
    check(&with(vec![flow(&[0, 0], 1.0)]), "flow 0: its path passes link 0 twice");
    check(
        &with(vec![flow(&[0], f64::NAN)]),
        "flow 0: NaN bytes an iteration; they must be finite and not negative",
    );
    check(
        &with(vec![flow(&[0], -1.0)]),
        "flow 0: -1 bytes an iteration; they must be finite and not negative",
    );
    for value in [f64::NAN, -1.0, f64::INFINITY] {
        check(
            &job(0, value, vec![]),
            &format!("compute_seconds: {value} s; it must be from 0 to 15000000"),
        );
        check(
            &FluidJob { start: value, ..FluidJob::default() },
            &format!("start: {value} s; it must be from 0 to 15000000"),
        );
    }
    for value in [f64::NAN, -0.5, 1.5] {
        check(
            &FluidJob { overlap_from: value, ..FluidJob::default() },
            &format!("overlap_from: {value}; it must be from 0 to 1"),
        );
    }
    let nothing = "a job without computation, bytes or latency: its iterations would take no time";
    check(&job(0, 0.0, vec![]), nothing);
    check(&job(0, 0.0, vec![flow(&[0], 0.0)]), nothing);
    check(&FluidJob { iterations: Some(0), ..FluidJob::default() }, nothing);
}

#[test]
fn networks_and_options() {
    for value in [f64::NAN, -1.0, f64::INFINITY] {
        let error = FluidNetwork::new(vec![1.0, value]).unwrap_err();
        assert!(matches!(error, FluidError::Capacity { link: 1, .. }));
        let network = FluidNetwork::new(vec![1.0]).unwrap();
        let options = EngineOptions { alpha_seconds_per_hop: value, ..EngineOptions::default() };
        let error = Engine::new(&network, options).unwrap_err();
        assert!(matches!(error, FluidError::Seconds { what: "alpha_seconds_per_hop", .. }));
    }
}

#[test]
fn calls() {
    let mut engine = engine(&[10.0, 0.0], &[job(0, 1.0, vec![flow(&[0], 1.0)])]);
    let (here, gone) = (JobIndex(0), JobIndex(1));
    engine.run_until(5.0).unwrap();
    let found = [
        engine.run_until(4.0).unwrap_err(),
        engine.run_until(f64::NAN).unwrap_err(),
        engine.step_until(f64::INFINITY).unwrap_err(),
        engine.set_level(gone, 1).unwrap_err(),
        engine.remove_job(gone).unwrap_err(),
        engine.set_path(here, 1, &[0]).unwrap_err(),
        engine.set_path(here, 0, &[1]).unwrap_err(),
        engine.set_capacity(2, 1.0).unwrap_err(),
        engine.set_capacity(0, f64::NAN).unwrap_err(),
    ];
    let texts = [
        "cannot run to 4 s: it is 5 s already",
        "the end of the run: NaN s; it must be from 0 to 15000000",
        "the end of the run: inf s; it must be from 0 to 15000000",
        "there is no job 1",
        "there is no job 1",
        "job 0 has no flow 1",
        "flow 0: its path uses link 1, which has no capacity",
        "there is no link 2; the network has 2",
        "link 0: a capacity of NaN bytes/s; it must be finite and not negative",
    ];
    assert_eq!(found.map(|error| error.to_string()), texts);
}

#[test]
fn the_shortest_iteration_is_a_microsecond() {
    // 1e-300 s of computation and 1e-300 bytes would make endless iterations in no time.
    let flows = vec![flow(&[0], 1e-300)];
    let mut engine = engine(&[f64::MAX], &[job(0, 0.0, flows)]);
    engine.run_until(0.001).unwrap();
    assert_eq!(engine.tallies().jobs[0].iterations, 1000);
}

#[test]
fn extreme_numbers_end_too() {
    // Too slow to end, and too large to count.
    let jobs = [
        job(0, 0.0, vec![flow(&[0], f64::MAX)]),
        job(1, 1.0, vec![flow(&[0, 1], f64::MIN_POSITIVE)]),
        job(2, 1.0, vec![flow(&[1], 1.0)]),
    ];
    let mut engine = engine(&[f64::MIN_POSITIVE, f64::MAX], &jobs);
    engine.run_until(1e6).unwrap();
    let iterations: Vec<u64> = engine.tallies().jobs.iter().map(|job| job.iterations).collect();
    assert_eq!((iterations[0], iterations[2]), (0, 1_000_000));
}
