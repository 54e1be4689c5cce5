//! Priorities (Crux §4.2): intensity, corrected by what two jobs do to each other on one link.
//!
//! Intensity alone misjudges jobs whose communication hides behind computation, and jobs with short
//! iterations. The correction factor compares a job with a reference on a two-job timeline
//! (`timeline`); it is the ratio of what each of them loses by coming second.

pub(crate) mod timeline;

use std::cell::RefCell;
use std::collections::BTreeMap;

use self::timeline::IterationTiming;
use crate::contention::LinkSharing;
use crate::network_demand::NetworkDemand;
use crate::policy::{CorrectionReference, Policy};
use crate::previous_plan::PreviousPlan;
use crate::traffic::IndexedTraffic;

/// Priority of one job and its correction factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JobPriority {
    /// `k_j`.
    pub(crate) correction: f64,
    /// `P_j` after fairness and policy, in FLOP/s.
    pub(crate) value: f64,
}

/// The jobs of which one may be the reference of the correction factors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReferenceJobs<'a> {
    All,
    /// Those of this plan, where any is there: the factors against them are known, and a plan in
    /// which all jobs count follows.
    Running(&'a PreviousPlan<'a>),
}

/// Priorities of all jobs. `demands` are those on the chosen paths, `reference` is the job of
/// [`reference_job`].
pub(crate) fn assign_priorities(
    traffic: &IndexedTraffic<'_>,
    demands: &[NetworkDemand],
    sharing: &LinkSharing,
    policy: &Policy,
    (reference, cache): (Option<usize>, &CorrectionCache),
) -> Vec<JobPriority> {
    let timings = iteration_timings(traffic, demands);
    let correction = |reference: usize, job: usize| match job == reference {
        true => 1.0,
        false => cache.correction_of(&timings[reference], &timings[job], policy.max_correction),
    };
    let corrections = match policy.reference {
        CorrectionReference::MostTraffic => {
            (0..timings.len()).map(|job| reference.map_or(1.0, |r| correction(r, job))).collect()
        }
        CorrectionReference::Contenders => mean_corrections(traffic, sharing, correction),
    };
    weigh_priorities(traffic, demands, corrections, policy)
}

/// Computes the corrections against the job that is the next reference when the present one
/// departs, for the cache.
pub(crate) fn prepare_next_reference(
    traffic: &IndexedTraffic<'_>,
    demands: &[NetworkDemand],
    policy: &Policy,
    cache: &CorrectionCache,
) {
    let timings = iteration_timings(traffic, demands);
    let ranked = jobs_by_traffic(traffic, demands);
    let next = ranked.get(1).filter(|_| policy.reference == CorrectionReference::MostTraffic);
    if let Some(reference) = next {
        for job in (0..timings.len()).filter(|job| job != reference) {
            cache.correction_of(&timings[*reference], &timings[job], policy.max_correction);
        }
    }
}

/// Jobs by descending priority, then id; the position is the rank.
pub(crate) fn order_by_priority(priorities: &[JobPriority]) -> Vec<usize> {
    let mut jobs: Vec<usize> = (0..priorities.len()).collect();
    jobs.sort_by(|a, b| priorities[*b].value.total_cmp(&priorities[*a].value).then(a.cmp(b)));
    jobs
}

/// The place of each job in `order`, from 0.
pub(crate) fn positions_in(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    for (place, job) in order.iter().enumerate() {
        places[*job] = place;
    }
    places
}

/// The reference that policy asks for, if it asks for one. That of the paper: most bytes in an
/// iteration, then higher intensity, then id.
pub(crate) fn reference_job(
    traffic: &IndexedTraffic<'_>,
    demands: &[NetworkDemand],
    policy: &Policy,
    references: ReferenceJobs<'_>,
) -> Option<usize> {
    if policy.reference != CorrectionReference::MostTraffic {
        return None;
    }
    let ranked = jobs_by_traffic(traffic, demands);
    let running = match references {
        ReferenceJobs::All => None,
        ReferenceJobs::Running(plan) => ranked.iter().find(|job| plan.job_level(**job).is_some()),
    };
    running.or(ranked.first()).copied()
}

/// Jobs by descending bytes, then intensity, then id.
fn jobs_by_traffic(traffic: &IndexedTraffic<'_>, demands: &[NetworkDemand]) -> Vec<usize> {
    let bytes: Vec<f64> = (0..demands.len()).map(|job| job_bytes(traffic, job)).collect();
    let mut jobs: Vec<usize> = (0..demands.len()).collect();
    jobs.sort_by(|&a, &b| {
        let by_intensity = demands[b].intensity.total_cmp(&demands[a].intensity);
        bytes[b].total_cmp(&bytes[a]).then(by_intensity).then(a.cmp(&b))
    });
    jobs
}

fn job_bytes(traffic: &IndexedTraffic<'_>, job: usize) -> f64 {
    traffic.jobs[job].flows.iter().map(|flow| flow.bytes).sum()
}

fn iteration_timings(
    traffic: &IndexedTraffic<'_>,
    demands: &[NetworkDemand],
) -> Vec<IterationTiming> {
    let jobs = traffic.jobs.iter().zip(demands);
    jobs.map(|(job, demand)| IterationTiming {
        compute_seconds: job.compute_seconds,
        flow_start_seconds: demand.start_seconds,
        link_seconds: demand.bottleneck_seconds,
    })
    .collect()
}

/// Corrections computed for a plan, kept for the next one: they depend only on two timings.
#[derive(Clone, Debug, Default)]
pub(crate) struct CorrectionCache {
    cached: BTreeMap<[u64; 7], f64>,
    used: RefCell<BTreeMap<[u64; 7], f64>>,
}

impl CorrectionCache {
    fn correction_of(&self, reference: &IterationTiming, job: &IterationTiming, cap: f64) -> f64 {
        let numbers =
            [reference.compute_seconds, reference.flow_start_seconds, reference.link_seconds];
        let [a, b, c] = numbers.map(f64::to_bits);
        let [d, e, f] =
            [job.compute_seconds, job.flow_start_seconds, job.link_seconds].map(f64::to_bits);
        let key = [a, b, c, d, e, f, cap.to_bits()];
        let mut used = self.used.borrow_mut();
        *used.entry(key).or_insert_with(|| match self.cached.get(&key) {
            Some(known) => *known,
            None => timeline::correction_factor(reference, job, cap),
        })
    }

    /// Keeps the corrections used since the last eviction, and earlier ones while all together are
    /// not more than `most`.
    pub(crate) fn evict_unused(&mut self, most: usize) {
        let used = self.used.take();
        let new = used.keys().filter(|key| !self.cached.contains_key(*key)).count();
        if self.cached.len() + new > most {
            self.cached = used;
        } else {
            self.cached.extend(used);
        }
    }
}

/// `k_j` as the byte-weighted mean over the jobs that share a link with it; 1 where none does.
fn mean_corrections(
    traffic: &IndexedTraffic<'_>,
    sharing: &LinkSharing,
    correction: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let bytes: Vec<f64> = (0..traffic.jobs.len()).map(|job| job_bytes(traffic, job)).collect();
    (0..traffic.jobs.len())
        .map(|job| {
            let contenders = sharing.sharers_of(job);
            let weighted =
                contenders.map(|other| (bytes[other], bytes[other] * correction(other, job)));
            let (total, sum) = weighted.fold((0.0, 0.0), |so_far, (bytes, product)| {
                (so_far.0 + bytes, so_far.1 + product)
            });
            if total > 0.0 { sum / total } else { 1.0 }
        })
        .collect()
}

/// `(1-f) * P_j + f * slowdown_j` (Crux §7.2), the slowdown in units of the highest priority so
/// that `f = 0` is exactly the paper; then the policy's weight.
fn weigh_priorities(
    traffic: &IndexedTraffic<'_>,
    demands: &[NetworkDemand],
    corrections: Vec<f64>,
    policy: &Policy,
) -> Vec<JobPriority> {
    let plain: Vec<f64> =
        corrections.iter().zip(demands).map(|(k, demand)| k * demand.intensity).collect();
    let highest = plain.iter().copied().fold(0.0, f64::max);
    let fairness = policy.fairness;
    corrections
        .into_iter()
        .zip(plain)
        .zip(&traffic.jobs)
        .map(|((correction, plain), job)| {
            let slowdown = job.measured.over_alone * highest;
            let weight = policy.override_for(job).map_or(1.0, |rule| rule.weight);
            let value = weight * ((1.0 - fairness) * plain + fairness * slowdown);
            JobPriority { correction, value }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_that_are_used_again_evict_no_others() {
        let timing = |compute_seconds| IterationTiming {
            compute_seconds,
            flow_start_seconds: 0.5,
            link_seconds: 1.0,
        };
        let mut cache = CorrectionCache::default();
        let use_against = |cache: &CorrectionCache, reference: f64| {
            for job in [1.0, 2.0] {
                cache.correction_of(&timing(reference), &timing(job), 64.0);
            }
        };
        use_against(&cache, 3.0);
        use_against(&cache, 4.0);
        cache.evict_unused(4);
        use_against(&cache, 3.0);
        cache.evict_unused(4);
        assert_eq!(cache.cached.len(), 4, "those against the other reference are still there");
        use_against(&cache, 5.0);
        cache.evict_unused(4);
        assert_eq!(cache.cached.len(), 2, "only those that were just used");
    }
}
