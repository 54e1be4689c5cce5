//! SEBF by hand, and the levels of Crux Fig. 13.

use topology::LinkId;

use super::*;

fn demand(seconds: &[f64]) -> LinkDemand {
    LinkDemand { links: (0..).map(LinkId).zip(seconds.iter().copied()).collect() }
}

#[test]
fn the_bottleneck_counts_and_not_size_or_width() {
    // Coflow 0 is wide and large in sum (6 s over six links) but any of its links is free after
    // 1 s; coflow 1 has one flow and half of the bytes, yet needs 3 s.
    let (wide, narrow) = (demand(&[1.0; 6]), demand(&[3.0]));
    assert_eq!(order_coflows(&[narrow.clone(), wide.clone()]), [1, 0]);
    assert_eq!(order_coflows(&[wide, narrow]), [0, 1]);
}

#[test]
fn equal_bottlenecks_keep_the_order_of_arrival() {
    assert_eq!(order_coflows(&[demand(&[2.0]), demand(&[1.0, 2.0]), demand(&[])]), [2, 0, 1]);
}

#[test]
fn four_jobs_in_two_classes_are_two_and_two() {
    let policy = Policy { levels: 2, ..Policy::default() };
    assert_eq!(assign_levels(&[0, 1, 2, 3], &policy), [1, 1, 0, 0]);
    assert_eq!(assign_levels(&[3, 1, 0, 2], &policy), [0, 1, 0, 1]);
}

#[test]
fn reserved_levels_are_not_given() {
    let policy = Policy { levels: 4, reserved_levels: [0, 3].into(), ..Policy::default() };
    assert_eq!(assign_levels(&[0, 1, 2, 3], &policy), [2, 2, 1, 1]);
}
