//! An emulated network of switches and hosts, built from a [`topology::Fabric`]: a control plane
//! programs it while the clock is held, then it runs until enough iterations are measured.
//!
//! At first the switches run no program and hold no entry; the owner of the [device
//! handles](EmulatedTestbed::device) writes them, over P4Runtime or directly. The decision: nothing
//! is lost. Where hosts send by windows, each queue holds the windows of all flows together; under
//! DCQCN a switch has one buffer and pauses who fills it, as lossless RoCE fabrics do. Drops are
//! counted anyway.

use planner::Job;
use switch::{
    BufferCounts, DeviceConfig, DeviceHandle, DeviceIndex, EmulatedNetworkBuilder,
    EmulatedNetworkError, EmulatedNetworkHandle, EndpointHandle, EndpointIndex, Nanos,
    OwnerStopped, QueueCounts, WireDirectionIndex, WireEnd, WireIndex, WireSpec,
};
use topology::{Fabric, FabricNode, Link, LinkId, PipelineKind, Switch, SwitchId};

use crate::cluster::{HostCluster, HostCongestionCounts, HostErrorCounts, LostConnection};
use crate::host_settings::{host_settings, queue_limits};
use crate::job::{StartGrid, TrainingJob};
use crate::options::{HostTransport, TestbedOptions};
use crate::outcome::{EmulationOutcome, MeasuredIterations};
use crate::scale::TimeScale;

/// The port of a switch that leads to its controller; `CPU_PORT` of the P4 program.
const CPU_PORT: u16 = 255;
/// A job that takes longer than this many times the computation of its iterations has stalled.
const STALL_FACTOR: u64 = 20;

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
    /// A connection is lost, and its job with it.
    #[error(
        "job {job} ended at {seconds:.3} s: flow {flow} was not acknowledged through {retries} \
         retries; raise the share of its level, or NCCL_IB_TIMEOUT"
    )]
    ConnectionLost {
        /// The job.
        job: String,
        /// The flow, counted within the job.
        flow: usize,
        /// Retries that a connection has.
        retries: u32,
        /// When, in real seconds.
        seconds: f64,
    },
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
    options: TestbedOptions,
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
        let settings = host_settings(fabric, jobs, scale, options);
        let mut builder = EmulatedNetworkBuilder::new();
        let switches = fabric.switches().iter();
        let devices: Vec<DeviceIndex> =
            switches.map(|switch| add_device(&mut builder, fabric, switch, options)).collect();
        let cluster = HostCluster::new(fabric, jobs, scale, settings);
        let hosts = builder.add_endpoint(Box::new(cluster));
        let ends = CableEnds { fabric, devices: &devices, hosts };
        let queue = queue_limits(jobs, settings.transport, options);
        let mut cables = Vec::new();
        for cable in fabric.cables() {
            let bits_per_second = wire_rate(fabric.link(cable));
            let wire = WireSpec { bits_per_second, delay_ns: options.delay_ns, queue };
            let (a, b) = (ends.wire_end(cable)?, ends.wire_end(cable.reverse())?);
            cables.push(builder.connect_wire(a, b, wire).map_err(TestbedError::Build)?);
        }
        Ok(Self {
            fabric: fabric.clone(),
            jobs: jobs.to_vec(),
            scale,
            options,
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

    /// Has a link carry this share of what it is built for, from its next packet on.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn slow_link(&self, link: LinkId, share: f64) -> Result<(), OwnerStopped> {
        let direction = match link.index() % 2 {
            0 => WireDirectionIndex::FromFirst,
            _ => WireDirectionIndex::FromSecond,
        };
        let rate = wire_rate(self.fabric.link(link)) as f64 * share;
        self.network.set_wire_rate(self.cable_wire(link), direction, rate as u64).await
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

    /// Has the hosts send packets and answers of job `j` with DSCP `dscps[j]`.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn set_job_dscps(&self, dscps: Vec<u8>) -> Result<(), OwnerStopped> {
        self.host_cluster()
            .with_endpoint(move |cluster: &mut HostCluster, _, _| cluster.set_job_dscps(&dscps))
            .await
    }

    /// Has the next iterations of job `j` begin on `grids[j]`, or as soon as they can.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn set_start_grids(&self, grids: Vec<Option<StartGrid>>) -> Result<(), OwnerStopped> {
        self.host_cluster()
            .with_endpoint(move |cluster: &mut HostCluster, _, _| cluster.set_start_grids(&grids))
            .await
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
            self.check_connections().await?;
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

    /// Fails if a connection is lost.
    async fn check_connections(&self) -> Result<(), TestbedError> {
        let lost = self
            .host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| {
                cluster.lost_connections().first().copied()
            })
            .await?;
        let Some(LostConnection { job, flow, at }) = lost else {
            return Ok(());
        };
        let before: usize = self.jobs[..job].iter().map(|job| job.flows.len()).sum();
        let retries = match self.options.transport {
            HostTransport::Window => 0,
            HostTransport::Dcqcn(dcqcn) => dcqcn.retries.retry_count,
        };
        let (job, seconds) = (self.jobs[job].id.to_string(), self.scale.real_seconds(at));
        Err(TestbedError::ConnectionLost { job, flow: flow - before, retries, seconds })
    }

    /// What congestion did to the hosts.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn host_congestion(&self) -> Result<HostCongestionCounts, OwnerStopped> {
        self.host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| cluster.congestion_counts())
            .await
    }

    /// What the queues of each link have seen, by [`LinkId`], from level 0.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn queue_counts(&self) -> Result<Vec<Vec<QueueCounts>>, OwnerStopped> {
        let mut counts = Vec::new();
        for cable in &self.cables {
            let directions = self.network.wire_counts(*cable).await?;
            counts.extend(directions.into_iter().map(|direction| direction.levels));
        }
        Ok(counts)
    }

    /// What the shared buffer of each switch has seen; none of a testbed without.
    ///
    /// # Errors
    /// The network was stopped.
    pub async fn buffer_counts(&self) -> Result<Vec<BufferCounts>, OwnerStopped> {
        let mut counts = Vec::new();
        for device in &self.devices {
            counts.extend(self.network.buffer_counts(*device).await?);
        }
        Ok(counts)
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

    /// All hosts and jobs.
    pub fn host_cluster(&self) -> EndpointHandle {
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
    /// The end at which a link leaves.
    fn wire_end(&self, link: LinkId) -> Result<WireEnd, TestbedError> {
        let end = self.fabric.link(link).from;
        let beyond = || TestbedError::BeyondDevice(self.fabric.endpoint_name(end));
        match end.node {
            FabricNode::Host(_) => {
                let port = self.fabric.nic_after(link.reverse()).ok_or_else(beyond)?;
                Ok(WireEnd::Nic(self.hosts, port.0))
            }
            FabricNode::Switch(switch) => {
                let port = u16::try_from(end.port).map_err(|_| beyond())?;
                Ok(WireEnd::Device(self.devices[switch.index()], port))
            }
        }
    }
}

/// A switch without a program, with the queues that the transport needs.
fn add_device(
    builder: &mut EmulatedNetworkBuilder,
    fabric: &Fabric,
    switch: &Switch,
    options: TestbedOptions,
) -> DeviceIndex {
    let config = DeviceConfig {
        device_id: switch.device_id,
        cpu_port: CPU_PORT,
        levels: options.levels,
        trusts_dscp: switch.pipeline == PipelineKind::Sai,
    };
    match options.transport {
        HostTransport::Window => builder.add_device(config),
        HostTransport::Dcqcn(dcqcn) => {
            let rates = switch.ports.values().map(|link| wire_rate(fabric.link(*link)));
            let (levels, stream) = (options.levels, switch.device_id);
            let traffic = dcqcn.queues.traffic_settings(levels, rates, options.delay_ns, stream);
            builder.add_device_with_traffic(config, traffic)
        }
    }
}

/// Bits per second.
fn wire_rate(link: &Link) -> u64 {
    (link.bandwidth.gbps() * 1e9) as u64
}
