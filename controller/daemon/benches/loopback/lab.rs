//! Switches to measure on, each with a server on loopback and a thread of its own, and jobs.

use std::collections::BTreeMap;

use controller::{Config, Controller, ControllerHandle, RawConfig, StateEvent};
use planner::{Flow, Job, MeasuredSlowdown, Policy};
use switch::{DeviceConfig, EmulatedNetworkBuilder, EmulatedNetworkHandle};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use tokio::net::TcpListener;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, FabricParts, HostId, LinkId, NicId, Switch};

use crate::{DEADLINE, Failed};

/// The port of every switch that leads to its controller.
const CPU_PORT: u16 = 255;

/// A fabric whose switches are served.
pub(crate) struct Lab {
    pub(crate) fabric: Fabric,
    servers: Vec<ServerHandle>,
    _devices: Vec<EmulatedNetworkHandle>,
}

impl Lab {
    /// 24 leaves and 8 spines with 4 hosts on each leaf; all 32 switches are empty.
    pub(crate) async fn large(options: ServiceOptions) -> Result<Self, Failed> {
        let spec = ClosSpec { leaves: 24, spines: 8, hosts_per_leaf: 4, ..ClosSpec::default() };
        Self::serving(&spec, |_| true, options).await
    }

    /// As many, each NIC a bond of two ports to two leaves.
    pub(crate) async fn dual_homed(options: ServiceOptions) -> Result<Self, Failed> {
        let spec = ClosSpec { leaves: 24, spines: 8, hosts_per_leaf: 4, ..ClosSpec::default() };
        Self::serving(&ClosSpec { ports_per_nic: 2, ..spec }, |_| true, options).await
    }

    /// 2 leaves and 2 spines of which only the first leaf is there, empty.
    pub(crate) async fn of_one_leaf(options: ServiceOptions) -> Result<Self, Failed> {
        Self::serving(&small(), |switch| switch.device_id == 1, options).await
    }

    /// A switch restarts, empty.
    pub(crate) async fn restart_switch(&self, switch: usize) -> Result<(), Failed> {
        let server = self.servers.get(switch).ok_or("there is no such switch")?;
        Ok(server.restart().await?)
    }

    pub(crate) async fn serving(
        spec: &ClosSpec,
        is_served: impl Fn(&Switch) -> bool,
        options: ServiceOptions,
    ) -> Result<Self, Failed> {
        let mut parts = parts(spec)?;
        let (mut servers, mut devices) = (Vec::new(), Vec::new());
        for switch in parts.switches.iter_mut().filter(|switch| is_served(switch)) {
            let mut builder = EmulatedNetworkBuilder::new();
            let device = builder.add_device(DeviceConfig {
                device_id: switch.device_id,
                cpu_port: CPU_PORT,
                levels: 8,
                trusts_dscp: false,
            });
            let handle = builder.spawn()?;
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            switch.p4runtime = Some(listener.local_addr()?.to_string());
            servers.push(serve(listener, handle.device(device), options.clone()).await?);
            devices.push(handle);
        }
        Ok(Self { fabric: Fabric::new(parts), servers, _devices: devices })
    }
}

/// 2 leaves, 2 spines, 2 hosts on each leaf.
pub(crate) fn small() -> ClosSpec {
    ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() }
}

/// A fabric whose switches have no addresses yet.
pub(crate) fn parts(spec: &ClosSpec) -> Result<FabricParts, Failed> {
    let mut parts = clos::build_clos("loopback", spec)?.parts().clone();
    for switch in &mut parts.switches {
        switch.p4runtime = None;
    }
    Ok(parts)
}

/// A controller with the defaults, but for what `change` changes.
pub(crate) async fn control(
    fabric: &Fabric,
    change: impl FnOnce(&mut RawConfig),
) -> Result<ControllerHandle, Failed> {
    let mut raw = RawConfig::default();
    change(&mut raw);
    let config = Config::try_from(raw)?;
    Ok(Controller::start(config, fabric.clone(), Policy::default()).await?)
}

/// A cable that works again may be used at once, so that it can fail again.
pub(crate) fn without_hold_down(raw: &mut RawConfig) {
    raw.liveness.hold_down_ms = 1;
    raw.liveness.hold_down_longest_ms = 1;
}

/// Waits until a cable is used again, and everything is planned and verified.
pub(crate) async fn await_use(controller: &ControllerHandle, cable: LinkId) -> Result<(), Failed> {
    let mut changes = controller.status_board().subscribe();
    let is_used = || {
        let rollout = controller.current_rollout();
        rollout.is_some_and(|rollout| rollout.fabric.is_usable(cable))
    };
    while !is_used() {
        tokio::time::timeout(DEADLINE, changes.changed()).await??;
    }
    // Whatever is planned by then counts, so an empty event ends after all that came before it.
    let policy = Policy::default();
    let receipt = controller.submit_event(StateEvent::PolicyChanged(policy)).await?;
    controller.await_verified(receipt.generation, DEADLINE).await?;
    Ok(())
}

/// Entries written to all switches so far.
pub(crate) fn written(controller: &ControllerHandle) -> u64 {
    let lines = controller.status_board().all_statuses();
    lines.values().map(|line| line.written.total_entries()).sum()
}

/// A job whose flows go around a ring of hosts on as many leaves.
pub(crate) fn ring(fabric: &Fabric, number: u32, hosts: u32) -> Job {
    // 5 has no factor in common with the 24 leaves, so the hosts are on different ones.
    let host = |step: u32| HostId((number * 7 + step * 5) % 24 * 4 + number % 4);
    let nic = |step: u32| fabric.host(host(step % hosts)).nics[0];
    let flow = |step| flow([nic(step), nic(step + 1)], number);
    job(number, (0..hosts).map(host), (0..hosts).map(flow))
}

/// A flow from one NIC to another, with this of the ports of RoCEv2.
pub(crate) fn flow([src, dst]: [NicId; 2], port: u32) -> Flow {
    Flow {
        src,
        dst,
        bytes: 1e9,
        udp_src_port: Some(0xC000 + port as u16),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    }
}

/// A job that sends these flows.
pub(crate) fn job(
    number: u32,
    hosts: impl Iterator<Item = HostId>,
    flows: impl Iterator<Item = Flow>,
) -> Job {
    Job {
        id: format!("job{number}").as_str().into(),
        tenant: None,
        model: None,
        gpus: hosts.map(|host| (host, 1)).collect::<BTreeMap<_, _>>(),
        flop_per_iteration: 1e14 * f64::from(number + 1),
        compute_seconds: 0.5,
        overlap_from: 0.5,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: flows.collect(),
    }
}

/// 24 jobs of 8 hosts each.
pub(crate) fn jobs(fabric: &Fabric) -> Vec<Job> {
    (0..24).map(|number| ring(fabric, number, 8)).collect()
}
