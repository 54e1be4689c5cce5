//! Who gets how much while everybody sends: strict levels, max-min fair inside a level.

use fluid::{FluidFlow, FluidJob};

use crate::scenario::{close, engine, engine_with_fifo_links, flow, job, rates};

/// Jobs of one endless flow each, all sending from 0 s: their rates.
fn check(capacity: &[f64], flows: &[(u32, &[u32])], expected: &[f64]) {
    let endless = |(level, path): &(u32, &[u32])| job(*level, 0.0, vec![flow(path, 1e12)]);
    let jobs: Vec<FluidJob> = flows.iter().map(endless).collect();
    let mut engine = engine(capacity, &jobs);
    engine.run_until(1.0).unwrap();
    let found = rates(&engine, jobs.len() as u32);
    for (found, expected) in found.iter().zip(expected) {
        close(*found, *expected);
    }
}

#[test]
fn a_link_is_shared_equally() {
    // n flows on capacity B: B / n each. 12 / 3 = 4.
    check(&[12.0], &[(0, &[0]), (0, &[0]), (0, &[0])], &[4.0, 4.0, 4.0]);
}

#[test]
fn the_scarcest_link_decides_first() {
    // Link 0 has capacity 1 for flows a and b: 1/2 each. Link 1 has 2 for b and c: c gets the
    // rest, 2 - 1/2 = 3/2.
    check(&[1.0, 2.0], &[(0, &[0]), (0, &[0, 1]), (0, &[1])], &[0.5, 0.5, 1.5]);
}

#[test]
fn parking_lot() {
    // A long flow over n links of capacity B, a short one on each: B / 2 for all. With capacities
    // 6, 4, 10 the second link gives the long flow 4 / 2 = 2; the others give 6 - 2 and 10 - 2.
    check(
        &[6.0, 4.0, 10.0],
        &[(0, &[0, 1, 2]), (0, &[0]), (0, &[1]), (0, &[2])],
        &[2.0, 4.0, 2.0, 8.0],
    );
}

#[test]
fn triangle() {
    // Three links of capacity B, three flows over two links each: every link has two flows, so
    // B / 2 each. With capacities 2, 4, 6 over (0,1), (1,2), (2,0): link 0 is scarcest, 1 each for
    // the first and the third; the second gets min(4 - 1, 6 - 1) = 3.
    let flows: [(u32, &[u32]); 3] = [(0, &[0, 1]), (0, &[1, 2]), (0, &[2, 0])];
    check(&[8.0, 8.0, 8.0], &flows, &[4.0, 4.0, 4.0]);
    check(&[2.0, 4.0, 6.0], &flows, &[1.0, 3.0, 1.0]);
}

#[test]
fn the_higher_class_takes_all_it_can() {
    // Level 1 takes the whole link, level 0 nothing.
    check(&[10.0], &[(1, &[0]), (0, &[0])], &[10.0, 0.0]);
    // Level 1 is held to 3 by link 1; level 0 gets 10 - 3 = 7.
    check(&[10.0, 3.0], &[(1, &[0, 1]), (0, &[0])], &[3.0, 7.0]);
    // Three levels: 3, then 4 by link 2, then 10 - 7 = 3 for two flows.
    check(
        &[10.0, 3.0, 4.0],
        &[(0, &[0]), (9, &[0, 1]), (5, &[0, 2]), (0, &[0])],
        &[1.5, 3.0, 4.0, 1.5],
    );
}

#[test]
fn a_class_is_fair_in_what_the_higher_leaves() {
    // Level 1 takes 4 of link 0 (by link 1). Of the other 6, level 0 flows a, b over link 0 get 3
    // each; c shares link 2 (capacity 5) with b: 5 - 3 = 2, which is less than b's 3, so link 2 is
    // scarcer: 5 / 2 each for b and c, and a gets 6 - 5/2.
    check(
        &[10.0, 4.0, 5.0],
        &[(1, &[0, 1]), (0, &[0]), (0, &[0, 2]), (0, &[2])],
        &[4.0, 3.5, 2.5, 2.5],
    );
}

#[test]
fn equal_flows_of_a_job_count_each() {
    // A job of three equal flows against a job of one: fairness is by flow, 12 / 4 = 3 each.
    let three: Vec<FluidFlow> = vec![flow(&[0], 1e12); 3];
    let jobs = [job(0, 0.0, three), job(0, 0.0, vec![flow(&[0], 1e12)])];
    let mut engine = engine(&[12.0], &jobs);
    engine.run_until(1.0).unwrap();
    assert_eq!(rates(&engine, 2), [3.0, 3.0]);
    // The group of three is computed as one.
    assert_eq!(engine.work_counters().groups_computed, 2);
}

#[test]
fn a_nic_that_knows_no_levels_serves_both_alike() {
    // Both leave by link 0 and meet again on link 1, which knows levels but is never full.
    let shared = |level| job(level, 0.0, vec![flow(&[0, 1], 100.0)]);
    let mut engine = engine_with_fifo_links(&[1.0, 1.0], 1, &[shared(3), shared(0)]);
    engine.run_until(1.0).unwrap();
    assert_eq!(rates(&engine, 2), [0.5, 0.5]);
}

#[test]
fn a_flow_that_was_held_up_elsewhere_asks_a_nic_for_nothing_until_it_moves() {
    // Both leave by link 0 and meet on link 1, where a job of a higher level sends alone for 1 s.
    // All that the two have on their way waits there in the order of levels, so the high one sends
    // alone until it is done. It computes for 0.5 s while the other sends, and then nothing waits:
    // half of the NIC each.
    let jobs = [
        job(1, 0.5, vec![flow(&[0, 1], 2.0)]),
        job(0, 0.0, vec![flow(&[0, 1], 100.0)]),
        FluidJob { compute_seconds: 1e6, overlap_from: 0.0, ..job(2, 0.0, vec![flow(&[1], 1.0)]) },
    ];
    let mut engine = engine_with_fifo_links(&[1.0, 1.0], 1, &jobs);
    let mut rates_at = |seconds| {
        engine.run_until(seconds).unwrap();
        rates(&engine, 3)
    };
    assert_eq!(rates_at(0.7), [0.0, 0.0, 1.0]);
    assert_eq!(rates_at(2.0), [1.0, 0.0, 0.0]);
    assert_eq!(rates_at(3.2), [0.0, 1.0, 0.0]);
    assert_eq!(rates_at(3.7), [0.5, 0.5, 0.0]);
}

#[test]
fn what_a_low_level_cannot_use_elsewhere_is_left_to_a_high_one() {
    // The low job is held to 0.2 on link 1 by a third job; the high one gets the rest of the NIC.
    let jobs = [
        job(2, 0.0, vec![flow(&[0], 100.0)]),
        job(0, 0.0, vec![flow(&[0, 1], 100.0)]),
        job(1, 0.0, vec![flow(&[1, 2], 100.0)]),
    ];
    let mut engine = engine_with_fifo_links(&[1.0, 1.0, 0.8], 1, &jobs);
    engine.run_until(1.0).unwrap();
    let [high, low, third] = rates(&engine, 3)[..] else { panic!("three jobs") };
    close(third, 0.8);
    assert!((low - 0.2).abs() < 1e-3 && (high - 0.8).abs() < 1e-3, "{low} {high}");
}
