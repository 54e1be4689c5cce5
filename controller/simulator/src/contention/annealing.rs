//! The best decisions that anybody knows for a case too large to try all: simulated annealing.
//!
//! A move gives one flow another of its equal-cost paths, one job another level, or exchanges the
//! levels of two jobs. Every move is valued by the evaluation that plans are compared with. The
//! time it may take is an argument.

use planner::{Plan, PlanInput, PlanValue, RoutedInput};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topology::{LinkPath, equal_cost_paths};

/// Loss of GPU utilisation that is accepted with a probability of 1/e at the beginning, and at the
/// end.
const TEMPERATURES: [f64; 2] = [3e-3, 3e-5];

/// Starts from which decisions are valued that they were not chosen by.
pub const UNSEEN_STARTS: u32 = 16;

/// Share of the moves that change a path.
const PATH_SHARE: f64 = 0.5;

/// The best that was found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AnnealedDecisions {
    /// What it is worth.
    pub value: PlanValue,
    /// What it is worth from other starts than those that it was chosen by.
    pub unseen: PlanValue,
    /// Moves that were tried.
    pub moves: u64,
}

/// The best decisions found from those of `start`, in which no job is slower than alone by more
/// than `slowdown_limit`, unless one is so in `start`. `time_spent` gives the share of the time
/// that is spent, and annealing ends at 1.
pub fn anneal_decisions(
    input: &PlanInput,
    start: &Plan,
    slowdown_limit: f64,
    seed: u64,
    mut time_spent: impl FnMut() -> f64,
) -> AnnealedDecisions {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let choices = path_choices(input, start);
    let mut paths: Vec<LinkPath> = start.flows.iter().map(|flow| flow.links).collect();
    let mut levels: Vec<u8> = start.jobs.iter().map(|job| job.level).collect();
    let evaluate = |paths: &[LinkPath], levels: &[u8]| {
        RoutedInput::new(input, paths.to_vec()).evaluate_levels(levels)
    };
    let mut current = evaluate(&paths, &levels);
    let limit = slowdown_limit.max(current.worst_slowdown);
    let mut best = AnnealedDecisions { value: current, ..AnnealedDecisions::default() };
    let mut found = (paths.clone(), levels.clone());
    loop {
        let spent = time_spent();
        if spent >= 1.0 {
            let (paths, levels) = found;
            best.unseen =
                RoutedInput::new(input, paths).evaluate_from_other_starts(&levels, UNSEEN_STARTS);
            return best;
        }
        best.moves += 1;
        let temperature = TEMPERATURES[0] * (TEMPERATURES[1] / TEMPERATURES[0]).powf(spent);
        let (earlier_paths, earlier_levels) = (paths.clone(), levels.clone());
        match random.random_bool(PATH_SHARE) && !choices.is_empty() {
            true => {
                let (flow, options) = &choices[random.random_range(0..choices.len())];
                paths[*flow] = options[random.random_range(0..options.len())];
            }
            false => change_levels(&mut levels, start.levels, &mut random),
        }
        let next = evaluate(&paths, &levels);
        let gain = next.gpu_utilization - current.gpu_utilization;
        let is_accepted = next.worst_slowdown <= limit
            && (gain >= 0.0 || random.random_bool((gain / temperature).exp()));
        if !is_accepted {
            (paths, levels) = (earlier_paths, earlier_levels);
            continue;
        }
        current = next;
        if current.gpu_utilization > best.value.gpu_utilization {
            best.value = current;
            found = (paths.clone(), levels.clone());
        }
    }
}

/// Another level for a job, or that of another job in exchange.
fn change_levels(levels: &mut [u8], level_count: u8, random: &mut ChaCha8Rng) {
    let (job, other) = (random.random_range(0..levels.len()), random.random_range(0..levels.len()));
    match random.random_bool(0.5) {
        true => levels.swap(job, other),
        false => levels[job] = random.random_range(0..level_count),
    }
}

/// The flows that have several equal-cost paths, and those paths.
fn path_choices(input: &PlanInput, plan: &Plan) -> Vec<(usize, Vec<LinkPath>)> {
    let fabric = &input.fabric;
    let choices = plan.flows.iter().enumerate().map(|(position, flow)| {
        let [up, down] = [fabric.nic(flow.src).uplink, fabric.nic(flow.dst).uplink.reverse()];
        let segments = equal_cost_paths(fabric, fabric.leaf_of(flow.src), fabric.leaf_of(flow.dst));
        let paths = segments
            .iter()
            .filter_map(|segment| LinkPath::new(&[&[up], &segment[..], &[down]].concat()));
        (position, paths.collect::<Vec<LinkPath>>())
    });
    choices.filter(|(_, paths)| paths.len() > 1).collect()
}
