//! Logs of invented samples, and the series that come of them.

use super::*;

fn row(tenant: &str, gpus: u32, measured: Option<f64>, forecast: f64, ecmp: f64) -> JobUtilization {
    JobUtilization {
        tenant: (!tenant.is_empty()).then(|| tenant.to_owned()),
        gpus,
        measured,
        forecast: Some(forecast),
        ecmp: Some(ecmp),
    }
}

fn sample<const N: usize>(at_ms: u64, jobs: [(&str, JobUtilization); N]) -> UtilizationSample {
    let jobs = jobs.into_iter().map(|(id, row)| (id.to_owned(), row));
    UtilizationSample { at_ms, jobs: jobs.collect() }
}

fn assert_near(found: Option<f64>, expected: f64) {
    assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?} {expected}");
}

#[test]
fn means_weigh_gpus_and_compare_the_same_jobs() {
    let mut log = UtilizationLog::default();
    log.add_sample(sample(10_000, [("big", row("red", 24, Some(0.9), 1.0, 0.5))]));
    log.add_sample(sample(
        15_000,
        [("big", row("red", 24, Some(0.7), 0.8, 0.5)), ("small", row("", 8, None, 0.4, 0.1))],
    ));
    let history = UtilizationHistory::from_log(&log, &UtilizationPage::default());
    assert_eq!(history.at_ms, [10_000, 15_000]);
    let total = &history.total;
    assert_eq!((&total.gpus[..], &total.measured_gpus[..]), (&[24, 32][..], &[24, 24][..]));
    assert_near(total.forecast[1], (24.0 * 0.8 + 8.0 * 0.4) / 32.0);
    // The small job is not measured, so the forecast that is compared is without it.
    assert_near(total.expected[1], 0.8);
    assert_near(total.means.measured, 0.8);
    assert_near(total.means.expected, 0.9);
    assert_near(total.means.forecast_error(), 0.8 / 0.9 - 1.0);
    assert_near(total.means.measured_gain, 0.8 - 0.5);
    assert_near(total.means.ecmp, (24.0 * 0.5 * 2.0 + 8.0 * 0.1) / 56.0);
    let tenants: Vec<&str> = history.tenants.iter().map(|series| &*series.name).collect();
    assert_eq!(tenants, ["red"]);
    let small = &history.jobs[1];
    assert_eq!((&*small.name, small.first, small.measured.len()), ("small", 1, 1));
    assert_eq!(small.latest_values(), [None, Some(0.4), Some(0.1)]);
}

#[test]
fn a_full_log_becomes_coarser_and_then_forgets() {
    let page = |seconds| UtilizationPage { samples: Some(60), seconds };
    let mut log = UtilizationLog::default();
    let samples = 40 * MAX_SAMPLES as u64;
    for number in 0..samples {
        // Late by up to two seconds, as a busy machine is.
        let at_ms = SAMPLE_MS * (number + 1) + number % 3 * 1_000;
        log.add_sample(sample(at_ms, [("a", row("", 8, Some(0.5), 0.5, 0.5))]));
        assert!(log.samples.len() <= MAX_SAMPLES);
    }
    assert_eq!(log.interval_ms, COARSEST_MS);
    let span = log.samples[MAX_SAMPLES - 1].at_ms - log.samples[0].at_ms;
    let expected = COARSEST_MS * (MAX_SAMPLES as u64 - 1);
    assert!(span.abs_diff(expected) < expected / 50, "{span} {expected}");
    let history = UtilizationHistory::from_log(&log, &page(None));
    assert!((30..=60).contains(&history.at_ms.len()), "{}", history.at_ms.len());
    assert_near(history.total.means.measured, 0.5);
    let recent = UtilizationHistory::from_log(&log, &page(Some(COARSEST_MS / 1_000 + 10)));
    assert_eq!(recent.at_ms.len(), 2);
    let latest = UtilizationHistory::from_log(&log, &page(Some(UtilizationPage::LATEST)));
    assert_eq!(latest.at_ms.len(), 1);
}
