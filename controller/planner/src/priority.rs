//! Priorities (Crux §4.2): intensity, corrected by what two jobs do to each other on one link.
//!
//! Intensity alone misjudges jobs whose communication hides behind computation, or that come round
//! more often. The correction factor compares a job with a reference on a two-job timeline
//! (`timeline`) and is a ratio of what either loses by coming second.

pub(crate) mod timeline;

use self::timeline::Rhythm;
use crate::contention::Sharing;
use crate::intensity::Demand;
use crate::policy::{Policy, Reference};
use crate::traffic::Traffic;

/// Priority of one job and how it came to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Priority {
    /// `k_j`.
    pub(crate) correction: f64,
    /// `P_j` after fairness and policy, in FLOP/s.
    pub(crate) value: f64,
}

/// Priorities of all jobs. `demands` are those on the chosen paths.
pub(crate) fn assign(
    traffic: &Traffic<'_>,
    demands: &[Demand],
    sharing: &Sharing,
    policy: &Policy,
) -> Vec<Priority> {
    let rhythms = rhythms(traffic, demands);
    let corrections = match policy.reference {
        Reference::MostTraffic => {
            let reference = most_traffic(traffic, demands);
            let against = |job| reference.map_or(1.0, |r| correction(&rhythms, r, job, policy));
            (0..rhythms.len()).map(against).collect()
        }
        Reference::Contenders => against_contenders(traffic, &rhythms, sharing, policy),
    };
    weigh(traffic, demands, corrections, policy)
}

/// Jobs by descending priority, then id; the position is the rank.
pub(crate) fn order(priorities: &[Priority]) -> Vec<usize> {
    let mut jobs: Vec<usize> = (0..priorities.len()).collect();
    let value = |job: usize| priorities[job].value;
    jobs.sort_by(|a, b| value(*b).total_cmp(&value(*a)).then(a.cmp(b)));
    jobs
}

/// The place of each job in `order`, from 0.
pub(crate) fn places(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    for (place, job) in order.iter().enumerate() {
        places[*job] = place;
    }
    places
}

/// The reference of the paper: most bytes in an iteration, then higher intensity, then id.
pub(crate) fn most_traffic(traffic: &Traffic<'_>, demands: &[Demand]) -> Option<usize> {
    let bytes: Vec<f64> = (0..demands.len()).map(|job| bytes(traffic, job)).collect();
    (0..demands.len()).max_by(|&a, &b| {
        let by_intensity = demands[a].intensity.total_cmp(&demands[b].intensity);
        bytes[a]
            .total_cmp(&bytes[b])
            .then(by_intensity)
            .then(b.cmp(&a))
    })
}

fn bytes(traffic: &Traffic<'_>, job: usize) -> f64 {
    traffic.jobs[job].flows.iter().map(|flow| flow.bytes).sum()
}

fn rhythms(traffic: &Traffic<'_>, demands: &[Demand]) -> Vec<Rhythm> {
    let jobs = traffic.jobs.iter().zip(demands);
    jobs.map(|(job, demand)| Rhythm {
        compute: job.compute_seconds,
        lead: job.overlap_from * job.compute_seconds,
        link: demand.bottleneck_seconds,
    })
    .collect()
}

fn correction(rhythms: &[Rhythm], reference: usize, job: usize, policy: &Policy) -> f64 {
    if job == reference {
        return 1.0;
    }
    timeline::correction(&rhythms[reference], &rhythms[job], policy.max_correction)
}

/// `k_j` as the byte-weighted mean over the jobs that share a link with it; 1 where none does.
fn against_contenders(
    traffic: &Traffic<'_>,
    rhythms: &[Rhythm],
    sharing: &Sharing,
    policy: &Policy,
) -> Vec<f64> {
    let bytes: Vec<f64> = (0..rhythms.len()).map(|job| bytes(traffic, job)).collect();
    let mean = |job: usize| {
        let contenders = sharing.with(job);
        let weighted = contenders.map(|other| {
            (
                bytes[other],
                bytes[other] * correction(rhythms, other, job, policy),
            )
        });
        let (total, sum) = weighted.fold((0.0, 0.0), |so_far, (bytes, product)| {
            (so_far.0 + bytes, so_far.1 + product)
        });
        if total > 0.0 { sum / total } else { 1.0 }
    };
    (0..rhythms.len()).map(mean).collect()
}

/// `(1-f) * P_j + f * slowdown_j` (Crux §7.2), the slowdown in units of the highest priority so
/// that `f = 0` is exactly the paper; then the policy's weight.
fn weigh(
    traffic: &Traffic<'_>,
    demands: &[Demand],
    corrections: Vec<f64>,
    policy: &Policy,
) -> Vec<Priority> {
    let plain = |job: usize| corrections[job] * demands[job].intensity;
    let highest = (0..corrections.len()).map(plain).fold(0.0, f64::max);
    let fairness = policy.fairness;
    let value = |job: usize| {
        let slowdown = traffic.jobs[job].recent_slowdown * highest;
        let weight = policy
            .override_for(traffic.jobs[job])
            .map_or(1.0, |rule| rule.weight);
        weight * ((1.0 - fairness) * plain(job) + fairness * slowdown)
    };
    let values: Vec<f64> = (0..corrections.len()).map(value).collect();
    let pairs = corrections.into_iter().zip(values);
    pairs
        .map(|(correction, value)| Priority { correction, value })
        .collect()
}
