//! Cases of four families: the shapes of real fabrics, on which a planner that is tuned to one
//! connection, one NIC and nothing oversubscribed loses to simple heuristics.

use std::collections::BTreeMap;

use planner::{Flow, FlowGpus, Job, JobId, MeasuredSlowdown, PlanInput};
use rand::Rng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand_chacha::ChaCha8Rng;
use topology::Fabric;
use topology::HostId;
use topology::clos::{ClosSpec, build_clos};

use super::case::case_random;

/// GPUs of a host, and the speed of a NIC.
const GPUS: u32 = 8;
const NIC_GBPS: f64 = 200.0;

/// A shape of fabric and jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseFamily {
    /// A GPT of 4 hosts and 8 BERTs on half hosts, 4 NICs, 1, 2 or 8 connections of a NIC pair.
    Mixed,
    /// 32 to 128 hosts with 8 NICs on 8 to 16 leaves, 2:1 or 3:1, all busy with 4 to 12 jobs of
    /// rings and all-to-all that send 1 to 3 times as much as their models.
    Nics8,
    /// 2 or 3 jobs on one link that they load 1.0 to 1.35 times, with periods equal or within a
    /// tenth.
    Periods,
    /// 48 hosts with 4 NICs, 6:1, 4 connections, 9 jobs of 2 to 8 hosts.
    Thin,
}

impl CaseFamily {
    /// In the order of the tables.
    pub const ALL: [Self; 4] = [Self::Mixed, Self::Nics8, Self::Periods, Self::Thin];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Nics8 => "nics8",
            Self::Periods => "periods",
            Self::Thin => "thin",
        }
    }
}

/// A model as it is trained: seconds and FLOP of a GPU's computation, and the bytes that a NIC
/// sends for an all-reduce over many hosts.
#[derive(Clone, Copy, Debug)]
struct TrainedModel {
    name: &'static str,
    compute_seconds: f64,
    flop: f64,
    bytes: f64,
}

const GPT: TrainedModel =
    TrainedModel { name: "gpt", compute_seconds: 1.42, flop: 2.1e14, bytes: 12.4e9 };
const BERT: TrainedModel =
    TrainedModel { name: "bert", compute_seconds: 0.152, flop: 3.3e13, bytes: 1.3e9 };
const MODELS: [TrainedModel; 5] = [
    GPT,
    BERT,
    TrainedModel { name: "roberta", compute_seconds: 0.76, flop: 5.6e13, bytes: 5.8e9 },
    TrainedModel { name: "nmt", compute_seconds: 0.43, flop: 6.5e13, bytes: 5.5e9 },
    TrainedModel { name: "resnet", compute_seconds: 0.108, flop: 6.3e12, bytes: 0.55e9 },
];

/// Which hosts of a job send to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPattern {
    Ring,
    AllToAll,
}

/// What a job is drawn with.
#[derive(Clone, Debug)]
struct DrawnJob<'a> {
    model: TrainedModel,
    hosts: &'a [HostId],
    gpus_per_host: u32,
    connections: usize,
    pattern: JobPattern,
}

/// Case `number` of a family in the run of that `seed`.
pub fn generate_family_case(family: CaseFamily, seed: u64, number: u32) -> PlanInput {
    let stream = u64::from(number) | (family as u64 + 1) << 52;
    let mut random = case_random(seed, stream);
    match family {
        CaseFamily::Mixed => draw_mixed(&mut random),
        CaseFamily::Nics8 => draw_nics8(&mut random),
        CaseFamily::Periods => draw_periods(&mut random),
        CaseFamily::Thin => draw_thin(&mut random),
    }
}

fn clos(leaves: u32, spines: u32, hosts_per_leaf: u32, nics: u32, uplink_gbps: f64) -> Fabric {
    let spec = ClosSpec {
        leaves,
        spines,
        hosts_per_leaf,
        gpus_per_host: GPUS,
        host_links: nics,
        host_gbps: NIC_GBPS,
        uplink_gbps,
        ..ClosSpec::default()
    };
    build_clos("family", &spec).expect("the drawn fabric is small")
}

fn draw_mixed(random: &mut ChaCha8Rng) -> PlanInput {
    let spines = random.random_range(4..=8);
    let fabric = clos(2, spines, 6, 4, NIC_GBPS);
    let connections = *[1, 2, 8].choose(random).expect("not empty");
    let mut jobs = Vec::new();
    let gpt: Vec<HostId> = [0, 1, 6, 7].map(HostId).to_vec();
    let drawn = DrawnJob {
        model: GPT,
        hosts: &gpt,
        gpus_per_host: GPUS,
        connections,
        pattern: JobPattern::Ring,
    };
    jobs.push(draw_job(&fabric, "gpt".to_owned(), &drawn, random));
    for number in 0..8 {
        let near = 2 + number % 4;
        let hosts = [HostId(near), HostId(6 + random.random_range(2..6))];
        let drawn = DrawnJob {
            model: BERT,
            hosts: &hosts,
            gpus_per_host: GPUS / 2,
            connections,
            pattern: JobPattern::Ring,
        };
        jobs.push(draw_job(&fabric, format!("bert-{number}"), &drawn, random));
    }
    PlanInput { fabric, jobs }
}

fn draw_nics8(random: &mut ChaCha8Rng) -> PlanInput {
    let leaves = *[8, 16].choose(random).expect("not empty");
    let hosts_per_leaf = random.random_range(4..=8);
    let spines = *[4, 8].choose(random).expect("not empty");
    // Larger models send more for the same computation.
    let volume = *[1.0, 2.0, 3.0].choose(random).expect("not empty");
    let oversubscription = *[2.0, 3.0].choose(random).expect("not empty");
    let down = f64::from(hosts_per_leaf) * 8.0 * NIC_GBPS;
    let fabric =
        clos(leaves, spines, hosts_per_leaf, 8, down / oversubscription / f64::from(spines));
    let mut free: Vec<HostId> = (0..leaves * hosts_per_leaf).map(HostId).collect();
    let count = random.random_range(4..=12);
    let mut jobs = Vec::new();
    for number in 0..count {
        // All hosts are busy in the end, and most of a fabric's jobs are small.
        let fair = free.len() / (count - number);
        let size = match count - number {
            1 => fair,
            _ => random.random_range(2..=2 * fair - 2),
        };
        let hosts = take_hosts(&mut free, size, random);
        let pattern = match random.random_range(0..3) {
            0 if hosts.len() <= 8 => JobPattern::AllToAll,
            _ => JobPattern::Ring,
        };
        let drawn = *MODELS.choose(random).expect("not empty");
        let model = TrainedModel { bytes: volume * drawn.bytes, ..drawn };
        let connections = *[1, 2, 4].choose(random).expect("not empty");
        let drawn = DrawnJob { model, hosts: &hosts, gpus_per_host: GPUS, connections, pattern };
        jobs.push(draw_job(&fabric, format!("{}-{number:02}", model.name), &drawn, random));
    }
    PlanInput { fabric, jobs }
}

fn draw_thin(random: &mut ChaCha8Rng) -> PlanInput {
    let fabric = clos(8, 4, 6, 4, NIC_GBPS);
    let mut free: Vec<HostId> = (0..48).map(HostId).collect();
    let mut jobs = Vec::new();
    for number in 0..9 {
        let most = (free.len() - 2 * (8 - number)).min(8);
        let hosts = take_hosts(&mut free, random.random_range(2..=most), random);
        let model = *MODELS.choose(random).expect("not empty");
        let drawn = DrawnJob {
            model,
            hosts: &hosts,
            gpus_per_host: GPUS,
            connections: 4,
            pattern: JobPattern::Ring,
        };
        jobs.push(draw_job(&fabric, format!("{}-{number}", model.name), &drawn, random));
    }
    PlanInput { fabric, jobs }
}

/// Jobs without overlap between two leaves with one uplink.
fn draw_periods(random: &mut ChaCha8Rng) -> PlanInput {
    let count = random.random_range(2..=3);
    let fabric = clos(2, 1, count, 1, NIC_GBPS);
    let load = random.random_range(1.0..1.35);
    let is_equal = random.random_bool(0.5);
    let jobs = (0..count).map(|number| {
        let jitter = if is_equal { 0.0 } else { random.random_range(-0.05..0.05) };
        let period = 1.0 + jitter;
        let sending = period * load / f64::from(count) * random.random_range(0.9..1.1);
        let hosts = [HostId(number), HostId(count + number)];
        let model = TrainedModel {
            name: "period",
            compute_seconds: period - sending,
            flop: 1e14 * random.random_range(0.5..2.0),
            bytes: sending * NIC_GBPS * 1e9 / 8.0,
        };
        let drawn = DrawnJob {
            model,
            hosts: &hosts,
            gpus_per_host: GPUS,
            connections: 1,
            pattern: JobPattern::Ring,
        };
        Job { overlap_from: 1.0, ..exact_job(&fabric, format!("j{number}"), &drawn, random, 1.0) }
    });
    let jobs = jobs.collect();
    PlanInput { fabric, jobs }
}

/// Takes so many of the free hosts, or all.
fn take_hosts(free: &mut Vec<HostId>, count: usize, random: &mut ChaCha8Rng) -> Vec<HostId> {
    let mut taken: Vec<HostId> = free.iter().copied().choose_multiple(random, count);
    taken.sort_unstable();
    free.retain(|host| !taken.contains(host));
    taken
}

/// A job whose numbers are within a twentieth of its model's.
fn draw_job(fabric: &Fabric, name: String, drawn: &DrawnJob<'_>, random: &mut ChaCha8Rng) -> Job {
    let scale = random.random_range(0.95..1.05);
    exact_job(fabric, name, drawn, random, scale)
}

fn exact_job(
    fabric: &Fabric,
    name: String,
    drawn: &DrawnJob<'_>,
    random: &mut ChaCha8Rng,
    scale: f64,
) -> Job {
    let DrawnJob { model, hosts, gpus_per_host, connections, pattern } = drawn;
    let peers = match pattern {
        JobPattern::Ring => 1,
        JobPattern::AllToAll => hosts.len() - 1,
    };
    let bytes = scale * model.bytes / (peers * connections) as f64;
    let mut flows = Vec::new();
    for (place, src) in hosts.iter().enumerate() {
        for dst in (1..=peers).map(|step| hosts[(place + step) % hosts.len()]) {
            let nics = fabric.host(*src).nics.iter().zip(&fabric.host(dst).nics);
            for (src, dst) in nics {
                flows.extend((0..*connections).map(|_| Flow {
                    src: *src,
                    dst: *dst,
                    bytes,
                    udp_src_port: Some(random.random_range(0xC000..=0xFFFF)),
                    gpus: FlowGpus::default(),
                    overlap_from: None,
                }));
            }
        }
    }
    let gpus: BTreeMap<HostId, u32> = hosts.iter().map(|host| (*host, *gpus_per_host)).collect();
    Job {
        id: JobId::from(name),
        tenant: None,
        model: None,
        flop_per_iteration: scale * model.flop * f64::from(gpus.values().sum::<u32>()),
        gpus,
        compute_seconds: scale * model.compute_seconds,
        overlap_from: 0.5,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows,
    }
}
