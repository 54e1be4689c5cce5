//! A lowering that continues from the one before makes what one from nothing makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use planner::{Plan, PlanDepth, PlanInput, Policy};
use proptest::prelude::*;
use topology::{AvailabilityChange, Fabric, NicId, SwitchId};

use crate::pipelines::fabric::tests::{Case, cases};
use crate::pipelines::sai::tests::with_sai;
use crate::pipelines::{FabricWiring, PlanLowering, lower_plan};

/// What is there at one step, as bits: of the jobs, of the rules, of what has failed or is drained,
/// and of the pairs of NICs that are counted.
type LoweringInputs = (u8, u8, u8, u8);

/// Steps of which many change one thing.
fn steps() -> impl Strategy<Value = Vec<LoweringInputs>> {
    let change = (0..4_u8, 0..8_u8);
    prop::collection::vec(change, 1..9).prop_map(|changes| {
        let mut now = [0, 0, 0, 0_u8];
        let steps = changes.into_iter().map(|(what, bit)| {
            now[usize::from(what)] ^= 1 << (bit % 4);
            (now[0], now[1], now[2], now[3])
        });
        steps.collect()
    })
}

/// Those of `all` whose bits are set.
fn chosen<T: Clone>(all: &[T], bits: u8) -> Vec<T> {
    let chosen = all.iter().enumerate().filter(|(at, _)| bits >> (at % 8) & 1 == 1);
    chosen.map(|(_, one)| one.clone()).collect()
}

fn plan_step(fabric: &Fabric, case: &Case, step: LoweringInputs, before: Option<&Plan>) -> Plan {
    let jobs = planner::spread_over_ports(fabric, chosen(&case.jobs, step.0));
    let input = PlanInput { fabric: fabric.clone(), jobs };
    let policy = Policy { adopt: chosen(&case.rules, step.1), ..Policy::default() };
    let (input, policy) = policy.with_adopted_jobs(input);
    let mut plan = planner::plan_to_depth(&input, &policy, before, PlanDepth::Quick).0;
    let nics = fabric.nics().len();
    let pairs: Vec<(NicId, NicId)> =
        (0..8).map(|at| (NicId::from(at % nics), NicId::from((at * 3 + 1) % nics))).collect();
    plan.counted_pairs = chosen(&pairs, step.3);
    plan.counted_pairs.retain(|(from, to)| from != to);
    plan.counted_pairs.dedup();
    plan
}

proptest! {
    #[test]
    fn it_is_a_lowering_from_nothing(case in cases(), of_sai in any::<u16>(), steps in steps()) {
        // All of one kind, and mixed ones.
        let whole = with_sai(&case.fabric, |switch: SwitchId| match of_sai % 3 {
            0 => false,
            1 => true,
            _ => of_sai >> (switch.index() % 16) & 1 == 1,
        });
        let wiring = Arc::new(FabricWiring::new(&whole).unwrap());
        let mut lowering = PlanLowering::default();
        let mut planned: Option<Plan> = None;
        let mut before = BTreeMap::new();
        for step in steps {
            let changes: Vec<AvailabilityChange> = chosen(&case.changes, step.2);
            let fabric = whole.with_changes(changes);
            let plan = plan_step(&fabric, &case, step, planned.as_ref());
            // First with the plan before, as a repair is lowered.
            for plan in planned.iter().chain([&plan]) {
                let expected = lower_plan(&wiring, &fabric, plan);
                let lowered = lowering.lower_plan(&wiring, &fabric, plan);
                for (switch, tables) in &lowered {
                    prop_assert!(*tables == expected[switch], "{switch:?} after {step:?}");
                    let same = before.get(switch);
                    let same = same.filter(|same| *same == tables);
                    prop_assert!(same.is_none_or(|same| Arc::ptr_eq(same, tables)));
                }
                prop_assert_eq!(lowered.len(), expected.len());
                before = lowered;
            }
            planned = Some(plan);
        }
    }
}
