//! One run: embedded switches, a controller that writes them over gRPC, and jobs that train.
//!
//! The clock of the fabric is stopped until every table is verified, so that the jobs see the
//! converged network from their first packet. The decision: all runs are made alike and differ only
//! in the controller's input: ECMP is a controller that has a fabric and no jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::pipeline::SwitchPipeline;
use controller::pipelines::pipeline_at;
use controller::southbound::DesiredTables;
use controller::{Config, Controller, ControllerHandle, PlanRollout, State, StateEvent};
use emulator::job::StartGrid;
use emulator::{
    EmulatedTestbed, EmulationOutcome, HostErrorCounts, HostTransport, TestbedOptions, TimeScale,
};
use planner::{JobId, Plan, Policy};
use switch_server::p4runtime::election::SwitchDialect;
use switch_server::p4runtime::{self, ServerHandle, ServiceOptions};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use topology::document::{self, DocumentFormat};
use topology::{Fabric, FabricNode, LinkId, LinkScheduler, PipelineKind, Severity, Tier, spec};

use super::congestion::CongestionEvidence;
use super::packet_walk;
use super::scenario::DemoScenario;
use super::switch_audit::{SwitchAuditor, SwitchEvidence};
use command_io::CommandError;

/// The deadline for verified tables.
const VERIFY_DEADLINE: Duration = Duration::from_secs(30);

/// The deadline for the plan whose candidates have been compared.
const COMPARISON_DEADLINE: Duration = Duration::from_secs(60);

/// Between two looks at whether that plan is made.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Whether the jobs are reported to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobVisibility {
    /// No jobs: routes only, one level.
    Hidden,
    /// All jobs, as telemetry reports them.
    Reported,
}

/// The time scale and length of training, and the network that it uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainingOptions {
    pub(crate) scale: TimeScale,
    pub(crate) iterations: usize,
    pub(crate) testbed: TestbedOptions,
}

/// The measurements of a run.
#[derive(Debug)]
pub(crate) struct EmulatedRun {
    pub(crate) outcome: EmulationOutcome,
    /// Plan and report in force.
    pub(crate) realised: Option<PlanRollout>,
    /// Share of time that each link between switches was busy, the busiest first.
    pub(crate) busiest: Vec<(String, f64)>,
    pub(crate) drops: u64,
    pub(crate) faults: HostErrorCounts,
    pub(crate) congestion: CongestionEvidence,
    pub(crate) evidence: SwitchEvidence,
    pub(crate) entries_written: u64,
    /// From telemetry (or, without jobs, from the policy) to the last verified switch.
    pub(crate) telemetry_to_verified: Duration,
}

/// Builds the fabric of `scenario`, has a controller program it, trains, and reads everything back.
///
/// # Errors
/// Anything but a bad figure: those are in the [`EmulatedRun`].
pub(crate) async fn run_emulated(
    scenario: &DemoScenario,
    telling: JobVisibility,
    training: TrainingOptions,
) -> Result<EmulatedRun, CommandError> {
    let stage = ServedTestbed::start_servers(scenario, training).await?;
    let controller = stage.start_controller().await?;
    let telemetry_to_verified = stage.report_jobs(&controller, telling).await?;
    let written = controller.status_board().all_statuses();
    let entries_written = written.values().map(|line| line.written.total_entries()).sum();
    let desired = controller.desired_tables();
    let realised = controller.current_rollout();

    let witness = SwitchAuditor::new(&stage.fabric).await?;
    let different = witness.different_entries(&desired).await?;
    if let Some(realised) = &realised {
        stage.mark_packets(&realised.plan).await?;
    }
    let outcome = stage.train_jobs(training.iterations).await?;
    let busiest = stage.busiest_links().await?;
    stage.testbed.drain_flows().await.map_err(CommandError::failed)?;
    let evidence = stage.collect_evidence(&witness, different, &desired, realised.as_ref()).await?;

    let drops = stage.testbed.dropped_packets().await.map_err(CommandError::failed)?;
    let faults = stage.testbed.host_errors().await.map_err(CommandError::failed)?;
    let congestion = CongestionEvidence::collect(&stage.testbed).await?;
    controller.shutdown().await;
    stage.close().await;
    Ok(EmulatedRun {
        outcome,
        realised,
        busiest,
        drops,
        faults,
        congestion,
        evidence,
        entries_written,
        telemetry_to_verified,
    })
}

/// A testbed with a P4Runtime server for each switch, and its fabric with their addresses.
pub(crate) struct ServedTestbed<'a> {
    scenario: &'a DemoScenario,
    scale: TimeScale,
    levels: u8,
    transport: HostTransport,
    testbed: EmulatedTestbed,
    fabric: Fabric,
    servers: Vec<ServerHandle>,
}

impl<'a> ServedTestbed<'a> {
    /// Builds the fabric with its jobs, and starts a server for every switch on a loopback port.
    pub(crate) async fn start_servers(
        scenario: &'a DemoScenario,
        training: TrainingOptions,
    ) -> Result<Self, CommandError> {
        let TrainingOptions { scale, testbed: options, .. } = training;
        let described = as_hosts_send(scenario.fabric.clone(), options.transport);
        let testbed = EmulatedTestbed::build(&described, &scenario.jobs, scale, options)
            .map_err(CommandError::failed)?;
        let mut servers = Vec::new();
        for switch in described.switch_ids() {
            let listener = TcpListener::bind("127.0.0.1:0").await.map_err(CommandError::failed)?;
            let dialect = server_dialect(described.switch(switch).pipeline);
            let options = ServiceOptions { dialect, ..ServiceOptions::default() };
            let server = p4runtime::serve(listener, testbed.device(switch), options).await;
            servers.push(server.map_err(CommandError::failed)?);
        }
        let fabric = with_addresses(&described, &servers)?;
        let TestbedOptions { levels, transport, .. } = options;
        Ok(Self { scenario, scale, levels, transport, testbed, fabric, servers })
    }

    /// The fabric and its jobs.
    pub(crate) fn testbed(&self) -> &EmulatedTestbed {
        &self.testbed
    }

    /// Starts the jobs and lets them train.
    pub(crate) async fn train_jobs(
        &self,
        iterations: usize,
    ) -> Result<EmulationOutcome, CommandError> {
        self.testbed.train_jobs(&self.job_starts(), iterations).await.map_err(CommandError::failed)
    }

    /// Starts the jobs with the clock stopped; the virtual time.
    pub(crate) async fn begin_training(&self) -> Result<Duration, CommandError> {
        self.begin_at(&self.job_starts()).await
    }

    /// Starts all jobs at once with the clock stopped; the virtual time.
    pub(crate) async fn begin_at_once(&self) -> Result<Duration, CommandError> {
        self.begin_at(&vec![0; self.scenario.jobs.len()]).await
    }

    async fn begin_at(&self, starts: &[u64]) -> Result<Duration, CommandError> {
        self.testbed.start_jobs(starts).await.map_err(CommandError::failed)?;
        let now = self.testbed.network_handle().now().await;
        now.map(Duration::from_nanos).map_err(CommandError::failed)
    }

    /// Advances virtual time to `at`, unless it is later already; the virtual time.
    pub(crate) async fn advance_to(&self, at: Duration) -> Result<Duration, CommandError> {
        let handle = self.testbed.network_handle();
        let now = handle.now().await.map_err(CommandError::failed)?;
        let until = now.max(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let passed = handle.run_until(until).await;
        passed.map(Duration::from_nanos).map_err(CommandError::failed)
    }

    /// Advances virtual time by so much.
    pub(crate) async fn advance_by(&self, time: Duration) -> Result<(), CommandError> {
        let now = self.testbed.network_handle().now().await.map_err(CommandError::failed)?;
        self.advance_to(Duration::from_nanos(now) + time).await.map(drop)
    }

    /// When each job starts, in virtual time.
    fn job_starts(&self) -> Vec<u64> {
        let starts = self.scenario.start_seconds().into_iter();
        starts.map(|start| self.scale.shrink_seconds(start)).collect()
    }

    /// Starts a controller of the fabric under the default policy.
    pub(crate) async fn start_controller(&self) -> Result<ControllerHandle, CommandError> {
        self.start_controller_under(Policy { levels: self.levels, ..Policy::default() }).await
    }

    /// Starts a controller of the fabric under a policy.
    pub(crate) async fn start_controller_under(
        &self,
        policy: Policy,
    ) -> Result<ControllerHandle, CommandError> {
        let config = Config::default();
        Controller::start(config, self.fabric.clone(), policy).await.map_err(CommandError::failed)
    }

    /// Waits until the switches hold the plan whose candidates have been compared. A quick plan is
    /// in force before it, for as long as the comparison takes on this machine; jobs that trained
    /// under both would measure something else on every machine.
    ///
    /// # Errors
    /// It takes too long.
    pub(crate) async fn await_compared_plan(
        &self,
        controller: &ControllerHandle,
    ) -> Result<(), CommandError> {
        let compared = async {
            while controller.query_state(State::awaits_plan).await? {
                sleep(POLL_INTERVAL).await;
            }
            let generation = controller.query_state(State::generation).await?;
            controller.await_verified(generation, VERIFY_DEADLINE).await
        };
        let verified = timeout(COMPARISON_DEADLINE, compared).await;
        verified.map_err(CommandError::failed)?.map_err(CommandError::failed).map(drop)
    }

    /// Reports the jobs and waits for the compared plan; how long the quick one before it took to
    /// be verified.
    pub(crate) async fn report_jobs(
        &self,
        controller: &ControllerHandle,
        telling: JobVisibility,
    ) -> Result<Duration, CommandError> {
        let verified = controller.await_verified(1, VERIFY_DEADLINE).await;
        let routed = verified.map_err(CommandError::failed)?;
        if telling == JobVisibility::Hidden {
            return Ok(routed.total_duration());
        }
        let jobs = StateEvent::JobsChanged(self.scenario.jobs.clone());
        let receipt = controller.submit_event(jobs).await.map_err(CommandError::failed)?;
        if let Some(finding) =
            receipt.findings.iter().find(|finding| finding.severity == Severity::Error)
        {
            return Err(CommandError::Failed(finding.to_string()));
        }
        let verified = controller.await_verified(receipt.generation, VERIFY_DEADLINE).await;
        let quick = verified.map_err(CommandError::failed)?.total_duration();
        self.await_compared_plan(controller).await?;
        if let Some(rollout) = controller.current_rollout() {
            self.set_start_grids(&rollout.plan).await?;
        }
        Ok(quick)
    }

    /// Has jobs that wait begin their iterations when the plan asks them to, as
    /// `crux_telemetry.torch` does.
    async fn set_start_grids(&self, plan: &Plan) -> Result<(), CommandError> {
        let scale = |seconds: f64| self.scale.shrink_seconds(seconds);
        let grids = self.scenario.jobs.iter().map(|job| {
            let shift = plan.job(&job.id)?.1.start_shift?;
            Some(StartGrid {
                origin: scale(shift.seconds),
                period: scale(shift.period_seconds),
                most_wait: scale(shift.most_wait_seconds),
            })
        });
        self.testbed.set_start_grids(grids.collect()).await.map_err(CommandError::failed)
    }

    /// Has the hosts give their packets the DSCP of their job, as `crux agent --set-dscp` does:
    /// where switches do not, and under DCQCN.
    pub(crate) async fn mark_packets(&self, plan: &Plan) -> Result<(), CommandError> {
        let levels: BTreeMap<&JobId, u8> =
            plan.jobs.iter().map(|job| (&job.id, job.level)).collect();
        let dscp = |level| match self.transport {
            HostTransport::Window => host_dscp(&self.fabric, level),
            HostTransport::Dcqcn(_) => level_dscp(&self.fabric, level),
        };
        let jobs = self.scenario.jobs.iter();
        let dscps = jobs.map(|job| levels.get(&job.id).map_or(0, |level| dscp(*level)));
        self.testbed.set_job_dscps(dscps.collect()).await.map_err(CommandError::failed)
    }

    async fn collect_evidence(
        &self,
        witness: &SwitchAuditor,
        different_entries: usize,
        desired: &DesiredTables,
        realised: Option<&PlanRollout>,
    ) -> Result<SwitchEvidence, CommandError> {
        let later = witness.different_entries(desired).await?;
        let Some(realised) = realised else {
            return Err(CommandError::Failed("the controller has made no plan".to_owned()));
        };
        let strays = match witness.counts_pins() {
            true => witness.misrouted_flows(&realised.plan).await?,
            false => {
                let mut strays = witness.uncounted_jobs(&realised.plan).await?;
                let walked = packet_walk::find_strays(&self.testbed, &self.fabric, &realised.plan);
                strays.extend(walked.await?);
                strays
            }
        };
        Ok(SwitchEvidence {
            entries: desired.tables.values().map(|held| held.len()).sum(),
            different_entries: different_entries + later,
            pins: realised.plan.flows.iter().filter(|flow| flow.pinned).count(),
            strays,
        })
    }

    async fn busiest_links(&self) -> Result<Vec<(String, f64)>, CommandError> {
        let busy = self.testbed.busy_fractions().await.map_err(CommandError::failed)?;
        let links = self.fabric.links().iter().zip(busy).enumerate();
        let between_switches = links.filter(|(_, (link, _))| {
            [link.from, link.to].iter().all(|end| matches!(end.node, FabricNode::Switch(_)))
        });
        let mut busiest: Vec<_> = between_switches
            .map(|(index, (_, busy))| (self.fabric.link_name(LinkId::from(index)), busy))
            .collect();
        busiest.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(busiest)
    }

    pub(crate) async fn close(self) {
        for server in self.servers {
            server.shutdown().await;
        }
        self.testbed.stop().await;
    }
}

/// The fabric as its hosts send: under DCQCN their packets have the DSCP of their level from the
/// NIC on, as a pause holds up all packets of a DSCP, and NICs send by level.
fn as_hosts_send(fabric: Fabric, transport: HostTransport) -> Fabric {
    match transport {
        HostTransport::Window => fabric,
        HostTransport::Dcqcn(_) => fabric.with_host_scheduler(LinkScheduler::HostStrict),
    }
}

/// The DSCP that hosts give packets of a job with this level: that of the level where a leaf does
/// not set it.
pub(super) fn host_dscp(fabric: &Fabric, level: u8) -> u8 {
    let mut unset = leaf_pipelines(fabric).filter(|pipeline| !pipeline.capabilities().sets_levels);
    unset.next().and_then(|pipeline| pipeline.level_dscp(level)).unwrap_or_default()
}

fn leaf_pipelines(fabric: &Fabric) -> impl Iterator<Item = &'static dyn SwitchPipeline> {
    let leaves = fabric.switch_ids().filter(|at| fabric.switch(*at).tier == Tier::Leaf);
    leaves.map(|leaf| pipeline_at(fabric, leaf))
}

/// The DSCP that carries a level between switches.
fn level_dscp(fabric: &Fabric, level: u8) -> u8 {
    let first = leaf_pipelines(fabric).next();
    first.and_then(|pipeline| pipeline.level_dscp(level)).unwrap_or_default()
}

/// Switches with SAI P4 behave like those that have it.
fn server_dialect(pipeline: PipelineKind) -> SwitchDialect {
    match pipeline {
        PipelineKind::Fabric => SwitchDialect::default(),
        PipelineKind::Sai => SwitchDialect::Pins,
    }
}

/// The fabric as a controller reads it: from its document, with the address of every switch.
fn with_addresses(fabric: &Fabric, servers: &[ServerHandle]) -> Result<Fabric, CommandError> {
    let mut explicit = spec::explicit_document(fabric);
    for (switch, server) in explicit.switches.iter_mut().zip(servers) {
        switch.p4runtime = Some(server.local_addr().to_string());
    }
    let text =
        document::print_document(&explicit, DocumentFormat::Json).map_err(CommandError::failed)?;
    spec::parse_fabric(&text, DocumentFormat::Json, "the demo's fabric")
        .map_err(CommandError::document)
}

#[cfg(test)]
mod tests;
