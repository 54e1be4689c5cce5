//! Assembles a controller and starts it.

use std::sync::Arc;

use planner::{Policy, PolicyDocument};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding};
use tracing::info;

use super::ControllerHandle;
use super::archive::{StateArchive, or_finding};
use super::change_meter::ChangeMeter;
use super::cluster::Cluster;
use super::core::{Core, fabric_of, report_other_file};
use super::event_log_task::EventLogTask;
use super::log::log_finding;
use super::lowering::RolloutLowering;
use super::observer::Observer;
use super::plan_keeper::{PlanKeeper, PlanStore};
use super::planner::Planner;
use super::publisher::Publisher;
use super::quiet_timer::QuietTimer;
use super::state_driver::StateDriver;
use crate::access::{ControllerAccess, ControllerError};
use crate::audit::{AuditAction, AuditTrail};
use crate::certificates::CertificateWatch;
use crate::clock::Clock;
use crate::config::Config;
use crate::discovery::{DiscoveryInputs, LinkDiscovery};
use crate::etcd::ClusterNetwork;
use crate::fabric_history::FabricHistory;
use crate::gnmi::{GnmiInputs, GnmiMonitor};
use crate::host_machine::HostMachine;
use crate::learning::{FlowLearner, LearnerInputs};
use crate::pipeline::SwitchReports;
use crate::pipelines::sai::select_program;
use crate::recorder::FlightRecorder;
use crate::southbound::connection::SwitchNetwork;
use crate::southbound::session::SessionContext;
use crate::southbound::{
    DesiredTables, DigestQueue, GrpcNetwork, PacketIo, ReadLimiter, ReadSchedule, StatusBoard,
};
use crate::standing_findings::StandingFindings;
use crate::state::{EventSubmission, State, StateEvent};
use crate::store::{EmbeddedStore, StoreRecord};
use crate::supervision::{LoopHeartbeat, TaskSupervisor};
use crate::trace_export::TraceExporter;

/// Packet-ins that may wait for discovery.
const QUEUED_PACKETS: usize = 4_096;

/// Constructor of running controllers.
#[derive(Debug)]
pub struct Controller;

impl Controller {
    /// Starts a controller for `fabric`, with the policy and jobs of its store, or under `policy`
    /// and without jobs if nothing is stored. Returns once it has planned for them; the sessions
    /// are then starting. Needs a tokio runtime.
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

    /// Starts a controller on the caller's network and machine.
    ///
    /// # Errors
    /// As for [`Controller::start`].
    pub async fn start_on<N: ClusterNetwork + HostMachine>(
        network: N,
        mut config: Config,
        fabric: Fabric,
        policy: Policy,
    ) -> Result<ControllerHandle, ControllerError> {
        info!(config = %config.to_log_text(), fabric = fabric.name(), "starting");
        if let Some(program) = &config.sai_program {
            select_program(program)?;
        }
        let findings = StandingFindings::default();
        let mut archive = StateArchive::open(&config, &network, findings.clone())?;
        config.term = archive.first_term(config.term);
        let clock = network.start_clock();
        let audit = open_audit(&config, clock, archive.embedded_store().as_ref())?;
        let history = archive.fabric_history(&fabric, clock.unix_now());
        if archive.stored_fabric_history().is_some_and(|stored| *stored != history) {
            // The file was edited: the next start must not take that for another edit.
            let record = StoreRecord::FabricHistory(Box::new(history.clone()));
            archive.store_or_report(record).await.iter().for_each(log_finding);
        }
        let fabric = fabric_in_force(&history, fabric);
        let (fabric, starting_event) = restore_inputs(&archive, fabric, &policy, clock);
        let recorder = FlightRecorder::open(config.recording.as_ref())?;
        let meter = ChangeMeter::new(trace_exporter(&config, clock)?);
        let (discovery, packet_io) = LinkDiscovery::new(&config.discovery, QUEUED_PACKETS);
        let stop = CancellationToken::new();
        report_loss(&archive, &findings);
        report_other_file(&history, &findings);
        let supervisor = TaskSupervisor::new(findings.clone(), stop.clone());
        let cluster = Cluster::join(&network, &config, &supervisor);
        // The channels exist before any session: a packet-in that arrived first would have no
        // receiver.
        let (learner, digests) = FlowLearner::new(&config, cluster.watch_permit());
        let config = Arc::new(config);
        let messages = (packet_io, digests);
        let network: Arc<dyn SwitchNetwork> = Arc::new(network);
        let (desired, context) = session_context(Arc::clone(&network), &config, &cluster, messages);
        let core = Core {
            state: StateDriver::new(
                initial_state(&config, &archive, &fabric),
                archive,
                recorder,
                clock,
                history,
            ),
            planner: Planner::new(Arc::clone(&network), config.event_queue.get()),
            lowering: RolloutLowering::new(network, desired.subscribe()),
            publisher: Publisher::new(context, desired, meter, supervisor),
            observer: Observer::new(&config, &fabric),
            quiet: QuietTimer::new(config.quiet),
            cluster,
            findings,
            audit,
            stop,
            plan_kept: CancellationToken::new(),
            keep_deadline: config.shutdown_deadline / 2,
            next_observation: Instant::now(),
        };
        let keeper = keep_plan(&core);
        let mut handle = spawn_tasks(core, discovery, learner, &config);
        handle.keeper = keeper;
        // Through the queue like every other event, so that a recording of this run begins with it.
        let receipt = handle.submit_event(starting_event).await?;
        match handle.current_rollout() {
            None => Err(ControllerError::Refused(receipt.findings)),
            Some(_) => Ok(handle),
        }
    }
}

/// Spawns the event loop with discovery, learning and the event log beside it.
fn spawn_tasks(
    core: Core,
    discovery: LinkDiscovery,
    learner: FlowLearner,
    config: &Config,
) -> ControllerHandle {
    let (events, queue) = mpsc::channel(config.event_queue.get());
    let clock = core.state.clock();
    let gnmi = GnmiMonitor::new(config, core.findings.clone());
    let certificates = CertificateWatch::new(config.effective_raw());
    let event_log = EventLogTask::new(clock.unix_now(), config.events_kept.get());
    let access = ControllerAccess {
        controller: config.controller,
        clock,
        events: events.clone(),
        desired: core.publisher.watch_desired(),
        rollout: core.publisher.watch_rollout(),
        revision: core.state.watch_revision(),
        fabric_history: core.state.watch_fabric_history(),
        certificate_ends: certificates.watch_ends(),
        board: core.publisher.board().clone(),
        write_permit: core.cluster.watch_permit(),
        stages: core.publisher.meter().watch_stages(),
        discovered: discovery.report_receiver(),
        learned: learner.flow_receiver(),
        queue_pairs: learner.host_queue(),
        drains: core.observer.watch_drains(),
        link_use: watch::Sender::default(),
        recent_events: event_log.event_receiver(),
        quarantine_after: config.quarantine_after,
        findings: core.findings.clone(),
        port_counters: gnmi.watch_counters(),
        audit: core.audit.clone(),
        supervisor: core.publisher.supervisor().clone(),
        heartbeat: LoopHeartbeat::default(),
        is_switch_led: core.cluster.is_switch_led(),
        store: core.state.archive().embedded_store().map(|store| Arc::downgrade(&store)),
    };
    let inputs = DiscoveryInputs {
        rollout: core.publisher.watch_rollout(),
        board: core.publisher.board().clone(),
        events,
    };
    tokio::spawn(certificates.run(core.state.clock(), core.findings.clone(), core.stop.clone()));
    let learned_events = inputs.events.clone();
    spawn_gnmi_monitor(&core, gnmi, learned_events.clone());
    let stop = core.stop.clone();
    let supervisor = core.publisher.supervisor().clone();
    tokio::spawn(discovery.run(inputs, supervisor.clone(), stop.clone()));
    let rollout = core.publisher.watch_rollout();
    let learner_inputs = LearnerInputs { rollout, events: learned_events };
    tokio::spawn(learner.run(learner_inputs, supervisor.clone(), stop.clone()));
    tokio::spawn(event_log.run(access.clone(), supervisor.clone(), stop.clone()));
    ControllerHandle {
        access,
        stop,
        keeper: None,
        task: supervisor.spawn_critical("event loop", core.run_loop(queue)),
        shutdown_deadline: config.shutdown_deadline,
    }
}

/// Observes the switches that have a gNMI server.
fn spawn_gnmi_monitor(core: &Core, monitor: GnmiMonitor, events: mpsc::Sender<EventSubmission>) {
    let inputs = GnmiInputs { rollout: core.publisher.watch_rollout(), events };
    let supervisor = core.publisher.supervisor().clone();
    tokio::spawn(monitor.run(inputs, supervisor, core.stop.clone()));
}

/// What all sessions share, and where their tables are published.
fn session_context(
    network: Arc<dyn SwitchNetwork>,
    config: &Arc<Config>,
    cluster: &Cluster,
    (packet_io, digests): (PacketIo, DigestQueue),
) -> (watch::Sender<Arc<DesiredTables>>, SessionContext) {
    let (desired, to_sessions) = watch::channel(Arc::new(DesiredTables::before_first()));
    let southbound = &config.southbound;
    let context = SessionContext {
        network,
        desired: to_sessions,
        write_permit: cluster.watch_permit(),
        board: StatusBoard::default(),
        packet_io,
        digests,
        read_limiter: ReadLimiter::new(southbound.concurrent_reads.get(), southbound.read_turn),
        read_schedule: ReadSchedule::new(southbound),
        config: Arc::clone(config),
    };
    (desired, context)
}

/// Opens the audit trail with a record of the start.
fn open_audit(
    config: &Config,
    clock: Clock,
    store: Option<&Arc<EmbeddedStore>>,
) -> Result<AuditTrail, ControllerError> {
    let audit = AuditTrail::open_anchored(&config.audit, clock, store);
    let audit = audit.map_err(ControllerError::Audit)?;
    let detail = format!("controller {}, version {}", config.controller, env!("CARGO_PKG_VERSION"));
    audit.record_action(AuditAction::Started, "crux", "", &detail);
    Ok(audit)
}

/// Reports that the store has lost something, in the log and until the next start.
fn report_loss(archive: &StateArchive, findings: &StandingFindings) {
    if let Some(finding) = archive.loss_finding() {
        log_finding(&finding);
        findings.report_finding("store", finding);
    }
}

/// The latest fabric that an operator gave, which may be another one than that of the file.
fn fabric_in_force(history: &FabricHistory, file: Fabric) -> Fabric {
    let latest = history.latest().filter(|_| !history.holds_file());
    match latest.map(|latest| fabric_of(&latest.document)) {
        None => file,
        Some(Ok(fabric)) => fabric,
        Some(Err(error)) => {
            let text = format!("not restored, the file is in force instead: {error}");
            log_finding(&Finding::warning("fabric", text));
            file
        }
    }
}

fn initial_state(config: &Config, archive: &StateArchive, fabric: &Fabric) -> State {
    let reports = SwitchReports {
        probes: config.discovery.is_enabled,
        unknown_flows: config.learning.is_enabled,
    };
    let levels = config.levels.unwrap_or_else(|| PolicyDocument::default_levels(fabric));
    State::new(levels, archive.used_generation()).with_reports(reports)
}

fn trace_exporter(config: &Config, clock: Clock) -> Result<Option<TraceExporter>, ControllerError> {
    let exporter = config.traces.as_ref().map(|traces| TraceExporter::new(traces, clock));
    exporter.transpose().map_err(ControllerError::Traces)
}

/// Stores the plan in force from now on, if there is a store.
fn keep_plan(core: &Core) -> Option<JoinHandle<()>> {
    let kept = core.plan_kept.clone().drop_guard();
    let in_file = core.state.archive().embedded_store().map(PlanStore::File);
    let in_etcd = core.cluster.plan_store().map(PlanStore::Cluster);
    let store = in_file.or(in_etcd)?;
    let keeper = PlanKeeper::new(store, core.publisher.watch_rollout(), core.findings.clone());
    let run = keeper.run(core.stop.clone(), kept);
    Some(core.publisher.supervisor().spawn_critical("plan keeper", run))
}

/// The fabric as it was learned before, with its failures, and the event that restores what was in
/// force on it. What cannot be restored is logged.
fn restore_inputs(
    archive: &StateArchive,
    fabric: Fabric,
    policy: &Policy,
    clock: Clock,
) -> (Fabric, StateEvent) {
    let mut findings = Vec::new();
    let learned = or_finding(archive.starting_fabric(&fabric), &mut findings).flatten();
    let fabric = archive.with_last_failures(&learned.unwrap_or(fabric));
    let (event, unfit) = archive.starting_event(fabric.clone(), policy, clock.unix_now());
    findings.iter().chain(&unfit).for_each(log_finding);
    (fabric, event)
}
