//! What receivers send back: over the paths of their flows, at the levels of their jobs.

use planner::PlannedFlow;

use super::super::answers::{AnsweredPairs, link_back};
use super::*;

/// Answers of pinned flows leave their leaf towards the switch that a flow of their pair came from,
/// at the level of their job.
pub(super) fn check_answers(
    fabric: &Fabric,
    (plan, sai): (&Plan, &LoweredPlan),
    budget: &SaiBudget,
    choice: usize,
) -> Result<(), TestCaseError> {
    let answers = AnsweredPairs::new(fabric, plan);
    let pinned =
        plan.flows.iter().enumerate().filter(|(position, flow)| {
            flow.pinned && !sai.shortages.spilled.contains_key(position)
        });
    let pinned: Vec<&PlannedFlow> = pinned.map(|(_, flow)| flow).collect();
    for flow in pinned.iter().filter(|flow| answers.has_no_flow_back(fabric, flow)) {
        // A leaf with another port of the sender answers by that.
        if fabric.arrival_port(fabric.leaf_of(flow.dst), flow.src).is_some() {
            continue;
        }
        let sport = flow.udp_src_port.unwrap_or(7);
        let packet = Packet { src: flow.dst, dst: flow.src, sport, answer: None };
        let walked = walk_sai(fabric, &sai.tables, &packet, choice).map_err(TestCaseError::fail)?;
        let of_pair = pinned.iter().filter(|one| ends_of(fabric, one) == ends_of(fabric, flow));
        let mut back = of_pair.filter_map(|flow| link_back(fabric, flow));
        prop_assert!(back.any(|link| link == walked.links[1]), "{walked:?}");
        let level = if budget.names_jobs { answer_level(fabric, plan, flow) } else { 0 };
        prop_assert!(walked.levels.iter().all(|actual| *actual == level), "{walked:?} {level}");
    }
    Ok(())
}

/// The level of the pair; with IPv6 that of the port, which what is sent there decides.
fn answer_level(fabric: &Fabric, plan: &Plan, flow: &PlannedFlow) -> u128 {
    let answers = AnsweredPairs::new(fabric, plan);
    let highest = |wanted: &dyn Fn(&PlannedFlow) -> bool| {
        let flows = plan.flows.iter().filter(|other| wanted(other));
        flows.map(|other| u128::from(plan.jobs[other.job].level)).max()
    };
    if fabric.nic(flow.src).ip.is_ipv4() {
        return highest(&|other| ends_of(fabric, other) == ends_of(fabric, flow)).unwrap();
    }
    let sent = highest(&|other| ends_of(fabric, other).0 == ends_of(fabric, flow).1);
    let answered = || {
        highest(&|other| {
            ends_of(fabric, other).1 == ends_of(fabric, flow).1
                && answers.has_no_flow_back(fabric, other)
        })
    };
    sent.or_else(answered).unwrap()
}

#[test]
fn a_receiver_answers_over_the_path_of_the_flow_at_the_level_of_its_job() {
    let fabric = small();
    let plan = plan_adopting(&fabric, &[job(0, &[(0, 1, 50_000)])], &[]);
    let spine = fabric.switch_after(plan.flows[0].links[1]).unwrap();
    let port = if fabric.switch(spine).name == "spine1" { 2 } else { 3 };
    let lowered = lower_plan(&fabric, &plan, &SaiBudget::from_program(p4info())).unwrap();
    let rows = shown(&fabric, &lowered, "leaf2");
    let expected = [
        format!(
            "ipv4_table vrf_id=\"vrf-1\" ipv4_dst=10.0.1.1/32 -> \
             set_nexthop_id(nexthop_id=\"port-{port}\")"
        ),
        "acl_pre_ingress_table is_ipv4=1 dst_ip=10.0.1.1 in_port=\"1\" priority=2 -> \
         set_vrf_and_acl_metadata(vrf_id=\"vrf-1\", acl_metadata=2)"
            .to_owned(),
        "acl_ingress_qos_table acl_metadata=2 priority=1 -> \
         set_tc_and_dscp(traffic_class=6, dscp=48)"
            .to_owned(),
    ];
    assert!(expected.iter().all(|row| rows.contains(row)), "{rows:#?}");
}

/// A NIC that only receives sends nothing that counts for the job.
#[test]
fn answers_are_not_counted_as_traffic_of_their_job() {
    let fabric = small();
    let plan = plan_adopting(&fabric, &[job(0, &[(0, 1, 50_000)])], &[]);
    let counted = SaiPipeline.attributed_entries(&fabric, &plan);
    let switches: Vec<SwitchId> = counted.iter().map(|entry| entry.switch).collect();
    assert_eq!(switches, [fabric.leaf_of(plan.flows[0].src)]);
}
