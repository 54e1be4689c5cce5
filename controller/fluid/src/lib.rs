//! The fluid model: jobs that iterate on a network whose links serve strict levels, max-min fair
//! inside a level. Exact and event driven; the judge of every plan, and nothing about fabrics or
//! planning is known here: links are numbers, paths are lists of them.
//!
//! [`Engine`] holds jobs and time; `sharing` (private) holds links and rates; [`run_jobs`] does it all
//! at once. docs/algorithms/fluid-model.md says what is modelled, why it is exact, and what it
//! costs.
//!
//! ```
//! use fluid::{Flow, Job, Network};
//!
//! // 2 s of computation, then 100 bytes at 50 bytes/s: an iteration takes 4 s.
//! let network = Network::new(vec![50.0])?;
//! let flows = vec![Flow { path: vec![0], bytes: 100.0 }];
//! let job = Job { compute_seconds: 2.0, flows, ..Job::default() };
//! let tallies = fluid::run(&network, &[job], 40.0)?;
//! assert_eq!(tallies.jobs[0].iterations, 10);
//! assert_eq!(tallies.jobs[0].busy_fraction(), 0.5);
//! # Ok::<(), fluid::FluidError>(())
//! ```

mod clock;
mod engine;
mod error;
mod event_queue;
mod job;
mod network;
mod observer;
mod rate_allocation;
mod tallies;

pub use clock::MAX_SECONDS;
pub use engine::{Engine, EngineOptions};
pub use error::FluidError;
pub use job::{FluidFlow, FluidJob, JobIndex};
pub use network::FluidNetwork;
pub use observer::{FlowRate, JobPhase, LinkRate, RunInstant, RunObserver};
pub use tallies::{JobTally, LinkLevelTally, RunTallies, WorkCounters};

/// Runs `jobs` on `network` from 0 to `horizon` seconds without latency. Job `i` of the tallies is
/// the `i`-th given; one that ends no iteration before the horizon has none in its tally.
///
/// # Errors
/// What [`Engine::add_job`] and [`Engine::run_until`] say.
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
