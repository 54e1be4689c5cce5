//! From jobs to shifts.

use super::*;
use crate::baselines::test_input::TestInput;

/// Two jobs that share the uplink of h1 in one direction: 1 s of computation, then 0.5 s each.
fn pair() -> TestInput {
    TestInput::on_lab_fabric().with_job("a", &[("h1", "h4")]).with_job("b", &[("h1", "h5")])
}

fn scheduled(test_input: &TestInput) -> Schedule {
    let input = test_input.to_input();
    schedule_jobs(&input, &EqualCostRoutes::for_input(&input))
}

#[test]
fn jobs_that_share_a_link_take_turns() {
    let schedule = scheduled(&pair());
    let [a, b] = &schedule.jobs[..] else { panic!("two jobs") };
    let grid = |origin: f64| Some(JobGrid { origin, period: 1.5, rule: REALIGN });
    assert_eq!((a.start_shift_seconds, a.grid), (0.0, grid(0.0)));
    // The first fit: 24 angles of 72 are half a second.
    assert!((b.start_shift_seconds - 0.5).abs() < 1e-9, "{b:?}");
    assert_eq!(b.grid, grid(b.start_shift_seconds));
}

#[test]
fn jobs_that_share_nothing_start_at_once_and_keep_no_grid() {
    let test_input =
        TestInput::on_lab_fabric().with_job("a", &[("h1", "h2")]).with_job("b", &[("h3", "h2")]);
    let shared = scheduled(&test_input);
    assert!(shared.jobs[1].start_shift_seconds > 0.0);
    let test_input =
        TestInput::on_lab_fabric().with_job("a", &[("h1", "h2")]).with_job("b", &[("h2", "h3")]);
    let apart = scheduled(&test_input);
    for job in apart.jobs {
        assert_eq!((job.start_shift_seconds, job.grid), (0.0, None));
    }
}

#[test]
fn jobs_that_cannot_avoid_each_other_are_shifted_and_keep_no_grid() {
    let mut test_input = pair().with_job("c", &[("h1", "h6")]);
    test_input.jobs[0].flows[0].bytes *= 2.0;
    let schedule = scheduled(&test_input);
    assert!(schedule.jobs.iter().all(|job| job.grid.is_none()));
    assert!(schedule.findings[0].text.contains("compatibility score"));
}
