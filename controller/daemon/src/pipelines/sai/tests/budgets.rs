//! What does not fit, and how little another level changes.

use p4::UpdateKind;

use super::*;

#[test]
fn what_does_not_fit_is_named_and_the_least_intense_spills_first() {
    let fabric = small();
    // Job 1 is the more intense one.
    let jobs = [job(0, &[(0, 1, 50_000)]), job(1, &[(0, 1, 50_001)])];
    let plan = plan_adopting(&fabric, &jobs, &[]);
    let mut budget = SaiBudget { vrfs: 0, redirects: 1, ..SaiBudget::from_program(p4info()) };
    let lowered = |budget| lower_plan(&fabric, &plan, &budget).unwrap();
    let texts = |lowered: &LoweredPlan| -> Vec<String> {
        lowered.shortages.findings.iter().map(ToString::to_string).collect()
    };
    let first = lowered(budget);
    assert_eq!(first.shortages.spilled, BTreeMap::from([(0, SwitchId(0))]));
    let pins = "leaf1: no room for pins, left to ECMP: h1>h2:50000";
    assert_eq!(texts(&first), [format!("warning: {pins}")]);
    budget.job_levels = 0;
    let levels = "leaf1: no room for levels, packets have the lowest: job1";
    assert_eq!(texts(&lowered(budget))[1], format!("warning: {levels}"));
    budget.groups = 0;
    let error = lower_plan(&fabric, &plan, &budget).unwrap_err();
    assert_eq!(error.to_string(), "leaf1 needs 1 groups of next hops; it holds 0");
}

/// A flow without room goes by ECMP, at the level of its job.
#[test]
fn what_spills_keeps_its_level() {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
    let fabric = all_sai(&clos::build_clos("two racks", &spec).unwrap());
    let jobs = [job(0, &[(0, 2, 50_000)]), job(1, &[(1, 3, 50_001)])];
    let plan = plan_adopting(&fabric, &jobs, &[]);
    let budget = SaiBudget { vrfs: 0, redirects: 0, ..SaiBudget::from_program(p4info()) };
    let lowered = lower_plan(&fabric, &plan, &budget).unwrap();
    let text = "warning: leaf1: no room for pins, left to ECMP: h2>h4:50001, h1>h3:50000";
    let texts: Vec<String> = lowered.shortages.findings.iter().map(ToString::to_string).collect();
    assert_eq!(texts, [text]);
    assert_ne!(plan.jobs[0].level, plan.jobs[1].level);
    for (flow, choice) in plan.flows.iter().flat_map(|flow| [(flow, 0), (flow, 1)]) {
        let sport = flow.udp_src_port.unwrap();
        let packet = Packet { src: flow.src, dst: flow.dst, sport, answer: None };
        let walked = walk_sai(&fabric, &lowered.tables, &packet, choice).unwrap();
        let level = u128::from(plan.jobs[flow.job].level);
        assert_eq!(walked.levels, [level; 3]);
    }
}

/// One row at each leaf where the job sends or answers, however many flows it has.
#[test]
fn another_level_is_one_modification_at_each_leaf() {
    let spec = ClosSpec { leaves: 3, spines: 2, hosts_per_leaf: 4, ..ClosSpec::default() };
    let fabric = all_sai(&clos::build_clos("three racks", &spec).unwrap());
    let ring = (0..8).flat_map(|host| {
        let to = (host + 4) % 8;
        [(host, to, 50_000 + host as u16), (host, to, 51_000 + host as u16)]
    });
    let ring: Vec<(usize, usize, u16)> = ring.collect();
    let plan = plan_adopting(&fabric, &[job(0, &ring)], &[]);
    let mut other = plan.clone();
    other.jobs[0].level = plan.jobs[0].level - 1;
    let budget = SaiBudget::from_program(p4info());
    let [before, after] = [&plan, &other].map(|plan| lower_plan(&fabric, plan, &budget).unwrap());
    for switch in fabric.switch_ids() {
        let updates = diff_tables(p4info(), &after.tables[&switch], &before.tables[&switch]);
        let updates: Vec<_> =
            updates.iter().map(|update| (update.kind, update.entry.key.table)).collect();
        let is_leaf_of_job = ["leaf1", "leaf2"].contains(&fabric.switch(switch).name.as_str());
        if is_leaf_of_job {
            assert_eq!(updates, [(UpdateKind::Modify, table::ACL_INGRESS_QOS)]);
        } else {
            assert!(updates.is_empty(), "{updates:?}");
        }
    }
}
