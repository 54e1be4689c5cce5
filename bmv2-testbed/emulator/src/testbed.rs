//! A fabric of embedded switches with its emulated hosts: built from a [`topology::Fabric`], given
//! to a control plane while the clock is held, and run until the jobs have measured themselves.
//!
//! The switches run no program and hold no entry at first: whoever has the
//! [device handles](EmulatedTestbed::device) writes them, over P4Runtime or directly. The decision: the
//! fabric loses nothing by its size. Each queue holds the windows of all flows together, as
//! lossless RoCE fabrics hold back senders instead of dropping; drops are counted all the same.

use planner::Job;
use switch::{
    DeviceConfig, DeviceHandle, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkError,
    EmulatedNetworkHandle, EndpointHandle, EndpointIndex, OwnerStopped, QueueLimits, WireEnd,
    WireIndex, WireSpec,
};
use topology::{Fabric, FabricNode, Link, LinkId, SwitchId, Tier};

use crate::cluster::{HostCluster, HostErrorCounts};
use crate::outcome::EmulationOutcome;
use crate::roce::{MTU, OVERHEAD};
use crate::scale::TimeScale;
use crate::transport::{Nanos, TransportSettings};

/// The port of a switch that leads to its controller; `CPU_PORT` of the P4 program.
const CPU_PORT: u16 = 255;
/// Windows are this many bandwidth-delay products: one to fill the path, the others for packets and
/// acknowledgements that wait while other flows have their turn.
const WINDOW_BDPS: u64 = 4;
/// Acknowledgements in a window.
const ACKS_PER_WINDOW: u32 = 8;
/// A job may take this many times the iterations' computation before it counts as stuck.
const STALL_FACTOR: u64 = 20;

/// What a testbed is like beside its fabric and jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestbedOptions {
    /// Delay of every cable with the switch behind it.
    pub delay_ns: Nanos,
    /// Priority levels of every port, 1 to 8.
    pub levels: u8,
}

impl Default for TestbedOptions {
    /// 200 ns: 40 m of fibre, or less of it and a part of a switch; eight levels.
    fn default() -> Self {
        Self { delay_ns: 200, levels: 8 }
    }
}

/// Why a testbed cannot be built, or its jobs did not train.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The switches cannot be joined.
    #[error("building the in-process fabric")]
    Build(#[source] EmulatedNetworkError),
    /// A port number or device count is more than an embedded switch has.
    #[error("{0} is beyond what an embedded switch has")]
    BeyondDevice(String),
    /// The fabric was stopped while it was needed.
    #[error("the in-process fabric stopped")]
    Stopped(#[from] OwnerStopped),
    /// A job makes no headway: its packets do not arrive.
    #[error("job {job} ended {iterations} iterations where {requested} were wanted")]
    Unfinished {
        /// The job with the fewest.
        job: String,
        /// What it ended.
        iterations: usize,
        /// What was asked for.
        requested: usize,
    },
}

/// A running fabric of embedded switches and emulated hosts.
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
    /// Starts the switches of `fabric`, empty, and its hosts with `jobs`, idle; the clock is held.
    ///
    /// # Errors
    /// A port number is beyond a switch's, or the system refuses a thread.
    pub fn build(
        fabric: &Fabric,
        jobs: &[Job],
        scale: TimeScale,
        wires: TestbedOptions,
    ) -> Result<Self, TestbedError> {
        let settings = transport_settings(fabric, jobs, scale, wires);
        let mut builder = EmulatedNetworkBuilder::new();
        let config = |switch: &topology::Switch| DeviceConfig {
            device_id: switch.device_id,
            cpu_port: CPU_PORT,
            levels: wires.levels,
        };
        let devices: Vec<_> =
            fabric.switches().iter().map(|switch| builder.add_device(config(switch))).collect();
        let cluster = HostCluster::new(fabric, jobs, scale, settings);
        let hosts = builder.add_endpoint(Box::new(cluster));
        let ends = CableEnds { fabric, devices: &devices, hosts };
        let flows: usize = jobs.iter().map(|job| job.flows.len()).sum();
        let window_bytes = u64::from(settings.window * (MTU + OVERHEAD));
        let mut cables = Vec::new();
        for link in fabric.cables().map(|cable| fabric.link(cable)) {
            let wire = WireSpec {
                bits_per_second: (link.bandwidth.gbps() * 1e9) as u64,
                delay_ns: wires.delay_ns,
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

    /// The embedded switch that stands for `switch`.
    pub fn device(&self, switch: SwitchId) -> DeviceHandle {
        self.network.device(self.devices[switch.index()])
    }

    /// The whole fabric, for its clock and its wires.
    pub fn network_handle(&self) -> &EmulatedNetworkHandle {
        &self.network
    }

    /// The cable of a link.
    pub fn cable_wire(&self, link: LinkId) -> WireIndex {
        self.cables[link.cable_index()]
    }

    /// Starts job `j` at `starts[j]` and lets time run until every job has ended `iterations`
    /// iterations after its first; then holds the clock.
    ///
    /// # Errors
    /// A job makes no headway, or the fabric was stopped.
    pub async fn train_jobs(
        &self,
        starts: &[Nanos],
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        self.start_jobs(starts).await?;
        self.run_iterations(iterations).await
    }

    /// Has job `j` start at `starts[j]` from now; the clock stays held.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn start_jobs(&self, starts: &[Nanos]) -> Result<(), OwnerStopped> {
        let starts = starts.to_vec();
        let start = move |cluster: &mut HostCluster, now, out: &mut _| {
            for (index, delay) in starts.iter().enumerate() {
                cluster.start_job_at(index, now + delay, out);
            }
        };
        self.host_cluster().with_endpoint(start).await
    }

    /// Lets time run until every job has ended `iterations` iterations after its first; then holds
    /// the clock.
    ///
    /// # Errors
    /// A job makes no headway, or the fabric was stopped.
    pub async fn run_iterations(
        &self,
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        self.run_until_measured(vec![1; self.jobs.len()], iterations).await
    }

    /// When the iterations of each job began, in virtual time; the last is under way.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn iteration_starts(&self) -> Result<Vec<Vec<Nanos>>, OwnerStopped> {
        let begun = |cluster: &mut HostCluster, _, _: &mut _| {
            let trainings = cluster.training_jobs();
            trainings.map(|job| job.iteration_starts().to_vec()).collect()
        };
        self.host_cluster().with_endpoint(begun).await
    }

    /// Lets time run on until every job has ended `settling` more iterations, which are not
    /// measured, and `iterations` that are; then holds the clock.
    ///
    /// # Errors
    /// A job makes no headway, or the fabric was stopped.
    pub async fn continue_training(
        &self,
        settling: usize,
        iterations: usize,
    ) -> Result<EmulationOutcome, TestbedError> {
        let begun = self.completed_iterations().await?.into_iter();
        // The one under way is neither of before nor of after.
        let skipped = begun.map(|ended| ended + 1 + settling);
        self.run_until_measured(skipped.collect(), iterations).await
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

    /// Lets the flows under way end, starts no more, and holds the clock once nothing is on the
    /// wires: what counters say then agrees everywhere.
    ///
    /// # Errors
    /// Some flow does not end, or the fabric was stopped.
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
    /// The fabric was stopped.
    pub async fn carried_bytes(&self) -> Result<Vec<u64>, OwnerStopped> {
        let mut carried = Vec::new();
        for cable in &self.cables {
            let directions = self.network.wire_counts(*cable).await?;
            let bytes = |counts: &switch::WireCounts| {
                counts.levels.iter().map(|level| level.sent.bytes).sum::<u64>()
            };
            carried.extend(directions.iter().map(bytes));
        }
        Ok(carried)
    }

    /// The share of time each link was busy since the start, by [`LinkId`].
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn busy_fractions(&self) -> Result<Vec<f64>, OwnerStopped> {
        let elapsed = self.network.now().await?.max(1) as f64 / 1e9;
        let carried = self.carried_bytes().await?;
        let busy = carried.iter().zip(self.fabric.links());
        let busy =
            busy.map(|(bytes, link)| *bytes as f64 / link.bandwidth.bytes_per_second() / elapsed);
        Ok(busy.collect())
    }

    /// Packets that queues had no room for.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn dropped_packets(&self) -> Result<u64, OwnerStopped> {
        let mut dropped = 0;
        for cable in &self.cables {
            let directions = self.network.wire_counts(*cable).await?;
            let levels = directions.iter().flat_map(|counts| &counts.levels);
            dropped += levels.map(|level| level.dropped.packets).sum::<u64>();
        }
        Ok(dropped)
    }

    /// What hosts saw that should not be.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn host_errors(&self) -> Result<HostErrorCounts, OwnerStopped> {
        self.host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| cluster.error_counts())
            .await
    }

    /// Ends the fabric's thread.
    pub async fn stop(&self) {
        self.network.stop().await;
    }

    /// So much time is run between looks at the jobs: the longest computation of an iteration.
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
        let skipped = skipped.to_vec();
        let measure = move |cluster: &mut HostCluster, _, _: &mut _| {
            EmulationOutcome::measure_jobs(
                &jobs,
                cluster.training_jobs(),
                (&skipped, iterations),
                scale,
            )
        };
        self.host_cluster().with_endpoint(measure).await
    }

    /// Iterations that each job has ended.
    async fn completed_iterations(&self) -> Result<Vec<usize>, OwnerStopped> {
        let count = |cluster: &mut HostCluster, _, _: &mut _| {
            cluster
                .training_jobs()
                .map(crate::job::TrainingJob::completed_iterations)
                .collect::<Vec<_>>()
        };
        self.host_cluster().with_endpoint(count).await
    }

    async fn unfinished_error(&self, wanted: usize) -> Result<TestbedError, OwnerStopped> {
        let counts = self.completed_iterations().await?;
        let fewest = self.jobs.iter().zip(counts).min_by_key(|(_, count)| *count);
        let (job, iterations) = fewest.map_or((String::new(), 0), |(j, n)| (j.id.to_string(), n));
        Ok(TestbedError::Unfinished { job, iterations, requested: wanted })
    }
}

/// What the cables of a fabric end at.
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
        let unknown = || TestbedError::BeyondDevice(self.fabric.endpoint_name(end));
        match end.node {
            FabricNode::Host(host) => {
                let nic = self.fabric.nic_of(host, end.port).ok_or_else(unknown)?;
                Ok(WireEnd::Nic(self.hosts, nic.0))
            }
            FabricNode::Switch(switch) => {
                let port = u16::try_from(end.port).map_err(|_| unknown())?;
                Ok(WireEnd::Device(self.devices[switch.index()], port))
            }
        }
    }
}

/// A window of `WINDOW_BDPS` bandwidth-delay products of the longest path, and a timeout beyond
/// the longest time for which strict priority may hold a flow back: two iterations of the job that
/// takes longest.
pub fn transport_settings(
    fabric: &Fabric,
    jobs: &[Job],
    scale: TimeScale,
    wires: TestbedOptions,
) -> TransportSettings {
    let has_cores = fabric.switches_of_tier(Tier::Core).next().is_some();
    let hops: u64 = if has_cores { 6 } else { 4 };
    let rates = fabric.nics().iter().map(|nic| fabric.link(nic.uplink).bandwidth);
    let bytes_per_ns = rates.map(|rate| rate.bytes_per_second() / 1e9).fold(0.0, f64::max);
    let packet = f64::from(MTU + OVERHEAD);
    let round_trip_ns = 2.0 * (hops * wires.delay_ns) as f64 + hops as f64 * packet / bytes_per_ns;
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
