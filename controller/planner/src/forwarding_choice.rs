//! Pins or spraying, on a fabric that can do both: for the jobs of each region, which could share
//! links, whichever keeps more of their GPUs busy.
//!
//! Both plans are made, and regions share no link, so each takes its part of one of them. Switches
//! spray what has no pin. A region stays as it is unless the other way gains: what changes is
//! reordered for a moment.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::input::Job;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::refine::{CandidateOutcome, RegionComparison};
use crate::report::PlanReport;

/// Share of their GPU worth that jobs gain at least by another way.
const LEAST_GAIN: f64 = 0.002;

/// A plan and its report.
type Planned = (Plan, PlanReport);

/// The plan of both for `jobs`, in any order, with `previous` in force. All three are for the same
/// fabric, and the first two for the same jobs.
pub(crate) fn choose_forwarding(
    jobs: &[Job],
    policy: &Policy,
    [pinned, sprayed]: [Planned; 2],
    previous: Option<&Plan>,
) -> Planned {
    let jobs: BTreeMap<_, _> = jobs.iter().map(|job| (&job.id, job)).collect();
    let in_force = |position: usize| {
        let had = previous.and_then(|plan| plan.job(&pinned.0.jobs[position].id));
        had.is_some_and(|(_, job)| job.sprayed)
    };
    let mut is_sprayed: Vec<bool> = (0..pinned.0.jobs.len()).map(in_force).collect();
    let mut losers = Vec::new();
    for of_pins in &pinned.1.comparison.regions {
        let all = &sprayed.1.comparison.regions;
        let Some(of_spraying) = all.iter().find(|region| region.jobs == of_pins.jobs) else {
            continue;
        };
        let worth = |region: &RegionComparison| {
            let forecasts = region.jobs.iter().zip(&region.forecasts);
            let of_jobs = forecasts.filter_map(|(position, forecast)| {
                let job = jobs.get(&pinned.0.jobs[*position].id)?;
                let computes = job.compute_seconds / forecast.seconds;
                Some(policy.job_worth(job) * if computes.is_finite() { computes } else { 0.0 })
            });
            of_jobs.sum::<f64>()
        };
        let gain = worth(of_spraying) / worth(of_pins) - 1.0;
        let was_sprayed = of_pins.jobs.iter().all(|job| is_sprayed[*job]);
        let sprays = if was_sprayed { gain >= -LEAST_GAIN } else { gain > LEAST_GAIN };
        of_pins.jobs.iter().for_each(|job| is_sprayed[*job] = sprays);
        let loser = if sprays { of_pins } else { of_spraying };
        losers.push((of_pins.jobs.clone(), loser.digest, loser.candidates.first().cloned()));
    }
    let order = merged_order([&pinned.0, &sprayed.0], &is_sprayed);
    let plan = merge_plans([&pinned.0, &sprayed.0], &is_sprayed, &order);
    (plan, merge_reports([pinned.1, sprayed.1], &is_sprayed, losers))
}

/// The jobs by descending priority: those of each plan in its order, and of two the one with the
/// higher priority first.
fn merged_order(plans: [&Plan; 2], is_sprayed: &[bool]) -> Vec<usize> {
    let of_plan = |sprayed: bool| {
        let plan = plans[usize::from(sprayed)];
        let mut jobs: Vec<usize> =
            (0..plan.jobs.len()).filter(|job| is_sprayed[*job] == sprayed).collect();
        jobs.sort_by_key(|job| plan.jobs[*job].rank);
        jobs.into_iter().peekable()
    };
    let (mut pinned, mut sprayed) = (of_plan(false), of_plan(true));
    let mut order = Vec::with_capacity(is_sprayed.len());
    loop {
        let next = match (pinned.peek(), sprayed.peek()) {
            (Some(a), Some(b)) => {
                let [of_a, of_b] = [&plans[0].jobs[*a], &plans[1].jobs[*b]];
                match of_b.priority.total_cmp(&of_a.priority).then(a.cmp(b)) {
                    Ordering::Greater => sprayed.next(),
                    _ => pinned.next(),
                }
            }
            (Some(_), None) => pinned.next(),
            (None, _) => sprayed.next(),
        };
        match next {
            Some(job) => order.push(job),
            None => return order,
        }
    }
}

/// The decisions on each job as its plan has them; `order` is the jobs by rank.
fn merge_plans(plans: [&Plan; 2], is_sprayed: &[bool], order: &[usize]) -> Plan {
    let [pinned, sprayed] = plans;
    let mut plan = pinned.clone();
    for (position, job) in plan.jobs.iter_mut().enumerate().filter(|(at, _)| is_sprayed[*at]) {
        *job = sprayed.jobs[position].clone();
    }
    for (rank, job) in (1..).zip(order) {
        plan.jobs[*job].rank = rank;
    }
    for (flow, other) in plan.flows.iter_mut().zip(&sprayed.flows) {
        if is_sprayed[flow.job] {
            *flow = other.clone();
        }
    }
    plan.compared_inputs.0.extend(&sprayed.compared_inputs.0);
    plan
}

/// What of each report is about jobs that follow its plan. Of each region, `losers` has the digest
/// and the best candidate of the plan that it does not follow.
fn merge_reports(
    reports: [PlanReport; 2],
    is_sprayed: &[bool],
    losers: Vec<(Vec<usize>, u64, Option<CandidateOutcome>)>,
) -> PlanReport {
    let [mut report, sprayed] = reports;
    let follows = |jobs: &[usize], way: bool| jobs.iter().all(|job| is_sprayed[*job] == way);
    report.links.retain(|load| follows(&load.jobs, false));
    report.links.extend(sprayed.links.into_iter().filter(|load| follows(&load.jobs, true)));
    report.links.sort_by_key(|load| load.link);
    report.bounds.max_load = report.links.iter().map(|link| link.load).fold(0.0, f64::max);
    let lower_bound = &mut report.bounds.max_load_lower_bound;
    *lower_bound = lower_bound.min(sprayed.bounds.max_load_lower_bound);
    if is_sprayed.contains(&true) {
        for finding in sprayed.findings {
            if !report.findings.contains(&finding) {
                report.findings.push(finding);
            }
        }
    }
    for (job, (own, other)) in report.rationales.iter_mut().zip(sprayed.rationales).enumerate() {
        if is_sprayed[job] {
            *own = other;
        }
    }
    let comparison = &mut report.comparison;
    comparison.regions.retain(|region| follows(&region.jobs, false));
    let regions = sprayed.comparison.regions.into_iter();
    comparison.regions.extend(regions.filter(|region| follows(&region.jobs, true)));
    comparison.compared.extend(sprayed.comparison.compared);
    comparison.is_provisional |= sprayed.comparison.is_provisional;
    for (jobs, digest, candidate) in losers {
        comparison.compared.push(digest);
        if let Some(region) = comparison.regions.iter_mut().find(|region| region.jobs == jobs) {
            region.candidates.extend(candidate);
        }
    }
    report
}
