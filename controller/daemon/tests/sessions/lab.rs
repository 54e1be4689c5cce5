//! A small fabric of switches, each served over gRPC on loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use controller::northbound::{self, ApiServer};
use controller::pipelines::pipeline_of;
use controller::southbound::{SwitchAddress, SwitchClient, SwitchStatus, SwitchTarget};
use controller::{
    ChangeTiming, Config, Controller, ControllerError, ControllerHandle, PlanRollout, RawConfig,
    StateEvent,
};
use p4::SwitchTables;
use planner::{Flow, Job, MeasuredSlowdown, Policy};
use switch::{DeviceConfig, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkHandle};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use switch_server::testing::faults::FaultScript;
use tokio::net::TcpListener;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, FabricParts, HostId, NicId, SwitchId};

/// Far more than anything here takes, on however slow a machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Switches that somebody serves, and the fabric that names them: two leaves, two spines, two hosts
/// on each leaf.
pub(crate) struct Lab<S = Embedded> {
    pub(crate) fabric: Fabric,
    pub(crate) switches: S,
}

/// Embedded switches, each with a server.
pub(crate) struct Embedded {
    pub(crate) servers: Vec<ServerHandle>,
    pub(crate) devices: EmulatedNetworkHandle,
}

/// A controller that is served.
pub(crate) struct ServedController {
    pub(crate) controller: ControllerHandle,
    pub(crate) at: SocketAddr,
    server: ApiServer,
}

impl ServedController {
    /// Ends both.
    pub(crate) async fn end(self) {
        self.server.shutdown().await;
        self.controller.shutdown().await;
    }
}

impl Lab {
    /// Embedded switches that do as the specification says.
    pub(crate) async fn new() -> Self {
        Self::with(|_| ServiceOptions::default()).await
    }

    /// Embedded switches, the first leaf with faults.
    pub(crate) async fn with_faults(faults: FaultScript) -> Self {
        Self::with(|switch| ServiceOptions {
            faults: match switch {
                0 => faults.clone(),
                _ => FaultScript::default(),
            },
            ..ServiceOptions::default()
        })
        .await
    }

    /// A controller of these switches that holds them at a plan for jobs `a` and `b`, and the
    /// address where it is served by this configuration.
    pub(crate) async fn served(&self, config: &Config) -> ServedController {
        self.served_with(config, |_| {}).await
    }

    /// The same with a controller that is configured otherwise.
    pub(crate) async fn served_with(
        &self,
        config: &Config,
        change: impl FnOnce(&mut RawConfig),
    ) -> ServedController {
        let controller = self.control(change).await;
        let jobs = vec![self.job("a", 50_000), self.job("b", 50_001)];
        controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
        verified(self, &controller).await;
        let server = serve_controller(&controller, config).await;
        ServedController { controller, at: server.local_addr(), server }
    }

    pub(crate) async fn with(options: impl Fn(usize) -> ServiceOptions) -> Self {
        Self::wired(options, |_, _| {}).await
    }

    /// Embedded switches with the wires and endpoints that `wire` adds. The clock is held.
    pub(crate) async fn wired(
        options: impl Fn(usize) -> ServiceOptions,
        wire: impl FnOnce(&mut EmulatedNetworkBuilder, &[DeviceIndex]),
    ) -> Self {
        Self::of_parts(parts(), options, wire).await
    }

    /// The embedded switches of a fabric.
    pub(crate) async fn of_parts(
        mut parts: FabricParts,
        options: impl Fn(usize) -> ServiceOptions,
        wire: impl FnOnce(&mut EmulatedNetworkBuilder, &[DeviceIndex]),
    ) -> Self {
        let mut builder = EmulatedNetworkBuilder::new();
        let device = |switch: &topology::Switch| DeviceConfig {
            device_id: switch.device_id,
            cpu_port: 255,
            levels: 8,
            trusts_dscp: false,
        };
        let devices = parts.switches.iter().map(|switch| builder.add_device(device(switch)));
        let devices: Vec<_> = devices.collect();
        wire(&mut builder, &devices);
        let handle = builder.spawn().unwrap();
        let mut servers = Vec::new();
        for (index, switch) in parts.switches.iter_mut().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            switch.p4runtime = Some(listener.local_addr().unwrap().to_string());
            let device = handle.device(devices[index]);
            servers.push(serve(listener, device, options(index)).await.unwrap());
        }
        Self { fabric: Fabric::new(parts), switches: Embedded { servers, devices: handle } }
    }
}

impl<S> Lab<S> {
    /// A controller of this lab that retries fast.
    pub(crate) async fn control(&self, change: impl FnOnce(&mut RawConfig)) -> ControllerHandle {
        self.try_control(change).await.unwrap()
    }

    /// A controller of this lab, or why it does not start.
    pub(crate) async fn try_control(
        &self,
        change: impl FnOnce(&mut RawConfig),
    ) -> Result<ControllerHandle, ControllerError> {
        Controller::start(config(change), self.fabric.clone(), Policy::default()).await
    }

    /// What each switch holds, read by somebody else.
    pub(crate) async fn read_all(&self) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
        let mut tables = BTreeMap::new();
        for SwitchTarget { switch, address, .. } in SwitchTarget::all_in_fabric(&self.fabric) {
            let client = self.client(&address).await;
            let program = pipeline_of(address.pipeline).program();
            let held = client.read_all_tables(program).await.unwrap();
            tables.insert(switch, Arc::new(held));
        }
        tables
    }

    pub(crate) async fn client(&self, address: &SwitchAddress) -> SwitchClient {
        SwitchClient::connect(address, &Config::default().southbound).await.unwrap()
    }

    /// A job with one flow between hosts on different leaves.
    pub(crate) fn job(&self, name: &str, port: u16) -> Job {
        let udp_src_port = Some(port);
        let flow = Flow {
            src: NicId(0),
            dst: NicId(2),
            bytes: 1e9,
            udp_src_port,
            gpus: planner::FlowGpus::default(),
            overlap_from: None,
        };
        Job {
            id: name.into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([(HostId(0), 1), (HostId(2), 1)]),
            flop_per_iteration: 1e15,
            compute_seconds: 1.0,
            overlap_from: 1.0,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: vec![flow],
        }
    }
}

/// The defaults, and no tokens.
pub(crate) fn open_config() -> Config {
    let mut raw = RawConfig::default();
    raw.northbound.anyone = true;
    Config::try_from(raw).unwrap()
}

/// The configuration of a controller that retries fast.
pub(crate) fn config(change: impl FnOnce(&mut RawConfig)) -> Config {
    let mut raw = RawConfig::default();
    raw.northbound.anyone = true;
    raw.reconcile.retry_first_ms = 1;
    raw.reconcile.retry_longest_ms = 20;
    change(&mut raw);
    Config::try_from(raw).unwrap()
}

/// The fabric of every lab, before its switches have addresses.
pub(crate) fn parts() -> FabricParts {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
    clos::build_clos("lab", &spec).unwrap().parts().clone()
}

/// Serves a controller at an address of its own.
pub(crate) async fn serve_controller(controller: &ControllerHandle, config: &Config) -> ApiServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    northbound::start_server(listener, controller.access(), config).unwrap()
}

/// What `observe` finds, once it finds something.
pub(crate) async fn eventually<T>(mut observe: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = observe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, found).await.expect("it is found before the deadline")
}

/// Waits until `holds`.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    eventually(async || holds().await.then_some(())).await;
}

/// Waits until `what` holds of the rollout in force.
pub(crate) async fn rollout_with(
    controller: &ControllerHandle,
    what: impl Fn(&PlanRollout) -> bool,
) -> PlanRollout {
    let rollout = tokio::time::timeout(DEADLINE, controller.await_rollout(what)).await;
    rollout.expect("it is planned before the deadline").unwrap()
}

/// Waits until all switches that are not down were seen to hold what is desired now, as far as they
/// take it.
pub(crate) async fn all_hold(controller: &ControllerHandle) -> ChangeTiming {
    let generation = controller.desired_tables().generation;
    let verified = controller.await_verified(generation, DEADLINE);
    verified.await.unwrap()
}

/// Waits until all switches hold what is desired now, and reads that they do.
pub(crate) async fn verified<S>(lab: &Lab<S>, controller: &ControllerHandle) -> ChangeTiming {
    loop {
        let desired = controller.desired_tables();
        let timing = all_hold(controller).await;
        let held = lab.read_all().await;
        // Something newer may have come in between, and ways around a failure follow its
        // protection.
        let is_lowered = desired.lowered_generation == desired.generation;
        if is_lowered && controller.desired_tables().generation == desired.generation {
            assert_eq!(held, desired.tables);
            return timing;
        }
    }
}

/// Waits until `what` holds of the first leaf's status.
pub(crate) async fn first_leaf(
    controller: &ControllerHandle,
    what: impl Fn(&SwitchStatus) -> bool,
) -> SwitchStatus {
    let holds =
        |lines: &BTreeMap<SwitchId, SwitchStatus>| lines.get(&SwitchId(0)).is_some_and(&what);
    let waiting = controller.status_board().wait_until(holds);
    let lines = tokio::time::timeout(DEADLINE, waiting).await;
    lines.unwrap_or_else(|_| panic!("{:#?}", controller.status_board().all_statuses()))
        [&SwitchId(0)]
        .clone()
}

/// Entries written to all switches so far.
pub(crate) fn written(controller: &ControllerHandle) -> u64 {
    controller.status_board().all_statuses().values().map(|line| line.written.total_entries()).sum()
}
