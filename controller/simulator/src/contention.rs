//! Whether the planner is ever worse than an alternative, on small cases with contention.
//!
//! Cases are drawn from a seed ([`generate_contended_case`]): jobs that share hosts, NICs and
//! uplinks. Each is decided by the planner and by what it must not be worse than
//! ([`ALTERNATIVES`]), and all are evaluated alike: by the evaluation that the planner itself
//! compares candidates with ([`planner::RoutedInput::evaluate_levels`]).

mod case;
mod family;
mod family_result;

pub use self::case::{
    generate_contended_case, generate_mode_case, generate_packet_case, generate_pcie_case,
};
pub use self::family::{CaseFamily, generate_family_case};
pub use self::family_result::{
    CheckedForecast, FAMILY_ALTERNATIVES, FamilyResult, SimulatedValue, examine_family_case,
};

use planner::{JobId, Plan, PlanInput, PlanValue, Policy, RoutedInput};
use topology::LinkPath;

use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;
use crate::scheduler::Scheduler;

/// Starts from which decisions are valued that they were not chosen by.
const UNSEEN_STARTS: u32 = 16;

/// Hashes whose mean stands for ECMP.
const ECMP_HASHES: u16 = 10;

/// What the planner must not be worse than.
pub const ALTERNATIVES: [&str; 6] =
    ["unsearched", "one-level", "two-levels", "four-levels", "ecmp", "taccl"];

/// Parts of the default budget for which a case is planned, ascending.
pub const BUDGETS: [u64; 4] = [1, 2, 4, 8];

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct ContendedResult {
    /// Number of the case.
    pub number: u32,
    /// Jobs in it.
    pub jobs: usize,
    /// GPU utilisation of the default plan by budget, as in [`BUDGETS`].
    pub planned: Vec<f64>,
    /// Slowdown of its slowest job with the default budget.
    pub worst_slowdown: f64,
    /// What [`ALTERNATIVES`] are worth; for ECMP the mean over hashes.
    pub alternatives: Vec<PlanValue>,
    /// Slowdown of the slowest job under ECMP, the mean over hashes.
    pub ecmp_slowdown: f64,
    /// The largest slowdown that the planner allows with the default budget: about twice that under
    /// ECMP, by its own draws of the hash.
    pub slowdown_limit: f64,
    /// The longest that an alternative's flow may wait for service, seconds: the bound of the
    /// policy, or what a flow of the default plan waits where that is longer.
    pub wait_limit: f64,
}

/// What a plan is worth, the longest wait of a flow for service among it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedWaits {
    /// From the starts that the plan was chosen by.
    pub chosen: PlanValue,
    /// From other starts.
    pub unseen: PlanValue,
}

impl ContendedResult {
    /// Whether an alternative holds what the planner held: the floor on slowdown, and the service
    /// bound.
    pub fn holds_limits(&self, alternative: usize) -> bool {
        let value = &self.alternatives[alternative];
        value.worst_slowdown <= self.slowdown_limit && value.worst_wait_seconds <= self.wait_limit
    }

    /// How much the best alternative that holds the limits is above the default plan; below 0 where
    /// it is not.
    pub fn shortfall(&self) -> f64 {
        let eligible = (0..self.alternatives.len()).filter(|place| self.holds_limits(*place));
        let values = eligible.map(|place| self.alternatives[place].gpu_utilization);
        values.fold(0.0, f64::max) - self.planned[0]
    }

    /// The largest fall of the value from one budget to a larger one.
    pub fn budget_fall(&self) -> f64 {
        let falls = self.planned.windows(2).map(|pair| pair[0] - pair[1]);
        falls.fold(0.0, f64::max)
    }
}

/// Decides a case in all ways under `policy`. Budgets beyond the first are tried if `all_budgets`.
pub fn examine_contended_case(
    number: u32,
    input: &PlanInput,
    policy: &Policy,
    all_budgets: bool,
) -> ContendedResult {
    let budgets = if all_budgets { &BUDGETS[..] } else { &BUDGETS[..1] };
    let planned: Vec<(PlanValue, f64)> = budgets
        .iter()
        .map(|times| {
            let more = Policy { search_events: times * policy.search_events, ..policy.clone() };
            value_of_plan(input, &more)
        })
        .collect();
    let plain = Policy { search_events: 0, ..policy.clone() };
    let with_levels = |levels| Policy { levels, ..plain.clone() };
    let routes = EqualCostRoutes::for_input(input);
    let ecmp = mean_over_hashes(input, &routes);
    let taccl = Scheduler::Taccl.schedule_along_routes(&routes, input, policy);
    ContendedResult {
        number,
        jobs: input.jobs.len(),
        worst_slowdown: planned[0].0.worst_slowdown,
        slowdown_limit: planned[0].1,
        wait_limit: policy.service_bound().max(planned[0].0.worst_wait_seconds),
        planned: planned.iter().map(|(value, _)| value.gpu_utilization).collect(),
        alternatives: vec![
            value_of_plan(input, &plain).0,
            value_of_plan(input, &with_levels(1)).0,
            value_of_plan(input, &with_levels(2)).0,
            value_of_plan(input, &with_levels(4)).0,
            ecmp,
            value_of_schedule(input, &taccl),
        ],
        ecmp_slowdown: ecmp.worst_slowdown,
    }
}

/// The longest waits under the plan of `policy`.
pub fn examine_waits(input: &PlanInput, policy: &Policy) -> PlannedWaits {
    let plan = planner::plan(input, policy, None).0;
    let (routed, levels) = routed_plan(input, &plan);
    PlannedWaits {
        chosen: routed.evaluate_levels(&levels),
        unseen: routed.evaluate_from_other_starts(&levels, UNSEEN_STARTS),
    }
}

/// What the decisions of a plan are worth.
fn value_of_decisions(input: &PlanInput, plan: &Plan) -> PlanValue {
    let (routed, levels) = routed_plan(input, plan);
    routed.evaluate_levels(&levels)
}

fn routed_plan<'a>(input: &'a PlanInput, plan: &Plan) -> (RoutedInput<'a>, Vec<u8>) {
    let paths = plan.flows.iter().map(|flow| flow.links).collect();
    let levels = plan.jobs.iter().map(|job| job.level).collect();
    (RoutedInput::new(input, paths), levels)
}

/// The value of the plan, and the largest slowdown that the planner allowed.
fn value_of_plan(input: &PlanInput, policy: &Policy) -> (PlanValue, f64) {
    let (plan, report) = planner::plan(input, policy, None);
    let regions = &report.comparison.regions;
    // Without one, no job came near a floor.
    let limits = regions.iter().map(|region| region.slowdown_limit.unwrap_or(f64::INFINITY));
    let limit = limits.reduce(f64::max).unwrap_or(f64::INFINITY);
    (value_of_decisions(input, &plan), limit)
}

/// What ECMP is worth, the mean over hashes.
fn mean_over_hashes(input: &PlanInput, routes: &EqualCostRoutes) -> PlanValue {
    let hashed = (0..ECMP_HASHES).map(|hash| value_of_hash(input, routes, hash));
    let share = 1.0 / f64::from(ECMP_HASHES);
    hashed.fold(PlanValue::default(), |mean, value| PlanValue {
        gpu_utilization: mean.gpu_utilization + share * value.gpu_utilization,
        worst_slowdown: mean.worst_slowdown + share * value.worst_slowdown,
        worst_wait_seconds: mean.worst_wait_seconds.max(value.worst_wait_seconds),
    })
}

/// One level on the paths that ECMP takes if all flows have other ports.
fn value_of_hash(input: &PlanInput, routes: &EqualCostRoutes, hash: u16) -> PlanValue {
    let other = with_other_ports(input, hash);
    let schedule = Scheduler::Ecmp.schedule_along_routes(routes, &other, &Policy::default());
    value_of_schedule(input, &schedule)
}

/// `input` whose flows have other ports, so that a hash gives them other paths.
fn with_other_ports(input: &PlanInput, hash: u16) -> PlanInput {
    let mut other = input.clone();
    for flow in other.jobs.iter_mut().flat_map(|job| &mut job.flows) {
        let port = flow.udp_src_port.unwrap_or(0).wrapping_add(hash.wrapping_mul(1_009));
        flow.udp_src_port = Some(0xC000 | port);
    }
    other
}

fn value_of_schedule(input: &PlanInput, schedule: &Schedule) -> PlanValue {
    let mut by_id: Vec<(&JobId, usize)> =
        input.jobs.iter().enumerate().map(|(position, job)| (&job.id, position)).collect();
    by_id.sort();
    let jobs = by_id.iter().map(|(_, position)| &schedule.jobs[*position]);
    let levels: Vec<u8> =
        jobs.clone().map(|job| u8::try_from(job.level).unwrap_or(u8::MAX)).collect();
    let paths = jobs.flat_map(|job| &job.paths);
    let paths = paths.map(|links| LinkPath::new(links).unwrap_or(LinkPath::EMPTY)).collect();
    RoutedInput::new(input, paths).evaluate_levels(&levels)
}

#[cfg(test)]
mod tests {
    use planner::{CandidateOutcome, Flow, Job, LevelOrigin, MeasuredSlowdown, PathOrigin};
    use topology::document::DocumentFormat;
    use topology::{Fabric, examples, spec};

    use super::case::generate_large_case;
    use super::*;

    /// A plan in force, or a single level, leaves fewer levels to try than a short budget may ask for.
    #[test]
    fn every_budget_plans_and_continues_with_any_number_of_levels() {
        for number in 0..4 {
            let input = generate_contended_case(1, number);
            for (levels, search_events) in [(8, 1), (8, 1_000), (3, 1), (2, 1), (1, 1)] {
                let policy = Policy { levels, search_events, ..Policy::default() };
                let (first, _) = planner::plan(&input, &policy, None);
                let (second, _) = planner::plan(&input, &policy, Some(&first));
                assert_eq!(second.jobs.len(), input.jobs.len());
            }
        }
    }

    /// A ring over `hosts`, 8 GPUs each if it uses all NICs, that sends `bytes` over its NICs.
    fn ring_job(
        fabric: &Fabric,
        id: &str,
        hosts: &[&str],
        nics: &[usize],
        figures: [f64; 2],
    ) -> Job {
        let [bytes, compute_seconds] = figures;
        let hosts: Vec<_> = hosts.iter().map(|name| fabric.host_named(name).unwrap()).collect();
        let next = hosts.iter().cycle().skip(1);
        let pairs = hosts.iter().zip(next);
        let flows = pairs.flat_map(|(src, dst)| {
            nics.iter().map(|nic| Flow {
                src: fabric.host(*src).nics[*nic],
                dst: fabric.host(*dst).nics[*nic],
                bytes: bytes / nics.len() as f64,
                udp_src_port: Some(0xC000),
                gpus: planner::FlowGpus::default(),
                overlap_from: None,
            })
        });
        Job {
            id: id.into(),
            tenant: None,
            model: None,
            gpus: hosts.iter().map(|host| (*host, 2 * nics.len() as u32)).collect(),
            flop_per_iteration: 1e14 * compute_seconds * (2 * nics.len() * hosts.len()) as f64,
            compute_seconds,
            overlap_from: 0.5,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: flows.collect(),
        }
    }

    /// Crux Fig. 19: a GPT of 32 GPUs and eight BERT jobs of 8 on the testbed. All fit beside each
    /// other; a search once made 97.4 % of that with two million events.
    #[test]
    fn no_budget_makes_less_of_figure_19_than_all_gpus() {
        let text = examples::example_text("crux-testbed").unwrap();
        let fabric = spec::parse_fabric(text, DocumentFormat::Toml, "crux-testbed").unwrap();
        let gpt = ["h1", "h4", "h7", "h10"];
        let mut jobs = vec![ring_job(&fabric, "gpt", &gpt, &[0, 1, 2, 3], [4.284e10, 1.53])];
        for pair in [["h2", "h5"], ["h8", "h11"], ["h3", "h9"], ["h6", "h12"]] {
            for nics in [[0, 1], [2, 3]] {
                let id = format!("bert-{}", jobs.len());
                jobs.push(ring_job(&fabric, &id, &pair, &nics, [2.131e9, 0.1524]));
            }
        }
        let input = PlanInput { fabric, jobs };
        for search_events in [500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000] {
            let policy = Policy { search_events, ..Policy::default() };
            let (plan, _) = planner::plan(&input, &policy, None);
            let value = value_of_decisions(&input, &plan).gpu_utilization;
            assert!(value > 0.9995, "{search_events} events: {value}");
        }
    }

    #[test]
    fn a_large_group_is_searched_and_a_larger_budget_is_not_worse() {
        let mut searched = 0;
        for seed in 1..=if is_thorough() { 3 } else { 2 } {
            let input = generate_large_case(seed, 24);
            let values = [100_000, 1_000_000].map(|search_events| {
                let policy = Policy { search_events, ..Policy::default() };
                let (plan, report) = planner::plan(&input, &policy, None);
                let adopted = report.comparison.regions.iter().map(|region| &region.candidates[0]);
                let is_found = |best: &&CandidateOutcome| {
                    best.paths == PathOrigin::Searched || best.levels == [LevelOrigin::Climbed]
                };
                searched += adopted.filter(is_found).count();
                value_of_decisions(&input, &plan).gpu_utilization
            });
            assert!(values[1] >= values[0] * 0.999, "seed {seed}: {values:?}");
        }
        assert!(searched > 0, "no search found anything");
    }

    /// Jobs with so many connections were not compared once, and lost to ECMP where they contend.
    #[test]
    fn a_region_of_more_than_20_000_flows_is_compared_with_ecmp() {
        let mut input = generate_contended_case(1, LARGE_CASE);
        let flows: usize = input.jobs.iter().map(|job| job.flows.len()).sum();
        let connections = 25_000_usize.div_ceil(flows) as u16;
        for job in &mut input.jobs {
            let split = |flow: &Flow| {
                let bytes = flow.bytes / f64::from(connections);
                let flow = flow.clone();
                (0..connections).map(move |port| Flow {
                    bytes,
                    udp_src_port: Some(0xC000 + port),
                    ..flow.clone()
                })
            };
            job.flows = job.flows.iter().flat_map(split).collect();
        }
        let (_, report) = planner::plan(&input, &Policy::default(), None);
        let [region] = &report.comparison.regions[..] else { panic!("{:?}", report.comparison) };
        let adopted = region.candidates[0].gpu_utilization;
        assert!(adopted >= region.ecmp_utilization.unwrap() - 0.002, "{region:?}");
    }

    /// Of seed 1, the one with most flows.
    const LARGE_CASE: u32 = 44;

    /// Whether more cases are asked for than a change has, as in a night: each is simulated for seconds.
    fn is_thorough() -> bool {
        proptest::test_runner::Config::default().cases > 64
    }

    /// Cases of seed 1 that are tried.
    fn drawn_cases() -> std::ops::Range<u32> {
        0..if is_thorough() { 12 } else { 3 }
    }

    /// Cases with a bound of 0.2 s, as their iterations are short, and a large one.
    #[test]
    fn no_flow_waits_longer_than_the_service_bound() {
        let bound = 0.2;
        let policy = Policy {
            search_events: 20_000,
            service_bound_seconds: Some(bound),
            ..Policy::default()
        };
        let free = Policy { service_bound_seconds: Some(f64::MAX), ..policy.clone() };
        let mut late = 0;
        for number in drawn_cases().chain([LARGE_CASE]) {
            let input = generate_contended_case(1, number);
            let waits = examine_waits(&input, &policy);
            assert!(waits.chosen.worst_wait_seconds <= bound, "case {number}: {waits:?}");
            let unbounded = examine_waits(&input, &free).chosen;
            let is_late = unbounded.worst_wait_seconds > bound;
            assert!(is_late || number != LARGE_CASE, "the bound was not needed: {unbounded:?}");
            late += u32::from(is_late);
        }
        assert!(late > 1, "the bound was never needed");
    }

    /// In case 85 of seed 201 the levels that are worth most let flows wait for longer than the
    /// service bound. Case 57 of seed 502 is one of the largest.
    #[test]
    fn the_default_plan_is_never_worse_than_an_alternative() {
        // A small budget, for the time.
        let policy = Policy { search_events: 200_000, ..Policy::default() };
        for (seed, number) in drawn_cases().map(|number| (1, number)).chain([(201, 85), (502, 57)])
        {
            let input = generate_contended_case(seed, number);
            let found = examine_contended_case(number, &input, &policy, false);
            assert!(found.shortfall() < 0.001, "{found:?}");
        }
    }
}
