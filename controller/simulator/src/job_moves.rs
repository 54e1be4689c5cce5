//! Which job to move to which hosts, where no choice of paths helps.
//!
//! A job moves as a whole, host by host: its GPUs on a host go to as many free GPUs of another, and
//! its flows go with them. All jobs are planned anew with the job in its new place, and the fluid
//! model judges the plan. That is a suggestion for the scheduler of jobs: nothing here moves one,
//! and what a checkpoint and a restart cost is not counted.
//!
//! Candidates are few, so that a cluster is examined in seconds: the host that is exchanged for a
//! host below each other leaf, and the whole job on the fewest leaves that have room. The same idea
//! at the scale of a cluster, with the migrations that a fabric of trees needs, is MonkeyTree's
//! (arXiv 2602.08296); this is one step of it, judged by the fluid model.

use std::collections::{BTreeMap, BTreeSet};

use planner::{Flow, Job, PlanInput, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, HostId, NicId, SwitchId};

use crate::comparison::IsolatedJob;
use crate::outcome::SimulationOutcome;
use crate::scheduler::Scheduler;
use crate::simulation::{SimulationError, SimulationExperiment, simulate_experiment};

/// A job is worth a move if it takes this many times as long as alone.
const SLOW: f64 = 1.01;

/// Points of GPU utilisation that a move must gain to be suggested, as a share.
const LEAST_GAIN: f64 = 0.001;

/// Hosts of a job that are exchanged, and leaves that each may go to.
const MOST_HOSTS: usize = 8;
const MOST_LEAVES: usize = 4;

/// Iterations of the slowest job that are simulated.
const ITERATIONS: f64 = 40.0;

/// A job in another place, and what that gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobMove {
    /// Name of the job.
    pub job: String,
    /// Hosts that it leaves, each with the one that takes its GPUs.
    pub hosts: BTreeMap<String, String>,
    /// GPUs that move.
    pub gpus: u32,
    /// Seconds of an iteration of the job now, after the move, and alone.
    pub now_seconds: f64,
    /// After the move; null if none ended.
    pub moved_seconds: Option<f64>,
    /// Alone on the fabric.
    pub alone_seconds: f64,
    /// GPU utilisation of all jobs now, as a share.
    pub now_utilization: f64,
    /// After the move.
    pub moved_utilization: f64,
}

impl JobMove {
    /// What it gains, as a share of GPU time.
    pub fn gain(&self) -> f64 {
        self.moved_utilization - self.now_utilization
    }
}

/// The best move of each job that others slow down, the one with the highest gain first. Jobs that
/// no move helps are left out. `jobs` are positions in the input.
///
/// # Errors
/// A job makes no sense.
pub fn suggest_moves(
    input: &PlanInput,
    policy: &Policy,
    jobs: &[usize],
) -> Result<Vec<JobMove>, SimulationError> {
    let mut experiment = SimulationExperiment {
        input: input.clone(),
        policy: policy.clone(),
        seconds: 1.0,
        faults: Vec::new(),
        views: Vec::new(),
    };
    let alone = IsolatedJob::for_experiment(&experiment)?;
    let slowest = alone.iter().filter_map(|job| job.iteration_seconds).fold(0.0, f64::max);
    if slowest <= 0.0 {
        return Ok(Vec::new());
    }
    experiment.seconds = ITERATIONS * slowest;
    let now = judge(&experiment)?;
    let mut moves = Vec::new();
    for job in jobs {
        let seconds = now.jobs[*job].mean_iteration_seconds.zip(alone[*job].iteration_seconds);
        let Some((now_seconds, alone_seconds)) =
            seconds.filter(|(now, alone)| now > &(SLOW * alone))
        else {
            continue;
        };
        let mut best: Option<JobMove> = None;
        for hosts in candidate_places(input, *job) {
            let mut moved = experiment.clone();
            moved.input.jobs[*job] = move_job(&input.fabric, &input.jobs[*job], &hosts);
            let outcome = judge(&moved)?;
            let gpus_of = |host: &HostId| input.jobs[*job].gpus.get(host).copied().unwrap_or(0);
            let name = |host: &HostId| input.fabric.host(*host).name.clone();
            let candidate = JobMove {
                job: input.jobs[*job].id.to_string(),
                gpus: hosts.keys().map(gpus_of).sum(),
                hosts: hosts.iter().map(|(from, to)| (name(from), name(to))).collect(),
                now_seconds,
                moved_seconds: outcome.jobs[*job].mean_iteration_seconds,
                alone_seconds,
                now_utilization: now.gpu_utilization,
                moved_utilization: outcome.gpu_utilization,
            };
            // Of equal gains the first, which moves fewer GPUs.
            if best.as_ref().is_none_or(|best| candidate.gain() > best.gain() + 1e-9) {
                best = Some(candidate);
            }
        }
        moves.extend(best.filter(|best| best.gain() >= LEAST_GAIN));
    }
    moves.sort_by(|one, other| other.gain().total_cmp(&one.gain()).then(one.job.cmp(&other.job)));
    Ok(moves)
}

fn judge(experiment: &SimulationExperiment) -> Result<SimulationOutcome, SimulationError> {
    Ok(simulate_experiment(experiment, Scheduler::Crux, &mut |_| {})?.outcome)
}

/// From each host that is left to the one that takes its place.
type HostMoves = BTreeMap<HostId, HostId>;

/// Places for a job: first those that exchange one host, then the whole job on fewer leaves.
fn candidate_places(input: &PlanInput, job: usize) -> Vec<HostMoves> {
    let PlanInput { fabric, jobs } = input;
    let job = &jobs[job];
    let free = free_gpus(input);
    let own_leaves: BTreeSet<SwitchId> =
        job.gpus.keys().filter_map(|host| first_leaf(fabric, *host)).collect();
    let mut places = Vec::new();
    for (from, gpus) in job.gpus.iter().take(MOST_HOSTS) {
        // One host of each leaf stands for all.
        let mut by_leaf: BTreeMap<SwitchId, (usize, HostId)> = BTreeMap::new();
        for to in (0..fabric.hosts().len()).map(HostId::from) {
            let fits = !job.gpus.contains_key(&to) && can_take(fabric, &free, (*from, to), *gpus);
            if let Some(leaf) = first_leaf(fabric, to).filter(|_| fits) {
                by_leaf.entry(leaf).or_insert((0, to)).0 += 1;
            }
        }
        // Leaves that the job has anyway, then those with the most room; of equal ones the first.
        let mut leaves: Vec<(SwitchId, (usize, HostId))> = by_leaf.into_iter().collect();
        leaves.sort_by_key(|(leaf, (room, _))| {
            (!own_leaves.contains(leaf), std::cmp::Reverse(*room), *leaf)
        });
        let leaves = leaves.iter().take(MOST_LEAVES);
        places.extend(leaves.map(|(_, (_, to))| HostMoves::from([(*from, *to)])));
    }
    places.extend(gathered_place(input, job, &free));
    places
}

/// Whether a host has room for what a job has on another. Where the inside of hosts is described, a
/// job keeps the numbers of its GPUs, so the host has to be idle.
fn can_take(fabric: &Fabric, free: &[u32], (from, to): (HostId, HostId), gpus: u32) -> bool {
    let needed = match fabric.describes_interconnects() {
        true => fabric.host(to).gpus,
        false => gpus,
    };
    fabric.host(to).nics.len() == fabric.host(from).nics.len() && free[to.index()] >= needed
}

/// The whole job on as few leaves as have room; hosts that it has below these stay.
fn gathered_place(input: &PlanInput, job: &Job, free: &[u32]) -> Option<HostMoves> {
    let fabric = &input.fabric;
    let most = job.gpus.values().copied().max()?;
    let mut by_leaf: BTreeMap<SwitchId, Vec<HostId>> = BTreeMap::new();
    for host in (0..fabric.hosts().len()).map(HostId::from) {
        let is_own = job.gpus.contains_key(&host);
        let has_room = is_own || can_take(fabric, free, (host, host), most);
        if let Some(leaf) = first_leaf(fabric, host).filter(|_| has_room) {
            by_leaf.entry(leaf).or_default().push(host);
        }
    }
    let mut leaves: Vec<Vec<HostId>> = by_leaf.into_values().collect();
    // The leaves with the most room; of equal ones the first, by id.
    leaves.sort_by_key(|hosts| std::cmp::Reverse(hosts.len()));
    let mut room: Vec<HostId> = Vec::new();
    for hosts in leaves {
        if room.len() < job.gpus.len() {
            room.extend(hosts);
        }
    }
    let staying: BTreeSet<HostId> =
        room.iter().copied().filter(|host| job.gpus.contains_key(host)).collect();
    let leaving = job.gpus.keys().filter(|host| !staying.contains(host));
    let arriving = room.iter().filter(|host| !staying.contains(host));
    let moves: HostMoves = leaving.copied().zip(arriving.copied()).collect();
    let is_whole = moves.len() + staying.len() == job.gpus.len();
    let fits =
        moves.iter().all(|(from, to)| fabric.host(*from).nics.len() == fabric.host(*to).nics.len());
    (is_whole && fits && !moves.is_empty()).then_some(moves)
}

/// GPUs of each host that no job has.
fn free_gpus(input: &PlanInput) -> Vec<u32> {
    let mut free: Vec<u32> = input.fabric.hosts().iter().map(|host| host.gpus).collect();
    for (host, gpus) in input.jobs.iter().flat_map(|job| &job.gpus) {
        free[host.index()] = free[host.index()].saturating_sub(*gpus);
    }
    free
}

fn first_leaf(fabric: &Fabric, host: HostId) -> Option<SwitchId> {
    Some(fabric.leaf_of(fabric.nic_of(host, 0)?))
}

/// The job with its GPUs and flows on other hosts: each NIC becomes the one of the same number.
fn move_job(fabric: &Fabric, job: &Job, moves: &HostMoves) -> Job {
    let place = |host: HostId| moves.get(&host).copied().unwrap_or(host);
    let nic = |nic: NicId| {
        let known = fabric.nic(nic);
        fabric.host_port(place(known.host), fabric.host_port_number(nic)).unwrap_or(nic)
    };
    let flows = job.flows.iter();
    Job {
        gpus: job.gpus.iter().map(|(host, gpus)| (place(*host), *gpus)).collect(),
        flows: flows
            .map(|flow| Flow { src: nic(flow.src), dst: nic(flow.dst), ..flow.clone() })
            .collect(),
        ..job.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::test_input::TestInput;

    fn names(input: &PlanInput, moves: &HostMoves) -> BTreeMap<String, String> {
        let name = |host: &HostId| input.fabric.host(*host).name.clone();
        moves.iter().map(|(from, to)| (name(from), name(to))).collect()
    }

    /// Two jobs send from h1 and h2 to hosts below leaf 2, over uplinks that have room for both. A
    /// third shares the NIC of h1: no path helps, a free host does.
    fn shared_nic() -> PlanInput {
        let mut input = TestInput::on_lab_fabric()
            .with_job("a", &[("h1", "h4")])
            .with_job("b", &[("h1", "h5")])
            .to_input();
        input.jobs.iter_mut().flat_map(|job| job.gpus.values_mut()).for_each(|gpus| *gpus = 4);
        input
    }

    #[test]
    fn a_job_that_shares_its_nic_is_moved_off_it() {
        let input = shared_nic();
        let moves = suggest_moves(&input, &Policy::default(), &[0, 1]).unwrap();
        let [first, ..] = &moves[..] else { panic!("no move") };
        assert!(first.hosts.contains_key("h1"), "{first:?}");
        assert_eq!(first.gpus, 4);
        assert!(first.gain() > 0.05, "{first:?}");
        let moved = first.moved_seconds.unwrap();
        assert!((moved / first.alone_seconds - 1.0).abs() < 0.02, "{first:?}");
    }

    #[test]
    fn nothing_is_moved_where_nothing_is_lost_or_no_gpu_is_free() {
        let apart = TestInput::on_lab_fabric()
            .with_job("a", &[("h1", "h4")])
            .with_job("b", &[("h2", "h5")])
            .to_input();
        assert_eq!(suggest_moves(&apart, &Policy::default(), &[0, 1]).unwrap(), []);
        let mut full = shared_nic();
        let rest = full.fabric.hosts().len();
        let blocker = Job {
            id: "idle".into(),
            gpus: (1..rest).map(|host| (HostId::from(host), 8)).collect(),
            flows: Vec::new(),
            ..full.jobs[0].clone()
        };
        full.jobs.push(blocker);
        assert_eq!(candidate_places(&full, 0), []);
    }

    #[test]
    fn candidates_have_room_and_one_host_of_each_leaf_stands_for_all() {
        let input = shared_nic();
        let places = candidate_places(&input, 0);
        // h1 and h4 are each exchanged for a host of four leaves; then all of it below one leaf.
        assert_eq!(places.len(), 9);
        let gathered = names(&input, &places[8]);
        assert_eq!(gathered.len(), 1, "{gathered:?}");
        let moved = move_job(&input.fabric, &input.jobs[0], &places[0]);
        assert_eq!(moved.gpus.values().sum::<u32>(), 8);
        let flow = &moved.flows[0];
        let hosts = [flow.src, flow.dst].map(|nic| input.fabric.nic(nic).host);
        assert!(hosts.iter().all(|host| moved.gpus.contains_key(host)), "{moved:?}");
    }
}
