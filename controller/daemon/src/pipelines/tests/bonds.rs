//! NICs with two ports: whatever fails, their packets arrive by what is left, through the tables of
//! both programs.

use planner::Job;
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};
use topology::{AvailabilityChange, LinkId, NicId};

use super::super::fabric::tests::walk::Packet;
use super::super::fabric::tests::{job, plan_adopting};
use super::super::sai::tests::{walk::walk_sai, with_sai};
use super::*;

/// Fabrics in which no single failure leaves a leaf without a way up.
fn dual_fabrics() -> impl Strategy<Value = Fabric> {
    let counts = (1u32..=2, 2u32..=3, 1u32..=2, 1u32..=2, 1u32..=2);
    (counts, any::<[bool; 4]>()).prop_map(|(counts, [has_pods, planes, ipv6, rails])| {
        let (pairs, spines, hosts_per_leaf, parallel_uplinks, host_links) = counts;
        let pods = if has_pods { 2 } else { 1 };
        let spec = ClosSpec {
            leaves: 2 * pairs,
            spines,
            hosts_per_leaf,
            parallel_uplinks,
            host_links: if rails { 2 } else { host_links },
            ports_per_nic: 2,
            pods,
            cores: if has_pods { spines * 2 } else { 0 },
            planes: planes && has_pods,
            rails,
            ipv6,
            ..ClosSpec::default()
        };
        clos::build_clos("dual", &spec).unwrap()
    })
}

/// Two jobs between some NICs: one whose connections are known, one without ports.
fn jobs(fabric: &Fabric, step: usize) -> Vec<Job> {
    let nics: Vec<usize> = fabric.host_nics().map(|nic| nic.index()).collect();
    let next = |at: usize| nics[(at + 1 + step % (nics.len() - 1)) % nics.len()];
    let flows = |port: u16| -> Vec<(usize, usize, u16)> {
        let all = nics.iter().enumerate();
        let some = all.filter(|(at, _)| (at % 2 == 0) == (port == 0));
        some.map(|(at, nic)| (*nic, next(at), if port == 0 { 0 } else { port + at as u16 }))
            .collect()
    };
    vec![job(0, &flows(0xC000)), job(1, &flows(0))]
}

/// Every part that may fail, each by itself; and nothing.
fn single_failures(fabric: &Fabric) -> Vec<Vec<AvailabilityChange>> {
    let cables = fabric.cables().map(AvailabilityChange::LinkDown);
    let switches = fabric.switch_ids().map(AvailabilityChange::SwitchDown);
    std::iter::once(Vec::new()).chain(cables.chain(switches).map(|change| vec![change])).collect()
}

/// The ports from which a host sends.
fn sending_ports(fabric: &Fabric, nic: NicId) -> impl Iterator<Item = NicId> + '_ {
    fabric.ports_of(nic).filter(|port| fabric.is_up(fabric.nic(*port).uplink))
}

fn check_all_arrive(
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    plans: [&Plan; 2],
    choice: usize,
) -> Result<(), TestCaseError> {
    let planned = plans.into_iter().flat_map(|plan| &plan.flows);
    let planned = planned.map(|flow| (flow.src, flow.dst, flow.udp_src_port.unwrap_or(7)));
    let others = fabric.host_nics().map(|nic| (NicId(0), nic, 7));
    for (src, dst, sport) in planned.chain(others) {
        for src in sending_ports(fabric, src) {
            if fabric.first_port(src) == fabric.first_port(dst) {
                continue;
            }
            let packet = Packet { src, dst, sport, answer: None };
            let walk = walk_sai(fabric, tables, &packet, choice).map_err(TestCaseError::fail)?;
            prop_assert!(walk.links.len() <= 6, "{walk:?}");
            let answer = Packet {
                src: fabric.nic_after(*walk.links.last().unwrap()).unwrap(),
                dst: src,
                sport,
                answer: Some(0x11),
            };
            walk_sai(fabric, tables, &answer, choice).map_err(TestCaseError::fail)?;
        }
    }
    Ok(())
}

proptest! {
    // At length: PROPTEST_CASES=1000 cargo test --profile bench -p controller --lib tests::bonds
    #![proptest_config(ProptestConfig { cases: extent().0, ..ProptestConfig::default() })]

    /// After any single failure, by the tables of the plan from before it and by those of the next.
    #[test]
    fn any_single_failure_leaves_a_way(
        fabric in dual_fabrics(),
        of_sai in any::<u16>(),
        (step, choice) in (0usize..64, 0usize..6),
    ) {
        let whole = with_sai(&fabric, |switch: SwitchId| match of_sai % 3 {
            0 => false,
            1 => true,
            _ => of_sai >> (switch.index() % 16) & 1 == 1,
        });
        let wiring = FabricWiring::new(&whole).unwrap();
        let jobs = jobs(&whole, step);
        let old = plan_adopting(&whole, &jobs, &[]);
        for failure in single_failures(&whole).into_iter().skip(step % extent().1).step_by(extent().1) {
            let failed = whole.with_changes(failure);
            let new = plan_adopting(&failed, &jobs, &[]);
            for plan in [&old, &new] {
                let tables = lower_plan(&wiring, &failed, plan);
                check_all_arrive(&failed, &tables, [&old, &new], choice)?;
            }
            prop_assert!(new.flows.iter().all(|flow| !flow.links.is_empty()), "{:?}", new.flows);
        }
    }
}

/// The number of fabrics, and how far apart the failures of one are that are tried: all of them
/// where more cases are asked for than a change has.
fn extent() -> (u32, usize) {
    match ProptestConfig::default().cases {
        cases @ 0..=64 => (cases.min(32), 16),
        cases => (cases, 1),
    }
}

/// A connection that its host may send from two ports has its pins at both leaves, and one where its
/// paths meet.
#[test]
fn a_connection_is_pinned_at_both_leaves_of_its_sender() {
    let spec = ClosSpec { ports_per_nic: 2, leaves: 4, ..ClosSpec::default() };
    let fabric = clos::build_clos("dual", &spec).unwrap();
    let far = fabric.host(fabric.host_named("h7").unwrap()).nics[0];
    let jobs = vec![job(0, &[(0, far.index(), 50_000)])];
    let plan = plan_adopting(&fabric, &jobs, &[]);
    // Joined paths are kept.
    let jobs = planner::spread_over_ports(&fabric, jobs);
    let input = planner::PlanInput { fabric: fabric.clone(), jobs };
    let again = planner::plan(&input, &planner::Policy::default(), Some(&plan)).0;
    assert_eq!(again.flows, plan.flows);
    assert_eq!(planner::check_plan(&input, &planner::Policy::default(), &plan), []);
    let [one, other] = &plan.flows[..] else { panic!("{plan:?}") };
    assert_ne!(fabric.leaf_of(one.src), fabric.leaf_of(other.src));
    assert_eq!(one.links.last(), other.links.last());
    assert!(one.pinned && other.pinned);
    let tables = lower_plan(&FabricWiring::new(&fabric).unwrap(), &fabric, &plan);
    let pins =
        |switch: SwitchId| tables[&switch].table_entries(p4::fabric::table::FLOW_PIN).count();
    for flow in [one, other] {
        let passed = flow.links.iter().filter_map(|link: &LinkId| fabric.switch_after(*link));
        let passed: Vec<SwitchId> = passed.collect();
        assert_eq!(passed.iter().map(|switch| pins(*switch)).collect::<Vec<_>>(), [1, 1, 0]);
    }
    let both = [one, other].map(|flow| fabric.leaf_of(flow.src));
    for leaf in both {
        let pairs = tables[&leaf].table_entries(p4::fabric::table::JOB_PAIR);
        assert_eq!(pairs.count(), 1);
    }
}
