//! Waits of flows for service, under strict levels.

use fluid::{Engine, EngineOptions, FluidFlow, FluidJob, FluidNetwork, JobIndex};

/// A job that computes for so long, then sends over the one link.
fn job(compute_seconds: f64, bytes: f64, level: u32) -> FluidJob {
    let flows = vec![FluidFlow::new(vec![0], bytes)];
    FluidJob { compute_seconds, level, flows, ..FluidJob::default() }
}

/// A link of 100 bytes/s. The first job sends from 1 to 3 s, from 4 to 6 s and so on; the second
/// has bytes from 0.5 s to the end of the run.
fn engine(levels: [u32; 2]) -> (Engine, [JobIndex; 2]) {
    let network = FluidNetwork::new(vec![100.0]).unwrap();
    let mut engine = Engine::new(&network, EngineOptions::default()).unwrap();
    let jobs = [job(1.0, 200.0, levels[0]), job(0.5, 1e6, levels[1])];
    let jobs = jobs.map(|job| engine.add_job(&job).unwrap());
    (engine, jobs)
}

#[test]
fn a_flow_waits_while_a_higher_level_fills_its_link() {
    let (mut engine, [high, low]) = engine([1, 0]);
    let waits = |engine: &Engine, job| {
        (engine.job_open_wait(job).unwrap(), engine.job_longest_wait(job).unwrap())
    };
    let expected = [(0.8, 0.0, 0.0), (2.0, 1.0, 1.0), (3.5, 0.0, 2.0), (5.0, 1.0, 2.0)];
    for (seconds, open, longest) in expected {
        engine.run_until(seconds).unwrap();
        assert_eq!(waits(&engine, low), (open, longest), "at {seconds} s");
        assert_eq!(engine.flow_longest_wait(low, 0).unwrap(), longest);
    }
    engine.run_until(60.0).unwrap();
    assert_eq!((waits(&engine, low).1, waits(&engine, high)), (2.0, (0.0, 0.0)));
    engine.reset();
    assert_eq!(waits(&engine, low), (0.0, 0.0));
}

#[test]
fn flows_of_one_level_never_wait_and_a_raise_ends_a_wait() {
    let (mut equal, [first, second]) = engine([0, 0]);
    equal.run_until(60.0).unwrap();
    assert_eq!(equal.job_longest_wait(first).unwrap(), 0.0);
    assert_eq!(equal.job_longest_wait(second).unwrap(), 0.0);

    let (mut raised, [high, low]) = engine([1, 0]);
    raised.run_until(2.0).unwrap();
    raised.set_level(low, 2).unwrap();
    raised.run_until(2.5).unwrap();
    assert_eq!(raised.job_longest_wait(low).unwrap(), 1.0);
    assert_eq!(raised.job_open_wait(low).unwrap(), 0.0);
    // Now the other one waits, for good.
    raised.run_until(12.0).unwrap();
    assert_eq!(raised.job_open_wait(high).unwrap(), 10.0);
}
