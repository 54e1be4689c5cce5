//! Traversal by hand, and graphs with loops.

use super::*;

fn link(jobs: &[usize], shifts: &[f64], contention: f64) -> SharedLink {
    SharedLink { jobs: jobs.to_vec(), shifts: shifts.to_vec(), contention }
}

#[test]
fn shifts_follow_the_edges() {
    // t_1 = (0 - 10 + 30) mod 100, t_2 = (20 - 5 + 0) mod 60.
    let links = [link(&[0, 1], &[10.0, 30.0], 1.0), link(&[1, 2], &[5.0, 0.0], 1.0)];
    assert_eq!(assign_shifts(&links, &[100.0, 100.0, 60.0]), Ok(vec![0.0, 20.0, 15.0]));
}

#[test]
fn shifts_are_taken_modulo_the_iteration() {
    let links = [link(&[0, 1], &[70.0, 0.0], 1.0)];
    assert_eq!(assign_shifts(&links, &[100.0, 50.0]), Ok(vec![0.0, 30.0]));
}

#[test]
fn jobs_that_share_nothing_do_not_shift() {
    assert_eq!(assign_shifts(&[], &[1.0, 2.0]), Ok(vec![0.0, 0.0]));
    let links = [link(&[1, 2], &[0.0, 0.5], 1.0)];
    assert_eq!(assign_shifts(&links, &[1.0; 4]), Ok(vec![0.0, 0.0, 0.5, 0.0]));
}

#[test]
fn a_graph_with_a_loop_is_no_candidate() {
    let links = vec![
        link(&[0, 1], &[0.0, 1.0], 0.3),
        link(&[1, 2], &[0.0, 1.0], 0.1),
        link(&[2, 0], &[0.0, 1.0], 0.2),
    ];
    let found = assign_shifts(&links, &[5.0; 3]).unwrap_err();
    assert_eq!(
        found.to_string(),
        format!("the affinity graph has a loop through job {}", found.job)
    );
    // Without the least contended link it is a tree.
    let (kept, dropped) = drop_loops(links.clone());
    assert_eq!((kept.len(), dropped), (2, 1));
    assert!(!kept.contains(&links[1]));
    assert_eq!(assign_shifts(&kept, &[5.0; 3]), Ok(vec![0.0, 1.0, 4.0]));
}

#[test]
fn two_links_with_the_same_two_jobs_are_a_loop() {
    let links = vec![link(&[0, 1], &[0.0, 1.0], 0.1), link(&[0, 1], &[0.0, 2.0], 0.2)];
    assert!(assign_shifts(&links, &[5.0; 2]).is_err());
    assert_eq!(drop_loops(links).0, [link(&[0, 1], &[0.0, 2.0], 0.2)]);
}
