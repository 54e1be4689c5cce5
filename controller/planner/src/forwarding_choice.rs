//! Pins or spraying, on a fabric that can do both: for the jobs of each region, which could share
//! links, whichever keeps more of their GPUs busy.
//!
//! Both plans are made, and regions share no link, so each takes its part of one of them. Switches
//! spray what has no pin. A region stays as it is unless the other way gains: what changes is
//! reordered for a moment.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use topology::{Fabric, Finding};

use crate::input::Job;
use crate::path_selection;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::refine::{CandidateOutcome, RegionComparison};
use crate::report::{LinkLoad, LoadBounds, PlanReport, load_lower_bound};
use crate::traffic::IndexedTraffic;

/// Share of their GPU worth that jobs gain at least by another way.
const LEAST_GAIN: f64 = 0.002;

/// A plan and its report.
type Planned = (Plan, PlanReport);

/// The plan of both for `jobs`, in any order, with `previous` in force. The first was made on the
/// first of `fabrics`, the second on the other, whose links are its trunks; both are for the same
/// jobs.
pub(crate) fn choose_forwarding(
    fabrics: [&Fabric; 2],
    jobs: &[Job],
    policy: &Policy,
    [pinned, sprayed]: [Planned; 2],
    previous: Option<&Plan>,
) -> Planned {
    let jobs: BTreeMap<_, _> = jobs.iter().map(|job| (&job.id, job)).collect();
    let by_position: Vec<&Job> = pinned.0.jobs.iter().map(|job| jobs[&job.id]).collect();
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
            let of_jobs = forecasts.map(|(position, forecast)| {
                let job = by_position[*position];
                let computes = job.compute_seconds / forecast.seconds;
                policy.job_worth(job) * if computes.is_finite() { computes } else { 0.0 }
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
    let merge = ReportMerge { fabrics, jobs: &by_position, is_sprayed: &is_sprayed };
    (plan, merge.merge_reports([pinned.1, sprayed.1], losers))
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

/// What makes one report of two.
struct ReportMerge<'a> {
    fabrics: [&'a Fabric; 2],
    /// By position, which is the order of their ids.
    jobs: &'a [&'a Job],
    is_sprayed: &'a [bool],
}

impl ReportMerge<'_> {
    /// What of each report is about jobs that follow its plan. Of each region, `losers` has the
    /// digest and the best candidate of the plan that it does not follow.
    fn merge_reports(
        &self,
        reports: [PlanReport; 2],
        losers: Vec<(Vec<usize>, u64, Option<CandidateOutcome>)>,
    ) -> PlanReport {
        let lower_bounds = [false, true].map(|way| self.lower_bound(&reports, way));
        let [mut report, sprayed] = reports;
        report.links.retain(|load| self.is_loaded_by(load, false));
        report.links.extend(sprayed.links.into_iter().filter(|load| self.is_loaded_by(load, true)));
        report.links.sort_by_key(|load| load.link);
        report.bounds = LoadBounds {
            max_load: report.links.iter().map(|link| link.load).fold(0.0, f64::max),
            max_load_lower_bound: lower_bounds[0].max(lower_bounds[1]),
        };
        let of_pinned = report.findings.into_iter().filter(|finding| !self.is_about(finding, true));
        report.findings = of_pinned.collect();
        if self.is_sprayed.contains(&true) {
            for finding in sprayed.findings {
                if !self.is_about(&finding, false) && !report.findings.contains(&finding) {
                    report.findings.push(finding);
                }
            }
        }
        let rationales = report.rationales.iter_mut().zip(sprayed.rationales);
        for ((own, other), is_sprayed) in rationales.zip(self.is_sprayed) {
            if *is_sprayed {
                *own = other;
            }
        }
        let follows = |jobs: &[usize], way| jobs.iter().all(|job| self.is_sprayed[*job] == way);
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

    /// Whether the jobs that load a link are sprayed, or all pinned. They are all one or the other,
    /// as those that could share a link are of one region, but jobs that send nothing are of none.
    fn is_loaded_by(&self, load: &LinkLoad, sprayed: bool) -> bool {
        let sends = |job: &&usize| self.jobs[**job].flows.iter().any(|flow| flow.bytes > 0.0);
        let first = load.jobs.iter().find(sends).or(load.jobs.first());
        first.is_some_and(|job| self.is_sprayed[*job] == sprayed)
    }

    /// Whether a finding is about a job that is sprayed, or about one that is pinned.
    fn is_about(&self, finding: &Finding, sprayed: bool) -> bool {
        let id = finding.about.strip_prefix("job ");
        let job = id.and_then(|id| self.jobs.binary_search_by(|job| job.id.as_str().cmp(id)).ok());
        job.is_some_and(|job| self.is_sprayed[job] == sprayed)
    }

    /// What the busiest link of the jobs that are sprayed, or of the others, carries at least.
    fn lower_bound(&self, reports: &[PlanReport; 2], sprayed: bool) -> f64 {
        let way = usize::from(sprayed);
        let of_way = (0..self.jobs.len()).filter(|job| self.is_sprayed[*job] == sprayed);
        // Where all jobs are of one way, which is usual, its report has the bound.
        match of_way.clone().count() {
            0 => return 0.0,
            count if count == self.jobs.len() => {
                return reports[way].bounds.max_load_lower_bound;
            }
            _ => {}
        }
        let traffic =
            IndexedTraffic::of_jobs(self.fabrics[way], of_way.clone().map(|job| self.jobs[job]));
        let rates = of_way.flat_map(|job| {
            let seconds = reports[way].rationales[job].iteration_seconds;
            let flows = self.jobs[job].flows.iter();
            flows.map(move |flow| path_selection::mean_rate(flow.bytes, seconds))
        });
        load_lower_bound(&traffic, rates)
    }
}
