//! Small networks and jobs in few words.

use fluid::{Engine, EngineOptions, FluidFlow, FluidJob, FluidNetwork, JobIndex};

/// A flow over links.
pub(crate) fn flow(path: &[u32], bytes: f64) -> FluidFlow {
    FluidFlow::new(path.to_vec(), bytes)
}

/// A job that computes, then sends, without overlap.
pub(crate) fn job(level: u32, compute_seconds: f64, flows: Vec<FluidFlow>) -> FluidJob {
    FluidJob { compute_seconds, level, flows, ..FluidJob::default() }
}

/// An engine with these capacities and jobs, without latency.
pub(crate) fn engine(capacity: &[f64], jobs: &[FluidJob]) -> Engine {
    let network = FluidNetwork::new(capacity.to_vec()).unwrap();
    let mut engine = Engine::new(&network, EngineOptions::default()).unwrap();
    for job in jobs {
        engine.add_job(job).unwrap();
    }
    engine
}

/// An engine in which the first `fifo` links serve all levels alike.
pub(crate) fn engine_with_fifo_links(capacity: &[f64], fifo: u32, jobs: &[FluidJob]) -> Engine {
    let network = FluidNetwork::new(capacity.to_vec()).unwrap().with_fifo_links(0..fifo);
    let mut engine = Engine::new(&network, EngineOptions::default()).unwrap();
    for job in jobs {
        engine.add_job(job).unwrap();
    }
    engine
}

/// Asserts that `found` is `expected` but for rounding.
#[track_caller]
pub(crate) fn close(found: f64, expected: f64) {
    let error = (found - expected).abs();
    assert!(error <= 1e-9 * expected.abs().max(1.0), "found {found}, expected {expected}");
}

/// Busy seconds, iterations and bytes of every job.
pub(crate) fn totals(engine: &Engine) -> Vec<(f64, u64, f64)> {
    let jobs = engine.tallies().jobs;
    jobs.iter().map(|job| (job.busy_seconds, job.iterations, job.bytes)).collect()
}

/// The rate of the first flow of every job once all of them send.
pub(crate) fn rates(engine: &Engine, jobs: u32) -> Vec<f64> {
    (0..jobs).map(|job| engine.flow_rate(JobIndex(job), 0).unwrap()).collect()
}
