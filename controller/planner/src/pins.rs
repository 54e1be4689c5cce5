//! Which flows switches are told the path of: those with a choice, as far as a leaf's table goes.

use std::collections::BTreeMap;

use topology::{Finding, SwitchId};

use crate::policy::Policy;
use crate::traffic::Traffic;

/// Whether each flow is pinned. Where a leaf has more flows with a choice than pins, those of the
/// least intense jobs are left to ECMP. `order` is the jobs by descending intensity.
pub(crate) fn assign(traffic: &Traffic<'_>, order: &[usize], policy: &Policy) -> Vec<bool> {
    let mut pinned = vec![false; traffic.flows.len()];
    let mut used: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for flow in order.iter().flat_map(|job| traffic.spans[*job].clone()) {
        if wants_pin(traffic, flow, policy) {
            let used = used
                .entry(traffic.pairs[traffic.flows[flow].pair].from)
                .or_default();
            pinned[flow] = *used < policy.max_pins_per_switch;
            *used += usize::from(pinned[flow]);
        }
    }
    pinned
}

/// A finding per leaf that had too few pins.
pub(crate) fn findings(traffic: &Traffic<'_>, pinned: &[bool], policy: &Policy) -> Vec<Finding> {
    let mut spilled: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for (flow, _) in pinned.iter().enumerate().filter(|(_, pinned)| !**pinned) {
        if wants_pin(traffic, flow, policy) {
            *spilled
                .entry(traffic.pairs[traffic.flows[flow].pair].from)
                .or_default() += 1;
        }
    }
    let finding = |(leaf, count): (SwitchId, usize)| {
        let about = traffic.fabric.switch(leaf).name.clone();
        let budget = policy.max_pins_per_switch;
        let text = format!(
            "{count} flows of the least intense jobs are left to ECMP: {budget} pins at most"
        );
        Finding::warning(about, text)
    };
    spilled.into_iter().map(finding).collect()
}

/// There is a choice, and policy does not exempt the job.
fn wants_pin(traffic: &Traffic<'_>, flow: usize, policy: &Policy) -> bool {
    let flow = &traffic.flows[flow];
    let rule = policy.override_for(traffic.jobs[flow.job]);
    let is_exempt = rule.is_some_and(|rule| rule.exempt);
    flow.has_path && traffic.pairs[flow.pair].has_choice() && !is_exempt
}
