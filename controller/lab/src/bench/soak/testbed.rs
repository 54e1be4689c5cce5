//! The fabric of a soak: embedded switches, each with a P4Runtime server on loopback, and hosts
//! that send in real time.

use std::net::SocketAddr;

use planner::{Flow, Job, MeasuredSlowdown};
use switch::{
    ClockPace, DeviceConfig, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkHandle,
    EndpointHandle, EndpointIndex, Nanos, QueueLimits, WireEnd, WireIndex, WireSpec, WireState,
};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use switch_server::testing::faults::{FaultMix, FaultScript};
use tokio::net::TcpListener;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, FabricNode, HostId, LinkId, SwitchId};

use super::traffic::{LostPacket, SoakTraffic, TrafficCounts};
use command_io::CommandError;

/// Jobs that send all the time, whether or not they are reported to a controller.
const JOBS: u32 = 12;
/// Hosts of each job.
const HOSTS: u32 = 3;
/// The port of every switch that leads to its controllers.
const CPU_PORT: u16 = 255;
/// Every cable: far faster than the traffic, so that no queue fills.
const WIRE: WireSpec = WireSpec {
    bits_per_second: 10_000_000_000,
    delay_ns: 1_000,
    queue: QueueLimits { bytes: 1 << 20, mark_from: None },
};
/// Tables whose updates every switch refuses now and then.
const REFUSED: [&str; 4] = ["flow_pin", "path", "job_classify", "job_qos"];

/// A running fabric.
pub(super) struct SoakTestbed {
    pub(super) fabric: Fabric,
    pub(super) jobs: Vec<Job>,
    running: EmulatedNetworkHandle,
    hosts: EndpointIndex,
    devices: Vec<DeviceIndex>,
    /// Indexed by cable.
    wires: Vec<WireIndex>,
    servers: Vec<ServerHandle>,
}

impl SoakTestbed {
    /// The switches of a fabric, empty, and twelve jobs on its hosts, at rest.
    pub(super) async fn build_testbed(spec: &ClosSpec, seed: u64) -> Result<Self, CommandError> {
        let fabric = clos::build_clos("soak", spec).map_err(CommandError::failed)?;
        let jobs: Vec<Job> = (0..JOBS).map(|number| ring_job(&fabric, number)).collect();
        let mut builder = EmulatedNetworkBuilder::new();
        let switches = fabric.switches().iter();
        let devices: Vec<DeviceIndex> = switches
            .map(|switch| {
                builder.add_device(DeviceConfig {
                    device_id: switch.device_id,
                    cpu_port: CPU_PORT,
                    levels: 8,
                    trusts_dscp: false,
                })
            })
            .collect();
        let hosts = builder.add_endpoint(Box::new(SoakTraffic::new(&fabric, &jobs)));
        let mut wires = Vec::new();
        for cable in fabric.cables() {
            let [a, b] =
                [cable, cable.reverse()].map(|link| wire_end(&fabric, &devices, hosts, link));
            let wire = builder.connect_wire(a?, b?, WIRE);
            wires.push(wire.map_err(CommandError::failed)?);
        }
        let running = builder.spawn().map_err(CommandError::failed)?;
        let mut ground = Self { fabric, jobs, running, hosts, devices, wires, servers: Vec::new() };
        ground.start_servers(seed).await?;
        Ok(ground)
    }

    /// Starts a server for every switch, and puts its address into the fabric.
    async fn start_servers(&mut self, seed: u64) -> Result<(), CommandError> {
        let mut addresses = Vec::new();
        for (number, device) in self.devices.iter().enumerate() {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listener = TcpListener::bind(any).await.map_err(CommandError::failed)?;
            let options = ServiceOptions {
                faults: fault_script(seed + number as u64),
                ..ServiceOptions::default()
            };
            let server = serve(listener, self.running.device(*device), options)
                .await
                .map_err(CommandError::failed)?;
            addresses.push(server.local_addr().to_string());
            self.servers.push(server);
        }
        let mut parts = self.fabric.parts().clone();
        for (switch, address) in parts.switches.iter_mut().zip(addresses) {
            switch.p4runtime = Some(address);
        }
        self.fabric = Fabric::new(parts);
        Ok(())
    }

    /// Starts the clock and all flows.
    pub(super) async fn start_traffic(&self) -> Result<(), CommandError> {
        self.running.release_clock(ClockPace::RealTime).await.map_err(CommandError::failed)?;
        self.with_traffic(|traffic, now, out| traffic.start_flows(now, out)).await
    }

    /// Stops all flows.
    pub(super) async fn stop_traffic(&self) -> Result<(), CommandError> {
        self.with_traffic(|traffic, _, _| traffic.stop_sending()).await
    }

    pub(super) async fn current_time(&self) -> Result<Nanos, CommandError> {
        self.running.now().await.map_err(CommandError::failed)
    }

    /// The packets lost since the last call.
    pub(super) async fn take_lost(&self) -> Result<Vec<LostPacket>, CommandError> {
        self.with_traffic(|traffic, now, _| traffic.take_lost(now)).await
    }

    pub(super) async fn traffic_counts(&self) -> Result<TrafficCounts, CommandError> {
        self.with_traffic(|traffic, _, _| traffic.counts()).await
    }

    /// Cuts or repairs a cable.
    pub(super) async fn set_cable(
        &self,
        link: LinkId,
        state: WireState,
    ) -> Result<(), CommandError> {
        self.running
            .set_wire_state(self.wires[link.cable_index()], state)
            .await
            .map_err(CommandError::failed)
    }

    /// Restarts a switch, empty.
    pub(super) async fn restart_switch(&self, switch: SwitchId) -> Result<(), CommandError> {
        self.servers[switch.index()].restart().await.map_err(CommandError::failed)
    }

    /// Packets that the network itself counted as dropped.
    pub(super) async fn dropped_packets(&self) -> Result<u64, CommandError> {
        let mut dropped = 0;
        for wire in &self.wires {
            let directions = self.running.wire_counts(*wire).await;
            for direction in directions.map_err(CommandError::failed)? {
                let queues = direction.levels.iter();
                let full: u64 = queues.map(|level| level.dropped.packets).sum();
                dropped += direction.lost + full;
            }
        }
        for device in &self.devices {
            let device = self.running.device(*device);
            let counts =
                device.with_device(|device| device.counts()).await.map_err(CommandError::failed)?;
            dropped += counts.dropped_by_program + counts.dropped_without_program;
        }
        Ok(dropped)
    }

    pub(super) async fn stop(self) {
        for server in self.servers {
            server.shutdown().await;
        }
        self.running.stop().await;
    }

    async fn with_traffic<R, F>(&self, run: F) -> Result<R, CommandError>
    where
        R: Send + 'static,
        F: FnOnce(&mut SoakTraffic, Nanos, &mut switch::EndpointOutbox) -> R + Send + 'static,
    {
        let hosts: EndpointHandle = self.running.endpoint(self.hosts);
        hosts.with_endpoint(run).await.map_err(CommandError::failed)
    }
}

/// The end at which a link leaves.
fn wire_end(
    fabric: &Fabric,
    devices: &[DeviceIndex],
    hosts: EndpointIndex,
    link: LinkId,
) -> Result<WireEnd, CommandError> {
    let end = fabric.link(link).from;
    let unknown = || CommandError::Failed(format!("no port {}", fabric.endpoint_name(end)));
    match end.node {
        FabricNode::Host(_) => {
            let port = fabric.nic_after(link.reverse()).ok_or_else(unknown)?;
            Ok(WireEnd::Nic(hosts, port.0))
        }
        FabricNode::Switch(switch) => {
            let port = u16::try_from(end.port).map_err(|_| unknown())?;
            Ok(WireEnd::Device(devices[switch.index()], port))
        }
    }
}

/// The faults of a switch itself: refusals and delays.
fn fault_script(seed: u64) -> FaultScript {
    let mix = FaultMix {
        tables: REFUSED.map(|table| format!("IngressImpl.{table}")).to_vec(),
        refusals: 200,
        delays: 200,
        longest_delay: std::time::Duration::from_millis(50),
        drops: 20,
        restarts: 0,
        horizon: 10_000,
    };
    FaultScript::from_seed(seed, &mix)
}

/// A job around a ring of hosts on different leaves, which are numbered leaf by leaf: a quarter of
/// the fabric from one to the next.
fn ring_job(fabric: &Fabric, number: u32) -> Job {
    let hosts = fabric.hosts().len() as u32;
    let host = |step: u32| HostId((number * (hosts / JOBS) + step % HOSTS * (hosts / 4)) % hosts);
    let nic = |step: u32| fabric.host(host(step)).nics[0];
    Job {
        id: format!("job{number}").as_str().into(),
        tenant: None,
        model: None,
        gpus: (0..HOSTS).map(|step| (host(step), 1)).collect(),
        flop_per_iteration: 1e14 * f64::from(number + 1),
        compute_seconds: 0.5,
        overlap_from: 0.5,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: (0..HOSTS)
            .map(|step| Flow {
                src: nic(step),
                dst: nic(step + 1),
                bytes: 1e9,
                udp_src_port: Some(0xC000 + number as u16),
                gpus: planner::FlowGpus::default(),
                overlap_from: None,
            })
            .collect(),
    }
}
