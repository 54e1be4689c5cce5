//! Lowered tables: goldens, and properties of packets over random fabrics.

mod classes;
mod pairs;
mod references;
pub(in crate::pipelines) mod walk;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::fabric::table;
use p4::{ForwardingPipeline, SwitchTables};
use planner::{
    AdoptionRule, Flow, Job, MeasuredSlowdown, Plan, PlanDepth, PlanInput, PlannedFlow, Policy,
};
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};
use topology::{
    AvailabilityChange, BufferDependencyGraph, Fabric, FabricParts, Forwarding, HostId,
    LinkEndpoint, LinkId, NicId, SwitchId, Tier,
};

use self::walk::{Packet, walk};
use crate::pipeline::SwitchReports;
use crate::pipelines::{FabricWiring, lower_plan};

/// A job named by its number, with flows between NICs: (source, destination, UDP source port, 0 for
/// none).
pub(crate) fn job(number: usize, flows: &[(usize, usize, u16)]) -> Job {
    let flow = |&(src, dst, udp_src_port): &(usize, usize, u16)| Flow {
        src: NicId::from(src),
        dst: NicId::from(dst),
        bytes: 1e9,
        udp_src_port: Some(udp_src_port).filter(|port| *port > 0),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    };
    Job {
        id: format!("job{number}").as_str().into(),
        tenant: None,
        model: None,
        gpus: BTreeMap::from([(HostId(0), 1)]),
        flop_per_iteration: 1e15 * (number as f64 + 1.0),
        compute_seconds: 1.0,
        overlap_from: 1.0,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: flows.iter().map(flow).collect(),
    }
}

fn plan(fabric: &Fabric, jobs: &[Job]) -> Plan {
    plan_adopting(fabric, jobs, &[])
}

pub(in crate::pipelines) fn plan_adopting(
    fabric: &Fabric,
    jobs: &[Job],
    rules: &[AdoptionRule],
) -> Plan {
    let jobs = planner::spread_over_ports(fabric, jobs.to_vec());
    let input = PlanInput { fabric: fabric.clone(), jobs };
    let policy = Policy { adopt: rules.to_vec(), ..Policy::default() };
    let (input, policy) = policy.with_adopted_jobs(input);
    // What is lowered need not be the best plan.
    planner::plan_to_depth(&input, &policy, None, PlanDepth::Quick).0
}

/// A rule of a job named by its number, by positions of hosts.
fn rule(number: usize, src: &[usize], dst: &[usize], fabric: &Fabric) -> AdoptionRule {
    let names = |hosts: &[usize]| {
        let name = |host: &usize| fabric.host(HostId::from(*host)).name.clone();
        hosts.iter().map(name).collect()
    };
    AdoptionRule {
        job: format!("rule{number}").as_str().into(),
        tenant: None,
        level: Some(3),
        src: names(src),
        dst: names(dst),
        sport: None,
        dport: None,
    }
}

pub(in crate::pipelines) fn lowered(
    fabric: &Fabric,
    plan: &Plan,
) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
    lower_plan(&FabricWiring::new(fabric).unwrap(), fabric, plan)
}

/// The rows of one switch as people see them, without those that say nothing new.
fn shown(
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    switch: &str,
) -> Vec<String> {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let tables = &tables[&fabric.switch_named(switch).unwrap()];
    let known = [
        table::DSCP_LEVEL,
        table::ROCE_ANSWER,
        table::SWITCH_SALT,
        table::ANSWER_RATE,
        table::ANSWER_SHARE,
        table::ND_ANSWER,
    ];
    let updated = |table| !known.contains(&table);
    let entries = tables.iter().filter(|(key, _)| updated(key.table));
    let entries = entries.map(|(key, value)| p4::entry::TableEntry::from((key, value)));
    entries.map(|entry| p4info.display(&entry).to_string()).collect()
}

fn small() -> Fabric {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 1, ..ClosSpec::default() };
    clos::build_clos("small", &spec).unwrap()
}

#[test]
fn lowers_a_leaf_with_a_pinned_job() {
    let fabric = small();
    let plan = plan(&fabric, &[job(0, &[(0, 1, 50_000)])]);
    let expected = [
        "local_host dst=10.0.1.1 -> to_host(port=1, dmac=02:00:0a:00:01:01)",
        "dst_leaf dst=10.0.2.0/24 -> set_dst_leaf(id=2)",
        "flow_pin src=10.0.1.1 dst=10.0.2.1 proto=17 sport=50000 dport=4791 -> pin(path=2, job=1)",
        "job_qos job=1 -> set_class(level=6, dscp=48)",
        "fabric_port port=2 -> trust_dscp()",
        "fabric_port port=3 -> trust_dscp()",
        "path dst_leaf=2 path=2 -> to_uplink(port=2, backup=3)",
        "path dst_leaf=2 path=3 -> to_uplink(port=3, backup=2)",
        "ecmp_group dst_leaf=2 -> [1xto_ecmp_port(port=2), 1xto_ecmp_port(port=3)]",
        "source_guard port=1 src=10.0.1.1 -> admit()",
        "arp_answer -> answer_arp(mac=02:00:00:00:00:fe)",
        "job_pair src=10.0.1.1 dst=10.0.2.1 -> set_pair_job(job=1)",
        "foreign_source src=10.0.1.0/24 -> allow_source()",
        "foreign_source src=10.0.1.1/32 -> refuse_source()",
        "foreign_source src=10.0.2.0/24 -> refuse_source()",
        "host_port port=1 -> check_source()",
    ];
    assert_eq!(shown(&fabric, &lowered(&fabric, &plan), "leaf1"), expected);
    let far = [
        "local_host dst=10.0.2.1 -> to_host(port=1, dmac=02:00:0a:00:02:01)",
        "dst_leaf dst=10.0.1.0/24 -> set_dst_leaf(id=1)",
        "fabric_port port=2 -> trust_dscp()",
        "fabric_port port=3 -> trust_dscp()",
        "path dst_leaf=1 path=2 -> to_uplink(port=2, backup=3)",
        "path dst_leaf=1 path=3 -> to_uplink(port=3, backup=2)",
        "ecmp_group dst_leaf=1 -> [1xto_ecmp_port(port=2), 1xto_ecmp_port(port=3)]",
        "source_guard port=1 src=10.0.2.1 -> admit()",
        "arp_answer -> answer_arp(mac=02:00:00:00:00:fe)",
        "foreign_source src=10.0.1.0/24 -> refuse_source()",
        "foreign_source src=10.0.2.0/24 -> allow_source()",
        "foreign_source src=10.0.2.1/32 -> refuse_source()",
        "host_port port=1 -> check_source()",
    ];
    assert_eq!(shown(&fabric, &lowered(&fabric, &plan), "leaf2"), far);
    let spine = [
        "dst_leaf dst=10.0.1.0/24 -> set_dst_leaf(id=1)",
        "dst_leaf dst=10.0.2.0/24 -> set_dst_leaf(id=2)",
        "fabric_port port=1 -> trust_dscp()",
        "fabric_port port=2 -> trust_dscp()",
        "ecmp_group dst_leaf=1 -> [1xto_ecmp_port(port=1)]",
        "ecmp_group dst_leaf=2 -> [1xto_ecmp_port(port=2)]",
    ];
    assert_eq!(shown(&fabric, &lowered(&fabric, &plan), "spine1"), spine);
}

#[test]
fn failed_far_link_changes_path_rows_and_one_group_at_the_leaf() {
    let fabric = small();
    let plan = plan(&fabric, &[job(0, &[(0, 1, 50_000)])]);
    let [spine, leaf] = ["spine1", "leaf2"].map(|name| fabric.switch_named(name).unwrap());
    let mut links = fabric.link_ids();
    let ends = |link: &LinkId| {
        let link = fabric.link(*link);
        (link.from.node.switch(), link.to.node.switch())
    };
    let far = links.find(|link| ends(link) == (Some(spine), Some(leaf))).unwrap();
    let failed = fabric.with_changes([AvailabilityChange::LinkDown(far)]);
    let (before, after) = (lowered(&fabric, &plan), lowered(&failed, &plan));
    let (before, after) = (shown(&fabric, &before, "leaf1"), shown(&fabric, &after, "leaf1"));
    let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    let expected = [
        "path dst_leaf=2 path=2 -> to_uplink(port=3, backup=3)",
        "path dst_leaf=2 path=3 -> to_uplink(port=3, backup=3)",
        "ecmp_group dst_leaf=2 -> [1xto_ecmp_port(port=3)]",
    ];
    assert_eq!(new, expected);
    assert_eq!(after.len(), before.len());
}

#[test]
fn jobs_that_share_a_nic_are_classified_by_pair_and_by_port() {
    let spec = ClosSpec { leaves: 1, spines: 1, hosts_per_leaf: 3, ..ClosSpec::default() };
    let fabric = clos::build_clos("rack", &spec).unwrap();
    // On one leaf nothing is pinned. h1 sends to h2 for both jobs, to h3 for the first alone.
    let jobs = [job(0, &[(0, 1, 50_000), (0, 2, 50_001)]), job(1, &[(0, 1, 50_002)])];
    let plan = plan(&fabric, &jobs);
    let rows = shown(&fabric, &lowered(&fabric, &plan), "leaf1");
    let rows = rows.into_iter().filter(|row| row.starts_with("job_")).collect::<Vec<_>>();
    // What comes from another port has the higher level of the two.
    let expected = [
        "job_classify src=10.0.1.1 dst=10.0.1.2 dport=4791 sport=50000 priority=65 -> \
         set_job(job=1)",
        "job_classify src=10.0.1.1 dst=10.0.1.2 dport=4791 sport=50002 priority=65 -> \
         set_job(job=2)",
        "job_qos job=1 -> set_class(level=5, dscp=40)",
        "job_qos job=2 -> set_class(level=6, dscp=48)",
        "job_pair src=10.0.1.1 dst=10.0.1.2 -> set_pair_job(job=2)",
        "job_pair src=10.0.1.1 dst=10.0.1.3 -> set_pair_job(job=1)",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn rule_rows_are_at_entry_leaves_below_those_of_jobs() {
    let spec = ClosSpec { leaves: 2, spines: 1, hosts_per_leaf: 2, ..ClosSpec::default() };
    let fabric = clos::build_clos("two racks", &spec).unwrap();
    // Two flows that stay on their leaf: one to where the second rule's go as well.
    let jobs = [job(0, &[(0, 1, 50_000)]), job(1, &[(1, 0, 50_001)])];
    let storage = AdoptionRule { dport: Some(2049), ..rule(0, &[], &[3], &fabric) };
    let rules = [storage, rule(1, &[0], &[], &fabric)];
    let plan = plan_adopting(&fabric, &jobs, &rules);
    let tables = lowered(&fabric, &plan);
    let rows = |switch| {
        let rows = shown(&fabric, &tables, switch);
        rows.into_iter().filter(|row| row.starts_with("job_")).collect::<Vec<_>>()
    };
    let first = [
        "job_classify src=10.0.1.1 dst=10.0.1.2 dport=4791 sport=50000 priority=65 -> \
         set_job(job=1)",
        "job_classify src=10.0.1.1 job=0 priority=63 -> set_job(job=4)",
        "job_classify dst=10.0.2.2 dport=2049 job=0 priority=64 -> set_job(job=3)",
        "job_pair src=10.0.1.2 dst=10.0.1.1 -> set_pair_job(job=2)",
    ];
    let mut found = rows("leaf1");
    found.retain(|row| !row.starts_with("job_qos"));
    found.sort();
    let mut first = first.map(str::to_owned);
    first.sort();
    assert_eq!(found, first);
    let second = [
        "job_classify dst=10.0.2.2 dport=2049 job=0 priority=64 -> set_job(job=3)",
        "job_qos job=3 -> set_class(level=3, dscp=24)",
    ];
    assert_eq!(rows("leaf2"), second);
    assert_eq!(rows("spine1"), [""; 0]);
}

#[test]
fn tiers_use_distinct_hash_bits_and_switches_distinct_salts() {
    let spec = ClosSpec { pods: 2, cores: 2, ..ClosSpec::default() };
    let fabric = clos::build_clos("three tiers", &spec).unwrap();
    let mut salts = BTreeSet::new();
    for (switch, tables) in lowered(&fabric, &plan(&fabric, &[])) {
        let (_, value) = tables.table_entries(table::SWITCH_SALT).next().unwrap();
        let params = &value.action.action_calls().next().unwrap().params;
        let shift: u32 = match fabric.switch(switch).tier {
            Tier::Leaf => 0,
            Tier::Spine => 8,
            Tier::Core => 16,
        };
        assert_eq!(params[1].value, shift.into());
        salts.insert(params[0].value.clone());
    }
    assert_eq!(salts.len(), fabric.switches().len());
}

#[test]
fn more_ecmp_members_than_the_selector_holds_are_refused() {
    let wired = |leaves, spines| {
        let spec = ClosSpec { leaves, spines, hosts_per_leaf: 1, ..ClosSpec::default() };
        FabricWiring::new(&clos::build_clos("large", &spec).unwrap())
    };
    wired(342, 12).unwrap();
    let error = wired(343, 12).unwrap_err();
    let crate::pipeline::WiringError::TooManyMembers { members, max, .. } = error.clone() else {
        panic!("{error}");
    };
    assert_eq!((members, max), (342 * 12, 4096));
    assert!(error.to_string().contains("fewer leaves"), "{error}");
}

#[test]
fn too_wide_ecmp_groups_are_refused() {
    let spec = ClosSpec { leaves: 2, spines: 65, ..ClosSpec::default() };
    let error = FabricWiring::new(&clos::build_clos("wide", &spec).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "leaf1 has 65 equal-cost ports to one leaf; a group holds 64");
}

/// Small fabrics of every shape.
/// What the tables limit of a switch that reports: the documented ports, and all others.
#[test]
fn every_port_is_limited_where_switches_report() {
    let mut parts = FabricParts { name: "sparse".to_owned(), ..small().parts().clone() };
    // One host is at a port that no default covers.
    let (far, uplink) = (300, parts.nics[0].uplink);
    parts.links[uplink.index()].to.port = far;
    parts.links[uplink.reverse().index()].from.port = far;
    let leaf = SwitchId(0);
    let near = small().link(uplink).to.port;
    let link = parts.switches[leaf.index()].ports.remove(&near).unwrap();
    parts.switches[leaf.index()].ports.insert(far, link);
    let fabric = Fabric::new(parts);
    let reports = SwitchReports { probes: true, unknown_flows: true };
    let wiring = FabricWiring::new(&fabric).unwrap().with_reports(reports);
    let tables = lower_plan(&wiring, &fabric, &plan(&fabric, &[]));
    let shown = shown(&fabric, &tables, "leaf1");
    let rows = |beginning: &str, part: &str| {
        let rows = shown.iter().filter(|row| row.starts_with(beginning) && row.contains(part));
        let is_metered = |row: &String| row.contains("meter(cir=256, cburst=256, ");
        assert!(rows.clone().all(is_metered) || beginning.starts_with("roce"), "{shown:?}");
        rows.count()
    };
    assert_eq!(rows("punt_rate port=300 ", ""), 1);
    assert_eq!(rows("punt_rate priority=", ""), 1);
    // Two uplinks and the first ports are among the first ports.
    assert_eq!(rows("punt_rate ", " priority=2 "), 66);
    // One host of this leaf has all reports of unknown flows.
    let learned = rows("roce_learn port=300 -> learn() meter(cir=100, cburst=32, ", "");
    assert_eq!((rows("roce_learn ", ""), learned), (1, 1));
}

fn fabrics() -> impl Strategy<Value = Fabric> {
    let counts = (1u32..=3, 1u32..=3, 1u32..=2, 1u32..=2, 1u32..=2);
    (counts, 0u32..3, any::<[bool; 3]>()).prop_map(|(counts, shape, [planes, ipv6, bonds])| {
        let (leaves, spines, hosts_per_leaf, parallel_uplinks, host_links) = counts;
        let pods = if shape == 2 { 2 } else { 1 };
        let spec = ClosSpec {
            leaves: leaves * 2,
            spines,
            hosts_per_leaf,
            parallel_uplinks,
            host_links: if shape == 1 { 2 } else { host_links },
            pods,
            cores: if pods == 2 { spines * 2 } else { 0 },
            planes: planes && pods == 2,
            rails: shape == 1,
            ports_per_nic: if bonds { 2 } else { 1 },
            ipv6,
            ..ClosSpec::default()
        };
        let fabric = clos::build_clos("random", &spec).unwrap();
        if bonds && planes { with_single_leaf_bond(&fabric) } else { fabric }
    })
}

/// The fabric with both ports of its first NIC at one leaf.
fn with_single_leaf_bond(fabric: &Fabric) -> Fabric {
    let mut parts = fabric.parts().clone();
    let [first, second] = [0, 1].map(|at| fabric.ports_of(NicId(0)).nth(at).unwrap());
    let [to, was] = [first, second].map(|port| fabric.link(fabric.nic(port).uplink).to);
    let down = fabric.nic(second).uplink.reverse();
    let end = LinkEndpoint { port: 400, ..to };
    parts.links[down.reverse().index()].to = end;
    parts.links[down.index()].from = end;
    let ports = |end: LinkEndpoint| end.node.switch().unwrap().index();
    parts.switches[ports(was)].ports.remove(&was.port);
    parts.switches[ports(end)].ports.insert(end.port, down);
    Fabric::new(parts)
}

/// The NICs between which a flow goes, whichever ports of them.
pub(in crate::pipelines) fn ends_of(fabric: &Fabric, flow: &PlannedFlow) -> (NicId, NicId) {
    fabric.first_ports([flow.src, flow.dst]).into()
}

/// A fabric, jobs on it, and what of it fails or is drained, as positions to be taken modulo.
#[derive(Debug)]
pub(in crate::pipelines) struct Case {
    pub(in crate::pipelines) fabric: Fabric,
    pub(in crate::pipelines) jobs: Vec<Job>,
    pub(in crate::pipelines) rules: Vec<AdoptionRule>,
    pub(in crate::pipelines) changes: Vec<AvailabilityChange>,
    pub(in crate::pipelines) choice: usize,
}

/// Rules by positions of hosts, to be taken modulo; none for any.
fn rules() -> impl Strategy<Value = Vec<[Vec<usize>; 2]>> {
    let hosts = || proptest::collection::vec(0usize..64, 0..3);
    proptest::collection::vec((hosts(), hosts()).prop_map(|(src, dst)| [src, dst]), 0..3)
}

pub(in crate::pipelines) fn cases() -> impl Strategy<Value = Case> {
    let flows = proptest::collection::vec((0usize..64, 0usize..64), 1..12);
    let jobs = proptest::collection::vec(flows, 0..4);
    let changes = proptest::collection::vec((0usize..4, 0usize..200), 0..4);
    let sprays = prop_oneof![4 => Just(Forwarding::Pin), 1 => Just(Forwarding::Spray)];
    let drawn = ((fabrics(), sprays), jobs, rules(), changes, 0usize..6);
    drawn.prop_map(|((fabric, forwarding), jobs, rules, changes, choice)| {
        let fabric = fabric.with_forwarding(forwarding);
        let all: Vec<usize> = fabric.host_nics().map(|nic| nic.index()).collect();
        let nics = all.len();
        let mut port = 0xc000;
        let jobs = jobs.into_iter().enumerate().map(|(number, flows)| {
            let apart = flows.into_iter().filter(|(src, dst)| src % nics != dst % nics);
            let flows = apart.map(|(src, dst)| {
                port += 1;
                (all[src % nics], all[dst % nics], if (src + dst) % 3 == 0 { 0 } else { port })
            });
            job(number, &flows.collect::<Vec<_>>())
        });
        let jobs = jobs.collect();
        let (links, switches) = (fabric.links().len(), fabric.switches().len());
        let change = |(kind, at): (usize, usize)| match kind {
            0 => AvailabilityChange::LinkDown(LinkId::from(at % links)),
            1 => AvailabilityChange::DrainLink(LinkId::from(at % links)),
            2 => AvailabilityChange::SwitchDown(SwitchId::from(at % switches)),
            _ => AvailabilityChange::DrainSwitch(SwitchId::from(at % switches)),
        };
        let changes = changes.into_iter().map(change).collect();
        let hosts = fabric.hosts().len();
        let rules = rules.into_iter().enumerate().map(|(number, ends)| {
            let [src, dst] = ends.map(|ends| ends.iter().map(|host| host % hosts).collect());
            let [src, dst]: [Vec<usize>; 2] = [src, dst];
            rule(number, &src, &dst, &fabric)
        });
        Case { rules: rules.collect(), fabric, jobs, changes, choice }
    })
}

/// The flows that have a way over the fabric, sprayed or not.
fn flows_with_paths<'p>(
    fabric: &'p Fabric,
    plan: &'p Plan,
) -> impl Iterator<Item = &'p PlannedFlow> + 'p {
    plan.flows.iter().filter(move |flow| {
        let is_cabled = |nic| fabric.is_usable(fabric.nic(nic).uplink);
        let has_way = || !topology::paths_between_nics(fabric, flow.src, flow.dst).is_empty();
        match plan.jobs[flow.job].sprayed {
            true => is_cabled(flow.src) && is_cabled(flow.dst) && has_way(),
            false => !flow.links.is_empty(),
        }
    })
}

/// Every planned flow takes its planned links at its job's level; one without a pin arrives, at its
/// job's level too.
fn check_flows(fabric: &Fabric, plan: &Plan, choice: usize) -> Result<(), TestCaseError> {
    let tables = lowered(fabric, plan);
    for flow in flows_with_paths(fabric, plan) {
        let Some(sport) = flow.udp_src_port else {
            continue;
        };
        let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
        let walk = walk(fabric, &tables, &packet, choice).map_err(TestCaseError::fail)?;
        if flow.pinned {
            prop_assert_eq!(&walk.links[..], &flow.links[..]);
        }
        let level = u128::from(plan.jobs[flow.job].level);
        prop_assert!(walk.levels.iter().all(|at| *at == level), "{walk:?} not at {level}");
    }
    Ok(())
}

/// What nobody announced travels at the level of the first rule that it matches, or at the lowest.
fn check_adopted(fabric: &Fabric, plan: &Plan, choice: usize) -> Result<(), TestCaseError> {
    let tables = lowered(fabric, plan);
    let is_one_of = |nics: &[NicId], nic| nics.is_empty() || nics.contains(&fabric.first_port(nic));
    for flow in flows_with_paths(fabric, plan) {
        let packet = Packet { src: flow.src, dst: flow.dst, sport: 1, answer: None };
        let adopts = |rule: &&planner::PlannedRule| {
            is_one_of(&rule.senders, flow.src) && is_one_of(&rule.receivers, flow.dst)
        };
        // A job that states no port has all that its NICs send each other.
        let is_announced = plan
            .flows
            .iter()
            .filter(|other| other.udp_src_port.is_none())
            .any(|other| ends_of(fabric, other) == ends_of(fabric, flow));
        let Some(rule) = plan.rules.iter().find(adopts).filter(|_| !is_announced) else {
            continue;
        };
        let level = u128::from(plan.jobs[rule.job].level);
        let walk = walk(fabric, &tables, &packet, choice).map_err(TestCaseError::fail)?;
        prop_assert!(walk.levels.iter().all(|at| *at == level), "{walk:?}");
    }
    Ok(())
}

/// The packets of every planned flow with and without its pin, over several links of each group.
fn packets_of(fabric: &Fabric, plan: &Plan) -> Vec<(Packet, usize)> {
    let choices = fabric.switches().len().min(4);
    let packets = plan.flows.iter().flat_map(|flow| {
        let ports = [flow.udp_src_port.unwrap_or(0xD000), 1];
        ports.map(|sport| (flow.src, flow.dst, sport))
    });
    let chosen = packets.flat_map(|(src, dst, sport)| {
        (0..choices).map(move |choice| (Packet { src, dst, sport, answer: None }, choice))
    });
    chosen.collect()
}

/// Answers arrive, at the highest level.
fn check_answers(fabric: &Fabric, plan: &Plan, choice: usize) -> Result<(), TestCaseError> {
    let tables = lowered(fabric, plan);
    for flow in flows_with_paths(fabric, plan) {
        let sport = flow.udp_src_port.unwrap_or(0xD000);
        let packet = Packet { src: flow.dst, dst: flow.src, sport, answer: Some(0x11) };
        let walk = walk(fabric, &tables, &packet, choice).map_err(TestCaseError::fail)?;
        let highest = u128::from(plan.levels) - 1;
        prop_assert!(walk.levels.iter().all(|at| *at == highest), "{walk:?}");
    }
    Ok(())
}

#[test]
fn a_fabric_that_sprays_has_a_stride_for_each_tier_levels_for_pairs_and_no_pins() {
    let spec = ClosSpec { pods: 2, cores: 4, ..ClosSpec::default() };
    let fabric = clos::build_clos("lab", &spec).unwrap().with_forwarding(Forwarding::Spray);
    let last = fabric.nics().len() - 1;
    let plan = plan(&fabric, &[job(1, &[(0, last, 0xc000), (0, last, 0xc001)])]);
    assert!(plan.jobs[0].sprayed && plan.flows.iter().all(|flow| !flow.pinned));
    let mut strides: BTreeMap<Tier, BTreeSet<Vec<u128>>> = BTreeMap::new();
    for (switch, tables) in lowered(&fabric, &plan) {
        let default = tables.table_entries(table::SPRAYING).next().unwrap().1;
        let calls = default.action.action_calls();
        let values = calls.flat_map(|call| &call.params).map(|param| param.value.number().unwrap());
        strides.entry(fabric.switch(switch).tier).or_default().insert(values.collect());
        for pins in [table::FLOW_PIN, table::QP_PIN, table::TRANSIT_PIN6] {
            assert_eq!(tables.table_entries(pins).count(), 0);
        }
        let leads_in = switch == fabric.leaf_of(NicId(0));
        assert_eq!(tables.table_entries(table::JOB_PAIR).count(), usize::from(leads_in));
    }
    let all: BTreeSet<_> = strides.values().flatten().collect();
    assert_eq!((strides.len(), all.len()), (3, 3), "{strides:?}");
}

proptest! {
    #[test]
    fn planned_flows_take_their_planned_links(case in cases()) {
        let fabric = case.fabric.with_changes(case.changes.iter().copied());
        let plan = plan_adopting(&fabric, &case.jobs, &case.rules);
        check_flows(&fabric, &plan, case.choice)?;
        pairs::check_pairs(&fabric, &plan, case.choice)?;
        pairs::check_unstated_ports(&fabric, &plan, case.choice)?;
        check_adopted(&fabric, &plan, case.choice)?;
        check_answers(&fabric, &plan, case.choice)?;
        pairs::check_all_pairs(&fabric, &plan, case.choice)?;
        for tables in lowered(&fabric, &plan).values() {
            references::check_references(tables)?;
        }
    }

    /// A failure repaired in the path rows alone: flows of the plan from before it still arrive,
    /// wherever the plan after it finds a way.
    #[test]
    fn old_plan_on_a_failed_fabric_still_delivers(case in cases()) {
        let old = plan(&case.fabric, &case.jobs);
        let fabric = case.fabric.with_changes(case.changes.iter().copied());
        let new = plan(&fabric, &case.jobs);
        let tables = lowered(&fabric, &old);
        for flow in flows_with_paths(&fabric, &new) {
            let (src, dst, sport) = (flow.src, flow.dst, flow.udp_src_port.unwrap_or(0xD000));
            let packet = Packet { src, dst, sport, answer: None };
            walk(&fabric, &tables, &packet, case.choice).map_err(TestCaseError::fail)?;
        }
    }

    /// What works again is drained first and used then. Whichever switches have come how far, all
    /// arrive that did before.
    #[test]
    fn returning_parts_are_used_without_loss(case in cases(), updated in any::<u64>()) {
        let fails = |change: &&AvailabilityChange| {
            use AvailabilityChange::{LinkDown, SwitchDown};
            matches!(change, LinkDown(_) | SwitchDown(_))
        };
        let failed = case.fabric.with_changes(case.changes.iter().filter(fails).copied());
        let drains = case.changes.iter().filter(fails).map(|change| match change {
            AvailabilityChange::LinkDown(link) => AvailabilityChange::DrainLink(*link),
            AvailabilityChange::SwitchDown(switch) => AvailabilityChange::DrainSwitch(*switch),
            other => *other,
        });
        let returned = case.fabric.with_changes(drains);
        let old = plan(&failed, &case.jobs);
        let plans = [&failed, &returned, &case.fabric].map(|fabric| {
            let jobs = planner::spread_over_ports(fabric, case.jobs.clone());
            let input = PlanInput { fabric: fabric.clone(), jobs };
            planner::plan(&input, &Policy::default(), Some(&old)).0
        });
        let [before, first, then] = [(&failed, 0), (&returned, 1), (&case.fabric, 2)]
            .map(|(fabric, at)| lowered(fabric, &plans[at]));
        let arrived = || flows_with_paths(&failed, &plans[0]);
        for (had, next) in [(&before, &first), (&first, &then)] {
            let mixed = had.iter().map(|(switch, tables)| {
                let knows = updated >> (switch.index() % 64) & 1 == 1;
                (*switch, if knows { next[switch].clone() } else { tables.clone() })
            });
            let mixed = mixed.collect();
            for flow in arrived() {
                let (src, dst, sport) = (flow.src, flow.dst, flow.udp_src_port.unwrap_or(0xD000));
                let packet = Packet { src, dst, sport, answer: None };
                walk(&case.fabric, &mixed, &packet, case.choice).map_err(TestCaseError::fail)?;
            }
        }
    }

    /// At no level do buffers wait for each other in a cycle, whatever failed and whichever
    /// switches have been written since: pins, their backups, and packets without one.
    #[test]
    fn tables_have_no_cycle_of_waiting_buffers(case in cases(), updated in any::<u64>()) {
        let failed = case.fabric.with_changes(case.changes.iter().copied());
        let old = plan(&case.fabric, &case.jobs);
        let new = plan(&failed, &case.jobs);
        // The plan from before on the fabric after it is what path rows alone repair.
        let states = [
            lowered(&case.fabric, &old), lowered(&failed, &old), lowered(&failed, &new),
        ];
        let mut waits: BTreeMap<u128, BufferDependencyGraph> = BTreeMap::new();
        for shift in [0, 1, 7, 13] {
            let tables = case.fabric.switch_ids().map(|switch| {
                let state = updated.rotate_right(shift * switch.0) % states.len() as u64;
                (switch, states[state as usize][&switch].clone())
            });
            let tables = tables.collect();
            for (packet, choice) in packets_of(&case.fabric, &old) {
                let walk = walk(&case.fabric, &tables, &packet, choice);
                // A switch may have no row for a leaf that another still sends to.
                let Ok(walk) = walk else {
                    let error = walk.unwrap_err();
                    prop_assert!(error.starts_with("dropped"), "{error}");
                    continue;
                };
                waits.entry(walk.levels[0]).or_default().add_path(&walk.links);
            }
        }
        for (level, waits) in waits {
            let cycle = waits.find_cycle().map(|cycle| cycle.name_in(&case.fabric));
            prop_assert_eq!(cycle, None, "level {}", level);
        }
    }

    /// Numbers outlive failures: the ids of leaves, the names of paths and the salts are the same.
    #[test]
    fn wiring_does_not_depend_on_failures(case in cases()) {
        let failed = case.fabric.with_changes(case.changes.iter().copied());
        let [a, b] = [&case.fabric, &failed].map(|fabric| FabricWiring::new(fabric).unwrap());
        prop_assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}
