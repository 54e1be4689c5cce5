//! The cases of the microbenchmark (Crux §4.4): small clusters of five jobs, from a seed.
//!
//! The paper fixes at most 20 hosts of 8 GPUs, 2 to 4 leaves, 2 spines, 5 jobs and 3 levels. What
//! it leaves open is chosen here, before anything was measured, and stated in
//! `docs/algorithms/priority.md`:
//!
//! * 3 to 5 hosts on every leaf, one NIC of 200 Gb/s each, uplinks of the same speed: two flows on
//!   one uplink contend.
//! * Every job is a ring all-reduce over whole hosts, at least two, spread over two leaves or, one
//!   time in four, three: a job on one leaf would contend with no other.
//! * Computation is that of a built-in profile, drawn for every job, and scaled by 0.7..1.4, as a
//!   batch size does; communication may begin after 0.5..1 of it.
//! * A ring's communication takes 0.2..0.9 of the computation when alone. Published volumes would
//!   leave half of the cases without contention, so the share is drawn instead.

use planner::{Flow, Job, JobId, MeasuredSlowdown, ModelProfile, PlanInput, builtin_profiles};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, HostId, SwitchId};

/// Jobs of a case.
pub const CASE_JOBS: usize = 5;

/// Levels of a case.
pub const CASE_LEVELS: u8 = 3;

/// Speed of NICs and uplinks.
const GBPS: f64 = 200.0;

const GPUS_PER_HOST: u32 = 8;

/// One case: its fabric and its jobs.
#[derive(Clone, Debug)]
pub struct BenchmarkCase {
    /// The seed of the run it belongs to.
    pub seed: u64,
    /// Its number in the run.
    pub number: u32,
    /// What is to be planned.
    pub input: PlanInput,
}

/// Case `number` of the run of that `seed`; every case has a random stream of its own.
pub fn generate_case(seed: u64, number: u32) -> BenchmarkCase {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(number));
    // Hosts may not suffice for the jobs as drawn; then all is drawn again.
    let input = loop {
        if let Some(input) = draw_input(&mut random) {
            break input;
        }
    };
    BenchmarkCase { seed, number, input }
}

fn draw_input(random: &mut ChaCha8Rng) -> Option<PlanInput> {
    let spec = ClosSpec {
        leaves: random.random_range(2..=4),
        spines: 2,
        hosts_per_leaf: random.random_range(3..=5),
        gpus_per_host: GPUS_PER_HOST,
        host_gbps: GBPS,
        uplink_gbps: GBPS,
        ..ClosSpec::default()
    };
    let fabric = clos::build_clos("case", &spec).ok()?;
    let mut free = FreeHosts::new(&fabric);
    let mut jobs = Vec::new();
    for number in 1..=CASE_JOBS {
        let hosts = free.take_hosts(random)?;
        jobs.push(generate_job(&fabric, number, &hosts, random));
    }
    Some(PlanInput { fabric, jobs })
}

/// Hosts that no job has yet, by leaf.
struct FreeHosts {
    by_leaf: Vec<Vec<HostId>>,
}

impl FreeHosts {
    fn new(fabric: &Fabric) -> Self {
        let mut by_leaf = vec![Vec::new(); fabric.switches().len()];
        for (id, host) in fabric.hosts().iter().enumerate() {
            let leaf: SwitchId = fabric.leaf_of(host.nics[0]);
            by_leaf[leaf.index()].push(HostId::from(id));
        }
        by_leaf.retain(|hosts| !hosts.is_empty());
        Self { by_leaf }
    }

    /// Hosts of one job, ascending: one or two on each of two or three leaves; none where too few
    /// leaves have hosts left.
    fn take_hosts(&mut self, random: &mut ChaCha8Rng) -> Option<Vec<HostId>> {
        let spread = if random.random_bool(0.25) { 3 } else { 2 };
        let spread = spread.min(self.by_leaf.len());
        let mut leaves: Vec<usize> =
            (0..self.by_leaf.len()).filter(|leaf| !self.by_leaf[*leaf].is_empty()).collect();
        if leaves.len() < spread {
            return None;
        }
        leaves.shuffle(random);
        let mut hosts = Vec::new();
        for leaf in &leaves[..spread] {
            let left = &mut self.by_leaf[*leaf];
            let wanted = random.random_range(1..=2).min(left.len());
            hosts.extend(left.drain(..wanted));
        }
        hosts.sort_unstable();
        Some(hosts)
    }
}

fn generate_job(fabric: &Fabric, number: usize, hosts: &[HostId], random: &mut ChaCha8Rng) -> Job {
    let profile: &ModelProfile =
        builtin_profiles().choose(random).expect("the built-in table is not empty");
    let scale = random.random_range(0.7..1.4);
    let compute_seconds = profile.compute_seconds * scale;
    let gpus = GPUS_PER_HOST * u32::try_from(hosts.len()).expect("a case has at most 20 hosts");
    let bytes = compute_seconds * random.random_range(0.2..0.9) * GBPS * 1e9 / 8.0;
    let nic = |host: HostId| fabric.host(host).nics[0];
    let next = hosts.iter().cycle().skip(1);
    Job {
        id: JobId::from(format!("j{number}").as_str()),
        tenant: None,
        model: Some(profile.model.clone()),
        gpus: hosts.iter().map(|host| (*host, GPUS_PER_HOST)).collect(),
        flop_per_iteration: profile.flop_per_gpu * scale * f64::from(gpus),
        compute_seconds,
        overlap_from: random.random_range(0.5..1.0),
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: hosts
            .iter()
            .zip(next)
            .enumerate()
            .map(|(position, (src, dst))| Flow {
                src: nic(*src),
                dst: nic(*dst),
                bytes,
                udp_src_port: Some(
                    0xC000 + u16::try_from(number * 32 + position).expect("few flows"),
                ),
                gpus: planner::FlowGpus::default(),
                overlap_from: None,
            })
            .collect(),
    }
}
