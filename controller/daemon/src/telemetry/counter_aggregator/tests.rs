//! Counters of switches, read at odd times, beside what was sent.

use std::sync::Arc;

use p4::fabric::{self, PORT_LEVEL, PortNumber, PriorityLevel, REFUSED, Refusal, table};
use planner::{PlanInput, Policy};
use proptest::prelude::*;
use topology::clos::{self, ClosSpec};

use super::*;
use crate::config::Config;
use crate::pipelines::FabricWiring;
use crate::pipelines::fabric::tests as pipeline_tests;

/// A fabric with one job of two flows, and its counters.
struct Ground {
    aggregator: CounterAggregator,
    rollout: PlanRollout,
    /// What each pin has counted.
    sent: u64,
}

impl Ground {
    fn new() -> Self {
        Self::under(&Policy::default())
    }

    fn under(policy: &Policy) -> Self {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let host = |name: &str| fabric.host_named(name).unwrap();
        let nic = |name| fabric.host(host(name)).nics[0].index();
        let flow = |src, dst| (nic(src), nic(dst), 50_000);
        let job = planner::Job {
            id: "gpt".into(),
            gpus: [(host("h1"), 8), (host("h9"), 8)].into(),
            ..pipeline_tests::job(0, &[flow("h1", "h9"), flow("h9", "h1")])
        };
        let input = PlanInput { fabric: fabric.clone(), jobs: vec![job] };
        let (input, policy) = policy.with_adopted_jobs(input);
        let (plan, report) = planner::plan(&input, &policy, None);
        let rollout = PlanRollout {
            wiring: Arc::new(FabricWiring::new(&fabric).unwrap()),
            returning: BTreeSet::new(),
            fabric,
            plan: plan.into(),
            report: report.into(),
            generation: 1,
            learned: Arc::default(),
            basis: Arc::default(),
        };
        let mut aggregator = CounterAggregator::new(Config::default().counters);
        aggregator.follow_plan(&rollout);
        Self { aggregator, rollout, sent: 0 }
    }

    fn leaves(&self) -> Vec<SwitchId> {
        let flows = self.rollout.plan.flows.iter();
        flows.map(|flow| self.rollout.fabric.leaf_of(flow.src)).collect()
    }

    /// Eight seconds of 1 GB/s in each pin, and 5 GB/s beside them.
    fn count_beside(&mut self) {
        let mut beside = 0;
        for step in 0..80_u32 {
            self.sent += 100_000_000;
            beside += 500_000_000;
            self.read(f64::from(step) * 0.1, beside);
        }
    }

    /// Reads both leaves; each pin has counted `sent`, and the ports to hosts `beside` more, of
    /// which each row of a rule has counted half.
    fn read(&mut self, at: f64, beside: u64) {
        for leaf in self.leaves() {
            let wanted = self.aggregator.counters_to_read(leaf);
            let count = |bytes| CounterValue { packets: bytes / 4096, bytes };
            let level = u32::from(self.rollout.plan.jobs[0].level);
            let to_host = |cell: &CounterCell| {
                let port = cell.index >> PriorityLevel::BITS;
                cell.counter == PORT_LEVEL && cell.index & 7 == level && port == 1
            };
            let counted = CounterReading {
                pins: (wanted.pins.into_iter())
                    .map(|key| match key.table {
                        table::FLOW_PIN => (key, count(self.sent)),
                        _ => (key, count(beside / 2)),
                    })
                    .collect(),
                cells: (wanted.cells.into_iter().filter(to_host))
                    .map(|cell| (cell, count(self.sent + beside)))
                    .collect(),
            };
            self.aggregator.record_reading(leaf, at, &counted);
        }
    }
}

#[test]
fn pins_show_the_period_and_volume_of_a_job() {
    let mut ground = Ground::new();
    assert_eq!(ground.leaves().len(), 2);
    // 1.2 s of silence, then 0.8 s at 1.25 GB/s; read every 100 ms, late at times.
    for step in 0..600_u32 {
        let late = 0.03 * f64::from(step % 3);
        let at = f64::from(step) * 0.1 + late;
        let (whole, part) = ((at / 2.0).floor(), at % 2.0);
        ground.sent = (1e9 * (whole + ((part - 1.2) / 0.8).max(0.0))) as u64;
        ground.read(at, 0);
    }
    let measured = ground.aggregator.measured_traffic();
    let job = measured.jobs[&"gpt".into()];
    let period = job.period.expect("it repeats");
    assert!((period.seconds / 2.0 - 1.0).abs() < 0.02, "{period:?}");
    assert!((period.bytes / 2e9 - 1.0).abs() < 0.02, "{period:?}");
    assert!(measured.unattributed.is_empty(), "{:?}", measured.unattributed);
    assert!(measured.links.values().all(|load| *load < 0.1));

    let claim = |seconds, bytes| {
        let claims = BTreeMap::from([("gpt".into(), ReportedIteration { seconds, bytes })]);
        measured.find_disputes(&claims, 0.2).len()
    };
    assert_eq!(claim(Some(2.1), 2.1e9), 0);
    assert_eq!(claim(None, 0.0), 0);
    assert_eq!(claim(Some(1.0), 2e9), 1);
    assert_eq!(claim(Some(1.0), 9e9), 2);
}

#[test]
fn a_pin_that_counts_nothing_for_ten_seconds_is_named() {
    let mut ground = Ground::new();
    let leaves = ground.leaves();
    let text = |ground: &Ground| ground.aggregator.measured_traffic().pin_hits.finding();
    for step in 0..=105_u32 {
        let at = f64::from(step) * 0.1;
        assert!(at > 9.9 || text(&ground).is_none(), "after {at} s");
        for (leaf, packets) in leaves.iter().zip([u64::from(step), 0]) {
            let pins = ground.aggregator.counters_to_read(*leaf).pins.into_iter();
            let count = CounterValue { packets, bytes: packets * 4096 };
            let pins = pins.map(|key| (key, count)).collect();
            let counted = CounterReading { pins, ..CounterReading::default() };
            ground.aggregator.record_reading(*leaf, at, &counted);
        }
    }
    let missed = ground.rollout.plan.flows[1].name_in(&ground.rollout.fabric);
    let found = text(&ground).unwrap().text;
    let expected = format!("pins hit: 1 of 2; nothing is counted of {missed} of gpt.");
    assert!(found.starts_with(&expected), "{found}");
}

#[test]
fn traffic_of_no_job_is_unattributed() {
    let mut ground = Ground::new();
    ground.count_beside();
    let measured = ground.aggregator.measured_traffic();
    let unattributed = &measured.unattributed[0];
    assert!((unattributed.bytes_per_second / 5e9 - 1.0).abs() < 0.05, "{unattributed:?}");
    assert!(measured.unattributed_findings()[0].text.contains("40.00 Gbit/s"));
}

#[test]
fn adopted_flows_are_attributed_to_the_job_of_the_rule() {
    let rule = |dst: &[&str]| planner::AdoptionRule {
        job: "guest".into(),
        tenant: None,
        level: Some(7),
        src: Vec::new(),
        dst: dst.iter().map(|host| (*host).to_owned()).collect(),
        sport: None,
        dport: Some(4791),
    };
    // Where it names who receives, there is a row for each at both leaves; else one in all.
    for (dst, rows) in [(&["h1", "h7"][..], 4.0), (&[], 2.0)] {
        let policy = Policy { adopt: vec![rule(dst)], ..Policy::default() };
        let mut ground = Ground::under(&policy);
        ground.count_beside();
        let measured = ground.aggregator.measured_traffic();
        let guest = measured.jobs[&"guest".into()].bytes_per_second;
        let expected = rows * 2.5e9;
        assert!((guest / expected - 1.0).abs() < 0.05, "{guest:e} {dst:?}");
        assert!(measured.unattributed.is_empty(), "{:?}", measured.unattributed);
        let job = measured.jobs[&"gpt".into()].bytes_per_second;
        assert!((job / 2e9 - 1.0).abs() < 0.05, "{job:e}");
    }
}

proptest! {
    /// Lies of a switch stay finite, and use no more memory than its entries.
    #[test]
    fn counters_that_lie_give_finite_loads_of_known_links(
        readings in prop::collection::vec((any::<u64>(), any::<u64>(), 0.0..10.0_f64), 1..40),
    ) {
        let mut ground = Ground::new();
        let (links, mut at) = (ground.rollout.fabric.link_ids().count(), 0.0);
        for (sent, beside, after) in readings {
            at += after;
            ground.sent = sent / 2;
            ground.read(at, beside / 2);
        }
        let measured = ground.aggregator.measured_traffic();
        prop_assert!(measured.links.len() <= 8 * links);
        prop_assert!(measured.jobs.len() <= 1 && measured.unattributed.len() <= 8 * links);
        prop_assert!(measured.links.values().all(|load| load.is_finite() && *load >= 0.0));
        for job in measured.jobs.values() {
            prop_assert!(job.bytes_per_second.is_finite() && job.bytes_per_second >= 0.0);
        }
    }
}

#[test]
fn a_restarted_switch_loses_one_reading() {
    let mut ground = Ground::new();
    for step in 0..40_u32 {
        ground.sent += 100_000_000;
        if step == 20 {
            ground.sent = 0;
        }
        ground.read(f64::from(step) * 0.1, 0);
        // The plan is made anew meanwhile.
        let rollout = ground.rollout.clone();
        ground.aggregator.follow_plan(&rollout);
    }
    let rate = ground.aggregator.measured_traffic().jobs[&"gpt".into()].bytes_per_second;
    assert!(rate > 1.8e9 && rate < 2.1e9, "{rate:e}");
}

#[test]
fn of_some_links_nothing_else_is_read_and_each_begins_anew() {
    let mut ground = Ground::new();
    let rollout = ground.rollout.clone();
    let arrivals = |ground: &Ground| -> BTreeSet<LinkId> {
        let flows = ground.rollout.plan.flows.iter();
        flows.filter_map(|flow| flow.links.last().copied()).collect()
    };
    let links = arrivals(&ground);
    ground.aggregator.follow_links(&rollout, &links);
    let read: usize = ground
        .leaves()
        .iter()
        .map(|leaf| {
            let wanted = ground.aggregator.counters_to_read(*leaf);
            assert!(wanted.pins.is_empty());
            wanted.cells.len()
        })
        .sum();
    assert_eq!(read, links.len() * usize::from(rollout.plan.levels));
    assert_eq!(ground.aggregator.link_use().wanted, links);
    ground.aggregator.follow_links(&rollout, &BTreeSet::new());
    assert_eq!(ground.aggregator.link_use(), LinkUse::default());
}

#[test]
fn a_host_whose_packets_are_refused_is_named_while_it_sends_them() {
    let mut ground = Ground::new();
    let leaf = ground.leaves()[0];
    let index = fabric::refusal_index(PortNumber::new(1).unwrap(), Refusal::Foreign);
    let cell = CounterCell { counter: REFUSED, index };
    assert!(ground.aggregator.counters_to_read(leaf).cells.contains(&cell));
    let mut refused = |from: u32, until: u32, each: u64| {
        for step in from..until {
            let packets = u64::from(step.min(50)) * each;
            let cells = BTreeMap::from([(cell, CounterValue { packets, bytes: 100 * packets })]);
            let counted = CounterReading { cells, ..CounterReading::default() };
            ground.aggregator.record_reading(leaf, f64::from(step) * 0.1, &counted);
        }
        ground.aggregator.measured_traffic()
    };
    assert_eq!(refused(0, 1, 3).refused, []);
    let now = refused(1, 50, 3);
    let host = &ground.rollout.fabric.hosts()[0].name;
    let findings = now.refusal_findings();
    assert_eq!(findings[0].about, format!("leaf1:1 (host {host})"));
    assert!(findings[0].text.starts_with("30 packets/s refused: foreign_source; the source is"));
    let later = refused(50, 120, 3);
    assert_eq!((later.refused[0].packets, later.refusal_findings()), (150, Vec::new()));
}
