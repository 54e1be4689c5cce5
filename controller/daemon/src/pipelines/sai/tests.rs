//! Lowered tables of `sai.p4`: goldens, and properties of packets and of writes over random plans.

mod answers;
mod budgets;
mod programs;
pub(in crate::pipelines) mod walk;

use std::collections::{BTreeMap, BTreeSet};

use p4::entry::FieldMatch;
use p4::{FieldValue, diff_tables};
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};

use self::programs::{TIGHT, p4info, programs};
use self::walk::{walk_sai, walk_sai_with_dscp};
use super::*;
use crate::pipelines::fabric::tests::walk::{Packet, fields, walk};
use crate::pipelines::fabric::tests::{Case, cases, ends_of, job, lowered, plan_adopting};
use crate::pipelines::{FabricWiring, protect_tables};

fn mac_number(mac: [u8; 6]) -> u128 {
    mac.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

fn shown(fabric: &Fabric, lowered: &LoweredPlan, switch: &str) -> Vec<String> {
    let tables = &lowered.tables[&fabric.switch_named(switch).unwrap()];
    let ports = [table::ROUTER_INTERFACE, table::NEIGHBOR, table::NEXTHOP];
    let rows = tables.iter().filter(|(key, _)| !ports.contains(&key.table));
    rows.map(|row| p4info().display(&TableEntry::from(row)).to_string()).collect()
}

fn small() -> Fabric {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 1, ..ClosSpec::default() };
    all_sai(&clos::build_clos("small", &spec).unwrap())
}

/// The fabric with SAI P4 on all switches, and everything as it was.
fn all_sai(fabric: &Fabric) -> Fabric {
    with_sai(fabric, |_| true)
}

/// The fabric with SAI P4 on some switches.
pub(in crate::pipelines) fn with_sai(
    fabric: &Fabric,
    has_sai: impl Fn(SwitchId) -> bool,
) -> Fabric {
    let mut parts = fabric.parts().clone();
    for (position, switch) in parts.switches.iter_mut().enumerate() {
        let is_sai = has_sai(SwitchId::from(position));
        switch.pipeline = if is_sai { PipelineKind::Sai } else { PipelineKind::Fabric };
    }
    Fabric::new(parts).with_changes(fabric.availability_changes())
}

#[test]
fn a_leaf_pins_a_pair_by_a_route_and_another_path_by_five_tuple() {
    let fabric = small();
    let jobs = [job(0, &[(0, 1, 50_000), (0, 1, 50_001)])];
    let mut plan = plan_adopting(&fabric, &jobs, &[]);
    // Both uplinks, whatever the planner prefers.
    let mut links: BTreeSet<_> = plan.flows.iter().map(|flow| flow.links).collect();
    assert_eq!(links.len(), 2, "{plan:?}");
    for flow in &mut plan.flows {
        flow.links = links.pop_first().unwrap();
    }
    let lowered = lower_plan(&fabric, &plan, &SaiBudget::from_program(p4info())).unwrap();
    let expected = [
        "wcmp_group_table wcmp_group_id=\"group-2\" -> \
         [1xset_nexthop_id(nexthop_id=\"port-2\"), 1xset_nexthop_id(nexthop_id=\"port-3\")]",
        "ipv4_table vrf_id=\"\" ipv4_dst=10.0.1.1/32 -> set_nexthop_id(nexthop_id=\"port-1\")",
        "ipv4_table vrf_id=\"\" ipv4_dst=10.0.2.0/24 -> \
         set_wcmp_group_id(wcmp_group_id=\"group-2\")",
        "ipv4_table vrf_id=\"vrf-1\" ipv4_dst=10.0.1.1/32 -> set_nexthop_id(nexthop_id=\"port-1\")",
        "ipv4_table vrf_id=\"vrf-1\" ipv4_dst=10.0.2.0/24 -> \
         set_wcmp_group_id(wcmp_group_id=\"group-2\")",
        "ipv4_table vrf_id=\"vrf-1\" ipv4_dst=10.0.2.1/32 -> set_nexthop_id(nexthop_id=\"port-2\")",
        "l3_admit_table dst_mac=02:00:00:00:00:fe priority=1 -> admit_to_l3()",
        "vrf_table vrf_id=\"vrf-1\" -> no_action()",
        "acl_ingress_table is_ipv4=1 src_ip=10.0.1.1 dst_ip=10.0.2.1 ip_protocol=17 \
         l4_dst_port=4791 l4_src_port=50001 priority=1 -> \
         redirect_to_nexthop(nexthop_id=\"port-3\")",
        "acl_pre_ingress_table is_ipv4=1 dst_ip=10.0.2.1 in_port=\"1\" priority=2 -> \
         set_vrf_and_acl_metadata(vrf_id=\"vrf-1\", acl_metadata=2)",
        "acl_pre_ingress_table in_port=\"1\" priority=1 -> \
         set_vrf_and_acl_metadata(vrf_id=\"vrf-1\", acl_metadata=1)",
        "acl_ingress_qos_table acl_metadata=1 priority=1 -> \
         set_tc_and_dscp(traffic_class=0, dscp=0)",
        "acl_ingress_qos_table acl_metadata=2 priority=1 -> \
         set_tc_and_dscp(traffic_class=6, dscp=48)",
    ];
    assert_eq!(shown(&fabric, &lowered, "leaf1"), expected);
    assert_eq!(lowered.shortages, PlanShortages::default());
}

/// The plan of a case, of some of its jobs, for a part of its budgets.
fn lower_case(
    case: &Case,
    fabric: &Fabric,
    jobs: usize,
    budget: &SaiBudget,
) -> (Plan, LoweredPlan) {
    let jobs = &case.jobs[..jobs.min(case.jobs.len())];
    let plan = plan_adopting(fabric, jobs, &[]);
    let lowered = lower_plan(fabric, &plan, budget).unwrap();
    (plan, lowered)
}

/// No row violates a restriction, refers to a missing row, or exceeds its table.
fn check_tables(
    program: &P4Info,
    tables: &SwitchTables,
    budget: &SaiBudget,
) -> Result<(), TestCaseError> {
    for row in tables.iter() {
        let row = TableEntry::from(row);
        prop_assert_eq!(program.check_constraints(&row), Ok(()));
    }
    let rows = |table| tables.table_entries(table).count();
    prop_assert!(rows(table::VRF) <= budget.vrfs);
    prop_assert!(rows(table::ACL_PRE_INGRESS) <= budget.port_classes);
    prop_assert!(rows(table::ACL_INGRESS) <= budget.redirects);
    prop_assert!(rows(table::ACL_INGRESS_QOS) <= budget.job_levels);
    check_references(program, tables)
}

/// Every value that `@refers_to` a table is in a key of that table; the default VRF always is.
fn check_references(program: &P4Info, tables: &SwitchTables) -> Result<(), TestCaseError> {
    let mut keys: BTreeMap<&str, BTreeSet<&FieldValue>> = BTreeMap::new();
    let mut references: Vec<(&str, &FieldValue)> = Vec::new();
    for (key, value) in tables.iter() {
        let table = program.table(key.table).unwrap();
        for field in fields(key) {
            let FieldMatch::Exact(exact) = &field.matches else { continue };
            keys.entry(&table.name).or_default().insert(exact);
            let info = &table.field(field.id).unwrap().info;
            references.extend(info.refers_to.iter().map(|to| (to.as_str(), exact)));
        }
        for call in value.action.action_calls() {
            let action = program.action(call.action).unwrap();
            for param in &call.params {
                let info = action.param(param.id).unwrap();
                references.extend(info.refers_to.iter().map(|to| (to.as_str(), &param.value)));
            }
        }
    }
    for (to, value) in references {
        let is_default = value.text().is_some_and(|text| text.as_str().is_empty());
        let is_there = keys.get(to).is_some_and(|keys| keys.contains(value));
        prop_assert!(is_there || is_default && to == "vrf_table", "{to} has no {value:?}");
    }
    Ok(())
}

/// Pinned flows with room take the links that the other pipeline gives them, all others arrive;
/// all have the level of their job, or the highest of the jobs that they share packets with. A
/// published program leaves them the level that hosts give them.
fn check_walks(
    fabric: &Fabric,
    (plan, sai): (&Plan, &LoweredPlan),
    budget: &SaiBudget,
    choice: usize,
) -> Result<(), TestCaseError> {
    let fabric_tables = lowered(&with_sai(fabric, |_| false), plan);
    for (position, flow) in plan.flows.iter().enumerate().filter(|(_, flow)| !flow.links.is_empty())
    {
        let sport = flow.udp_src_port.unwrap_or(7);
        let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
        let walked = walk_sai(fabric, &sai.tables, &packet, choice).map_err(TestCaseError::fail)?;
        let level_of = |flow: &planner::PlannedFlow| u128::from(plan.jobs[flow.job].level);
        let of_pair =
            plan.flows.iter().filter(|other| ends_of(fabric, other) == ends_of(fabric, flow));
        let of_port =
            plan.flows.iter().filter(|other| ends_of(fabric, other).0 == ends_of(fabric, flow).0);
        let highest = if fabric.nic(flow.src).ip.is_ipv4() {
            of_pair.map(level_of).max()
        } else {
            of_port.map(level_of).max()
        };
        let highest = if budget.names_jobs { highest } else { Some(0) };
        prop_assert!(walked.levels.iter().all(|level| Some(*level) == highest), "{walked:?}");
        if flow.pinned && !sai.shortages.spilled.contains_key(&position) {
            prop_assert_eq!(&walked.links[..], &flow.links[..]);
            if flow.udp_src_port.is_some() {
                let other = walk(fabric, &fabric_tables, &packet, choice);
                prop_assert_eq!(&walked.links, &other.map_err(TestCaseError::fail)?.links);
            }
        }
    }
    Ok(())
}

/// Whatever DSCP a NIC of IPv4 writes, its packets to another have a level of a job with flows or
/// answers between the two, or the lowest.
fn check_all_pairs(
    fabric: &Fabric,
    (plan, sai): (&Plan, &LoweredPlan),
    choice: usize,
) -> Result<(), TestCaseError> {
    for (src, dst) in fabric.nic_ids().flat_map(|src| fabric.nic_ids().map(move |dst| (src, dst))) {
        let [from, to] = [src, dst].map(|port| fabric.first_port(port));
        let ends = [(from, to), (to, from)];
        let between = plan.flows.iter().filter(|flow| ends.contains(&ends_of(fabric, flow)));
        let mut levels: BTreeSet<u128> =
            between.map(|flow| u128::from(plan.jobs[flow.job].level)).collect();
        levels.insert(0);
        let packet = Packet { src, dst, sport: 7, answer: None };
        if let (Ok(walk), true) = (
            walk_sai_with_dscp(fabric, &sai.tables, &packet, choice, 0x3f),
            fabric.nic(src).ip.is_ipv4(),
        ) {
            let is_theirs = walk.levels.iter().all(|level| levels.contains(level));
            prop_assert!(is_theirs, "{src:?} > {dst:?}: {walk:?}, not {levels:?}");
        }
    }
    Ok(())
}

/// Whether a switch may send what a port leads to by another: to a switch, or to a NIC that has
/// another port there.
fn has_other(fabric: &Fabric, switch: SwitchId, link: LinkId) -> bool {
    let nic = fabric.nic_after(link);
    nic.is_none_or(|nic| fabric.arrival_port(switch, nic).is_some_and(|port| port != nic))
}

/// A program, and budgets from nothing to all that it has room for.
fn budgets() -> impl Strategy<Value = (&'static P4Info, SaiBudget)> {
    let programs = prop::sample::select(programs());
    (programs, prop_oneof![0..4_usize, Just(64)]).prop_map(|(program, vrfs)| {
        (program, SaiBudget { vrfs, ..SaiBudget::from_program(program) })
    })
}

/// Every prefix of the writes from one plan to another delivers all packets, switch after switch.
fn check_writes(
    fabric: &Fabric,
    from: &LoweredPlan,
    to: &LoweredPlan,
    (plan, (program, budget), choice): (&Plan, (&P4Info, SaiBudget), usize),
) -> Result<(), TestCaseError> {
    let mut tables = from.tables.clone();
    for (switch, desired) in &to.tables {
        for update in diff_tables(program, desired, &from.tables[switch]) {
            Arc::make_mut(tables.entry(*switch).or_default()).apply([&update]);
            check_tables(program, &tables[switch], &budget)?;
            for flow in plan.flows.iter().filter(|flow| !flow.links.is_empty()) {
                let sport = flow.udp_src_port.unwrap_or(7);
                let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
                let walked = walk_sai(fabric, &tables, &packet, choice);
                prop_assert!(walked.is_ok(), "{walked:?} after {}", program.display(&update));
            }
        }
        prop_assert_eq!(&tables[switch], desired);
    }
    Ok(())
}

proptest! {
    #[test]
    fn both_pipelines_forward_alike(case in cases(), (program, budget) in budgets()) {
        let roomy: &P4Info = if std::ptr::eq(program, &*TIGHT) { p4info() } else { program };
        let enough = SaiBudget::from_program(roomy);
        let whole = all_sai(&case.fabric);
        for fabric in [whole.clone(), whole.with_changes(case.changes.clone())] {
            let (plan, sai) = lower_case(&case, &fabric, usize::MAX, &enough);
            check_walks(&fabric, (&plan, &sai), &enough, case.choice)?;
            answers::check_answers(&fabric, (&plan, &sai), &enough, case.choice)?;
            check_all_pairs(&fabric, (&plan, &sai), case.choice)?;
            let (plan, sai) = lower_case(&case, &fabric, usize::MAX, &budget);
            for flow in plan.flows.iter().filter(|flow| !flow.links.is_empty()) {
                let sport = flow.udp_src_port.unwrap_or(7);
                let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
                prop_assert!(walk_sai(&fabric, &sai.tables, &packet, case.choice).is_ok());
            }
            for tables in sai.tables.values() {
                check_tables(program, tables, &budget)?;
                programs::check_encoding(program, tables)?;
            }
        }
    }

    #[test]
    fn every_prefix_of_the_writes_forwards(
        case in cases(),
        setup in budgets(),
        jobs in 0..3_usize,
    ) {
        let fabric = all_sai(&case.fabric).with_changes(case.changes.clone());
        let (plan, some) = lower_case(&case, &fabric, jobs, &setup.1);
        let (all_plan, all) = lower_case(&case, &fabric, usize::MAX, &setup.1);
        check_writes(&fabric, &some, &all, (&all_plan, setup, case.choice))?;
        check_writes(&fabric, &all, &some, (&plan, setup, case.choice))?;
    }

    /// Each switch may run either program: pinned flows take the links of the plan, and all arrive.
    #[test]
    fn mixed_fabrics_forward_as_planned(case in cases(), sai in any::<u64>()) {
        let mixed = with_sai(&case.fabric, |switch| sai >> (switch.index() % 64) & 1 == 1);
        for fabric in [mixed.clone(), mixed.with_changes(case.changes.clone())] {
            let wiring = FabricWiring::new(&fabric).unwrap();
            let mut plan = plan_adopting(&fabric, &case.jobs, &[]);
            for flow in wiring.find_shortages(&fabric, &plan).spilled.into_keys() {
                plan.flows[flow].pinned = false;
            }
            prop_assert_eq!(wiring.find_shortages(&fabric, &plan).spilled, BTreeMap::new());
            let tables = crate::pipelines::lower_plan(&wiring, &fabric, &plan);
            for flow in plan.flows.iter().filter(|flow| !flow.links.is_empty()) {
                let sport = flow.udp_src_port.unwrap_or(7);
                let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
                let walked = walk_sai(&fabric, &tables, &packet, case.choice);
                let walked = walked.map_err(TestCaseError::fail)?;
                if flow.pinned && flow.udp_src_port.is_some() {
                    prop_assert_eq!(&walked.links[..], &flow.links[..]);
                }
            }
        }
    }

    /// Ports of failed parts are out of use without a plan, and tables without any stay shared.
    #[test]
    fn failed_ports_are_protected(case in cases()) {
        let whole = all_sai(&case.fabric);
        let wiring = FabricWiring::new(&whole).unwrap();
        let plan = plan_adopting(&whole, &case.jobs, &[]);
        let held = crate::pipelines::lower_plan(&wiring, &whole, &plan);
        let fabric = whole.with_changes(case.changes.clone());
        let protected = protect_tables(&wiring, &fabric, &held);
        for switch in fabric.switch_ids() {
            let failed: BTreeSet<u32> = fabric.switch(switch).ports.iter()
                .filter(|(_, link)| !fabric.is_up(**link) && has_other(&fabric, switch, **link))
                .map(|(port, _)| *port)
                .collect();
            if failed.is_empty() {
                prop_assert!(Arc::ptr_eq(&held[&switch], &protected[&switch]));
                continue;
            }
            for (key, value) in protected[&switch].iter() {
                let mut ports = value.action.action_calls().filter_map(sai::nexthop_port);
                let is_left = ports.any(|port| failed.contains(&port));
                // A group, and the pins by it, have nowhere else to go.
                let has_other = |(group, members): (&EntryKey, &p4::EntryValue)| {
                    let mut ports = members.action.action_calls().filter_map(sai::nexthop_port);
                    group.table == table::WCMP_GROUP && ports.any(|port| !failed.contains(&port))
                };
                let alone = !held[&switch].iter().any(has_other);
                prop_assert!(!is_left || alone || key.table != table::ACL_INGRESS, "{key:?}");
                if let (true, table::WCMP_GROUP) = (is_left, key.table) {
                    let calls: Vec<_> = value.action.action_calls().collect();
                    let all = calls.iter().all(|call| {
                        sai::nexthop_port(call).is_some_and(|port| failed.contains(&port))
                    });
                    prop_assert!(all, "{key:?} has a failed member beside others");
                }
            }
            check_tables(p4info(), &protected[&switch], &SaiBudget::from_program(p4info()))?;
        }
    }
}
