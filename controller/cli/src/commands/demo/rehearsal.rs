//! One run: embedded switches, a controller that writes them over gRPC, and jobs that train.
//!
//! The clock of the fabric is held until every table is verified, so that the jobs see the finished
//! network from their first packet. The decision: all runs are made alike and differ only in what
//! the controller is told: ECMP is a controller that knows the fabric and no job.

use std::time::Duration;

use controller::southbound::Desired;
use controller::{Config, Controller, ControllerHandle, Event, Realise};
use emulator::{Faults, Outcome, Scale, Testbed, Wires};
use planner::Policy;
use switch::service::{self, ServerHandle, ServiceOptions};
use tokio::net::TcpListener;
use topology::document::{self, Format};
use topology::{Fabric, Finding, LinkId, Node, Severity, SwitchId, spec};

use super::scenario::Scenario;
use super::witness::{Evidence, Witness};
use crate::failure::Failure;

/// The longest that verified tables are waited for.
const VERIFY_DEADLINE: Duration = Duration::from_secs(30);

/// What the controller is told of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Nothing: routes only, one level.
    Nothing,
    /// Everything, as telemetry.
    Jobs,
}

/// How long and how finely to train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Training {
    pub(crate) scale: Scale,
    pub(crate) iterations: usize,
}

/// What a run showed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    /// Plan and report in force.
    pub(crate) realised: Option<Realise>,
    /// Share of time that each link between switches was busy, the busiest first.
    pub(crate) busiest: Vec<(String, f64)>,
    pub(crate) drops: u64,
    pub(crate) faults: Faults,
    pub(crate) evidence: Evidence,
    pub(crate) entries_written: u64,
    /// From telemetry (or, without jobs, from the policy) to the last verified switch.
    pub(crate) telemetry_to_verified: Duration,
}

/// Builds the fabric of `scenario`, has a controller write it, trains, and looks at it all.
///
/// # Errors
/// Anything but a bad figure: those are in the [`Run`].
pub(crate) async fn run(
    scenario: &Scenario,
    telling: Telling,
    training: Training,
) -> Result<Run, Failure> {
    let Training { scale, iterations } = training;
    let stage = Stage::build(scenario, scale).await?;
    let controller = stage.control().await?;
    let telemetry_to_verified = stage.tell(&controller, telling).await?;
    let written = controller.board().all();
    let entries_written = written.values().map(|line| line.written.entries()).sum();
    let desired = controller.desired();
    let realised = controller.realised();

    let witness = Witness::new(&stage.fabric).await?;
    let different = witness.different_entries(&desired).await?;
    let outcome = stage.train(iterations).await?;
    let busiest = stage.busiest().await?;
    stage
        .testbed
        .settle()
        .await
        .map_err(|error| Failure::work(&error))?;
    let evidence = stage
        .evidence(&witness, different, &desired, realised.as_ref())
        .await?;

    let drops = stage
        .testbed
        .drops()
        .await
        .map_err(|error| Failure::work(&error))?;
    let faults = stage
        .testbed
        .faults()
        .await
        .map_err(|error| Failure::work(&error))?;
    controller.shutdown().await;
    stage.close().await;
    Ok(Run {
        outcome,
        realised,
        busiest,
        drops,
        faults,
        evidence,
        entries_written,
        telemetry_to_verified,
    })
}

/// A testbed whose switches are served, and its fabric with their addresses.
pub(crate) struct Stage<'a> {
    scenario: &'a Scenario,
    scale: Scale,
    testbed: Testbed,
    fabric: Fabric,
    servers: Vec<ServerHandle>,
}

impl<'a> Stage<'a> {
    /// Builds the fabric with its jobs, and serves every switch on a port of the loopback.
    pub(crate) async fn build(scenario: &'a Scenario, scale: Scale) -> Result<Self, Failure> {
        let testbed = Testbed::build(&scenario.fabric, &scenario.jobs, scale, Wires::default());
        let testbed = testbed.map_err(|error| Failure::work(&error))?;
        let mut servers = Vec::new();
        for switch in 0..scenario.fabric.switches().len() {
            let listener = TcpListener::bind("127.0.0.1:0").await;
            let listener = listener.map_err(|error| Failure::work(&error))?;
            let device = testbed.device(SwitchId::from(switch));
            let server = service::serve(listener, device, ServiceOptions::default()).await;
            servers.push(server.map_err(|error| Failure::work(&error))?);
        }
        let fabric = with_addresses(&scenario.fabric, &servers)?;
        Ok(Self {
            scenario,
            scale,
            testbed,
            fabric,
            servers,
        })
    }

    /// The fabric and its jobs.
    pub(crate) fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Starts the jobs and lets them train.
    pub(crate) async fn train(&self, iterations: usize) -> Result<Outcome, Failure> {
        let trained = self.testbed.train(&self.starts(), iterations).await;
        trained.map_err(|error| Failure::work(&error))
    }

    /// Starts the jobs and leaves the clock held; what it says.
    pub(crate) async fn begin(&self) -> Result<Duration, Failure> {
        let begun = self.testbed.begin(&self.starts()).await;
        begun.map_err(|error| Failure::work(&error))?;
        let now = self.testbed.handle().now().await;
        now.map(Duration::from_nanos)
            .map_err(|error| Failure::work(&error))
    }

    /// Lets virtual time come to `at`, if it has not; what the clock then says.
    pub(crate) async fn pass_to(&self, at: Duration) -> Result<Duration, Failure> {
        let handle = self.testbed.handle();
        let now = handle.now().await.map_err(|error| Failure::work(&error))?;
        let until = now.max(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let passed = handle.run_until(until).await;
        passed
            .map(Duration::from_nanos)
            .map_err(|error| Failure::work(&error))
    }

    /// Lets so much virtual time pass.
    pub(crate) async fn pass(&self, time: Duration) -> Result<(), Failure> {
        let now = self.testbed.handle().now().await;
        let now = now.map_err(|error| Failure::work(&error))?;
        self.pass_to(Duration::from_nanos(now) + time)
            .await
            .map(drop)
    }

    /// When each job starts, in virtual time.
    fn starts(&self) -> Vec<u64> {
        let starts = self.scenario.starts().into_iter();
        starts
            .map(|start| self.scale.shrink_seconds(start))
            .collect()
    }

    /// A controller that has learned the fabric.
    pub(crate) async fn control(&self) -> Result<ControllerHandle, Failure> {
        let policy = Policy {
            levels: Wires::default().levels,
            ..Policy::default()
        };
        let config = Config::default();
        let started = Controller::start(config, self.fabric.clone(), policy).await;
        started.map_err(|error| Failure::work(&error))
    }

    /// Gives the controller its telemetry and waits for verified tables.
    pub(crate) async fn tell(
        &self,
        controller: &ControllerHandle,
        telling: Telling,
    ) -> Result<Duration, Failure> {
        let verified = controller.await_verified(1, VERIFY_DEADLINE).await;
        let routed = verified.map_err(|error| Failure::work(&error))?;
        if telling == Telling::Nothing {
            return Ok(routed.total());
        }
        let jobs = Event::JobsChanged(self.scenario.jobs.clone());
        let receipt = controller
            .submit(jobs)
            .await
            .map_err(|error| Failure::work(&error))?;
        let is_error = |finding: &&Finding| finding.severity == Severity::Error;
        if let Some(finding) = receipt.findings.iter().find(is_error) {
            return Err(Failure::Work(finding.to_string()));
        }
        let verified = controller
            .await_verified(receipt.generation, VERIFY_DEADLINE)
            .await;
        Ok(verified.map_err(|error| Failure::work(&error))?.total())
    }

    async fn evidence(
        &self,
        witness: &Witness,
        different_entries: usize,
        desired: &Desired,
        realised: Option<&Realise>,
    ) -> Result<Evidence, Failure> {
        let later = witness.different_entries(desired).await?;
        let Some(realised) = realised else {
            return Err(Failure::Work("the controller has made no plan".to_owned()));
        };
        let strays = witness.strays(&realised.plan).await?;
        Ok(Evidence {
            entries: desired.tables.values().map(|held| held.len()).sum(),
            different_entries: different_entries + later,
            pins: realised
                .plan
                .flows
                .iter()
                .filter(|flow| flow.pinned)
                .count(),
            strays,
        })
    }

    async fn busiest(&self) -> Result<Vec<(String, f64)>, Failure> {
        let busy = self
            .testbed
            .busy_fractions()
            .await
            .map_err(|error| Failure::work(&error))?;
        let links = self.fabric.links().iter().zip(busy).enumerate();
        let between_switches = links.filter(|(_, (link, _))| {
            [link.from, link.to]
                .iter()
                .all(|end| matches!(end.node, Node::Switch(_)))
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

/// The fabric as a controller gets it: through its document, with the address of every switch.
fn with_addresses(fabric: &Fabric, servers: &[ServerHandle]) -> Result<Fabric, Failure> {
    let mut explicit = spec::document(fabric);
    for (switch, server) in explicit.switches.iter_mut().zip(servers) {
        switch.p4runtime = Some(server.local_addr().to_string());
    }
    let text = document::print(&explicit, Format::Json).map_err(|error| Failure::work(&error))?;
    spec::parse(&text, Format::Json, "the demo's fabric").map_err(Failure::document)
}
