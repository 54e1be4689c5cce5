//! Failures and queries while plans are computed and lowered, which takes seconds for hundreds of
//! switches.
//!
//! The network is the one that there is, but computations wait until the test lets them begin.

use async_trait::async_trait;
use controller::config::{EtcdConfig, SouthboundConfig};
use controller::etcd::{ClusterNetwork, EtcdClient, EtcdError};
use controller::host_machine::HostMachine;
use controller::liveness::{FabricPart, PartHealth};
use controller::southbound::connection::{
    Computation, ComputationPanicked, SwitchConnection, SwitchNetwork,
};
use controller::southbound::{ClientError, GrpcNetwork, SwitchAddress};
use controller::{Controller, RawConfig, State, StateEvent};
use p4::fabric::table;
use planner::Policy;
use tokio::sync::watch;
use tokio::time::timeout;
use topology::{LinkId, SwitchId};

use crate::failures::{desired, rows};
use crate::lab::{DEADLINE, Lab, config, verified};

/// A network whose computations begin only while it lets them.
#[derive(Clone)]
struct GatedNetwork(watch::Sender<bool>);

#[async_trait]
impl SwitchNetwork for GatedNetwork {
    async fn connect_switch(
        &self,
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> Result<Box<dyn SwitchConnection>, ClientError> {
        GrpcNetwork.connect_switch(address, limits).await
    }

    async fn run_blocking(&self, work: Computation) -> Result<(), ComputationPanicked> {
        self.0.subscribe().wait_for(|is_open| *is_open).await.map_err(|_| ComputationPanicked)?;
        GrpcNetwork.run_blocking(work).await
    }
}

impl ClusterNetwork for GatedNetwork {
    type Store = EtcdClient;

    async fn connect_store(
        &self,
        server: &str,
        etcd: &EtcdConfig,
    ) -> Result<EtcdClient, EtcdError> {
        GrpcNetwork.connect_store(server, etcd).await
    }
}

impl HostMachine for GatedNetwork {}

#[tokio::test]
async fn failures_and_queries_do_not_wait_for_plans_and_tables() {
    let lab = Lab::new().await;
    let fast = |raw: &mut RawConfig| raw.liveness.hold_down_ms = 1;
    let network = GatedNetwork(watch::Sender::new(true));
    let (fabric, gate) = (lab.fabric.clone(), network.0.clone());
    let started = Controller::start_on(network, config(fast), fabric, Policy::default()).await;
    let controller = started.unwrap();
    let jobs = vec![lab.job("a", 50_000), lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    let before = verified(&lab, &controller).await;

    gate.send_replace(false);
    let cables: Vec<LinkId> = lab.fabric.up_links(SwitchId(0)).iter().take(2).copied().collect();
    for (failed, cable) in (1..).zip(cables) {
        controller.report_health(FabricPart::Cable(cable), PartHealth::Down).await.unwrap();
        desired(&controller, |of| rows(of, SwitchId(0), table::PORT_DOWN) == failed).await;
        let asked = timeout(DEADLINE, controller.query_state(State::awaits_plan)).await;
        assert!(asked.unwrap().unwrap(), "no plan can be made");
    }
    let protected = controller.desired_tables();
    assert_eq!(protected.lowered_generation, before.generation);

    gate.send_replace(true);
    let is_lowered = |of: &controller::ControllerHandle| {
        let desired = of.desired_tables();
        desired.lowered_generation > protected.generation
    };
    desired(&controller, is_lowered).await;
    verified(&lab, &controller).await;
    controller.shutdown().await;
}
