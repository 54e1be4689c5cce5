//! Flows that are known by their NICs alone: whatever port a host chooses, its packets have the
//! level of the job and the links of the plan.

use super::*;
use crate::pipelines::fabric::job_classify::adoption_rules::takes_between;

/// Every packet between the NICs of a flow without a port has its job's level or a higher one, and
/// takes links that the plan chose for flows to its receiver: those of the flow itself, if it is
/// the only one there.
pub(super) fn check_pairs(
    fabric: &Fabric,
    plan: &Plan,
    choice: usize,
) -> Result<(), TestCaseError> {
    let tables = lowered(fabric, plan);
    let open = || plan.flows.iter().filter(|flow| flow.udp_src_port.is_none());
    for flow in flows_with_paths(fabric, plan).filter(|flow| flow.udp_src_port.is_none()) {
        let of_pair = open().filter(|other| ends_of(fabric, other) == ends_of(fabric, flow));
        let level = of_pair.map(|other| plan.jobs[other.job].level).max().unwrap();
        let to_nic: Vec<_> =
            open().filter(|other| ends_of(fabric, other).1 == ends_of(fabric, flow).1).collect();
        let chosen: BTreeSet<LinkId> =
            to_nic.iter().flat_map(|other| other.links.iter().copied()).collect();
        for sport in [0xC000, 0xC123, 0xFFFF, 7] {
            // A port that some flow states is that flow's.
            let ends = (ends_of(fabric, flow), Some(sport));
            if plan.flows.iter().any(|f| (ends_of(fabric, f), f.udp_src_port) == ends) {
                continue;
            }
            let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
            let walk = walk(fabric, &tables, &packet, choice).map_err(TestCaseError::fail)?;
            prop_assert!(walk.levels.iter().all(|at| *at == u128::from(level)), "{walk:?}");
            let is_pinned = to_nic.iter().all(|other| other.pinned);
            prop_assert!(!is_pinned || walk.links.iter().all(|link| chosen.contains(link)));
            if flow.pinned && to_nic.len() == 1 {
                prop_assert_eq!(&walk.links[..], &flow.links[..]);
            }
        }
    }
    Ok(())
}

/// A host that sends from another port than its job stated has at least the lowest level of the
/// jobs between its NICs: its own, if only one job is there.
pub(super) fn check_unstated_ports(
    fabric: &Fabric,
    plan: &Plan,
    choice: usize,
) -> Result<(), TestCaseError> {
    let tables = lowered(fabric, plan);
    for flow in flows_with_paths(fabric, plan) {
        let ends = ends_of(fabric, flow);
        if plan.rules.iter().any(|rule| takes_between(fabric, rule, ends.0, ends.1)) {
            continue;
        }
        let of_pair = || plan.flows.iter().filter(|other| ends_of(fabric, other) == ends);
        let sport = (0xC000..=0xFFFF).find(|port| of_pair().all(|f| f.udp_src_port != Some(*port)));
        let (src, dst, sport) = (flow.src, flow.dst, sport.unwrap());
        let packet = Packet { src, dst, sport, answer: None };
        let walk = walk(fabric, &tables, &packet, choice).map_err(TestCaseError::fail)?;
        let lowest = of_pair().map(|other| plan.jobs[other.job].level).min().unwrap();
        prop_assert!(walk.levels.iter().all(|at| *at >= u128::from(lowest)), "{walk:?}");
        let job = of_pair().map(|other| other.job).collect::<BTreeSet<_>>();
        let own = u128::from(plan.jobs[flow.job].level);
        prop_assert!(job.len() > 1 || walk.levels.iter().all(|at| *at == own), "{walk:?}");
    }
    Ok(())
}

/// Whatever port a NIC sends from, its packets to another have a level of a job between the two or
/// of a rule, or the lowest.
pub(super) fn check_all_pairs(
    fabric: &Fabric,
    plan: &Plan,
    choice: usize,
) -> Result<(), TestCaseError> {
    let tables = lowered(fabric, plan);
    for (src, dst) in fabric.nic_ids().flat_map(|src| fabric.nic_ids().map(move |dst| (src, dst))) {
        let [from, to] = [src, dst].map(|port| fabric.first_port(port));
        let sent = plan.flows.iter().filter(|flow| ends_of(fabric, flow).0 == from);
        let of_pair = sent.clone().filter(|flow| ends_of(fabric, flow).1 == to);
        let of_pair = of_pair.map(|flow| flow.job);
        let adopted = plan.rules.iter().filter(|rule| takes_between(fabric, rule, from, to));
        let jobs = of_pair.chain(adopted.map(|rule| rule.job));
        let mut levels: BTreeSet<u128> = jobs.map(|job| u128::from(plan.jobs[job].level)).collect();
        levels.insert(0);
        let sports = sent.filter_map(|flow| flow.udp_src_port).take(3).chain([7]);
        for sport in sports {
            // A failure may have left no way.
            let packet = Packet { src, dst, sport, answer: None };
            if let Ok(walk) = walk(fabric, &tables, &packet, choice) {
                let is_theirs = walk.levels.iter().all(|level| levels.contains(level));
                prop_assert!(is_theirs, "{src:?} > {dst:?} from {sport}: {walk:?}, not {levels:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_pair_has_one_class_row_and_a_path_of_its_own_and_no_pin() {
    let fabric = small();
    let plan = plan(&fabric, &[job(0, &[(0, 1, 0)])]);
    let rows = shown(&fabric, &lowered(&fabric, &plan), "leaf1");
    let of = |table: &str| {
        let rows = rows.iter().filter(|row| row.starts_with(table));
        rows.map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(of("flow_pin"), [""; 0]);
    let level = plan.jobs[0].level;
    assert_eq!(
        of("job_"),
        [
            &format!("job_qos job=1 -> set_class(level={level}, dscp={})", level * 8),
            "job_pair src=10.0.1.1 dst=10.0.2.1 -> set_pair_job(job=1)",
        ]
    );
    let port = fabric.link(plan.flows[0].links[1]).from.port;
    assert_eq!(of("dst_leaf ").len(), 2);
    assert!(of("dst_leaf ").contains(&"dst_leaf dst=10.0.2.1/32 -> set_dst_leaf(id=6)"));
    let group = format!("ecmp_group dst_leaf=6 -> [1xto_ecmp_port(port={port})]");
    assert!(of("ecmp_group").contains(&group.as_str()), "{rows:#?}");
}

#[test]
fn a_pair_leaves_a_failed_port_before_tables_are_lowered() {
    let fabric = small();
    let plan = plan(&fabric, &[job(0, &[(0, 1, 0)])]);
    let failed = fabric.with_changes([AvailabilityChange::LinkDown(plan.flows[0].links[1])]);
    let wiring = FabricWiring::new(&fabric).unwrap();
    let held = lower_plan(&wiring, &fabric, &plan);
    let tables = crate::pipelines::protect_tables(&wiring, &failed, &held);
    let packet = Packet { src: NicId(0), dst: NicId(1), sport: 0xC001, answer: None };
    let walk = walk(&failed, &tables, &packet, 0).unwrap();
    assert_ne!(walk.links[1], plan.flows[0].links[1]);
}

#[test]
fn jobs_that_share_a_pair_without_ports_have_the_highest_of_their_levels() {
    let fabric = small();
    let plan = plan(&fabric, &[job(0, &[(0, 1, 0)]), job(1, &[(0, 1, 0)])]);
    assert!(plan.jobs[1].level > plan.jobs[0].level);
    check_pairs(&fabric, &plan, 0).unwrap();
    // Nobody can say whose packets the row counts.
    let counted = crate::pipelines::attributed_entries(&fabric, &plan);
    assert_eq!(counted, []);
}

#[test]
fn classes_without_room_are_those_of_the_last_jobs() {
    let spec = ClosSpec { leaves: 2, spines: 1, hosts_per_leaf: 40, ..ClosSpec::default() };
    let fabric = clos::build_clos("wide", &spec).unwrap();
    // Two jobs share 600 pairs, with a port each: 1,200 flows for 512 rows.
    let flows = |port: u16| -> Vec<_> {
        (0..40).flat_map(|src| (40..55).map(move |dst| (src, dst, port))).collect()
    };
    let mut plan = plan(&fabric, &[job(0, &flows(50_000)), job(1, &flows(50_001))]);
    plan.flows.iter_mut().for_each(|flow| flow.pinned = false);
    let tables = lowered(&fabric, &plan);
    let rows = tables[&SwitchId(0)].table_entries(table::JOB_CLASSIFY);
    let jobs: Vec<u128> = rows
        .map(|(_, value)| {
            value.action.action_calls().next().unwrap().params[0].value.number().unwrap()
        })
        .collect();
    assert_eq!(jobs.len(), 512);
    assert!(jobs.iter().all(|number| *number == u128::from(plan.jobs[1].number)));
}

/// Rows of pairs and of rules at the first leaf, as people see them.
fn class_rows_of(fabric: &Fabric, plan: &Plan) -> Vec<String> {
    let rows = shown(fabric, &lowered(fabric, plan), "leaf1").into_iter();
    rows.filter(|row| row.starts_with("job_pair") || row.starts_with("job_classify")).collect()
}

#[test]
fn flows_of_no_job_are_counted_by_rows_that_change_no_packet() {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
    let fabric = clos::build_clos("four", &spec).unwrap();
    let plan = plan_adopting(&fabric, &[job(0, &[(0, 2, 0)])], &[rule(0, &[1], &[2], &fabric)]);
    let without = class_rows_of(&fabric, &plan);
    // From the NIC of the job, from one without, and what the rule adopts and counts already.
    let counted_pairs = [(0, 3), (1, 2), (1, 3)].map(|(src, dst)| (NicId(src), NicId(dst)));
    let counted = Plan { counted_pairs: counted_pairs.to_vec(), ..plan.clone() };
    let mut added = class_rows_of(&fabric, &counted);
    added.retain(|row| !without.contains(row));
    let row = |src: &str| format!("job_pair src={src} dst=10.0.2.2 -> set_pair_job(job=0)");
    assert_eq!(added, [row("10.0.1.1"), row("10.0.1.2")]);
    let levels = |plan: &Plan, src: u32, dst: u32| {
        let packet = Packet { src: NicId(src), dst: NicId(dst), sport: 0xC001, answer: None };
        walk(&fabric, &lowered(&fabric, plan), &packet, 0).unwrap().levels
    };
    for (src, dst) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        assert_eq!(levels(&counted, src, dst), levels(&plan, src, dst), "{src} > {dst}");
    }
    let attributed = |plan: &Plan| crate::pipelines::attributed_entries(&fabric, plan);
    assert_eq!(attributed(&counted), attributed(&plan));
}
