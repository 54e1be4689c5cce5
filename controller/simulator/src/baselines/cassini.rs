//! CASSINI (Rajasekaran, Ghobadi and Akella, "CASSINI: Network-Aware Job Scheduling in Machine
//! Learning Clusters", NSDI 2024): jobs that share a link are shifted in time so that one computes
//! while the other communicates. One level.
//!
//! Each link with two or more jobs has a [`circle`]: the rotations of its jobs with the best
//! compatibility score are time shifts on that link. The [`affinity`] graph of jobs and links makes
//! one shift for each job of them (its Algorithm 1). Jobs start by their shifts and re-align when
//! their drift passes 5 % of the iteration (its section 5.7).
//!
//! Left open there or different here, and chosen:
//!
//! * The paper ranks placements and discards those whose affinity graph has a loop. Here the
//!   placement is given. Links with the same jobs become one vertex (the most contended represents
//!   them); of the others, one that would close a loop is left out of the graph, the least
//!   contended first. That is kinder to CASSINI than giving no shift at all.
//! * A job's bandwidth on a link while it communicates is `M_{j,e} / t_j`, its rate alone.
//! * A job is held to its grid only if every link it shares is fully compatible. Where jobs cannot
//!   avoid each other every iteration is late, and waiting for the next turn of the grid would
//!   nearly double it.
//! * Paths are ECMP's. Shifts apply when jobs start: after a failure new paths are taken, and
//!   running jobs keep their shifts.

pub mod affinity;
pub mod circle;

use std::collections::BTreeMap;

use fluid::{GridRule, JobGrid};
use planner::{Job, PlanInput};
use topology::{Finding, LinkId};

use self::affinity::SharedLink;
use self::circle::{TrafficPattern, UnifiedCircle};
use crate::baselines::ecmp;
use crate::demand::LinkDemand;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// Share of a period that a job may be off its grid before it re-aligns.
pub const DRIFT_MAX: f64 = 0.05;

/// How jobs are held to a grid.
const REALIGN: GridRule = GridRule::Realign { tolerance: DRIFT_MAX };

/// Scores from here are full: one angle in a hundred circles may be over capacity.
const FULL_SCORE: f64 = 1.0 - 1e-4;

/// Shares that fill a link, and a little for rounding.
const LINK_FULL: f64 = 1.0 + 1e-9;

/// ECMP's paths, one level, and a start shift for every job.
pub fn schedule_jobs(input: &PlanInput, routes: &EqualCostRoutes) -> Schedule {
    let paths = ecmp::hash_paths(input, routes);
    let demands = LinkDemand::for_jobs(input, &paths);
    let fitted: Vec<LinkCompatibility> = contended_links(&demands)
        .into_iter()
        .map(|(jobs, link)| LinkCompatibility::new(input, &demands, jobs, link))
        .collect();
    let (kept, dropped) = affinity::drop_loops(fitted.iter().map(|f| f.shared.clone()).collect());
    let periods = job_periods(input, &demands, &fitted);
    let shifts =
        affinity::assign_shifts(&kept, &periods.cycle).unwrap_or_else(|loops| loops.partial);

    let mut schedule = Schedule::from_levels(&vec![0; input.jobs.len()], paths);
    for (job, scheduled) in schedule.jobs.iter_mut().enumerate() {
        scheduled.start_shift_seconds = shifts[job];
        let origin = shifts[job];
        scheduled.grid = periods.grid[job].map(|period| JobGrid { origin, period, rule: REALIGN });
    }
    schedule.findings = report_findings(input, &fitted, dropped);
    schedule
}

/// A set of jobs that meet, the link where most, and how they fit there.
struct LinkCompatibility {
    link: LinkId,
    score: f64,
    shared: SharedLink,
    periods: Vec<f64>,
}

impl LinkCompatibility {
    fn new(input: &PlanInput, demands: &[LinkDemand], jobs: Vec<usize>, link: LinkId) -> Self {
        let circle = UnifiedCircle::new(
            &jobs
                .iter()
                .map(|job| traffic_pattern(&input.jobs[*job], &demands[*job], link))
                .collect::<Vec<_>>(),
        );
        let fit = circle.find_best_fit();
        Self {
            link,
            score: fit.score,
            shared: SharedLink {
                contention: circle.excess_demand(&vec![0; jobs.len()]),
                shifts: fit.shifts_seconds,
                jobs,
            },
            periods: circle.job_periods().collect(),
        }
    }

    /// The period of `job` on this link; none if it does not use the link.
    fn period_of(&self, job: usize) -> Option<f64> {
        let place = self.shared.jobs.iter().position(|other| *other == job)?;
        Some(self.periods[place])
    }

    fn is_fully_compatible(&self) -> bool {
        self.score >= FULL_SCORE
    }
}

/// What `job` does on `link` in an iteration alone.
fn traffic_pattern(job: &Job, demand: &LinkDemand, link: LinkId) -> TrafficPattern {
    let seconds = demand.bottleneck_seconds();
    let on_link =
        demand.links.iter().find(|(other, _)| *other == link).map_or(0.0, |(_, seconds)| *seconds);
    TrafficPattern {
        iteration_seconds: job.iteration_seconds(seconds),
        communication_from_seconds: job.first_start_seconds(),
        communication_seconds: seconds,
        link_share: if seconds > 0.0 { on_link / seconds } else { 0.0 },
    }
}

/// The sets of jobs that may ask more of a link than it has, each with the link where they ask the
/// most.
fn contended_links(demands: &[LinkDemand]) -> BTreeMap<Vec<usize>, LinkId> {
    let mut on_link: BTreeMap<LinkId, (Vec<usize>, f64)> = BTreeMap::new();
    for (job, demand) in demands.iter().enumerate() {
        for (link, seconds) in &demand.links {
            let (jobs, sum) = on_link.entry(*link).or_default();
            jobs.push(job);
            *sum += seconds / demand.bottleneck_seconds();
        }
    }
    let mut sets: BTreeMap<Vec<usize>, (LinkId, f64)> = BTreeMap::new();
    // Jobs that never ask more than the link has need not avoid each other.
    for (link, (jobs, sum)) in on_link.into_iter().filter(|(_, (_, sum))| *sum > LINK_FULL) {
        let most = sets.entry(jobs).or_insert((link, sum));
        if sum > most.1 {
            *most = (link, sum);
        }
    }
    sets.into_iter().map(|(jobs, (link, _))| (jobs, link)).collect()
}

/// Periods by job.
struct JobPeriods {
    /// What shifts are taken modulo: of a job that shares no link, its iteration alone.
    cycle: Vec<f64>,
    /// The grid of jobs that can keep one.
    grid: Vec<Option<f64>>,
}

fn job_periods(
    input: &PlanInput,
    demands: &[LinkDemand],
    fitted: &[LinkCompatibility],
) -> JobPeriods {
    let jobs = 0..input.jobs.len();
    let (cycle, grid) = jobs
        .map(|job| {
            let shared: Vec<(f64, bool)> = fitted
                .iter()
                .filter_map(|link| Some((link.period_of(job)?, link.is_fully_compatible())))
                .collect();
            let alone = input.jobs[job].iteration_seconds(demands[job].bottleneck_seconds());
            let longest = shared.iter().map(|(period, _)| *period).fold(alone, f64::max);
            let shortest = shared.iter().map(|(period, _)| *period);
            let agree = shortest.fold(longest, f64::min) >= longest * (1.0 - DRIFT_MAX / 10.0);
            let keeps = !shared.is_empty() && agree && shared.iter().all(|(_, is_full)| *is_full);
            (longest, keeps.then_some(longest))
        })
        .unzip();
    JobPeriods { cycle, grid }
}

fn report_findings(
    input: &PlanInput,
    fitted: &[LinkCompatibility],
    dropped: usize,
) -> Vec<Finding> {
    let worst = fitted.iter().min_by(|a, b| a.score.total_cmp(&b.score));
    let score = worst.map(|f| {
        let text = format!("lowest compatibility score of CASSINI: {:.3}", f.score);
        Finding::info(input.fabric.link_name(f.link), text)
    });
    let loops = (dropped > 0).then(|| {
        let text = format!("{dropped} sets of jobs are left out of the affinity graph, for loops");
        Finding::info("cassini", text)
    });
    score.into_iter().chain(loops).collect()
}

#[cfg(test)]
mod tests;
