//! Circles by hand.

use super::*;

/// A job that computes, then communicates at a share of the link.
fn job(compute: f64, communicate: f64, share: f64) -> TrafficPattern {
    TrafficPattern {
        iteration_seconds: compute + communicate,
        communication_from_seconds: compute,
        communication_seconds: communicate,
        link_share: share,
    }
}

#[test]
fn two_jobs_that_communicate_half_of_the_time_are_opposite() {
    // As in the paper's first example: the only full fit turns the second by 180 degrees.
    let half = job(0.5, 0.5, 1.0);
    let circle = UnifiedCircle::new(&[half, half]);
    assert!((circle.excess_demand(&[0, 0]) - 0.5).abs() < 1e-9);
    let fit = circle.find_best_fit();
    assert!((fit.score - 1.0).abs() < 1e-9);
    assert_eq!(fit.rotations, [0, ANGLES / 2]);
    assert_eq!(fit.shifts_seconds, [0.0, 0.5]);
    assert!((fit.rotation_radians(1) - std::f64::consts::PI).abs() < 1e-9);
}

#[test]
fn iterations_of_40_and_60_ms_meet_after_120() {
    let circle = UnifiedCircle::new(&[job(0.03, 0.01, 1.0), job(0.04, 0.02, 1.0)]);
    assert!((circle.perimeter_seconds() - 0.12).abs() < 1e-9);
    let periods: Vec<f64> = circle.job_periods().collect();
    assert!((periods[0] - 0.04).abs() < 1e-9 && (periods[1] - 0.06).abs() < 1e-9);
    // The first sends in [30,40), [70,80), [110,120), so that [40,60) and [100,110) are free: the
    // second, of 20 ms every 60, fits nowhere without loss, but loses only 10 ms of 120.
    let fit = circle.find_best_fit();
    assert!((fit.score - (1.0 - 10.0 / 120.0)).abs() < 1e-6, "{}", fit.score);
}

#[test]
fn three_thirds_fill_the_circle() {
    let third = job(2.0, 1.0, 1.0);
    let fit = UnifiedCircle::new(&[third; 3]).find_best_fit();
    assert!((fit.score - 1.0).abs() < 1e-9);
    let mut shifts = fit.shifts_seconds;
    shifts.sort_by(f64::total_cmp);
    assert_eq!(shifts, [0.0, 1.0, 2.0]);
}

#[test]
fn shares_within_capacity_need_no_shift() {
    let fit = UnifiedCircle::new(&[job(0.0, 1.0, 0.5), job(0.3, 0.7, 0.5)]).find_best_fit();
    assert_eq!((fit.score, fit.rotations), (1.0, vec![0, 0]));
}

#[test]
fn jobs_that_ask_too_much_have_the_score_of_what_is_over() {
    // Both communicate 3/4 of the time: at least half of the circle is asked twice.
    let most = job(0.25, 0.75, 1.0);
    let fit = UnifiedCircle::new(&[most, most]).find_best_fit();
    assert!((fit.score - 0.5).abs() < 1e-9);
}

#[test]
fn nearly_equal_iterations_are_taken_as_equal() {
    let circle = UnifiedCircle::new(&[job(0.5, 0.5, 1.0), job(0.496, 0.496, 1.0)]);
    assert_eq!(circle.job_periods().collect::<Vec<_>>(), [1.0, 1.0]);
    assert!(circle.find_best_fit().score > 0.99);
}
