//! What makes one decision better than another: value, under a floor for the slowest job and the
//! throughput that policy guarantees to single jobs.

use super::judge::DecisionValue;
use crate::policy::Policy;

/// A decision is better if it gains this share; less is noise of the evaluation.
pub(super) const LEAST_GAIN: f64 = 1e-3;

/// A step of a search is better if it gains this share: small steps add up.
pub(super) const LEAST_STEP: f64 = 1e-4;

/// Candidates worse than the best by this share after the first start, and by less after more, are
/// not simulated again,
const RACE_MARGIN: f64 = 0.03;

/// nor those that miss the floor by more than this factor.
const RACE_SLOWDOWN: f64 = 3.0;

/// A floor that is missed by less counts as held: the noise of the evaluation.
const FLOOR_TOLERANCE: f64 = 0.02;

/// A guarantee is a promise, and held only up to rounding.
const GUARANTEE_TOLERANCE: f64 = 0.001;

/// What makes one decision better than another.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanObjective {
    /// The largest slowdown that the floor allows.
    limit: f64,
    /// The longest that a flow may wait for service, seconds.
    service_bound: f64,
}

impl PlanObjective {
    /// Value under the limits of the policy; `ecmp_worst` is the slowdown of the slowest job under
    /// ECMP, if it is known.
    pub(super) fn new(policy: &Policy, ecmp_worst: Option<f64>) -> Self {
        Self {
            limit: policy.slowdown_limit.largest_slowdown(ecmp_worst),
            service_bound: policy.service_bound(),
        }
    }

    /// This objective for flows that may wait for any time.
    pub(super) fn without_service_bound(self) -> Self {
        Self { service_bound: f64::INFINITY, ..self }
    }

    /// Whether a job with this slowdown misses the floor, or with this wait the service bound.
    pub(super) fn is_starving(self, slowdown: f64, wait: f64) -> bool {
        slowdown > self.limit || wait > self.service_bound
    }

    /// Whether some flow waits longer than the service bound allows.
    pub(super) fn misses_service_bound(self, value: DecisionValue) -> bool {
        value.worst_wait > self.service_bound
    }

    /// The largest slowdown, if there is a floor.
    pub(super) fn slowdown_limit(self) -> Option<f64> {
        self.limit.is_finite().then_some(self.limit)
    }

    /// Whether `next` is better than `best` by more than noise and a price: first by the service
    /// bound, then by the floor, then by value.
    pub(super) fn is_better(self, next: DecisionValue, best: DecisionValue, price: f64) -> bool {
        self.exceeds(next, best, best.value * LEAST_GAIN + price)
    }

    /// Whether `next` is better than `best` by this share.
    pub(super) fn is_step_up(self, next: DecisionValue, best: DecisionValue, share: f64) -> bool {
        self.exceeds(next, best, best.value * share)
    }

    fn exceeds(self, next: DecisionValue, best: DecisionValue, gain: f64) -> bool {
        let missed = |value| (self.missed_bound(value), self.missed_floor(value));
        // Steps of the tolerance and not exact amounts, so that values decide between plans that
        // miss by about as much.
        let (missed, missed_best) = (missed(next), missed(best));
        missed < missed_best || (missed <= missed_best && next.value > best.value + gain)
    }

    /// Whether some job is too slow, or waits too long.
    pub(super) fn misses_floor(self, value: DecisionValue) -> bool {
        self.missed_floor(value) > 0 || self.misses_service_bound(value)
    }

    /// The value below which a candidate cannot become the best after `sampled` starts.
    pub(super) fn race_limit(
        self,
        means: impl Iterator<Item = DecisionValue>,
        sampled: u32,
    ) -> f64 {
        let holding =
            means.filter(|mean| self.excess(*mean) <= 0.0 && !self.misses_service_bound(*mean));
        // The means of more starts vary less, so the race gets stricter.
        let margin = RACE_MARGIN / f64::from(sampled);
        holding.map(|mean| mean.value).fold(0.0, f64::max) * (1.0 - margin)
    }

    /// Whether a candidate may be the best in the mean over all starts.
    pub(super) fn stays_in_race(self, mean: DecisionValue, least: f64) -> bool {
        mean.value >= least
            && self.excess(mean) <= RACE_SLOWDOWN - 1.0
            && !self.misses_service_bound(mean)
    }

    /// By what factor the service bound is missed, in steps of the noise; 0 if it is held.
    fn missed_bound(self, value: DecisionValue) -> u32 {
        if !self.misses_service_bound(value) {
            return 0;
        }
        let excess = value.worst_wait / self.service_bound - 1.0;
        (excess / FLOOR_TOLERANCE).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }

    /// By what factor the floor or a guarantee is missed, in steps of the noise; 0 if all are held.
    fn missed_floor(self, value: DecisionValue) -> u32 {
        let floor = (value.worst_slowdown / self.limit - 1.0) / FLOOR_TOLERANCE;
        let guarantee = (value.worst_guarantee - 1.0 - GUARANTEE_TOLERANCE) / FLOOR_TOLERANCE;
        floor.floor().max(guarantee.ceil()).clamp(0.0, f64::from(u32::MAX)) as u32
    }

    /// By what share the worst slowdown is above what the floor or a guarantee allows.
    fn excess(self, value: DecisionValue) -> f64 {
        (value.worst_slowdown / self.limit).max(value.worst_guarantee) - 1.0
    }
}
