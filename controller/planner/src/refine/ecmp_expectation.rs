//! What ECMP would give, told from some draws of its hash: the yardstick of the floor.

use super::judge::DecisionValue;

/// How many times the median of the draws one of them counts at most, where they say how slow ECMP
/// makes the slowest job.
const OUTLIER: f64 = 8.0;

/// ECMP over draws of its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct EcmpExpectation {
    pub(super) mean_value: f64,
    /// Of the slowest job, the mean over draws without outliers: where jobs nearly stand still in
    /// some draws, these alone would say how slow others may become.
    pub(super) worst_slowdown: f64,
}

impl EcmpExpectation {
    /// The expectation from what the plan of each draw is worth.
    pub(super) fn from_draws(draws: &[DecisionValue]) -> Self {
        let values: Vec<f64> = draws.iter().map(|draw| draw.value).collect();
        Self {
            mean_value: mean_of(&values),
            worst_slowdown: mean_without_outliers(draws.iter().map(|draw| draw.worst_slowdown)),
        }
    }
}

/// The mean of slowdowns of which none counts more than [`OUTLIER`] times the median, of two the
/// lower one.
fn mean_without_outliers(slowdowns: impl Iterator<Item = f64>) -> f64 {
    let mut slowdowns: Vec<f64> = slowdowns.collect();
    slowdowns.sort_by(f64::total_cmp);
    let Some(median) = slowdowns.get(slowdowns.len().saturating_sub(1) / 2) else { return 0.0 };
    // One unlucky draw in which a job starves would otherwise allow every plan to starve it.
    let most = OUTLIER * median;
    slowdowns.iter_mut().for_each(|slowdown| *slowdown = slowdown.min(most));
    mean_of(&slowdowns)
}

/// The mean, 0 of nothing.
fn mean_of(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(value: f64, worst_slowdown: f64) -> DecisionValue {
        DecisionValue { value, worst_slowdown, ..DecisionValue::NOTHING }
    }

    #[test]
    fn ecmp_is_expected_to_be_the_mean_of_its_draws() {
        let expected =
            EcmpExpectation::from_draws(&[draw(1.0, 2.0), draw(3.0, 6.0), draw(3.0, 1.0)]);
        assert_eq!(expected.mean_value, 7.0 / 3.0);
        assert_eq!(expected.worst_slowdown, 3.0);
    }

    /// The draws of a contended case (503, 117): the mean would allow that a job becomes 500 times
    /// slower where it becomes 12 times slower under ECMP mostly.
    #[test]
    fn draws_in_which_a_job_stands_still_allow_no_other_plan_to_starve_jobs() {
        let slowdowns = [12.4, 12.4, 10.0, 35.2, 1_000.0, 1_000.0, 12.4, 1_000.0, 12.4, 12.4]
            .map(|of| draw(0.1, of));
        let expected = EcmpExpectation::from_draws(&slowdowns);
        assert!((40.0..42.0).contains(&expected.worst_slowdown), "{expected:?}");
    }
}
