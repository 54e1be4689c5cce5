//! A fabric of embedded switches with its emulated hosts: built from a [`topology::Fabric`], given
//! to a control plane while the clock is held, and run until the jobs have measured themselves.
//!
//! The switches run no program and hold no entry at first: whoever has the
//! [device handles](Testbed::device) writes them, over P4Runtime or directly. The decision: the
//! fabric loses nothing by its size. Each queue holds the windows of all flows together, as
//! lossless RoCE fabrics hold back senders instead of dropping; drops are counted all the same.

use planner::Job;
use switch::{
    DeviceConfig, DeviceHandle, DeviceIndex, EndpointHandle, EndpointIndex, FabricBuilder,
    FabricError, FabricHandle, Gone, Port, QueueLimits, Wire, WireIndex,
};
use topology::{Fabric, Link, LinkId, Node, SwitchId, Tier};

use crate::cluster::{Cluster, Faults};
use crate::outcome::Outcome;
use crate::roce::{MTU, OVERHEAD};
use crate::scale::Scale;
use crate::transport::{Nanos, Settings};

/// The port of a switch that leads to its controller; `CPU_PORT` of the P4 program.
const CPU_PORT: u16 = 255;
/// Windows are this many bandwidth-delay products: one to fill the path, the others for packets and
/// acknowledgements that wait while other flows have their turn.
const WINDOW_BDPS: u64 = 4;
/// Acknowledgements in a window.
const ACKS_PER_WINDOW: u32 = 8;
/// A job may take this many times the iterations' computation before it counts as stuck.
const PATIENCE: u64 = 20;

/// What a testbed is like beside its fabric and jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wires {
    /// Delay of every cable with the switch behind it.
    pub delay_ns: Nanos,
    /// Priority levels of every port, 1 to 8.
    pub levels: u8,
}

impl Default for Wires {
    /// 200 ns: 40 m of fibre, or less of it and a part of a switch; eight levels.
    fn default() -> Self {
        Self {
            delay_ns: 200,
            levels: 8,
        }
    }
}

/// Why a testbed cannot be built, or its jobs did not train.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The switches cannot be joined.
    #[error("building the in-process fabric")]
    Build(#[source] FabricError),
    /// A port number or device count is more than an embedded switch has.
    #[error("{0} is beyond what an embedded switch has")]
    Port(String),
    /// The fabric was stopped while it was needed.
    #[error("the in-process fabric stopped")]
    Stopped(#[from] Gone),
    /// A job makes no headway: its packets do not arrive.
    #[error("job {job} ended {iterations} iterations where {wanted} were wanted")]
    Unfinished {
        /// The job with the fewest.
        job: String,
        /// What it ended.
        iterations: usize,
        /// What was asked for.
        wanted: usize,
    },
}

/// A running fabric of embedded switches and emulated hosts.
#[derive(Debug)]
pub struct Testbed {
    fabric: Fabric,
    jobs: Vec<Job>,
    scale: Scale,
    handle: FabricHandle,
    devices: Vec<DeviceIndex>,
    hosts: EndpointIndex,
    /// By cable; the first direction is that of link `2 * cable`.
    cables: Vec<WireIndex>,
}

impl Testbed {
    /// Starts the switches of `fabric`, empty, and its hosts with `jobs`, idle; the clock is held.
    ///
    /// # Errors
    /// A port number is beyond a switch's, or the system refuses a thread.
    pub fn build(
        fabric: &Fabric,
        jobs: &[Job],
        scale: Scale,
        wires: Wires,
    ) -> Result<Self, TestbedError> {
        let settings = settings(fabric, jobs, scale, wires);
        let mut builder = FabricBuilder::new();
        let config = |switch: &topology::Switch| DeviceConfig {
            device_id: switch.device_id,
            cpu_port: CPU_PORT,
            levels: wires.levels,
        };
        let devices: Vec<_> = fabric
            .switches()
            .iter()
            .map(|switch| builder.add_device(config(switch)))
            .collect();
        let cluster = Cluster::new(fabric, jobs, scale, settings);
        let hosts = builder.add_endpoint(Box::new(cluster));
        let ends = Ends {
            fabric,
            devices: &devices,
            hosts,
        };
        let flows: usize = jobs.iter().map(|job| job.flows.len()).sum();
        let window_bytes = u64::from(settings.window * (MTU + OVERHEAD));
        let mut cables = Vec::new();
        for link in fabric.links().iter().step_by(2) {
            let wire = Wire {
                bits_per_second: (link.bandwidth.gbps() * 1e9) as u64,
                delay_ns: wires.delay_ns,
                queue: QueueLimits::bytes(window_bytes * flows.max(1) as u64),
            };
            let (a, b) = ends.of(link)?;
            cables.push(builder.connect(a, b, wire).map_err(TestbedError::Build)?);
        }
        Ok(Self {
            fabric: fabric.clone(),
            jobs: jobs.to_vec(),
            scale,
            handle: builder.spawn().map_err(TestbedError::Build)?,
            devices,
            hosts,
            cables,
        })
    }

    /// The embedded switch that stands for `switch`.
    pub fn device(&self, switch: SwitchId) -> DeviceHandle {
        self.handle.device(self.devices[switch.index()])
    }

    /// The whole fabric, for its clock and its wires.
    pub fn handle(&self) -> &FabricHandle {
        &self.handle
    }

    /// The cable of a link.
    pub fn wire(&self, link: LinkId) -> WireIndex {
        self.cables[link.cable()]
    }

    /// Starts job `j` at `starts[j]` and lets time run until every job has ended `iterations`
    /// iterations after its first; then holds the clock.
    ///
    /// # Errors
    /// A job makes no headway, or the fabric was stopped.
    pub async fn train(
        &self,
        starts: &[Nanos],
        iterations: usize,
    ) -> Result<Outcome, TestbedError> {
        self.begin(starts).await?;
        self.finish(iterations).await
    }

    /// Has job `j` start at `starts[j]` from now; the clock stays held.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn begin(&self, starts: &[Nanos]) -> Result<(), Gone> {
        let starts = starts.to_vec();
        let start = move |cluster: &mut Cluster, now, out: &mut _| {
            for (index, delay) in starts.iter().enumerate() {
                cluster.start_at(index, now + delay, out);
            }
        };
        self.cluster().with(start).await
    }

    /// Lets time run until every job has ended `iterations` iterations after its first; then holds
    /// the clock.
    ///
    /// # Errors
    /// A job makes no headway, or the fabric was stopped.
    pub async fn finish(&self, iterations: usize) -> Result<Outcome, TestbedError> {
        self.run(vec![1; self.jobs.len()], iterations).await
    }

    /// When the iterations of each job began, in virtual time; the last is under way.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn begun(&self) -> Result<Vec<Vec<Nanos>>, Gone> {
        let begun = |cluster: &mut Cluster, _, _: &mut _| {
            let trainings = cluster.trainings();
            trainings.map(|job| job.begun().to_vec()).collect()
        };
        self.cluster().with(begun).await
    }

    /// Lets time run on until every job has ended `settling` more iterations, which are not
    /// measured, and `iterations` that are; then holds the clock.
    ///
    /// # Errors
    /// A job makes no headway, or the fabric was stopped.
    pub async fn train_on(
        &self,
        settling: usize,
        iterations: usize,
    ) -> Result<Outcome, TestbedError> {
        let begun = self.ended().await?.into_iter();
        // The one under way is neither of before nor of after.
        let skipped = begun.map(|ended| ended + 1 + settling);
        self.run(skipped.collect(), iterations).await
    }

    async fn run(&self, skipped: Vec<usize>, iterations: usize) -> Result<Outcome, TestbedError> {
        let most = skipped.iter().copied().max().unwrap_or_default() + iterations;
        for _ in 0..PATIENCE * (most as u64 + 1) {
            let now = self.handle.now().await?;
            self.handle.run_until(now + self.step()).await?;
            if let Some(outcome) = self.measure(&skipped, iterations).await? {
                return Ok(outcome);
            }
        }
        Err(self.unfinished(iterations).await?)
    }

    /// Lets the flows under way end, starts no more, and holds the clock once nothing is on the
    /// wires: what counters say then agrees everywhere.
    ///
    /// # Errors
    /// Some flow does not end, or the fabric was stopped.
    pub async fn settle(&self) -> Result<(), TestbedError> {
        self.cluster()
            .with(|cluster: &mut Cluster, _, _| cluster.rest())
            .await?;
        for _ in 0..PATIENCE {
            let now = self.handle.now().await?;
            self.handle.run_until(now + self.step()).await?;
            if self
                .cluster()
                .with(|cluster: &mut Cluster, _, _| cluster.is_quiet())
                .await?
            {
                return Ok(());
            }
        }
        Err(self.unfinished(0).await?)
    }

    /// Bytes that each link has carried, by [`LinkId`].
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn carried_bytes(&self) -> Result<Vec<u64>, Gone> {
        let mut carried = Vec::new();
        for cable in &self.cables {
            let directions = self.handle.wire_counts(*cable).await?;
            let bytes = |counts: &switch::WireCounts| {
                counts
                    .levels
                    .iter()
                    .map(|level| level.sent.bytes)
                    .sum::<u64>()
            };
            carried.extend(directions.iter().map(bytes));
        }
        Ok(carried)
    }

    /// The share of time each link was busy since the start, by [`LinkId`].
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn busy_fractions(&self) -> Result<Vec<f64>, Gone> {
        let elapsed = self.handle.now().await?.max(1) as f64 / 1e9;
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
    pub async fn drops(&self) -> Result<u64, Gone> {
        let mut dropped = 0;
        for cable in &self.cables {
            let directions = self.handle.wire_counts(*cable).await?;
            let levels = directions.iter().flat_map(|counts| &counts.levels);
            dropped += levels.map(|level| level.dropped.packets).sum::<u64>();
        }
        Ok(dropped)
    }

    /// What hosts saw that should not be.
    ///
    /// # Errors
    /// The fabric was stopped.
    pub async fn faults(&self) -> Result<Faults, Gone> {
        self.cluster()
            .with(|cluster: &mut Cluster, _, _| cluster.faults())
            .await
    }

    /// Ends the fabric's thread.
    pub async fn stop(&self) {
        self.handle.stop().await;
    }

    /// So much time is run between looks at the jobs: the longest computation of an iteration.
    fn step(&self) -> Nanos {
        let longest = self
            .jobs
            .iter()
            .map(|job| self.scale.shrink_seconds(job.compute_seconds));
        longest.max().unwrap_or(1).max(1)
    }

    fn cluster(&self) -> EndpointHandle {
        self.handle.endpoint(self.hosts)
    }

    async fn measure(&self, skipped: &[usize], iterations: usize) -> Result<Option<Outcome>, Gone> {
        let (jobs, scale) = (self.jobs.clone(), self.scale);
        let skipped = skipped.to_vec();
        let measure = move |cluster: &mut Cluster, _, _: &mut _| {
            Outcome::measure(&jobs, cluster.trainings(), (&skipped, iterations), scale)
        };
        self.cluster().with(measure).await
    }

    /// Iterations that each job has ended.
    async fn ended(&self) -> Result<Vec<usize>, Gone> {
        let count = |cluster: &mut Cluster, _, _: &mut _| {
            cluster
                .trainings()
                .map(crate::job::Training::iterations)
                .collect::<Vec<_>>()
        };
        self.cluster().with(count).await
    }

    async fn unfinished(&self, wanted: usize) -> Result<TestbedError, Gone> {
        let counts = self.ended().await?;
        let fewest = self.jobs.iter().zip(counts).min_by_key(|(_, count)| *count);
        let (job, iterations) = fewest.map_or((String::new(), 0), |(j, n)| (j.id.to_string(), n));
        Ok(TestbedError::Unfinished {
            job,
            iterations,
            wanted,
        })
    }
}

/// What the cables of a fabric end at.
struct Ends<'a> {
    fabric: &'a Fabric,
    devices: &'a [DeviceIndex],
    hosts: EndpointIndex,
}

impl Ends<'_> {
    fn of(&self, link: &Link) -> Result<(Port, Port), TestbedError> {
        Ok((self.port(link.from)?, self.port(link.to)?))
    }

    fn port(&self, end: topology::Endpoint) -> Result<Port, TestbedError> {
        let unknown = || TestbedError::Port(self.fabric.endpoint_name(end));
        match end.node {
            Node::Host(host) => {
                let nic = self.fabric.nic_of(host, end.port).ok_or_else(unknown)?;
                Ok(Port::Nic(self.hosts, nic.0))
            }
            Node::Switch(switch) => {
                let port = u16::try_from(end.port).map_err(|_| unknown())?;
                Ok(Port::Device(self.devices[switch.index()], port))
            }
        }
    }
}

/// A window of `WINDOW_BDPS` bandwidth-delay products of the longest path, and a timeout beyond
/// the longest time for which strict priority may hold a flow back: two iterations of the job that
/// takes longest.
pub fn settings(fabric: &Fabric, jobs: &[Job], scale: Scale, wires: Wires) -> Settings {
    let has_cores = fabric.tier(Tier::Core).next().is_some();
    let hops: u64 = if has_cores { 6 } else { 4 };
    let rates = fabric
        .nics()
        .iter()
        .map(|nic| fabric.link(nic.uplink).bandwidth);
    let bytes_per_ns = rates
        .map(|rate| rate.bytes_per_second() / 1e9)
        .fold(0.0, f64::max);
    let packet = f64::from(MTU + OVERHEAD);
    let round_trip_ns = 2.0 * (hops * wires.delay_ns) as f64 + hops as f64 * packet / bytes_per_ns;
    let packets = WINDOW_BDPS as f64 * round_trip_ns * bytes_per_ns / packet;
    let window = (packets.ceil() as u32)
        .next_multiple_of(ACKS_PER_WINDOW)
        .max(ACKS_PER_WINDOW);
    let longest = jobs.iter().map(|job| {
        let bytes = job.flows.iter().map(|flow| flow.bytes).fold(0.0, f64::max);
        let alone_ns = scale.shrink_bytes(bytes) as f64 / bytes_per_ns;
        scale.shrink_seconds(job.compute_seconds) + alone_ns as Nanos
    });
    Settings {
        window,
        ack_every: window / ACKS_PER_WINDOW,
        timeout_ns: 2 * longest.max().unwrap_or(0) + 1_000_000,
    }
}
