//! Puts the controller together: one task that feeds the state, one session per switch.
//!
//! Events come in through a bounded queue, [`State::step`](crate::State::step) decides,
//! [`lower_plan`](crate::lower_plan()) makes tables, a `watch` gives them to the sessions; what the sessions
//! learn comes back over the [`StatusBoard`](crate::southbound::StatusBoard), through
//! [`liveness`](crate::liveness). The decision: the task never thinks.
//! Planning and lowering run on the blocking pool, planning beside everything else, so that a
//! failure is repaired while the planner is busy, and the state has one owner at any time.

mod archive;
mod cluster_sync;
mod drains;
mod effects;
mod event_log_task;
mod handle;
mod log;
mod lowering;
mod membership;
mod observation;
mod plan_waiter;
mod session_task;
mod stage_timer;
mod task;

use planner::Policy;
use tokio::sync::mpsc;
use topology::Fabric;
use tracing::info;

use self::archive::StateArchive;
use self::event_log_task::EventLogTask;
pub use self::handle::ControllerHandle;
use self::log::log_finding;
use self::task::Runtime;
use crate::access::{ControllerAccess, ControllerError};
use crate::clock::Clock;
use crate::config::Config;
use crate::discovery::{DiscoveryInputs, LinkDiscovery};
use crate::etcd::ClusterNetwork;
use crate::recorder::FlightRecorder;
use crate::southbound::GrpcNetwork;
use crate::trace_export::TraceExporter;

/// Packets from switches that wait to be looked at.
const QUEUED_PACKETS: usize = 4_096;

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
        Self::start_on(GrpcNetwork, config, fabric, policy).await
    }

    /// The same on a network of the caller's.
    ///
    /// # Errors
    /// As for [`Controller::apply_start`].
    pub async fn start_on<N: ClusterNetwork>(
        network: N,
        config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        info!(config = ?config.effective_raw(), fabric = fabric.name(), "starting");
        let archive = StateArchive::open(config.store.as_deref(), config.term)?;
        let clock = Clock::start();
        let mut lost = Vec::new();
        let found = match config.discovery.assumptions {
            Some(_) => archive::or_finding(archive.learned_fabric(&fabric), &mut lost).flatten(),
            None => None,
        };
        let fabric = found.unwrap_or(fabric);
        let (started, unfit) = archive.starting_event(fabric, &policy, clock.unix_now());
        lost.iter().chain(&unfit).for_each(log_finding);
        let shutdown_deadline = config.shutdown_deadline;
        let (events, queue) = mpsc::channel(config.event_queue.get());
        let (scout, antenna) = LinkDiscovery::new(&config.discovery, QUEUED_PACKETS);
        let found = scout.report_receiver();
        let chronicler = EventLogTask::new(clock.unix_now(), config.events_kept.get());
        let recorder = FlightRecorder::open(config.recording.as_ref())?;
        let teller = config.traces.as_ref();
        let teller = teller.map(|traces| TraceExporter::new(traces, clock)).transpose();
        let teller = teller.map_err(ControllerError::Traces)?;
        let instruments = (clock, recorder, teller);
        let runtime = Runtime::new(network, config, archive, antenna, instruments);
        let around = DiscoveryInputs {
            rollout: runtime.rollout.subscribe(),
            board: runtime.shared.board.clone(),
            events: events.clone(),
        };
        tokio::spawn(scout.run(around, runtime.stop.clone()));
        let access = ControllerAccess {
            clock: runtime.clock,
            events,
            desired: runtime.desired.subscribe(),
            rollout: runtime.rollout.subscribe(),
            revision: runtime.revision.subscribe(),
            board: runtime.shared.board.clone(),
            write_permit: runtime.shared.write_permit.clone(),
            stages: runtime.stage_timer.watch_stages(),
            discovered: found,
            drains: runtime.drain_progress.subscribe(),
            recent_events: chronicler.event_receiver(),
        };
        tokio::spawn(chronicler.run(access.clone(), runtime.stop.clone()));
        let handle = ControllerHandle {
            access,
            stop: runtime.stop.clone(),
            task: tokio::spawn(runtime.run_loop(queue)),
            shutdown_deadline,
        };
        let started = handle.submit_event(started).await?;
        match handle.current_rollout() {
            None => Err(ControllerError::Refused(started.findings)),
            Some(_) => Ok(handle),
        }
    }
}
