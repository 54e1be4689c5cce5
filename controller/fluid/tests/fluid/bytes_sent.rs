//! Shares by the part of its bytes that a flow has sent (MLTCP).

use fluid::{Engine, EngineOptions, FluidJob, FluidNetwork, JobIndex, ServiceDiscipline};

use crate::scenario::{close, flow, job};

fn run_of(discipline: ServiceDiscipline, jobs: &[FluidJob]) -> Engine {
    let network = FluidNetwork::new(vec![10.0]).unwrap();
    let options = EngineOptions { discipline, ..EngineOptions::default() };
    let mut engine = Engine::new(&network, options).unwrap();
    for job in jobs {
        engine.add_job(job).unwrap();
    }
    engine
}

/// Mean seconds of the iterations that jobs end after the first thousand seconds.
fn settled_iterations(discipline: ServiceDiscipline, jobs: &[FluidJob]) -> Vec<f64> {
    let mut run = run_of(discipline, jobs);
    let totals = |run: &Engine| -> Vec<(u64, f64)> {
        let tallies = (0..jobs.len()).map(|job| run.job_tally(JobIndex(job as u32)).unwrap());
        tallies.map(|tally| (tally.iterations, tally.iteration_seconds)).collect()
    };
    run.run_until(1_000.0).unwrap();
    let before = totals(&run);
    run.run_until(2_000.0).unwrap();
    let pairs = totals(&run).into_iter().zip(before);
    pairs.map(|(after, before)| (after.1 - before.1) / (after.0 - before.0) as f64).collect()
}

/// At 5 s the first flow has sent 50 of 100 bytes and is in the middle of a 17th of 32 steps at
/// 16.5 / 32, where F = 1.1523; the other begins at 0.5 / 32, where F = 0.2773.
#[test]
fn a_flow_that_has_sent_half_its_bytes_gets_four_times_the_rate_of_one_that_begins() {
    let once =
        |start| FluidJob { iterations: Some(1), start, ..job(0, 0.0, vec![flow(&[0], 100.0)]) };
    let mut run = run_of(ServiceDiscipline::BytesSent, &[once(0.0), once(5.0)]);
    run.run_until(5.0).unwrap();
    let rates = [0, 1].map(|job| run.flow_rate(JobIndex(job), 0).unwrap());
    close(rates[0] + rates[1], 10.0);
    close(rates[0] / rates[1], (1.75 * 16.5 / 32.0 + 0.25) / (1.75 * 0.5 / 32.0 + 0.25));
    run.run_until(30.0).unwrap();
    assert!([0, 1].into_iter().all(|job| run.job_tally(JobIndex(job)).unwrap().iterations == 1));
    close(run.link_tally(0).iter().map(|level| level.bytes).sum(), 200.0);
}

/// Each computes 1 s and sends 1 s: taking turns, both take 2 s. Shared alike they would stay as
/// they begin, almost together.
#[test]
fn equal_jobs_slide_apart_until_they_take_turns() {
    let at = |start| FluidJob { start, ..job(0, 1.0, vec![flow(&[0], 10.0)]) };
    let jobs = [at(0.0), at(0.05)];
    let by_bytes = settled_iterations(ServiceDiscipline::BytesSent, &jobs);
    assert!(by_bytes.iter().all(|seconds| *seconds < 2.01), "{by_bytes:?}");
    let alike = settled_iterations(ServiceDiscipline::Levels, &jobs);
    assert!(alike.iter().all(|seconds| *seconds > 2.9), "{alike:?}");
}
