//! Input of a plan: the present fabric, and the jobs as documents or telemetry report them.
//!
//! Everything here is already resolved against the fabric (ids, not names) and checked; the
//! documents that people write are in `jobs_document`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, HostId, LinkId, LinkPath, NicId};

/// Name of a job, unique among the jobs of an input; orders ties everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct JobId(Arc<str>);

impl JobId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for JobId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for JobId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.as_str().to_owned()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a flow is known, from the most exact to the least.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FlowIdentity {
    /// Its job stated the UDP source port: its five-tuple has a pin.
    Announced,
    /// Only its NICs are stated, and its leaf has reported five-tuples between them.
    Learned,
    /// Only its NICs are stated: all RoCEv2 packets between them have its level.
    Pair,
}

impl fmt::Display for FlowIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Announced => "announced",
            Self::Learned => "learned",
            Self::Pair => "pair",
        })
    }
}

/// What a job sends from one NIC to another in one iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// NIC that sends the flow.
    pub src: NicId,
    /// NIC that receives the flow.
    pub dst: NicId,
    /// Bytes in one iteration; finite, not negative.
    pub bytes: f64,
    /// UDP source port, the entropy of RoCEv2 (0xC000..=0xFFFF by default). `None`: its host
    /// chooses it, and the flow is known by its NICs alone.
    pub udp_src_port: Option<u16>,
    /// The GPUs at its ends, where they are known.
    pub gpus: FlowGpus,
    /// Fraction of the computation after which it may begin, in 0..=1; that of its job if `None`.
    pub overlap_from: Option<f64>,
}

/// The GPUs between which a flow goes, counted from 0 in their hosts; they matter where the
/// fabric describes the interconnect of a host.
///
/// A byte each: plans pass over all flows of a fabric, and a host whose interconnect is described
/// has at most 256 GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowGpus {
    src: Option<u8>,
    dst: Option<u8>,
}

impl FlowGpus {
    /// The GPU that sends and the one that receives; one beyond 255 is as good as unknown.
    pub fn new(src: Option<u32>, dst: Option<u32>) -> Self {
        let [src, dst] = [src, dst].map(|gpu| gpu.and_then(|gpu| u8::try_from(gpu).ok()));
        Self { src, dst }
    }

    /// The one that sends.
    pub fn src(self) -> Option<u32> {
        self.src.map(u32::from)
    }

    /// The one that receives.
    pub fn dst(self) -> Option<u32> {
        self.dst.map(u32::from)
    }
}

#[cfg(test)]
impl Job {
    /// A job with GPUs of one host, which computes for a second an iteration.
    pub(crate) fn for_test(id: &str, gpus: (HostId, u32), flows: Vec<Flow>) -> Self {
        Self {
            id: id.into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([gpus]),
            flop_per_iteration: 1e15,
            compute_seconds: 1.0,
            overlap_from: 1.0,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows,
        }
    }
}

impl Flow {
    /// The links from its GPU to its NIC, and from the NIC at the other end to the GPU there; none
    /// where the fabric describes no interconnect.
    pub fn host_links(&self, fabric: &Fabric) -> Option<[LinkPath; 2]> {
        fabric.describes_interconnects().then(|| {
            let first = fabric.links_to_nic(self.gpus.src(), self.src);
            [first, fabric.links_from_nic(self.dst, self.gpus.dst())]
        })
    }

    /// The intra-host links that the flow crosses, in order.
    pub fn intra_host_links(&self, fabric: &Fabric) -> impl Iterator<Item = LinkId> + use<> {
        let ends = self.host_links(fabric).into_iter().flatten();
        ends.flat_map(|links| (0..links.len()).map(move |place| links[place]))
    }

    /// All links that the flow crosses on a path from NIC to NIC; none if that is empty.
    pub fn crossed_links<'p>(&self, fabric: &Fabric, path: &'p [LinkId]) -> Cow<'p, [LinkId]> {
        match self.host_links(fabric).filter(|_| !path.is_empty()) {
            None => Cow::Borrowed(path),
            Some([first, last]) => Cow::Owned([&first[..], path, &last[..]].concat()),
        }
    }
}

/// How much slower than expected a job ran lately: 0 is not at all, 1 is half as fast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredSlowdown {
    /// Slower than alone on its planned paths: for fairness (Crux §7.2).
    pub over_alone: f64,
    /// Slower than forecast beside the other jobs: for what policy guarantees to it.
    pub over_forecast: f64,
}

/// An iterative training job (Crux §3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Unique name of the job.
    pub id: JobId,
    /// Tenant that owns the job, for policy.
    pub tenant: Option<String>,
    /// Name of the trained model, for people.
    pub model: Option<String>,
    /// GPUs used on each host.
    pub gpus: BTreeMap<HostId, u32>,
    /// `W_j`: work of one iteration, summed over its GPUs, in FLOP; finite, above zero.
    pub flop_per_iteration: f64,
    /// `comp_j`: duration of the computation of one iteration, undisturbed, in seconds.
    pub compute_seconds: f64,
    /// `o_j` in 0..=1: fraction of the computation after which communication may begin, but for flows
    /// that state their own.
    pub overlap_from: f64,
    /// Whether it begins its iterations when it is asked to.
    pub can_wait: bool,
    /// How much slower than expected it ran lately.
    pub measured: MeasuredSlowdown,
    /// Flows of every iteration.
    pub flows: Vec<Flow>,
}

impl Job {
    /// `G_j`: GPUs of the job.
    pub fn gpu_count(&self) -> u32 {
        self.gpus.values().sum()
    }

    /// Seconds of computation after which a flow of it may begin.
    pub fn flow_start_seconds(&self, flow: &Flow) -> f64 {
        flow.overlap_from.unwrap_or(self.overlap_from) * self.compute_seconds
    }

    /// Seconds of computation after which the first of its flows may begin.
    pub fn first_start_seconds(&self) -> f64 {
        let starts = self.flow_starts();
        starts.last().copied().unwrap_or(self.overlap_from * self.compute_seconds)
    }

    /// Seconds of computation after which flows of it begin, descending, each once: one for most
    /// jobs.
    pub(crate) fn flow_starts(&self) -> Vec<f64> {
        let mut starts = Vec::with_capacity(1);
        for flow in &self.flows {
            let start = self.flow_start_seconds(flow);
            if !starts.contains(&start) {
                starts.push(start);
            }
        }
        starts.sort_by(|a, b| b.total_cmp(a));
        starts
    }
}

/// Input of a plan, apart from policy and the previous plan.
#[derive(Clone, Debug)]
pub struct PlanInput {
    /// The fabric with its failed and drained parts.
    pub fabric: Fabric,
    /// The jobs; ids are unique.
    pub jobs: Vec<Job>,
}
