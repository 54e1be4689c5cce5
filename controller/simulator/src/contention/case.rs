//! Cases in which jobs contend: 2 to 12 jobs that share hosts, NICs and uplinks, or many of them.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use planner::{Flow, FlowGpus, Job, JobId, MeasuredSlowdown, PlanInput};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, HostId, HostInterconnect, LinkScheduler, NicId, PcieSwitch};

/// GPUs of a host.
const GPUS: u32 = 8;

/// Speed of a NIC.
const NIC_GBPS: f64 = 200.0;

/// What the jobs of a case are drawn from.
#[derive(Clone, Debug)]
struct JobRanges {
    hosts: RangeInclusive<u32>,
    /// Decimal logarithm of the seconds of a computation.
    compute: Range<f64>,
    connections: RangeInclusive<u16>,
    /// Flows of a job at most: hosts, 4 NICs, connections.
    flows_max: u16,
}

/// Those of all cases but the ones for packets.
const USUAL_JOBS: JobRanges =
    JobRanges { hosts: 2..=6, compute: -1.3..0.3, connections: 1..=2, flows_max: 48 };

/// Up to as many connections of a NIC pair as a leaf may have uplinks, and iterations of like
/// length: these cases are simulated at length.
const MODE_JOBS: JobRanges =
    JobRanges { compute: -0.5..0.3, connections: 1..=8, flows_max: 192, ..USUAL_JOBS };

/// Few packets, and none of them so short a share of an iteration that its latency counts.
const PACKET_JOBS: JobRanges =
    JobRanges { hosts: 2..=3, compute: -0.7..0.0, connections: 1..=1, flows_max: 48 };

/// What a fabric and its jobs are drawn from.
#[derive(Clone, Debug)]
struct CaseRanges {
    spines: RangeInclusive<u32>,
    hosts_per_leaf: RangeInclusive<u32>,
    /// NICs of a host.
    nics: RangeInclusive<u32>,
    job_count: RangeInclusive<u16>,
    jobs: JobRanges,
}

const CONTENDED_CASE: CaseRanges = CaseRanges {
    spines: 1..=4,
    hosts_per_leaf: 2..=4,
    nics: 1..=4,
    job_count: 2..=12,
    jobs: USUAL_JOBS,
};

const MODE_CASE: CaseRanges =
    CaseRanges { spines: 2..=8, nics: 1..=2, job_count: 2..=8, jobs: MODE_JOBS, ..CONTENDED_CASE };

const PACKET_CASE: CaseRanges = CaseRanges {
    spines: 1..=2,
    hosts_per_leaf: 2..=3,
    nics: 1..=2,
    job_count: 2..=5,
    jobs: PACKET_JOBS,
};

/// Case `number` of the run of that `seed`; every case has a random stream of its own.
///
/// 2 to 4 leaves, 1 to 4 spines, 2 to 4 hosts of 8 GPUs with 1 to 4 NICs under each leaf, uplinks
/// of 0.5 to 2 times the NIC. A job is a ring over 2 to 6 hosts and over some of their NICs, with 1
/// or 2 connections from each; GPUs and NICs are shared without regard to other jobs. Communication
/// alone takes 0.1 to 1.5 times as long as computation.
pub fn generate_contended_case(seed: u64, number: u32) -> PlanInput {
    let mut random = case_random(seed, number.into());
    let leaves = random.random_range(2..=4);
    draw_case("case", leaves, &CONTENDED_CASE, &mut random)
}

/// A case small enough to be sent packet by packet: 2 to 5 jobs on 2 leaves of 2 or 3 hosts with 1
/// or 2 NICs each, at least one of which is shared by two jobs.
pub fn generate_packet_case(seed: u64, number: u32) -> PlanInput {
    let mut random = case_random(seed, number.into());
    let mut draws =
        std::iter::repeat_with(|| draw_case("packet-case", 2, &PACKET_CASE, &mut random));
    draws.find(shares_nic).expect("some draw shares a NIC")
}

/// A case in which one job, whose position comes with it, may have its paths found in several ways:
/// 2 to 8 spines, 1 to 8 connections of each NIC pair, and otherwise as in
/// [`generate_contended_case`]. The job has a flow between leaves.
pub fn generate_mode_case(seed: u64, number: u32) -> (PlanInput, usize) {
    let mut random = case_random(seed, u64::from(number) | MODE_STREAMS);
    loop {
        let leaves = random.random_range(2..=4);
        let input = draw_case("mode-case", leaves, &MODE_CASE, &mut random);
        let leaf_of = |nic| input.fabric.leaf_of(nic);
        let crosses = |flow: &Flow| leaf_of(flow.src) != leaf_of(flow.dst);
        let free = (0..input.jobs.len()).filter(|job| input.jobs[*job].flows.iter().any(crosses));
        if let Some(job) = free.choose(&mut random) {
            return (input, job);
        }
    }
}

/// Random streams of cases for modes.
const MODE_STREAMS: u64 = 1 << 49;

/// A case for packets on hosts with one PCIe switch for each NIC, whose links carry 0.4 to 1 times
/// what the NIC does: at least two jobs share one. A flow begins and ends at any GPU of its host,
/// so some cross the root complex.
pub fn generate_pcie_case(seed: u64, number: u32) -> PlanInput {
    let mut random = case_random(seed, u64::from(number) | PCIE_STREAMS);
    let mut draws = std::iter::repeat_with(|| {
        let input = draw_case("pcie-case", 2, &PACKET_CASE, &mut random);
        with_pcie_switches(input, &mut random)
    });
    draws.find(shares_nic).expect("some draw shares a NIC")
}

/// Random streams of cases with PCIe.
const PCIE_STREAMS: u64 = 1 << 48;

fn with_pcie_switches(input: PlanInput, random: &mut ChaCha8Rng) -> PlanInput {
    let gbps = NIC_GBPS * random.random_range(0.4..1.0);
    let nics = input.fabric.hosts()[0].nics.len() as u32;
    let gpus_each = GPUS / nics;
    let pcie_switches = (0..nics).map(|nic| PcieSwitch {
        gpus: (nic * gpus_each..(nic + 1) * gpus_each).collect(),
        nics: vec![nic],
        gbps,
        root_gbps: None,
    });
    let interconnect = Arc::new(HostInterconnect {
        pcie_switches: pcie_switches.collect(),
        nvlink_domains: Vec::new(),
        scheduler: LinkScheduler::Fifo,
    });
    let fabric = input.fabric.with_interconnects(|_| Some(Arc::clone(&interconnect)));
    let mut jobs = input.jobs;
    for flow in jobs.iter_mut().flat_map(|job| &mut job.flows) {
        let mut gpu = || Some(random.random_range(0..GPUS));
        flow.gpus = FlowGpus::new(gpu(), gpu());
    }
    PlanInput { fabric, jobs }
}

/// The random stream of a case of the run of that `seed`.
pub(super) fn case_random(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// A fabric of that many leaves and jobs on it.
fn draw_case(name: &str, leaves: u32, ranges: &CaseRanges, random: &mut ChaCha8Rng) -> PlanInput {
    let spec = ClosSpec {
        leaves,
        spines: random.random_range(ranges.spines.clone()),
        hosts_per_leaf: random.random_range(ranges.hosts_per_leaf.clone()),
        host_links: random.random_range(ranges.nics.clone()),
        gpus_per_host: GPUS,
        host_gbps: NIC_GBPS,
        uplink_gbps: NIC_GBPS * random.random_range(0.5..2.0),
        ..ClosSpec::default()
    };
    let fabric = clos::build_clos(name, &spec).expect("the drawn fabric is small");
    let count = random.random_range(ranges.job_count.clone());
    let jobs = (0..count).map(|number| draw_job(&fabric, number, &ranges.jobs, random)).collect();
    PlanInput { fabric, jobs }
}

/// Whether two jobs send from one NIC.
fn shares_nic(input: &PlanInput) -> bool {
    let mut senders: BTreeMap<NicId, usize> = BTreeMap::new();
    input.jobs.iter().enumerate().any(|(job, sends)| {
        let mut nics = sends.flows.iter().map(|flow| flow.src);
        nics.any(|nic| *senders.entry(nic).or_insert(job) != job)
    })
}

/// A case of that seed in which `jobs` jobs contend, as densely as in the small cases: five hosts
/// for four jobs, 8 to 16 hosts under each leaf and 4 to 8 spines.
#[cfg(test)]
pub(super) fn generate_large_case(seed: u64, jobs: u16) -> PlanInput {
    let mut random = case_random(seed, u64::from(jobs) << 32);
    let hosts_per_leaf = random.random_range(8..=16);
    let hosts = u32::from(jobs) * 5 / 4;
    let spec = ClosSpec {
        leaves: hosts.div_ceil(hosts_per_leaf).max(2),
        spines: random.random_range(4..=8),
        hosts_per_leaf,
        host_links: random.random_range(1..=4),
        gpus_per_host: GPUS,
        host_gbps: NIC_GBPS,
        uplink_gbps: NIC_GBPS * random.random_range(0.5..2.0),
        ..ClosSpec::default()
    };
    let fabric = clos::build_clos("large-case", &spec).expect("the drawn fabric is small");
    let jobs =
        (0..jobs).map(|number| draw_job(&fabric, number, &USUAL_JOBS, &mut random)).collect();
    PlanInput { fabric, jobs }
}

fn draw_job(fabric: &Fabric, number: u16, ranges: &JobRanges, random: &mut ChaCha8Rng) -> Job {
    let hosts = fabric.hosts().len() as u32;
    let most = hosts.min(*ranges.hosts.end());
    let count = random.random_range(*ranges.hosts.start()..=most) as usize;
    let mut members: Vec<HostId> =
        (0..hosts).map(HostId).choose_multiple(random, count).into_iter().collect();
    members.sort_unstable();
    let gpus: BTreeMap<HostId, u32> =
        members.iter().map(|host| (*host, random.random_range(1..=GPUS))).collect();
    let compute_seconds = 10_f64.powf(random.random_range(ranges.compute.clone()));
    let nics = fabric.host(members[0]).nics.len();
    let (first, used) = (random.random_range(0..nics), random.random_range(1..=nics));
    let connections = random.random_range(ranges.connections.clone());
    let seconds = compute_seconds * random.random_range(0.1..1.5);
    let bytes = seconds * NIC_GBPS * 1e9 / 8.0 / f64::from(connections);
    let next = members.iter().cycle().skip(1);
    let mut flows = Vec::new();
    for (src, dst) in members.iter().zip(next) {
        for nic in (0..used).map(|offset| (first + offset) % nics) {
            for _ in 0..connections {
                let ordinal = u16::try_from(flows.len()).expect("a ring has few flows");
                flows.push(Flow {
                    src: fabric.host(*src).nics[nic],
                    dst: fabric.host(*dst).nics[nic],
                    bytes,
                    udp_src_port: Some(0xC000 + (number * ranges.flows_max + ordinal) % 0x4000),
                    gpus: FlowGpus::default(),
                    overlap_from: None,
                });
            }
        }
    }
    Job {
        id: JobId::from(format!("j{number:03}").as_str()),
        tenant: None,
        model: None,
        flop_per_iteration: 1e14 * compute_seconds * f64::from(gpus.values().sum::<u32>()),
        gpus,
        compute_seconds,
        overlap_from: random.random_range(0.0..1.0),
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_with_pcie_contend_inside_hosts() {
        for number in 0..20 {
            let input = generate_pcie_case(1, number);
            assert_eq!(input.jobs, generate_pcie_case(1, number).jobs);
            assert!(shares_nic(&input));
            for flow in input.jobs.iter().flat_map(|job| &job.flows) {
                let inside: Vec<_> = flow.intra_host_links(&input.fabric).collect();
                // Over one switch in either host, or over two and the root complex.
                assert!((4..=8).contains(&inside.len()), "{inside:?}");
                let slower = |link| input.fabric.link_bandwidth(link).gbps() <= NIC_GBPS;
                assert!(inside.into_iter().all(slower));
            }
        }
    }
}
