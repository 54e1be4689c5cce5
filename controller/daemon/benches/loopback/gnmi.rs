//! From a port that goes down to every switch verified to go around it, where nothing but gNMI
//! says so: 32 switches of one emulated network, wired to each other.

use std::collections::BTreeMap;

use controller::{ControllerHandle, StateEvent};
use switch::{
    DeviceConfig, EmulatedNetworkBuilder, EmulatedNetworkHandle, QueueLimits, WireEnd, WireIndex,
    WireSpec, WireState,
};
use switch_server::gnmi::{GnmiHandle, GnmiOptions};
use switch_server::p4runtime::{ServerHandle, ServiceOptions};
use tokio::net::TcpListener;
use tokio::time::Instant;
use topology::clos::ClosSpec;
use topology::{Fabric, FabricNode, LinkId};

use crate::lab::{await_use, control, jobs, parts, without_hold_down};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// Generations that follow from a failure at once: its ports out of use, then all ways around it.
const REPAIR: u64 = 2;

/// A fabric whose switches are wired to each other and served over both protocols.
struct WiredLab {
    fabric: Fabric,
    network: EmulatedNetworkHandle,
    wires: BTreeMap<LinkId, WireIndex>,
    _servers: Vec<(ServerHandle, GnmiHandle)>,
}

impl WiredLab {
    async fn start() -> Result<Self, Failed> {
        let spec = ClosSpec { leaves: 24, spines: 8, hosts_per_leaf: 4, ..ClosSpec::default() };
        let mut parts = parts(&spec)?;
        let fabric = Fabric::new(parts.clone());
        let mut builder = EmulatedNetworkBuilder::new();
        let devices: Vec<_> = parts
            .switches
            .iter()
            .map(|switch| {
                let device_id = switch.device_id;
                builder.add_device(DeviceConfig {
                    device_id,
                    cpu_port: 255,
                    levels: 8,
                    trusts_dscp: false,
                })
            })
            .collect();
        let queue = QueueLimits::of_bytes(1 << 20);
        let wire = WireSpec { bits_per_second: 100_000_000_000, delay_ns: 0, queue };
        let mut wires = BTreeMap::new();
        for cable in fabric.cables() {
            let end = |link: LinkId| {
                let end = fabric.link(link).to;
                match end.node {
                    FabricNode::Switch(switch) => {
                        let port = u16::try_from(end.port).ok()?;
                        Some(WireEnd::Device(devices[switch.0 as usize], port))
                    }
                    FabricNode::Host(_) => None,
                }
            };
            if let (Some(near), Some(far)) = (end(cable.reverse()), end(cable)) {
                wires.insert(cable, builder.connect_wire(near, far, wire)?);
            }
        }
        let network = builder.spawn()?;
        let mut servers = Vec::new();
        for (switch, device) in parts.switches.iter_mut().zip(devices) {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            switch.p4runtime = Some(listener.local_addr()?.to_string());
            let (device, options) = (network.device(device), ServiceOptions::default());
            let p4runtime =
                switch_server::p4runtime::serve(listener, device.clone(), options).await?;
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            switch.gnmi = Some(listener.local_addr()?.to_string());
            let gnmi = switch_server::gnmi::serve(listener, device, GnmiOptions::default()).await?;
            servers.push((p4runtime, gnmi));
        }
        Ok(Self { fabric: Fabric::new(parts), network, wires, _servers: servers })
    }
}

pub(crate) async fn measure() -> Result<(), Failed> {
    let lab = WiredLab::start().await?;
    let controller = control(&lab.fabric, without_hold_down).await?;
    let jobs = StateEvent::JobsChanged(jobs(&lab.fabric));
    let generation = controller.submit_event(jobs).await?.generation;
    controller.await_verified(generation, DEADLINE).await?;
    let (mut protected, mut repaired) = (Samples::default(), Samples::default());
    for (&cable, &wire) in &lab.wires {
        let generation = controller.desired_tables().generation;
        let begun = Instant::now();
        lab.network.set_wire_state(wire, WireState::Down).await?;
        await_generation(&controller, generation + 1).await?;
        let ports = controller.await_verified(generation + 1, DEADLINE).await?;
        protected.push(ports.verified - begun);
        await_generation(&controller, generation + REPAIR).await?;
        let ways = controller.await_verified(generation + REPAIR, DEADLINE).await?;
        repaired.push(ways.verified - begun);
        lab.network.set_wire_state(wire, WireState::Up).await?;
        await_use(&controller, cable).await?;
    }
    protected.print("port down over gNMI alone, ports at both ends verified out of use");
    repaired.print("port down over gNMI alone, every switch verified to go around it");
    controller.shutdown().await;
    Ok(())
}

/// Waits until tables of a generation are desired: a failure that nobody reports to the controller
/// directly takes its time.
async fn await_generation(controller: &ControllerHandle, generation: u64) -> Result<(), Failed> {
    let mut changes = controller.status_board().subscribe();
    while controller.desired_tables().generation < generation {
        tokio::time::timeout(DEADLINE, changes.changed()).await??;
    }
    Ok(())
}
