//! The jobs of the demo: who trains what, where, and how much it sends.
//!
//! Three cases. The *testbed* is that of Crux §6.1 and §6.2: 12 hosts of 8 GPUs and 4 NICs under 4
//! leaves, with a 48-GPU GPT, two 16-GPU BERT and two 8-GPU ResNet jobs, which use every GPU. The
//! *calibration* case is that of Crux §2.2, from which [`calibration`](super::calibration) takes
//! the volumes that the paper does not print. The *shared uplinks* are ours: leaves with a third of
//! the bandwidth upwards that they have towards hosts, so that no choice of paths avoids contention
//! and levels decide.
//!
//! The paper does not print the placement either. Ours follows one rule, fixed before anything was
//! measured: every job spans as many leaves as it can (GPT takes two hosts on leaves 1 and 2 and
//! one on leaves 3 and 4, each BERT four GPUs on every leaf, each ResNet four on leaves 3 and 4),
//! so all of them meet on leaf-spine links. Four GPUs use the two NICs on their side of the host.

use std::collections::BTreeMap;

use p4::fabric::IpVersion;
use planner::{Flow, Job, JobId, MeasuredSlowdown, ModelProfile};
use topology::{Fabric, HostId, PipelineKind, Tier, clos, examples};

use command_io::CommandError;

/// What a job of the scenario is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrainedModel {
    Gpt,
    Bert,
    ResNet,
}

impl TrainedModel {
    pub(crate) fn profile_name(self) -> &'static str {
        match self {
            Self::Gpt => "gpt-24l/A100",
            Self::Bert => "bert-large-seq512/A100",
            Self::ResNet => "resnet50/A100",
        }
    }

    pub(crate) fn find_profile(self) -> Result<&'static ModelProfile, CommandError> {
        let name = self.profile_name();
        let found = planner::builtin_profiles().iter().find(|profile| profile.name == name);
        found.ok_or_else(|| CommandError::Failed(format!("no built-in profile is called {name}")))
    }
}

/// Bytes that the all-reduce of each model is about, per iteration and whole job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AllReduceVolumes {
    pub(super) gpt: f64,
    pub(super) bert: f64,
}

impl AllReduceVolumes {
    /// ResNet is in no case that the paper gives times for: its gradients, as many times over as
    /// BERT's volume is BERT's gradients.
    pub(crate) fn volume_of(self, model: TrainedModel) -> Result<f64, CommandError> {
        let gradients =
            |model: TrainedModel| Ok(model.find_profile()?.gradient_bytes.unwrap_or(0.0));
        Ok(match model {
            TrainedModel::Gpt => self.gpt,
            TrainedModel::Bert => self.bert,
            TrainedModel::ResNet => {
                gradients(TrainedModel::ResNet)? * self.bert / gradients(TrainedModel::Bert)?
            }
        })
    }

    pub(crate) fn scaled_by(self, factor: f64) -> Self {
        Self { gpt: self.gpt * factor, bert: self.bert * factor }
    }
}

/// GPUs of a job on one host, and the NICs they use.
pub(crate) type HostShare<'a> = (&'a str, u32, &'a [u32]);

/// A job and where it is placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScenarioJob<'a> {
    pub(crate) id: &'a str,
    pub(crate) model: TrainedModel,
    pub(crate) shares: &'a [HostShare<'a>],
}

pub(crate) const WHOLE: &[u32] = &[0, 1, 2, 3];
pub(crate) const LEFT: &[u32] = &[0, 1];
pub(crate) const RIGHT: &[u32] = &[2, 3];

const fn job<'a>(id: &'a str, model: TrainedModel, shares: &'a [HostShare<'a>]) -> ScenarioJob<'a> {
    ScenarioJob { id, model, shares }
}

/// All GPUs and NICs of a host.
const fn whole(host: &str) -> HostShare<'_> {
    (host, 8, WHOLE)
}

/// The jobs of Crux §6.2, Fig. 20, on its testbed.
pub(crate) const TESTBED: [ScenarioJob<'static>; 5] = [
    job(
        "gpt",
        TrainedModel::Gpt,
        &[whole("h1"), whole("h2"), whole("h4"), whole("h5"), whole("h7"), whole("h10")],
    ),
    job(
        "bert-1",
        TrainedModel::Bert,
        &[("h3", 4, LEFT), ("h6", 4, LEFT), ("h8", 4, LEFT), ("h11", 4, LEFT)],
    ),
    job(
        "bert-2",
        TrainedModel::Bert,
        &[("h3", 4, RIGHT), ("h6", 4, RIGHT), ("h9", 4, LEFT), ("h12", 4, LEFT)],
    ),
    job("resnet-1", TrainedModel::ResNet, &[("h8", 4, RIGHT), ("h11", 4, RIGHT)]),
    job("resnet-2", TrainedModel::ResNet, &[("h9", 4, RIGHT), ("h12", 4, RIGHT)]),
];

const CALIBRATION: [ScenarioJob<'static>; 2] = [
    job(
        "gpt",
        TrainedModel::Gpt,
        &[
            whole("h1"),
            whole("h2"),
            whole("h3"),
            whole("h4"),
            whole("h7"),
            whole("h8"),
            whole("h9"),
            whole("h10"),
        ],
    ),
    job(
        "bert",
        TrainedModel::Bert,
        &[("h5", 4, LEFT), ("h6", 4, LEFT), ("h11", 4, LEFT), ("h12", 4, LEFT)],
    ),
];

/// What the GPT of the calibration case sends from one leaf to the other: from four NICs.
pub(crate) const GPT_GBPS: f64 = 800.0;

const ONLY: &[u32] = &[0];

const SHARED_UPLINKS: [ScenarioJob<'static>; 6] = [
    job("gpt-1", TrainedModel::Gpt, &[("h1", 8, ONLY), ("h7", 8, ONLY)]),
    job("gpt-2", TrainedModel::Gpt, &[("h2", 8, ONLY), ("h8", 8, ONLY)]),
    job("bert-1", TrainedModel::Bert, &[("h3", 8, ONLY), ("h9", 8, ONLY)]),
    job("bert-2", TrainedModel::Bert, &[("h4", 8, ONLY), ("h10", 8, ONLY)]),
    job("bert-3", TrainedModel::Bert, &[("h5", 8, ONLY), ("h11", 8, ONLY)]),
    job("bert-4", TrainedModel::Bert, &[("h6", 8, ONLY), ("h12", 8, ONLY)]),
];

/// Which case the demo shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ScenarioChoice {
    /// The testbed of Crux section 6.2, ECMP against Crux
    #[default]
    Testbed,
    /// Six jobs on oversubscribed uplinks, one level against eight
    SharedUplinks,
}

/// Which programs the switches of the demo run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PipelineChoice {
    /// fabric.p4 everywhere
    #[default]
    Fabric,
    /// The tables of SAI P4 everywhere
    Sai,
    /// SAI P4 on leaves, fabric.p4 on spines
    SaiLeaves,
    /// fabric.p4 on leaves, SAI P4 on spines
    SaiSpines,
}

impl PipelineChoice {
    pub(super) fn of_tiers(self) -> BTreeMap<Tier, PipelineKind> {
        let sai: &[Tier] = match self {
            Self::Fabric => &[],
            Self::Sai => &[Tier::Leaf, Tier::Spine, Tier::Core],
            Self::SaiLeaves => &[Tier::Leaf],
            Self::SaiSpines => &[Tier::Spine, Tier::Core],
        };
        sai.iter().map(|tier| (*tier, PipelineKind::Sai)).collect()
    }
}

/// A fabric and its jobs.
#[derive(Clone, Debug)]
pub(crate) struct DemoScenario {
    pub(crate) fabric: Fabric,
    pub(crate) jobs: Vec<Job>,
    pub(crate) seed: u64,
}

impl DemoScenario {
    /// The testbed of Crux §6.1 with the jobs of §6.2.
    pub(crate) fn paper_testbed(
        volumes: AllReduceVolumes,
        seed: u64,
    ) -> Result<Self, CommandError> {
        Self::on_testbed(&TESTBED, volumes, seed)
    }

    /// A case of the demo, under these addresses; ids of hosts and NICs do not depend on them.
    pub(crate) fn of_choice(
        choice: ScenarioChoice,
        addresses: IpVersion,
        volumes: AllReduceVolumes,
        seed: u64,
    ) -> Result<Self, CommandError> {
        let (fabric, placed) = match choice {
            ScenarioChoice::Testbed => (testbed_fabric(addresses)?, &TESTBED[..]),
            ScenarioChoice::SharedUplinks => {
                (shared_uplinks_fabric(addresses)?, &SHARED_UPLINKS[..])
            }
        };
        Self::place_jobs(fabric, placed, volumes, seed)
    }

    /// The testbed of Crux §6.1 with other jobs.
    pub(crate) fn on_testbed(
        placed: &[ScenarioJob<'_>],
        volumes: AllReduceVolumes,
        seed: u64,
    ) -> Result<Self, CommandError> {
        Self::place_jobs(testbed_fabric(IpVersion::V4)?, placed, volumes, seed)
    }

    /// The case of Crux §2.2: the hosts of two leaves, which spines join by just what the GPT
    /// needs. With one spine ([`GPT_GBPS`]) there is no choice of paths, GPT alone is not held up,
    /// and where both jobs send, each flow gets two thirds of its NIC: as three flows of 200 Gb/s
    /// do that meet on one of the testbed's uplinks of 400 Gb/s, the mildest contention there is.
    pub(crate) fn calibration_case(
        volumes: AllReduceVolumes,
        uplink_gbps: f64,
        seed: u64,
    ) -> Result<Self, CommandError> {
        let clos = clos::ClosSpec {
            leaves: 2,
            spines: (GPT_GBPS / uplink_gbps).ceil() as u32,
            hosts_per_leaf: 6,
            host_links: 4,
            uplink_gbps,
            ..clos::ClosSpec::default()
        };
        let fabric = clos::build_clos("crux-2.2", &clos).map_err(CommandError::document)?;
        Self::place_jobs(fabric, &CALIBRATION, volumes, seed)
    }

    /// This scenario with only job `index`.
    pub(super) fn single_job(&self, index: usize) -> Self {
        Self { jobs: vec![self.jobs[index].clone()], ..self.clone() }
    }

    /// When each job begins: somewhere within its first iteration, in seconds.
    pub(crate) fn start_seconds(&self) -> Vec<f64> {
        self.jobs
            .iter()
            .map(|job| {
                let draw = draw_number(self.seed, &format!("start of {}", job.id));
                job.compute_seconds * (draw % 1_000) as f64 / 1_000.0
            })
            .collect()
    }

    /// Jobs on a fabric that has their hosts.
    pub(crate) fn place_jobs(
        fabric: Fabric,
        placed: &[ScenarioJob<'_>],
        volumes: AllReduceVolumes,
        seed: u64,
    ) -> Result<Self, CommandError> {
        let jobs = placed
            .iter()
            .map(|placed| build_job(&fabric, placed, volumes, seed))
            .collect::<Result<_, _>>()?;
        Ok(Self { fabric, jobs, seed })
    }
}

/// The testbed of Crux §6.1.
fn testbed_fabric(addresses: IpVersion) -> Result<Fabric, CommandError> {
    let mut document =
        examples::example_document("crux-testbed").map_err(CommandError::document)?;
    if let Some(clos) = &mut document.clos {
        clos.ipv6 = addresses == IpVersion::V6;
    }
    Fabric::try_from(&document).map_err(CommandError::document)
}

/// Two leaves of six hosts with one NIC of 400 Gb/s each, and two uplinks as fast: 3 to 1.
fn shared_uplinks_fabric(addresses: IpVersion) -> Result<Fabric, CommandError> {
    let clos = clos::ClosSpec {
        leaves: 2,
        spines: 2,
        hosts_per_leaf: 6,
        host_gbps: 400.0,
        uplink_gbps: 400.0,
        ipv6: addresses == IpVersion::V6,
        ..clos::ClosSpec::default()
    };
    clos::build_clos("shared-uplinks", &clos).map_err(CommandError::document)
}

fn build_job(
    fabric: &Fabric,
    placed: &ScenarioJob<'_>,
    volumes: AllReduceVolumes,
    seed: u64,
) -> Result<Job, CommandError> {
    let profile = placed.model.find_profile()?;
    let members = placed
        .shares
        .iter()
        .map(|share| find_member(fabric, share))
        .collect::<Result<Vec<_>, _>>()?;
    let gpus: BTreeMap<HostId, u32> =
        members.iter().map(|(host, share)| (*host, share.1)).collect();
    let count = f64::from(gpus.values().sum::<u32>());
    Ok(Job {
        id: JobId::from(placed.id),
        tenant: None,
        model: Some(profile.model.clone()),
        flop_per_iteration: profile.flop_per_gpu * count,
        compute_seconds: profile.compute_seconds,
        overlap_from: profile.overlap_from,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: ring_flows(fabric, placed, &members, volumes.volume_of(placed.model)?, seed),
        gpus,
    })
}

fn find_member<'a>(
    fabric: &Fabric,
    share: &'a HostShare<'a>,
) -> Result<(HostId, &'a HostShare<'a>), CommandError> {
    let host = fabric.host_named(share.0).map(|host| (host, share));
    host.ok_or_else(|| CommandError::Failed(format!("the fabric has no host {}", share.0)))
}

/// A ring all-reduce in host order, one channel for each NIC: each member sends
/// `2(n-1)/n * bytes` to the next. UDP source ports are drawn from the seed.
fn ring_flows(
    fabric: &Fabric,
    placed: &ScenarioJob<'_>,
    members: &[(HostId, &HostShare<'_>)],
    bytes: f64,
    seed: u64,
) -> Vec<Flow> {
    let hosts = members.len() as f64;
    let next = members.iter().cycle().skip(1);
    let mut flows = Vec::new();
    for ((source, from), (destination, to)) in members.iter().zip(next) {
        let channels = from.2.len().min(to.2.len());
        let each = 2.0 * (hosts - 1.0) / hosts * bytes / channels as f64;
        let nics = from.2.iter().zip(to.2).filter_map(|(from, to)| {
            Some((fabric.nic_of(*source, *from)?, fabric.nic_of(*destination, *to)?))
        });
        for (src, dst) in nics {
            let stream = format!("UDP source port of {} {}", placed.id, flows.len());
            let udp_src_port = 0xC000 + (draw_number(seed, &stream) % 0x4000) as u16;
            flows.push(Flow {
                src,
                dst,
                bytes: each,
                udp_src_port: Some(udp_src_port),
                gpus: planner::FlowGpus::default(),
                overlap_from: None,
            });
        }
    }
    flows
}

/// A number of the random stream of that name: FNV-1a of the name, then the finaliser of
/// SplitMix64, the same on every machine.
pub(crate) fn draw_number(seed: u64, stream: &str) -> u64 {
    let mut state = stream.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    state = state.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUMES: AllReduceVolumes = AllReduceVolumes { gpt: 4e10, bert: 2e9 };

    #[test]
    fn the_testbed_uses_every_gpu_and_no_nic_twice_as_sender() {
        let scenario = DemoScenario::paper_testbed(VOLUMES, 1).unwrap();
        let gpus: u32 = scenario.jobs.iter().map(Job::gpu_count).sum();
        assert_eq!(gpus, 96);
        let flows = scenario.jobs.iter().flat_map(|job| &job.flows);
        let mut senders: Vec<_> = flows.map(|flow| flow.src).collect();
        let all = senders.len();
        senders.sort();
        senders.dedup();
        assert_eq!((all, senders.len()), (48, 48));
        for host in 0..scenario.fabric.hosts().len() {
            let used = scenario.jobs.iter().filter_map(|job| job.gpus.get(&HostId::from(host)));
            assert_eq!(used.sum::<u32>(), 8);
        }
    }

    #[test]
    fn every_job_of_the_testbed_uses_leaf_spine_links() {
        let DemoScenario { fabric, jobs, .. } = DemoScenario::paper_testbed(VOLUMES, 1).unwrap();
        for job in &jobs {
            let crosses = |flow: &Flow| fabric.leaf_of(flow.src) != fabric.leaf_of(flow.dst);
            assert!(job.flows.iter().any(crosses), "{}", job.id);
        }
    }

    #[test]
    fn seeds_change_ports_and_starts_and_nothing_else() {
        let [a, b] = [1, 2].map(|seed| DemoScenario::paper_testbed(VOLUMES, seed).unwrap());
        assert_ne!(a.start_seconds(), b.start_seconds());
        for (a, b) in a.jobs.iter().zip(&b.jobs) {
            let ports = |job: &Job| job.flows.iter().map(|f| f.udp_src_port).collect::<Vec<_>>();
            assert_ne!(ports(a), ports(b));
            let volumes = |job: &Job| job.flows.iter().map(|f| f.bytes).collect::<Vec<_>>();
            assert_eq!(volumes(a), volumes(b));
        }
    }
}
