//! Fabrics whose switches spread packets over all paths: levels without paths, or the choice.

use planner::{Plan, PlanInput, Policy, check_plan, forecast_plan, plan};
use topology::{Fabric, Forwarding, Severity};

use crate::scenario::{clos, input, ring};

/// Four jobs between two leaves, each of which loads three uplinks to two thirds of its time.
fn contended(forwarding: Forwarding) -> PlanInput {
    let fabric = clos(2, 3, 4).with_forwarding(forwarding);
    let jobs = (0..4).map(|host| ring(&fabric, &format!("job{host}"), &[host, host + 4], 2.0e10));
    input(&fabric, &jobs.collect::<Vec<_>>())
}

fn planned(input: &PlanInput, previous: Option<&Plan>) -> Plan {
    let policy = Policy::default();
    let (plan, report) = plan(input, &policy, previous);
    assert_eq!(check_plan(input, &policy, &plan), []);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Info));
    plan
}

fn uplinks(fabric: &Fabric) -> usize {
    let leaf = fabric.switch_named("leaf1").unwrap();
    fabric.up_links(leaf).len()
}

#[test]
fn a_sprayed_plan_has_levels_and_no_paths_and_the_same_load_on_all_links_of_a_leaf() {
    let input = contended(Forwarding::Spray);
    let (plan, report) = plan(&input, &Policy::default(), None);
    assert!(plan.jobs.iter().all(|job| job.sprayed));
    assert!(plan.flows.iter().all(|flow| flow.links.is_empty() && !flow.pinned));
    let fabric = &input.fabric;
    let leaf = fabric.switch_named("leaf1").unwrap();
    let loads: Vec<f64> = report
        .links
        .iter()
        .filter(|load| fabric.up_links(leaf).contains(&load.link))
        .map(|load| load.load)
        .collect();
    assert_eq!(loads.len(), uplinks(fabric));
    assert!(loads[0] > 0.0 && loads.iter().all(|load| *load == loads[0]), "{loads:?}");
    // Four jobs load three uplinks; the bottleneck is a link of the fabric as it is.
    assert!(
        report
            .rationales
            .iter()
            .all(|why| { why.bottleneck.is_some_and(|link| link.index() < fabric.links().len()) })
    );
}

#[test]
fn a_plan_for_its_own_result_is_the_same_and_its_forecast_is_that_of_the_plan() {
    for forwarding in [Forwarding::Spray, Forwarding::Auto] {
        let input = contended(forwarding);
        let first = planned(&input, None);
        assert_eq!(planned(&input, Some(&first)), first);
        let forecast = forecast_plan(&input.fabric, &input.jobs, &first, 1.0);
        assert_eq!(forecast.jobs.len(), 4);
    }
}

/// Four equal jobs over three uplinks: two share one if they are pinned, and each has three quarters of
/// all if they are sprayed.
#[test]
fn auto_sprays_what_pins_cannot_balance_and_pins_what_they_can() {
    let choosing = contended(Forwarding::Auto);
    let chosen = planned(&choosing, None);
    let values = [Forwarding::Pin, Forwarding::Spray].map(|forwarding| {
        let input = contended(forwarding);
        forecast_plan(&input.fabric, &input.jobs, &planned(&input, None), 1.0).gpu_utilization
    });
    let best = values[0].max(values[1]);
    let found = forecast_plan(&choosing.fabric, &choosing.jobs, &chosen, 1.0).gpu_utilization;
    assert!(found >= best * (1.0 - 0.002), "{found} {values:?}");
    assert_eq!(chosen.jobs.iter().all(|job| job.sprayed), values[1] > values[0] * 1.002);

    let fabric = clos(2, 2, 2).with_forwarding(Forwarding::Auto);
    let jobs = [0, 1].map(|host| ring(&fabric, &format!("job{host}"), &[host, host + 2], 1e9));
    let plan = planned(&input(&fabric, &jobs), None);
    assert!(plan.flows.iter().all(|flow| flow.pinned), "{plan:?}");
}
