//! Laws of planning: a plan passes its check, and planning again from a plan's own result changes
//! nothing, whatever happened before.

use planner::{
    CompressionMethod, CorrectionReference, Job, JobOverride, MeasuredSlowdown, PathMethod, Plan,
    PlanInput, Policy, check_plan, plan,
};
use proptest::prelude::*;
use topology::clos::{ClosSpec, build_clos};
use topology::{AvailabilityChange, Fabric, Forwarding, LinkId, Tier};

use crate::scenario::ring;

/// Two and three tiers, parallel links, several NICs.
pub(crate) fn fabric() -> impl Strategy<Value = Fabric> {
    let two_tiers =
        (2_u32..5, 1_u32..4, 1_u32..3).prop_map(|(leaves, spines, parallel_uplinks)| ClosSpec {
            leaves,
            spines,
            parallel_uplinks,
            ..ClosSpec::default()
        });
    let pods = ClosSpec { leaves: 2, spines: 2, pods: 2, cores: 4, ..ClosSpec::default() };
    let forwarding = prop_oneof![
        3 => Just(Forwarding::Pin),
        1 => Just(Forwarding::Spray),
        1 => Just(Forwarding::Auto),
    ];
    (prop_oneof![3 => two_tiers, 1 => Just(pods)], forwarding).prop_map(|(spec, forwarding)| {
        build_clos("test", &spec).unwrap().with_forwarding(forwarding)
    })
}

/// Rings over random hosts, with random volumes, computation and slowdown.
pub(crate) fn jobs(
    fabric: &Fabric,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Job>> + use<> {
    let hosts: Vec<u32> = (0..u32::try_from(fabric.hosts().len()).unwrap()).collect();
    let fabric = fabric.clone();
    let most = hosts.len().min(5);
    let one = (
        prop::sample::subsequence(hosts, 1..=most).prop_shuffle(),
        (0_u32..6, 1_u32..5, 0_u32..=4, 1_u32..4),
        prop_oneof![Just(0.0), 0.0..2.0],
        // Every second flow of some jobs begins at its own time.
        prop::option::weighted(0.25, 0.0..1.0),
    );
    prop::collection::vec(one, count).prop_map(move |all| {
        let job =
            |(index, (hosts, (gigabytes, compute, overlap, work), slowdown, begin)): (usize, _)| {
                let hosts: Vec<u32> = hosts;
                let name = format!("job{}", char::from(b'A' + u8::try_from(index).unwrap()));
                let ring = ring(&fabric, &name, &hosts, f64::from(gigabytes) * 1e9);
                let begin: Option<f64> = begin;
                let mut flows = ring.flows.clone();
                flows.iter_mut().step_by(2).for_each(|flow| flow.overlap_from = begin);
                Job {
                    flows,
                    compute_seconds: f64::from(compute) * 0.25,
                    overlap_from: f64::from(overlap) * 0.25,
                    flop_per_iteration: f64::from(work) * 1e15,
                    measured: MeasuredSlowdown { over_alone: slowdown, over_forecast: 0.0 },
                    ..ring
                }
            };
        all.into_iter().enumerate().map(job).collect()
    })
}

/// Random failures and drains of cables and switches above the hosts.
pub(crate) fn changes(fabric: &Fabric) -> impl Strategy<Value = Vec<AvailabilityChange>> + use<> {
    let above_hosts = |link: &LinkId| {
        let link = fabric.link(*link);
        link.from.node.switch().is_some() && link.to.node.switch().is_some()
    };
    let links: Vec<LinkId> = fabric.link_ids().filter(above_hosts).collect();
    let spines: Vec<_> = fabric.switches_of_tier(Tier::Spine).collect();
    let one = prop_oneof![
        prop::sample::select(links.clone()).prop_map(AvailabilityChange::LinkDown),
        prop::sample::select(links).prop_map(AvailabilityChange::DrainLink),
        prop::sample::select(spines.clone()).prop_map(AvailabilityChange::SwitchDown),
        prop::sample::select(spines).prop_map(AvailabilityChange::DrainSwitch),
    ];
    prop::collection::vec(one, 0..4)
}

fn overrides() -> impl Strategy<Value = Vec<JobOverride>> {
    let one = ("job[A-L]", 0_u8..3, 0_u8..3, 0.5..2.0, any::<[bool; 4]>());
    let rule = |(pattern, low, above, weight, has): (String, u8, u8, f64, [bool; 4])| JobOverride {
        pattern,
        min_level: has[0].then_some(low),
        max_level: has[1].then_some(low + above),
        weight,
        exempt: has[2] && has[3],
        min_throughput: has[2].then_some(0.7),
    };
    prop::collection::vec(one.prop_map(rule), 0..4)
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let compression = prop_oneof![
        5 => Just(CompressionMethod::Exact),
        1 => Just(CompressionMethod::Sampled),
        1 => Just(CompressionMethod::Sincronia),
        1 => Just(CompressionMethod::Balanced),
    ];
    let reference =
        prop_oneof![Just(CorrectionReference::MostTraffic), Just(CorrectionReference::Contenders)];
    let paths = prop_oneof![3 => Just(PathMethod::Improved), 1 => Just(PathMethod::Greedy)];
    let numbers = (5_u8..=8, 0_usize..20, prop_oneof![Just(0.0), 0.0..0.3], 0.0..1.0);
    let reserved = prop::collection::btree_set(0_u8..5, 0..5);
    ((paths, compression, reference), numbers, reserved, overrides()).prop_map(
        |(
            (paths, compression, reference),
            (levels, pins, gain, fairness),
            reserved_levels,
            overrides,
        )| {
            Policy {
                // At least one level is left, and often fewer than there are jobs.
                levels: if reserved_levels.is_empty() { 3 } else { levels.max(6) },
                reserved_levels,
                paths,
                compression,
                reference,
                fairness: if fairness < 0.5 { 0.0 } else { fairness },
                move_gain_min: gain,
                max_pins_per_switch: pins,
                // Seldom, for the time: what a search of twelve jobs must at least have, and less,
                // with which candidates are only compared.
                search_events: match pins {
                    0 => 512_000,
                    1..5 => 32_000,
                    _ => 0,
                },
                overrides,
                ..Policy::default()
            }
        },
    )
}

#[derive(Clone, Debug)]
struct History {
    policy: Policy,
    steps: Vec<PlanInput>,
}

/// Three inputs in a row: jobs come and go, parts fail, are drained and come back.
fn history() -> impl Strategy<Value = History> {
    fabric().prop_flat_map(|fabric| {
        let step = (jobs(&fabric, 0..12), changes(&fabric));
        let fabric_of_step = fabric.clone();
        let step = step.prop_map(move |(jobs, changes)| PlanInput {
            fabric: fabric_of_step.with_changes(changes),
            jobs,
        });
        let kept_jobs = (jobs(&fabric, 3..12), changes(&fabric), 0_usize..3).prop_map(
            move |(jobs, changes, fewer)| {
                let before = PlanInput { fabric: fabric.clone(), jobs: jobs.clone() };
                let after = PlanInput {
                    fabric: fabric.with_changes(changes),
                    jobs: jobs[..jobs.len() - fewer].to_vec(),
                };
                vec![before, after]
            },
        );
        let any = prop::collection::vec(step, 1..4);
        (policy(), prop_oneof![any, kept_jobs])
            .prop_map(|(policy, steps)| History { policy, steps })
    })
}

proptest! {
    #[test]
    fn plans_are_valid_and_stable(history in history()) {
        let mut previous: Option<Plan> = None;
        for input in &history.steps {
            let (first, _) = plan(input, &history.policy, previous.as_ref());
            prop_assert_eq!(check_plan(input, &history.policy, &first), []);
            let (second, report) = plan(input, &history.policy, Some(&first));
            prop_assert_eq!(&second, &first);
            prop_assert_eq!(report.moved, Vec::<usize>::new());
            previous = Some(first);
        }
    }

    /// The lower bound of the largest load is one, and the order of jobs in the input is nothing.
    #[test]
    fn bounds_hold_and_input_order_does_not_matter(history in history()) {
        for input in &history.steps {
            let (first, report) = plan(input, &history.policy, None);
            let bounds = report.bounds;
            prop_assert!(bounds.max_load_lower_bound <= bounds.max_load * (1.0 + 1e-9));
            let mut reversed = input.clone();
            reversed.jobs.reverse();
            prop_assert_eq!(plan(&reversed, &history.policy, None).0, first);
        }
    }
}
