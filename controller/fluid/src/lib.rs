//! The fluid model: jobs that iterate on a network whose links serve strict levels, max-min fair
//! inside a level. Exact and event driven. It evaluates every plan but knows nothing about fabrics
//! or planning: links are numbers, paths are lists of them.
//!
//! [`Engine`] holds jobs and time; `rate_allocation` (private) holds links and rates; [`run_jobs`]
//! is a whole run in one call. docs/algorithms/fluid-model.md describes what is modelled, why it is
//! exact, and what it costs.
//!
//! ```
//! use fluid::{FluidFlow, FluidJob, FluidNetwork};
//!
//! // 2 s of computation, then 100 bytes at 50 bytes/s: an iteration takes 4 s.
//! let network = FluidNetwork::new(vec![50.0])?;
//! let flows = vec![FluidFlow::new(vec![0], 100.0)];
//! let job = FluidJob { compute_seconds: 2.0, flows, ..FluidJob::default() };
//! let tallies = fluid::run_jobs(&network, &[job], 40.0)?;
//! assert_eq!(tallies.jobs[0].iterations, 10);
//! assert_eq!(tallies.jobs[0].busy_fraction(), 0.5);
//! # Ok::<(), fluid::FluidError>(())
//! ```

mod clock;
mod engine;
mod error;
mod event_queue;
mod iteration_grid;
mod job;
mod network;
mod observer;
mod rate_allocation;
mod tallies;

pub use clock::MAX_SECONDS;
pub use engine::{Engine, EngineOptions, ServiceDiscipline};
pub use error::FluidError;
pub use iteration_grid::{GridRule, JobGrid};
pub use job::{FluidFlow, FluidJob, JobIndex};
pub use network::FluidNetwork;
pub use observer::{FlowRate, JobPhase, LinkRate, RunInstant, RunObserver};
pub use tallies::{JobTally, LinkLevelTally, RunTallies, WorkCounters};

/// Runs `jobs` on `network` from 0 to `horizon` seconds without latency. Job `i` of the tallies is
/// the `i`-th given; one that ends no iteration before the horizon has none in its tally.
///
/// # Errors
/// Those of [`Engine::add_job`] and [`Engine::run_until`].
pub fn run_jobs(
    network: &FluidNetwork,
    jobs: &[FluidJob],
    horizon: f64,
) -> Result<RunTallies, FluidError> {
    let mut engine = Engine::new(network, EngineOptions::default())?;
    for job in jobs {
        engine.add_job(job)?;
    }
    engine.run_until(horizon)?;
    Ok(engine.tallies())
}
