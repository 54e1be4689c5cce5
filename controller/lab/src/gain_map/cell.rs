//! A cell of the map: six parameters, and the experiment that they make with a seed.
//!
//! All random choices are named streams of the seed alone: where jobs are, their UDP source ports,
//! how they differ. So cells of one seed differ by their parameters only.

use std::collections::BTreeMap;

use planner::{Flow, FlowGpus, Job, JobId, MeasuredSlowdown, PlanInput, Policy};
use simulator::{SimulationExperiment, SwitchHash};
use topology::{Fabric, HostId, clos};

use crate::demo::scenario::draw_number;
use command_io::CommandError;

/// Bandwidth of NICs over that of the uplinks of a leaf.
const OVERSUBSCRIPTIONS: [f64; 4] = [1.0, 1.5, 3.0, 6.0];
/// Connections of a ring for each NIC.
const CONNECTIONS: [u16; 4] = [1, 2, 4, 8];
/// Seconds that an iteration keeps a NIC busy, for each second that it computes.
const VOLUMES: [f64; 4] = [0.1, 0.2, 0.5, 1.0];

/// Simulated time: some 30 iterations of a job where nothing is lost.
const SECONDS: f64 = 40.0;

/// Two pods of two leaves of four hosts, each with 8 GPUs and one NIC. A leaf has four uplinks, and
/// every spine two cores of its own plane.
const PODS: u32 = 2;
const LEAVES: u32 = 2;
const HOSTS_PER_LEAF: u32 = 4;
const SPINES: u32 = 4;
const CORES: u32 = 8;
const NIC_GBPS: f64 = 200.0;
const GPUS_PER_HOST: u32 = 8;

/// Hosts of each job; together all of them.
const JOB_HOSTS: [usize; 6] = [4, 4, 2, 2, 2, 2];

/// Share of the computation after which communication may begin, as in the built-in profiles.
const OVERLAP_FROM: f64 = 0.5;

/// An A100 at half of its speed.
const FLOP_PER_GPU_SECOND: f64 = 1.56e14;

/// Volumes of jobs are between the cell's over this and the cell's times this.
const VOLUME_RANGE: f64 = 2.0;

/// Who uses a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NicSharing {
    /// One job has the host.
    WholeHosts,
    /// Two jobs have four GPUs each and share it.
    SharedNics,
}

impl NicSharing {
    const ALL: [Self; 2] = [Self::WholeHosts, Self::SharedNics];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WholeHosts => "whole hosts",
            Self::SharedNics => "shared NICs",
        }
    }
}

/// How far apart the computations of jobs are, around one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeriodSpread {
    Equal,
    /// Uniform within 10 %.
    Near,
    /// From half a second to two, evenly by logarithm.
    Random,
}

impl PeriodSpread {
    const ALL: [Self; 3] = [Self::Equal, Self::Near, Self::Random];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Near => "± 10 %",
            Self::Random => "random",
        }
    }

    /// Seconds of computation for a draw between 0 and 1.
    fn compute_seconds(self, draw: f64) -> f64 {
        match self {
            Self::Equal => 1.0,
            Self::Near => 0.9 + 0.2 * draw,
            Self::Random => 4.0_f64.powf(draw - 0.5),
        }
    }
}

/// The parameters of a cell but the hash, which only schedulers on hashed paths depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MapCell {
    pub(super) oversubscription: f64,
    pub(super) connections: u16,
    pub(super) sharing: NicSharing,
    pub(super) volume: f64,
    pub(super) spread: PeriodSpread,
}

/// The hashes that every cell is run with.
pub(super) const HASHES: [SwitchHash; 2] =
    [SwitchHash::Independent, SwitchHash::SameFunctionAndSeed];

impl MapCell {
    /// All cells, in the order of their numbers.
    pub(super) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for oversubscription in OVERSUBSCRIPTIONS {
            for sharing in NicSharing::ALL {
                for connections in CONNECTIONS {
                    for volume in VOLUMES {
                        cells.extend(PeriodSpread::ALL.map(|spread| Self {
                            oversubscription,
                            connections,
                            sharing,
                            volume,
                            spread,
                        }));
                    }
                }
            }
        }
        cells
    }

    /// Jobs on the fabric of this cell, drawn with a seed.
    pub(super) fn experiment(&self, seed: u64) -> Result<SimulationExperiment, CommandError> {
        let fabric = self.build_fabric()?;
        let jobs = match self.sharing {
            NicSharing::WholeHosts => self.place_jobs(&fabric, GPUS_PER_HOST, "a", seed),
            NicSharing::SharedNics => ["a", "b"]
                .into_iter()
                .flat_map(|half| self.place_jobs(&fabric, GPUS_PER_HOST / 2, half, seed))
                .collect(),
        };
        Ok(SimulationExperiment {
            input: PlanInput { fabric, jobs },
            policy: Policy::default(),
            seconds: SECONDS,
            faults: Vec::new(),
            views: Vec::new(),
        })
    }

    fn build_fabric(&self) -> Result<Fabric, CommandError> {
        let nics = f64::from(HOSTS_PER_LEAF) * NIC_GBPS;
        let spec = clos::ClosSpec {
            pods: PODS,
            leaves: LEAVES,
            spines: SPINES,
            cores: CORES,
            planes: true,
            hosts_per_leaf: HOSTS_PER_LEAF,
            gpus_per_host: GPUS_PER_HOST,
            host_gbps: NIC_GBPS,
            uplink_gbps: nics / f64::from(SPINES) / self.oversubscription,
            ..clos::ClosSpec::default()
        };
        clos::build_clos("gain-map", &spec).map_err(CommandError::document)
    }

    /// Jobs on all hosts, in an order that is drawn.
    fn place_jobs(&self, fabric: &Fabric, gpus: u32, half: &str, seed: u64) -> Vec<Job> {
        let mut hosts: Vec<HostId> = (0..fabric.hosts().len()).map(HostId::from).collect();
        hosts.sort_by_key(|host| {
            let name = &fabric.host(*host).name;
            (draw_number(seed, &format!("place of {half} {name}")), *host)
        });
        let mut rest = &hosts[..];
        let jobs = JOB_HOSTS.iter().enumerate().map(|(number, count)| {
            let (mine, others) = rest.split_at(*count);
            rest = others;
            self.build_job(fabric, &format!("{half}{number}"), mine, gpus, seed)
        });
        jobs.collect()
    }

    fn build_job(&self, fabric: &Fabric, id: &str, hosts: &[HostId], gpus: u32, seed: u64) -> Job {
        let draw = |what: &str| draw_share(seed, &format!("{what} of {id}"));
        let compute_seconds = self.spread.compute_seconds(draw("computation"));
        let volume = self.volume * VOLUME_RANGE.powf(2.0 * draw("volume") - 1.0);
        let bytes = volume * compute_seconds * NIC_GBPS * 1e9 / 8.0;
        let all_gpus = f64::from(gpus) * hosts.len() as f64;
        Job {
            id: JobId::from(id),
            tenant: None,
            model: None,
            gpus: hosts.iter().map(|host| (*host, gpus)).collect::<BTreeMap<_, _>>(),
            flop_per_iteration: FLOP_PER_GPU_SECOND * all_gpus * compute_seconds,
            compute_seconds,
            overlap_from: OVERLAP_FROM,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: self.ring_flows(fabric, id, hosts, bytes, seed),
        }
    }

    /// A ring over the hosts of a job: each sends `bytes` to the next.
    fn ring_flows(
        &self,
        fabric: &Fabric,
        id: &str,
        hosts: &[HostId],
        bytes: f64,
        seed: u64,
    ) -> Vec<Flow> {
        let next = hosts.iter().cycle().skip(1);
        let ends = hosts
            .iter()
            .zip(next)
            .filter_map(|(from, to)| Some((fabric.nic_of(*from, 0)?, fabric.nic_of(*to, 0)?)));
        let mut flows = Vec::new();
        for (src, dst) in ends {
            for _ in 0..self.connections {
                let stream = format!("UDP source port of {id} {}", flows.len());
                let port = 0xC000 + (draw_number(seed, &stream) % 0x4000) as u16;
                flows.push(Flow {
                    src,
                    dst,
                    bytes: bytes / f64::from(self.connections),
                    udp_src_port: Some(port),
                    gpus: FlowGpus::default(),
                    overlap_from: None,
                });
            }
        }
        flows
    }
}

/// A number from 0 to 1 of the stream of that name.
fn draw_share(seed: u64, stream: &str) -> f64 {
    (draw_number(seed, stream) % 1_000_000) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_uses_every_gpu_and_sends_the_same_over_any_number_of_connections() {
        let cells = MapCell::all();
        assert_eq!(cells.len() * HASHES.len(), 768);
        let bytes = |cell: &MapCell| -> f64 {
            let experiment = cell.experiment(3).unwrap();
            let PlanInput { fabric, jobs } = &experiment.input;
            let used: u32 = jobs.iter().map(Job::gpu_count).sum();
            assert_eq!(used, fabric.hosts().iter().map(|host| host.gpus).sum::<u32>());
            jobs.iter().flat_map(|job| &job.flows).map(|flow| flow.bytes).sum()
        };
        let of = |connections| cells.iter().find(|cell| cell.connections == connections).unwrap();
        assert!((bytes(of(8)) / bytes(of(1)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn uplinks_have_what_oversubscription_leaves() {
        for cell in MapCell::all() {
            let fabric = cell.build_fabric().unwrap();
            let leaf = fabric.leaf_of(fabric.nic_of(HostId::from(0), 0).unwrap());
            let towards = |up: bool| -> f64 {
                let links = fabric.link_ids().filter(|link| {
                    let ends = fabric.link(*link);
                    let is_of_leaf = ends.from.node == topology::FabricNode::Switch(leaf);
                    is_of_leaf && fabric.switch_after(*link).is_some() == up
                });
                links.map(|link| fabric.link_bandwidth(link).gbps()).sum()
            };
            let ratio = towards(false) / towards(true);
            assert!((ratio - cell.oversubscription).abs() < 1e-6, "{cell:?}: {ratio}");
        }
    }
}
