//! Puts the controller together: one task that feeds the state, one session per switch.
//!
//! Events come in through a bounded queue, [`State::step`](crate::State::step) decides,
//! [`lower`](crate::lower()) makes tables, a `watch` gives them to the sessions; what the sessions
//! learn comes back over the [`Board`](crate::southbound::Board), through
//! [`liveness`](crate::liveness). The decision: the task never thinks.
//! Planning and lowering run on the blocking pool, planning beside everything else, so that a
//! failure is repaired while the planner is busy, and the state has one owner at any time.

mod access;
mod archive;
mod clock;
mod drains;
mod following;
mod handle;
mod log;
mod making;
mod office;
mod realising;
mod running;
mod sight;
mod stages;
mod task;
mod waiting;

use planner::Policy;
use tokio::sync::mpsc;
use topology::Fabric;
use tracing::info;

pub(crate) use self::access::Submission;
pub use self::access::{Access, ControllerError, Receipt, Timing};
use self::archive::Archive;
pub use self::clock::Clock;
pub use self::drains::Drainage;
pub use self::handle::ControllerHandle;
use self::log::log;
pub use self::stages::{Histogram, Stages};
use self::task::Runtime;
use crate::chronicle::Chronicler;
use crate::config::Config;
use crate::discovery::{Scout, Surroundings};
use crate::recorder::Recorder;
use crate::southbound::Grpc;
use crate::southbound::connection::Network;
use crate::traces::Teller;

/// Packets from switches that wait to be looked at.
const HEARD: usize = 4_096;

/// The controller; has no state of its own once started.
#[derive(Debug)]
pub struct Controller;

impl Controller {
    /// Starts a controller for `fabric`, with the policy and jobs of its store, or under `policy`
    /// and without jobs where nothing is stored. Returns when it has planned for them; the sessions
    /// are then on their way. Needs a tokio runtime.
    ///
    /// # Errors
    /// The store cannot be used, the switches cannot hold the fabric's tables, or the policy does
    /// not fit the fabric.
    pub async fn start(
        config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        Self::start_on(Grpc, config, fabric, policy).await
    }

    /// The same on a network of the caller's.
    ///
    /// # Errors
    /// As for [`Controller::start`].
    pub async fn start_on<N: Network>(
        network: N,
        config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        info!(config = ?config.effective(), fabric = fabric.name(), "starting");
        let archive = Archive::open(config.store.as_deref(), config.term)?;
        let clock = Clock::start();
        let mut lost = Vec::new();
        let found = match config.discovery.assumed {
            Some(_) => archive::or_lost(archive.found(&fabric), &mut lost).flatten(),
            None => None,
        };
        let fabric = found.unwrap_or(fabric);
        let (started, unfit) = archive.recall(fabric, &policy, clock.now());
        lost.iter().chain(&unfit).for_each(log);
        let shutdown_deadline = config.shutdown_deadline;
        let (events, queue) = mpsc::channel(config.event_queue.get());
        let (scout, antenna) = Scout::new(&config.discovery, HEARD);
        let found = scout.found();
        let chronicler = Chronicler::new(clock.now(), config.events_kept.get());
        let recorder = Recorder::open(config.recording.as_ref())?;
        let teller = config.traces.as_ref();
        let teller = teller.map(|traces| Teller::new(traces, clock)).transpose();
        let teller = teller.map_err(ControllerError::Traces)?;
        let instruments = (clock, recorder, teller);
        let runtime = Runtime::new(network, config, archive, antenna, instruments);
        let around = Surroundings {
            realised: runtime.realised.subscribe(),
            board: runtime.shared.board.clone(),
            events: events.clone(),
        };
        tokio::spawn(scout.run(around, runtime.stop.clone()));
        let access = Access {
            clock: runtime.clock,
            events,
            desired: runtime.desired.subscribe(),
            realised: runtime.realised.subscribe(),
            edition: runtime.edition.subscribe(),
            board: runtime.shared.board.clone(),
            mandate: runtime.shared.mandate.clone(),
            stages: runtime.stopwatch.watch(),
            found,
            drainage: runtime.drainage.subscribe(),
            told: chronicler.told(),
        };
        tokio::spawn(chronicler.run(access.clone(), runtime.stop.clone()));
        let handle = ControllerHandle {
            access,
            stop: runtime.stop.clone(),
            task: tokio::spawn(runtime.run(queue)),
            shutdown_deadline,
        };
        let started = handle.submit(started).await?;
        match handle.realised() {
            None => Err(ControllerError::Refused(started.findings)),
            Some(_) => Ok(handle),
        }
    }
}
