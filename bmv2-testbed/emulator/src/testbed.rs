//! An emulated network of switches and hosts, built from a [`topology::Fabric`]: a control plane
//! programs it while the clock is held, then it runs until enough iterations are measured.
//!
//! At first the switches run no program and hold no entry; the owner of the
//! [device handles](EmulatedTestbed::device) writes them, over P4Runtime or directly. The decision:
//! queues are so large that nothing is lost. Each queue holds the windows of all flows together,
//! because lossless RoCE fabrics hold back senders instead of dropping; drops are counted anyway.

use planner::Job;
use switch::{
    DeviceConfig, DeviceHandle, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkError,
    EmulatedNetworkHandle, EndpointHandle, EndpointIndex, Nanos, OwnerStopped, QueueLimits,
    WireEnd, WireIndex, WireSpec,
};
use topology::{Fabric, FabricNode, Link, LinkId, SwitchId, Tier};

use crate::cluster::{HostCluster, HostErrorCounts};
use crate::job::TrainingJob;
use crate::outcome::{EmulationOutcome, MeasuredIterations};
use crate::roce::{MTU, OVERHEAD};
use crate::scale::TimeScale;
use crate::transport::TransportSettings;

/// The port of a switch that leads to its controller; `CPU_PORT` of the P4 program.
const CPU_PORT: u16 = 255;
/// Windows are this many bandwidth-delay products: one to fill the path, the others for packets and
/// acknowledgements that wait while other flows have their turn.
const WINDOW_BDPS: u64 = 4;
/// Acknowledgements in a window.
const ACKS_PER_WINDOW: u32 = 8;
/// A job that takes longer than this many times the computation of its iterations has stalled.
const STALL_FACTOR: u64 = 20;

/// Properties of a testbed that neither fabric nor jobs determine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestbedOptions {
    /// Delay of every cable, including that of the switch behind it.
    pub delay_ns: Nanos,
    /// Priority levels of every port, 1 to 8.
    pub levels: u8,
}

impl Default for TestbedOptions {
    /// 200 ns (40 m of fibre, or a shorter cable and a part of a switch) and eight levels.
    fn default() -> Self {
        Self { delay_ns: 200, levels: 8 }
    }
}

/// Why a testbed cannot be built, or its jobs did not train.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The switches cannot be connected.
    #[error("building the emulated network")]
    Build(#[source] EmulatedNetworkError),
    /// A port number does not fit an embedded switch.
    #[error("{0}: an embedded switch has no such port; port numbers have 16 bits")]
    BeyondDevice(String),
    /// The network was stopped during the call.
    #[error("the emulated network stopped")]
    Stopped(#[from] OwnerStopped),
    /// A job makes no progress: its packets do not arrive.
    #[error(
        "job {job} completed {iterations} of {requested} iterations; check its paths and drops"
    )]
    Unfinished {
        /// The job with the fewest iterations.
        job: String,
        /// Iterations that it completed.
        iterations: usize,
        /// Iterations that were requested.
        requested: usize,
    },
}

/// A running emulated network of switches and hosts.
#[derive(Debug)]
pub struct EmulatedTestbed {
    fabric: Fabric,
    jobs: Vec<Job>,
    scale: TimeScale,
    network: EmulatedNetworkHandle,
    devices: Vec<DeviceIndex>,
    host_endpoint: EndpointIndex,
    /// By cable; the first direction is that of link `2 * cable`.
    cables: Vec<WireIndex>,
}

impl EmulatedTestbed {
    /// Starts the switches of `fabric` without a program and its hosts with idle `jobs`; the clock
    /// is held.
    ///
    /// # Errors
    /// A port number does not fit a switch, or the system refuses a thread.
    pub fn build(
        fabric: &Fabric,
        jobs: &[Job],
        scale: TimeScale,
        options: TestbedOptions,
    ) -> Result<Self, TestbedError> {
        let settings = transport_settings(fabric, jobs, scale, options);
        let mut builder = EmulatedNetworkBuilder::new();
        let mut devices = Vec::new();
        for switch in fabric.switches() {
            let (device_id, levels) = (switch.device_id, options.levels);
            devices.push(builder.add_device(DeviceConfig {
                device_id,
                cpu_port: CPU_PORT,
                levels,
            }));
        }
        let cluster = HostCluster::new(fabric, jobs, scale, settings);
        let hosts = builder.add_endpoint(Box::new(cluster));
        let ends = CableEnds { fabric, devices: &devices, hosts };
        let flows: usize = jobs.iter().map(|job| job.flows.len()).sum();
        let window_bytes = u64::from(settings.window * (MTU + OVERHEAD));
        let mut cables = Vec::new();
        for link in fabric.cables().map(|cable| fabric.link(cable)) {
            let wire = WireSpec {
                bits_per_second: (link.bandwidth.gbps() * 1e9) as u64,
                delay_ns: options.delay_ns,
                queue: QueueLimits::of_bytes(window_bytes * flows.max(1) as u64),
            };
            let (a, b) = ends.link_ends(link)?;
            cables.push(builder.connect_wire(a, b, wire).map_err(TestbedError::Build)?);
        }
        Ok(Self {
            fabric: fabric.clone(),
            jobs: jobs.to_vec(),
            scale,
            network: builder.spawn().map_err(TestbedError::Build)?,
            devices,
            host_endpoint: hosts,
            cables,
        })
    }

    /// The embedded switch of `switch`.
    pub fn device(&self, switch: SwitchId) -> DeviceHandle {
        self.network.device(self.devices[switch.index()])
    }

    /// The emulated network, for its clock and its wires.
    pub fn network_handle(&self) -> &EmulatedNetworkHandle {
        &self.network
    }

    /// The wire that emulates the cable of a link.
    pub fn cable_wire(&self, link: LinkId) -> WireIndex {
        self.cables[link.cable_index()]
    }

    /// Starts job `j` at `starts[j]` and runs until every job has completed `iterations`
    /// iterations after its first; then holds the clock.
    ///
    /// # Errors
    /// A job makes no progress, or the network was stopped.
    pub async fn train_jobs(
        &self,
        starts: &[Nanos],
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        self.start_jobs(starts).await?;
        self.run_iterations(iterations).await
    }

    /// Schedules the start of job `j` at `starts[j]` from now; the clock stays held.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn start_jobs(&self, starts: &[Nanos]) -> Result<(), OwnerStopped> {
        let starts = starts.to_vec();
        self.host_cluster()
            .with_endpoint(move |cluster: &mut HostCluster, now, out| {
                for (index, delay) in starts.iter().enumerate() {
                    cluster.start_job_at(index, now + delay, out);
                }
            })
            .await
    }

    /// Runs until every job has completed `iterations` iterations after its first; then holds the
    /// clock.
    ///
    /// # Errors
    /// A job makes no progress, or the network was stopped.
    pub async fn run_iterations(
        &self,
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        self.run_until_measured(vec![1; self.jobs.len()], iterations).await
    }

    /// The virtual times at which the iterations of each job began; the last iteration is still
    /// running.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn iteration_starts(&self) -> Result<Vec<Vec<Nanos>>, OwnerStopped> {
        self.host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| {
                cluster.training_jobs().map(|job| job.iteration_starts().to_vec()).collect()
            })
            .await
    }

    /// Continues until every job has completed `settling` more iterations, which are not measured,
    /// and `iterations` measured ones; then holds the clock.
    ///
    /// # Errors
    /// A job makes no progress, or the network was stopped.
    pub async fn continue_training(
        &self,
        settling: usize,
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        let completed = self.completed_iterations().await?;
        // The running iteration began before the change and ends after it: it is not measured.
        let skipped = completed.iter().map(|completed| completed + 1 + settling).collect();
        self.run_until_measured(skipped, iterations).await
    }

    async fn run_until_measured(
        &self,
        skipped: Vec<usize>,
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        let most = skipped.iter().copied().max().unwrap_or_default() + iterations;
        for _ in 0..STALL_FACTOR * (most as u64 + 1) {
            let now = self.network.now().await?;
            self.network.run_until(now + self.step_duration()).await?;
            if let Some(outcome) = self.measure_outcome(&skipped, iterations).await? {
                return Ok(outcome);
            }
        }
        Err(self.unfinished_error(iterations).await?)
    }

    /// Starts no more flows, runs until the active ones are done, and holds the clock. With nothing
    /// on the wires, the counters of hosts, switches and wires agree.
    ///
    /// # Errors
    /// Some flow does not end, or the network was stopped.
    pub async fn drain_flows(&self) -> Result<(), TestbedError> {
        self.host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| cluster.stop_new_flows())
            .await?;
        for _ in 0..STALL_FACTOR {
            let now = self.network.now().await?;
            self.network.run_until(now + self.step_duration()).await?;
            if self
                .host_cluster()
                .with_endpoint(|cluster: &mut HostCluster, _, _| cluster.all_flows_done())
                .await?
            {
                return Ok(());
            }
        }
        Err(self.unfinished_error(0).await?)
    }

    /// Bytes that each link has carried, by [`LinkId`].
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn carried_bytes(&self) -> Result<Vec<u64>, OwnerStopped> {
        let mut carried = Vec::new();
        for cable in &self.cables {
            for direction in self.network.wire_counts(*cable).await? {
                carried.push(direction.levels.iter().map(|level| level.sent.bytes).sum());
            }
        }
        Ok(carried)
    }

    /// The share of time each link was busy since the start, by [`LinkId`].
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn busy_fractions(&self) -> Result<Vec<f64>, OwnerStopped> {
        let elapsed = self.network.now().await?.max(1) as f64 / 1e9;
        let carried = self.carried_bytes().await?;
        let links = carried.iter().zip(self.fabric.links());
        Ok(links
            .map(|(bytes, link)| *bytes as f64 / link.bandwidth.bytes_per_second() / elapsed)
            .collect())
    }

    /// Packets that queues had no room for.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn dropped_packets(&self) -> Result<u64, OwnerStopped> {
        let mut dropped = 0;
        for cable in &self.cables {
            let directions = self.network.wire_counts(*cable).await?;
            let levels = directions.iter().flat_map(|counts| &counts.levels);
            dropped += levels.map(|level| level.dropped.packets).sum::<u64>();
        }
        Ok(dropped)
    }

    /// Damaged, misdelivered and retransmitted packets, as the hosts counted them.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn host_errors(&self) -> Result<HostErrorCounts, OwnerStopped> {
        self.host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| cluster.error_counts())
            .await
    }

    /// Ends the thread of the network.
    pub async fn stop(&self) {
        self.network.stop().await;
    }

    /// Virtual time between two checks of the jobs: the longest computation of an iteration.
    fn step_duration(&self) -> Nanos {
        let longest = self.jobs.iter().map(|job| self.scale.shrink_seconds(job.compute_seconds));
        longest.max().unwrap_or(1).max(1)
    }

    fn host_cluster(&self) -> EndpointHandle {
        self.network.endpoint(self.host_endpoint)
    }

    async fn measure_outcome(
        &self,
        skipped: &[usize],
        iterations: usize,
    ) -> Result<Option<EmulationOutcome>, OwnerStopped> {
        let (jobs, scale) = (self.jobs.clone(), self.scale);
        let range = MeasuredIterations { skipped: skipped.to_vec(), measured: iterations };
        self.host_cluster()
            .with_endpoint(move |cluster: &mut HostCluster, _, _| {
                EmulationOutcome::measure_jobs(&jobs, cluster.training_jobs(), &range, scale)
            })
            .await
    }

    /// Iterations that each job has completed.
    async fn completed_iterations(&self) -> Result<Vec<usize>, OwnerStopped> {
        self.host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| {
                cluster.training_jobs().map(TrainingJob::completed_iterations).collect()
            })
            .await
    }

    async fn unfinished_error(&self, requested: usize) -> Result<TestbedError, OwnerStopped> {
        let counts = self.completed_iterations().await?;
        let fewest = self.jobs.iter().zip(counts).min_by_key(|(_, count)| *count);
        let (job, iterations) = fewest.map_or((String::new(), 0), |(j, n)| (j.id.to_string(), n));
        Ok(TestbedError::Unfinished { job, iterations, requested })
    }
}

/// Finds the wire ends of a link: devices and NICs of the emulated network.
struct CableEnds<'a> {
    fabric: &'a Fabric,
    devices: &'a [DeviceIndex],
    hosts: EndpointIndex,
}

impl CableEnds<'_> {
    fn link_ends(&self, link: &Link) -> Result<(WireEnd, WireEnd), TestbedError> {
        Ok((self.wire_end(link.from)?, self.wire_end(link.to)?))
    }

    fn wire_end(&self, end: topology::LinkEndpoint) -> Result<WireEnd, TestbedError> {
        let beyond = || TestbedError::BeyondDevice(self.fabric.endpoint_name(end));
        match end.node {
            FabricNode::Host(host) => {
                let nic = self.fabric.nic_of(host, end.port).ok_or_else(beyond)?;
                Ok(WireEnd::Nic(self.hosts, nic.0))
            }
            FabricNode::Switch(switch) => {
                let port = u16::try_from(end.port).map_err(|_| beyond())?;
                Ok(WireEnd::Device(self.devices[switch.index()], port))
            }
        }
    }
}

/// A window of `WINDOW_BDPS` bandwidth-delay products of the longest path, and a timeout above the
/// longest time for which strict priority may delay a flow: two iterations of the slowest job.
pub fn transport_settings(
    fabric: &Fabric,
    jobs: &[Job],
    scale: TimeScale,
    options: TestbedOptions,
) -> TransportSettings {
    let has_cores = fabric.switches_of_tier(Tier::Core).next().is_some();
    let hops: u64 = if has_cores { 6 } else { 4 };
    let rates = fabric.nics().iter().map(|nic| fabric.link(nic.uplink).bandwidth);
    let bytes_per_ns = rates.map(|rate| rate.bytes_per_second() / 1e9).fold(0.0, f64::max);
    let packet = f64::from(MTU + OVERHEAD);
    let round_trip_ns =
        2.0 * (hops * options.delay_ns) as f64 + hops as f64 * packet / bytes_per_ns;
    let packets = WINDOW_BDPS as f64 * round_trip_ns * bytes_per_ns / packet;
    let window = (packets.ceil() as u32).next_multiple_of(ACKS_PER_WINDOW).max(ACKS_PER_WINDOW);
    let longest = jobs.iter().map(|job| {
        let bytes = job.flows.iter().map(|flow| flow.bytes).fold(0.0, f64::max);
        let alone_ns = scale.shrink_bytes(bytes) as f64 / bytes_per_ns;
        scale.shrink_seconds(job.compute_seconds) + alone_ns as Nanos
    });
    TransportSettings {
        window,
        ack_every: window / ACKS_PER_WINDOW,
        timeout_ns: 2 * longest.max().unwrap_or(0) + 1_000_000,
    }
}
