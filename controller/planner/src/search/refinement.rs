//! From a plan's traffic to searches and back: which regions are searched, with what budget, and
//! when a result replaces the current plan.

use topology::{LinkId, LinkPath};

use super::RegionSearch;
use super::hill_climb::ValuedPosition;
use super::regions;
use super::search_space::{SearchPosition, SearchSpace, SearchedFlow, SearchedJob};
use crate::levels;
use crate::policy::{PathMethod, Policy, to_level};
use crate::previous_plan::PreviousPlan;
use crate::traffic::IndexedTraffic;

/// A region of more jobs is left to the other phases.
const MAX_JOBS: usize = 12;

/// With a smaller share of the budget for each job, nothing is searched: it would find little.
const MIN_EVENTS_PER_JOB: u64 = 32_000;

/// Paths by flow and levels by job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchResult {
    /// One per flow, empty where there is none.
    pub(crate) paths: Vec<LinkPath>,
    /// One per job.
    pub(crate) levels: Vec<u8>,
    /// Jobs whose levels were searched together and are theirs to change.
    pub(crate) searched: Vec<Vec<usize>>,
}

impl SearchResult {
    /// The decisions of the other phases, nothing searched.
    pub(crate) fn new(paths: Vec<LinkPath>, levels: Vec<u8>) -> Self {
        Self { paths, levels, searched: Vec::new() }
    }

    /// Takes the decisions on some jobs: their levels, in the order of `jobs`, and of `paths`, by
    /// flow of the plan, theirs.
    pub(crate) fn adopt_decisions(
        &mut self,
        traffic: &IndexedTraffic<'_>,
        jobs: &[usize],
        levels: impl IntoIterator<Item = u8>,
        paths: &[LinkPath],
    ) {
        for (job, level) in jobs.iter().zip(levels) {
            self.levels[*job] = level;
            let span = traffic.spans[*job].clone();
            self.paths[span.clone()].copy_from_slice(&paths[span]);
        }
    }

    /// Records that the levels of `jobs` were searched together.
    pub(crate) fn mark_searched(
        &mut self,
        traffic: &IndexedTraffic<'_>,
        policy: &Policy,
        jobs: &[usize],
    ) {
        let free = jobs.iter().copied().filter(|job| !policy.bounds_level(traffic.jobs[*job]));
        self.searched.push(free.collect());
    }
}

/// Searches paths and levels in each of the `regions`. `found` has the decisions of the other
/// phases.
pub(crate) fn refine_plan(
    traffic: &IndexedTraffic<'_>,
    policy: &Policy,
    previous: &PreviousPlan<'_>,
    regions: &[Vec<usize>],
    mut found: SearchResult,
) -> SearchResult {
    for task in region_tasks(traffic, policy, regions) {
        let in_force = task.current_position(previous, &found);
        let Some(best) = task.best_position(&in_force) else {
            continue;
        };
        task.apply_position(&best.position, &mut found);
    }
    found
}

/// Searches levels alone, on the paths of `found`.
pub(crate) fn search_levels(
    traffic: &IndexedTraffic<'_>,
    policy: &Policy,
    mut found: SearchResult,
) -> SearchResult {
    for task in region_tasks(traffic, policy, &comparable_regions(traffic, policy)) {
        let position = task.position_of(&found);
        let search = RegionSearch::new(&task.space, task.budget);
        if let Some(best) = search.improve_levels(&position) {
            task.apply_position(&best.position, &mut found);
        }
    }
    found
}

/// The regions in which candidates are compared: at least two jobs, none below its throughput
/// floor. Jobs of a region share links with no others.
pub(crate) fn comparable_regions(traffic: &IndexedTraffic<'_>, policy: &Policy) -> Vec<Vec<usize>> {
    if budget_per_job(traffic, policy) == 0 {
        return Vec::new();
    }
    let mut regions = regions::find_regions(traffic);
    regions.retain(|region| {
        region.len() > 1
            && region.iter().all(|job| {
                let rule = policy.override_for(traffic.jobs[*job]);
                !rule
                    .is_some_and(|rule| levels::is_below_throughput_floor(traffic.jobs[*job], rule))
            })
    });
    regions
}

/// Events for each job. A power of two divides them, so that a job that comes or goes seldom
/// changes the share of the others.
pub(crate) fn budget_per_job(traffic: &IndexedTraffic<'_>, policy: &Policy) -> u64 {
    policy.search_events / traffic.jobs.len().next_power_of_two().max(1) as u64
}

fn region_tasks<'a>(
    traffic: &'a IndexedTraffic<'a>,
    policy: &'a Policy,
    regions: &'a [Vec<usize>],
) -> impl Iterator<Item = RegionTask<'a>> {
    let each = budget_per_job(traffic, policy);
    regions
        .iter()
        .filter(move |region| region.len() <= MAX_JOBS && each >= MIN_EVENTS_PER_JOB)
        .map(move |region| RegionTask::new(traffic, policy, region.clone(), each))
}

/// One region with its search.
struct RegionTask<'a> {
    traffic: &'a IndexedTraffic<'a>,
    policy: &'a Policy,
    jobs: Vec<usize>,
    job_levels: Vec<u8>,
    space: SearchSpace<'a>,
    budget: u64,
}

/// The position in force in a region.
enum CurrentPosition {
    /// Every flow has a path that it had before.
    Complete(SearchPosition),
    /// Some flows run; others are new and on the paths of the other phases.
    Partial(SearchPosition),
    /// No flow of the region runs.
    NoneRunning(SearchPosition),
}

impl<'a> RegionTask<'a> {
    fn new(
        traffic: &'a IndexedTraffic<'a>,
        policy: &'a Policy,
        jobs: Vec<usize>,
        each: u64,
    ) -> Self {
        let job_levels = policy.job_levels();
        let searched = jobs.iter().map(|job| searched_job(traffic, policy, &job_levels, *job));
        Self {
            space: SearchSpace::new(traffic.fabric, searched.collect()),
            budget: each * jobs.len() as u64,
            traffic,
            policy,
            jobs,
            job_levels,
        }
    }

    /// Ordinals of the flows by choice.
    fn chosen_flows(&self) -> impl Iterator<Item = usize> + '_ {
        let choices = self.space.choices.iter();
        choices.map(|choice| self.traffic.spans[self.jobs[choice.job]].start + choice.flow)
    }

    /// `found` as a position; a flow without a path counts as on the first option.
    fn position_of(&self, found: &SearchResult) -> SearchPosition {
        SearchPosition {
            options: self
                .chosen_flows()
                .map(|flow| self.option_of(flow, &found.paths[flow]).unwrap_or(0))
                .collect(),
            levels: self.level_indices(|job| found.levels[job]),
        }
    }

    /// Levels as indices into the levels that jobs may have, within the bounds of each job.
    fn level_indices(&self, level: impl Fn(usize) -> u8) -> Vec<u8> {
        self.space
            .jobs
            .iter()
            .zip(&self.jobs)
            .map(|(searched, job)| {
                let at = self.job_levels.partition_point(|given| *given < level(*job));
                to_level(at).clamp(*searched.levels.start(), *searched.levels.end())
            })
            .collect()
    }

    fn option_of(&self, flow: usize, path: &[LinkId]) -> Option<usize> {
        let flow = &self.traffic.flows[flow];
        let [up, segment @ .., down] = path else {
            return None;
        };
        let same_ends = (*up, *down) == (flow.up, flow.down);
        let mut segments = self.traffic.segments(flow).iter();
        segments.position(|other| same_ends && other[..] == *segment)
    }

    /// The position of `previous` where it has one, else of `found`.
    fn current_position(
        &self,
        previous: &PreviousPlan<'_>,
        found: &SearchResult,
    ) -> CurrentPosition {
        let options: Vec<Option<usize>> = self
            .chosen_flows()
            .map(|flow| self.option_of(flow, previous.flow_path(&self.traffic.flows[flow])?))
            .collect();
        let mut position = self.position_of(found);
        let all_levels = self.jobs.iter().all(|job| previous.job_level(*job).is_some());
        if all_levels {
            position.levels = self.level_indices(|job| previous.job_level(job).unwrap_or(0));
        }
        if options.iter().all(Option::is_none) {
            return if all_levels && options.is_empty() {
                CurrentPosition::Complete(position)
            } else {
                CurrentPosition::NoneRunning(position)
            };
        }
        match options.into_iter().collect::<Option<Vec<usize>>>() {
            Some(options) => CurrentPosition::Complete(SearchPosition { options, ..position }),
            None => CurrentPosition::Partial(position),
        }
    }

    /// The position to take; none if nothing can be evaluated within the budget.
    fn best_position(&self, in_force: &CurrentPosition) -> Option<ValuedPosition> {
        let mut search = RegionSearch::new(&self.space, self.budget);
        let (CurrentPosition::Complete(position)
        | CurrentPosition::Partial(position)
        | CurrentPosition::NoneRunning(position)) = in_force;
        let current = search.improve_levels(position)?;
        let total: f64 = self.space.jobs.iter().map(|job| job.worth).sum();
        // A move of running flows must gain the price of moving them; new flows move for free.
        let price = match in_force {
            CurrentPosition::NoneRunning(_) => 0.0,
            CurrentPosition::Complete(_) | CurrentPosition::Partial(_) => {
                self.policy.move_gain_min * total
            }
        };
        let is_done =
            current.value >= search.value_bound() || self.policy.paths == PathMethod::Greedy;
        if is_done || self.space.choices.is_empty() {
            return Some(current);
        }
        let other =
            search.search_from_scratch().filter(|other| other.value > current.value + price);
        Some(other.unwrap_or(current))
    }

    fn apply_position(&self, position: &SearchPosition, found: &mut SearchResult) {
        let flows: Vec<usize> = self.chosen_flows().collect();
        for (flow, option) in flows.into_iter().zip(&position.options) {
            let route = &self.traffic.flows[flow];
            found.paths[flow] =
                IndexedTraffic::full_path(route, &self.traffic.segments(route)[*option]);
        }
        for (job, level) in self.jobs.iter().zip(&position.levels) {
            found.levels[*job] = self.job_levels[usize::from(*level)];
        }
        found.mark_searched(self.traffic, self.policy, &self.jobs);
    }
}

fn searched_job<'a>(
    traffic: &'a IndexedTraffic<'_>,
    policy: &Policy,
    job_levels: &[u8],
    job: usize,
) -> SearchedJob<'a> {
    let of = traffic.jobs[job];
    let flows = traffic.flows[traffic.spans[job].clone()].iter();
    SearchedJob {
        compute_seconds: of.compute_seconds,
        overlap_from: of.overlap_from,
        worth: policy.job_worth(of),
        levels: policy.allowed_levels(of, job_levels),
        flows: flows
            .map(|flow| SearchedFlow {
                bytes: flow.flow.bytes,
                ends: (flow.up, flow.down),
                segments: traffic.segments(flow),
            })
            .collect(),
    }
}
