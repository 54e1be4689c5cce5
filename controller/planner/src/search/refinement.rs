//! From a plan's traffic to searches and back: which regions are searched, and with what budget.

use topology::{LinkId, LinkPath};

use super::RegionSearch;
use super::hill_climb::ValuedPosition;
use super::regions;
use super::search_space::{SearchPosition, SearchSpace, SearchedFlow, SearchedJob};
use crate::policy::{PathMethod, Policy, to_level};
use crate::traffic::{IndexedTraffic, RoutableFlow};

/// A region of more jobs is searched by a model that is cheaper than the fluid one.
pub(crate) const MAX_JOBS: usize = 12;

/// Flows of a region that is compared, at most.
const MAX_COMPARED_FLOWS: usize = 40_000;

/// With a smaller share of the budget for each job, nothing is searched: it would find little.
const MIN_EVENTS_PER_JOB: u64 = 8_000;

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

/// Searches paths and levels in a `region` for at most so many `events`. `found` has the decisions
/// of the other phases. None if the region is too large, or the budget too small.
pub(crate) fn search_region(
    traffic: &IndexedTraffic<'_>,
    policy: &Policy,
    region: &[usize],
    events: u64,
    found: &SearchResult,
) -> Option<SearchResult> {
    let task = RegionTask::new(traffic, policy, region, events)?;
    let best = task.best_position(found)?;
    let mut found = found.clone();
    task.apply_position(&best.position, &mut found);
    Some(found)
}

/// Searches levels alone, on the paths of `found`.
pub(crate) fn search_levels(
    traffic: &IndexedTraffic<'_>,
    policy: &Policy,
    mut found: SearchResult,
) -> SearchResult {
    let each = budget_per_job(traffic, policy);
    for region in comparable_regions(traffic, policy) {
        let events = each * region.len() as u64;
        let Some(task) = RegionTask::new(traffic, policy, &region, events) else {
            continue;
        };
        let position = task.position_of(&found);
        let search = RegionSearch::new(&task.space, task.budget);
        if let Some(best) = search.improve_levels(&position) {
            task.apply_position(&best.position, &mut found);
        }
    }
    found
}

/// The regions in which candidates are compared: at least two jobs, which share links with no
/// others.
pub(crate) fn comparable_regions(traffic: &IndexedTraffic<'_>, policy: &Policy) -> Vec<Vec<usize>> {
    if budget_per_job(traffic, policy) == 0 {
        return Vec::new();
    }
    let mut regions = regions::find_regions(traffic);
    regions.retain(|region| region.len() > 1);
    regions
}

/// Whether a region has so many flows that it is not compared after all: so few steps as are
/// affordable would not tell candidates apart.
pub(crate) fn is_oversized(traffic: &IndexedTraffic<'_>, region: &[usize]) -> bool {
    traffic.count_flows(region) > MAX_COMPARED_FLOWS
}

/// Events for each job. A power of two divides them, so that a job that comes or goes seldom
/// changes the share of the others.
pub(crate) fn budget_per_job(traffic: &IndexedTraffic<'_>, policy: &Policy) -> u64 {
    policy.search_events / traffic.jobs.len().next_power_of_two().max(1) as u64
}

/// One region with its search.
pub(super) struct RegionTask<'a> {
    traffic: &'a IndexedTraffic<'a>,
    policy: &'a Policy,
    jobs: Vec<usize>,
    job_levels: Vec<u8>,
    pub(super) space: SearchSpace<'a>,
    budget: u64,
}

impl<'a> RegionTask<'a> {
    /// None if the region is too large, or the budget too small.
    fn new(
        traffic: &'a IndexedTraffic<'a>,
        policy: &'a Policy,
        region: &[usize],
        events: u64,
    ) -> Option<Self> {
        let jobs = region.len();
        let is_searched = jobs <= MAX_JOBS && events / (jobs as u64) >= MIN_EVENTS_PER_JOB;
        let task = Self::unlimited(traffic, policy, region);
        is_searched.then_some(Self { budget: events, ..task })
    }

    /// The region whatever its size, without a budget.
    pub(super) fn unlimited(
        traffic: &'a IndexedTraffic<'a>,
        policy: &'a Policy,
        region: &[usize],
    ) -> Self {
        let jobs = region.to_vec();
        let job_levels = policy.job_levels();
        let searched = jobs.iter().map(|job| searched_job(traffic, policy, &job_levels, *job));
        let space = SearchSpace::new(traffic.fabric, searched.collect());
        Self { space, budget: 0, traffic, policy, jobs, job_levels }
    }

    /// Ordinals of the flows by choice.
    fn chosen_flows(&self) -> impl Iterator<Item = usize> + '_ {
        let choices = self.space.choices.iter();
        choices.map(|choice| self.traffic.spans[self.jobs[choice.job]].start + choice.flow)
    }

    /// `found` as a position; a flow without a path counts as on the first option.
    pub(super) fn position_of(&self, found: &SearchResult) -> SearchPosition {
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

    /// The best position found from scratch, or with the paths of `found` where policy leaves no
    /// others; none if nothing can be evaluated within the budget.
    fn best_position(&self, found: &SearchResult) -> Option<ValuedPosition> {
        let mut search = RegionSearch::new(&self.space, self.budget);
        if self.policy.paths == PathMethod::Greedy || self.space.choices.is_empty() {
            return search.improve_levels(&self.position_of(found));
        }
        search.search_from_scratch()
    }

    pub(super) fn apply_position(&self, position: &SearchPosition, found: &mut SearchResult) {
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
                ends: flow_ends(traffic, flow),
                segments: traffic.segments(flow),
            })
            .collect(),
    }
}

/// The links of a flow before and after the choice of its path.
fn flow_ends(traffic: &IndexedTraffic<'_>, flow: &RoutableFlow<'_>) -> (Vec<LinkId>, Vec<LinkId>) {
    let [first, last] = flow.flow.host_links(traffic.fabric).unwrap_or([LinkPath::EMPTY; 2]);
    ([&first[..], &[flow.up]].concat(), [&[flow.down], &last[..]].concat())
}
