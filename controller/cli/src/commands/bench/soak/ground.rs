//! What the controllers are soaked on: embedded switches, each with a server on loopback, joined to
//! hosts that send, in real time.

use std::net::SocketAddr;

use planner::{Flow, Job};
use switch::faults::{Mix, Script};
use switch::service::{ServerHandle, ServiceOptions, serve};
use switch::{
    DeviceConfig, DeviceIndex, EndpointHandle, EndpointIndex, FabricBuilder, FabricHandle, Nanos,
    Pace, Port, QueueLimits, Wire, WireIndex, WireState,
};
use tokio::net::TcpListener;
use topology::clos::{self, ClosSpec};
use topology::{Endpoint, Fabric, HostId, LinkId, Node, Parts, SwitchId};

use super::traffic::{Counts, Lost, Traffic};
use crate::failure::Failure;

/// Jobs that send all the time, whether a controller knows of them or not.
const JOBS: u32 = 12;
/// Hosts of each.
const HOSTS: u32 = 3;
/// The port of every switch that leads to its controllers.
const CPU_PORT: u16 = 255;
/// Every cable: far faster than what is sent, so that no queue ever fills.
const WIRE: Wire = Wire {
    bits_per_second: 10_000_000_000,
    delay_ns: 1_000,
    queue: QueueLimits {
        bytes: 1 << 20,
        mark_from: None,
    },
};
/// Every switch refuses some updates and is slow with some writes, all through an hour.
const REFUSED: [&str; 4] = ["flow_pin", "path", "job_classify", "job_qos"];

/// A fabric that runs.
pub(super) struct Ground {
    pub(super) fabric: Fabric,
    pub(super) jobs: Vec<Job>,
    running: FabricHandle,
    hosts: EndpointIndex,
    devices: Vec<DeviceIndex>,
    /// By cable.
    wires: Vec<WireIndex>,
    servers: Vec<ServerHandle>,
}

impl Ground {
    /// Four leaves and two spines, empty, and twelve jobs on as many hosts, at rest.
    pub(super) async fn prepare(seed: u64) -> Result<Self, Failure> {
        let fabric = clos::build("soak", &ClosSpec::default());
        let fabric = fabric.map_err(|error| Failure::work(&error))?;
        let jobs: Vec<Job> = (0..JOBS).map(|number| job(&fabric, number)).collect();
        let mut builder = FabricBuilder::new();
        let switches = fabric.switches().iter();
        let devices: Vec<DeviceIndex> = switches
            .map(|switch| {
                builder.add_device(DeviceConfig {
                    device_id: switch.device_id,
                    cpu_port: CPU_PORT,
                    levels: 8,
                })
            })
            .collect();
        let hosts = builder.add_endpoint(Box::new(Traffic::new(&fabric, &jobs)));
        let mut wires = Vec::new();
        for link in fabric.links().iter().step_by(2) {
            let [a, b] = [link.from, link.to].map(|end| port(&fabric, &devices, hosts, end));
            let wire = builder.connect(a?, b?, WIRE);
            wires.push(wire.map_err(|error| Failure::work(&error))?);
        }
        let running = builder.spawn().map_err(|error| Failure::work(&error))?;
        let mut ground = Self {
            fabric,
            jobs,
            running,
            hosts,
            devices,
            wires,
            servers: Vec::new(),
        };
        ground.serve(seed).await?;
        Ok(ground)
    }

    /// Puts a server before every switch, and its address into the fabric.
    async fn serve(&mut self, seed: u64) -> Result<(), Failure> {
        let mut addresses = Vec::new();
        for (number, device) in self.devices.iter().enumerate() {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listener = TcpListener::bind(any).await;
            let listener = listener.map_err(|error| Failure::work(&error))?;
            let options = ServiceOptions {
                faults: script(seed + number as u64),
                ..ServiceOptions::default()
            };
            let server = serve(listener, self.running.device(*device), options).await;
            let server = server.map_err(|error| Failure::work(&error))?;
            addresses.push(server.local_addr().to_string());
            self.servers.push(server);
        }
        let mut switches = self.fabric.switches().to_vec();
        for (switch, address) in switches.iter_mut().zip(addresses) {
            switch.p4runtime = Some(address);
        }
        self.fabric = Fabric::new(Parts {
            name: self.fabric.name().to_owned(),
            hosts: self.fabric.hosts().to_vec(),
            nics: self.fabric.nics().to_vec(),
            switches,
            links: self.fabric.links().to_vec(),
        });
        Ok(())
    }

    /// The clock and all flows begin to run.
    pub(super) async fn start(&self) -> Result<(), Failure> {
        let started = self.running.release(Pace::RealTime).await;
        started.map_err(|error| Failure::work(&error))?;
        self.traffic(|traffic, now, out| traffic.start(now, out))
            .await
    }

    /// Nothing more is sent.
    pub(super) async fn rest(&self) -> Result<(), Failure> {
        self.traffic(|traffic, _, _| traffic.rest()).await
    }

    pub(super) async fn now(&self) -> Result<Nanos, Failure> {
        let now = self.running.now().await;
        now.map_err(|error| Failure::work(&error))
    }

    /// The packets that have become lost since this was asked last.
    pub(super) async fn lost(&self) -> Result<Vec<Lost>, Failure> {
        self.traffic(|traffic, now, _| traffic.take_lost(now)).await
    }

    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        self.traffic(|traffic, _, _| traffic.counts()).await
    }

    /// Cuts or mends a cable.
    pub(super) async fn set_cable(&self, link: LinkId, state: WireState) -> Result<(), Failure> {
        let set = self.running.set_wire(self.wires[link.cable()], state).await;
        set.map_err(|error| Failure::work(&error))
    }

    /// Restarts a switch, empty.
    pub(super) async fn restart(&self, switch: SwitchId) -> Result<(), Failure> {
        let restarted = self.servers[switch.index()].restart().await;
        restarted.map_err(|error| Failure::work(&error))
    }

    /// Packets that the network itself knows to have dropped.
    pub(super) async fn dropped(&self) -> Result<u64, Failure> {
        let mut dropped = 0;
        for wire in &self.wires {
            let directions = self.running.wire_counts(*wire).await;
            for direction in directions.map_err(|error| Failure::work(&error))? {
                let queues = direction.levels.iter();
                let full: u64 = queues.map(|level| level.dropped.packets).sum();
                dropped += direction.lost + full;
            }
        }
        for device in &self.devices {
            let device = self.running.device(*device);
            let counts = device.with(|device| device.counts()).await;
            let counts = counts.map_err(|error| Failure::work(&error))?;
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

    async fn traffic<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Traffic, Nanos, &mut switch::Outbox) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        let hosts: EndpointHandle = self.running.endpoint(self.hosts);
        let answer = hosts.with(run).await;
        answer.map_err(|error| Failure::work(&error))
    }
}

fn port(
    fabric: &Fabric,
    devices: &[DeviceIndex],
    hosts: EndpointIndex,
    end: Endpoint,
) -> Result<Port, Failure> {
    let unknown = || Failure::Work(format!("no port {}", fabric.endpoint_name(end)));
    match end.node {
        Node::Host(host) => {
            let nic = fabric.nic_of(host, end.port).ok_or_else(unknown)?;
            Ok(Port::Nic(hosts, nic.0))
        }
        Node::Switch(switch) => {
            let port = u16::try_from(end.port).map_err(|_| unknown())?;
            Ok(Port::Device(devices[switch.index()], port))
        }
    }
}

/// What a switch does wrong by itself.
fn script(seed: u64) -> Script {
    let mix = Mix {
        tables: REFUSED.map(|table| format!("IngressImpl.{table}")).to_vec(),
        refusals: 200,
        delays: 200,
        longest_delay: std::time::Duration::from_millis(50),
        drops: 20,
        restarts: 0,
        horizon: 10_000,
    };
    Script::seeded(seed, &mix)
}

/// A job around a ring of hosts on different leaves, which are numbered leaf by leaf.
fn job(fabric: &Fabric, number: u32) -> Job {
    let host = |step: u32| HostId((number + step % HOSTS * 3) % 12);
    let nic = |step: u32| fabric.host(host(step)).nics[0];
    let flow = |step| Flow {
        src: nic(step),
        dst: nic(step + 1),
        bytes: 1e9,
        udp_src_port: 0xC000 + number as u16,
    };
    Job {
        id: format!("job{number}").as_str().into(),
        tenant: None,
        model: None,
        gpus: (0..HOSTS).map(|step| (host(step), 1)).collect(),
        flop_per_iteration: 1e14 * f64::from(number + 1),
        compute_seconds: 0.5,
        overlap_from: 0.5,
        recent_slowdown: 0.0,
        flows: (0..HOSTS).map(flow).collect(),
    }
}
