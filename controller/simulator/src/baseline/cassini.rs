//! CASSINI (Rajasekaran, Ghobadi and Akella, "CASSINI: Network-Aware Job Scheduling in Machine
//! Learning Clusters", NSDI 2024): jobs that share a link are shifted in time so that one computes
//! while the other communicates. One class.
//!
//! Each link with two or more jobs has a [`circle`]: the rotations of its jobs with the best
//! compatibility score are time shifts on that link. The [`affinity`] graph of jobs and links makes
//! one shift for each job of them (its Algorithm 1). Jobs start by their shifts and re-align when
//! their drift passes 5 % of the iteration (its section 5.7).
//!
//! Left open there or different here, and chosen:
//!
//! * The paper ranks placements and discards those whose affinity graph has a loop. Here the
//!   placement is given. Links with the same jobs become one vertex (the most contended speaks for
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

use planner::{Input, Job};
use topology::{Finding, LinkId};

use self::affinity::SharedLink;
use self::circle::{Circle, Pattern};
use crate::baseline::ecmp;
use crate::demand::Demand;
use crate::routes::Routes;
use crate::schedule::Schedule;

/// Share of a period that a job may be off its grid before it re-aligns.
pub const DRIFT_MAX: f64 = 0.05;

/// Scores from here are full: one angle in a hundred circles may be over capacity.
const FULL_SCORE: f64 = 1.0 - 1e-4;

/// Shares that fill a link, and a little for rounding.
const ENOUGH: f64 = 1.0 + 1e-9;

/// ECMP's paths, one class, and a start shift for every job.
pub fn schedule(input: &Input, routes: &Routes) -> Schedule {
    let paths = ecmp::paths(input, routes);
    let demands = Demand::of_all(input, &paths);
    let fitted: Vec<Fitted> = contended(&demands)
        .into_iter()
        .map(|(jobs, link)| Fitted::new(input, &demands, jobs, link))
        .collect();
    let (kept, dropped) = affinity::loop_free(fitted.iter().map(|f| f.shared.clone()).collect());
    let periods = periods(input, &demands, &fitted);
    let shifts = affinity::shifts(&kept, &periods.cycle).unwrap_or_else(|loops| loops.partial);

    let mut schedule = Schedule::of_classes(&vec![0; input.jobs.len()], paths);
    for (job, scheduled) in schedule.jobs.iter_mut().enumerate() {
        scheduled.start_shift_seconds = shifts[job];
        scheduled.period_seconds = periods.held[job];
    }
    schedule.findings = findings(input, &fitted, dropped);
    schedule
}

/// A set of jobs that meet, the link where most, and how they fit there.
struct Fitted {
    link: LinkId,
    score: f64,
    shared: SharedLink,
    periods: Vec<f64>,
}

impl Fitted {
    fn new(input: &Input, demands: &[Demand], jobs: Vec<usize>, link: LinkId) -> Self {
        let pattern = |job: &usize| pattern(&input.jobs[*job], &demands[*job], link);
        let circle = Circle::new(&jobs.iter().map(pattern).collect::<Vec<_>>());
        let fit = circle.best();
        Self {
            link,
            score: fit.score,
            shared: SharedLink {
                contention: circle.excess(&vec![0; jobs.len()]),
                shifts: fit.shifts_seconds,
                jobs,
            },
            periods: circle.periods().collect(),
        }
    }

    fn is_full(&self) -> bool {
        self.score >= FULL_SCORE
    }
}

/// What `job` does on `link` in an iteration alone.
fn pattern(job: &Job, demand: &Demand, link: LinkId) -> Pattern {
    let seconds = demand.bottleneck_seconds();
    let on_link = demand.links.iter().find(|(other, _)| *other == link);
    let on_link = on_link.map_or(0.0, |(_, seconds)| *seconds);
    Pattern {
        iteration_seconds: job.iteration_seconds(seconds),
        from_seconds: job.overlap_from * job.compute_seconds,
        seconds,
        share: if seconds > 0.0 {
            on_link / seconds
        } else {
            0.0
        },
    }
}

/// The sets of jobs that may ask more of a link than it has, each with the link where they ask the
/// most.
fn contended(demands: &[Demand]) -> BTreeMap<Vec<usize>, LinkId> {
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
    for (link, (jobs, sum)) in on_link.into_iter().filter(|(_, (_, sum))| *sum > ENOUGH) {
        let most = sets.entry(jobs).or_insert((link, sum));
        if sum > most.1 {
            *most = (link, sum);
        }
    }
    let sets = sets.into_iter();
    sets.map(|(jobs, (link, _))| (jobs, link)).collect()
}

/// Periods by job.
struct Periods {
    /// What shifts are taken modulo: of a job that shares no link, its iteration alone.
    cycle: Vec<f64>,
    /// The grid of jobs that can keep one.
    held: Vec<Option<f64>>,
}

fn periods(input: &Input, demands: &[Demand], fitted: &[Fitted]) -> Periods {
    let alone = |job: usize| input.jobs[job].iteration_seconds(demands[job].bottleneck_seconds());
    let of_job = |job: usize| -> Vec<(f64, bool)> {
        let place = |f: &Fitted| f.shared.jobs.iter().position(|other| *other == job);
        let shared = fitted.iter();
        shared
            .filter_map(|f| Some((f.periods[place(f)?], f.is_full())))
            .collect()
    };
    let jobs = 0..input.jobs.len();
    let (cycle, held) = jobs
        .map(|job| {
            let shared = of_job(job);
            let longest = shared.iter().map(|(period, _)| *period);
            let longest = longest.fold(alone(job), f64::max);
            let shortest = shared.iter().map(|(period, _)| *period);
            let agree = shortest.fold(longest, f64::min) >= longest * (1.0 - DRIFT_MAX / 10.0);
            let keeps = !shared.is_empty() && agree && shared.iter().all(|(_, is_full)| *is_full);
            (longest, keeps.then_some(longest))
        })
        .unzip();
    Periods { cycle, held }
}

fn findings(input: &Input, fitted: &[Fitted], dropped: usize) -> Vec<Finding> {
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
