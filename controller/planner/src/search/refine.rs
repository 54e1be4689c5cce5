//! From a plan's traffic to searches, and back: which regions are searched, with what budget, and
//! when what is found replaces what is there.

use topology::{LinkId, Path};

use super::Search;
use super::climb::Valued;
use super::region;
use super::setting::{Player, Position, Setting, Stream};
use crate::input::Job;
use crate::levels;
use crate::policy::{Override, Paths, Policy};
use crate::previous::Previous;
use crate::traffic::Traffic;

/// A region of more jobs is left to the other phases.
const MOST_JOBS: usize = 12;

/// With a smaller share of the budget for each job, nothing is searched: it would find little.
const LEAST_EVENTS_PER_JOB: u64 = 32_000;

/// Paths by flow and levels by job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    /// One per flow, empty where there is none.
    pub(crate) paths: Vec<Path>,
    /// One per job.
    pub(crate) levels: Vec<u8>,
    /// Jobs whose levels were searched together and are theirs to change.
    pub(crate) searched: Vec<Vec<usize>>,
}

impl Found {
    /// What the other phases decided, nothing searched.
    pub(crate) fn new(paths: Vec<Path>, levels: Vec<u8>) -> Self {
        Self {
            paths,
            levels,
            searched: Vec::new(),
        }
    }
}

/// Searches ways and classes in each of the `regions`. `found` is what the other phases decided.
pub(crate) fn refine(
    traffic: &Traffic<'_>,
    policy: &Policy,
    previous: &Previous<'_>,
    regions: Vec<Vec<usize>>,
    mut found: Found,
) -> Found {
    for task in tasks(traffic, policy, regions) {
        let in_force = task.in_force(previous, &found);
        let Some(best) = task.best(&in_force) else {
            continue;
        };
        task.apply(&best.position, &mut found);
    }
    found
}

/// Searches classes alone, on the paths of `found`.
pub(crate) fn settle_levels(traffic: &Traffic<'_>, policy: &Policy, mut found: Found) -> Found {
    for task in tasks(traffic, policy, regions(traffic, policy)) {
        let position = task.position(&found);
        let search = Search::new(&task.setting, task.budget);
        if let Some(best) = search.settled(&position) {
            task.apply(&best.position, &mut found);
        }
    }
    found
}

/// The regions that are searched: few jobs, at least two, and all of them free enough. Jobs of one
/// meet no others.
pub(crate) fn regions(traffic: &Traffic<'_>, policy: &Policy) -> Vec<Vec<usize>> {
    if budget_each(traffic, policy) < LEAST_EVENTS_PER_JOB {
        return Vec::new();
    }
    let is_free = |job: &usize| {
        let rule = policy.override_for(traffic.jobs[*job]);
        !rule.is_some_and(|rule| levels::is_below_floor(traffic.jobs[*job], rule))
    };
    let mut regions = region::regions(traffic);
    regions.retain(|region| (2..=MOST_JOBS).contains(&region.len()) && region.iter().all(is_free));
    regions
}

/// Events for each job. A power of two divides them, so that a job that comes or goes seldom
/// changes the share of the others.
fn budget_each(traffic: &Traffic<'_>, policy: &Policy) -> u64 {
    policy.search_events / traffic.jobs.len().next_power_of_two().max(1) as u64
}

fn tasks<'a>(
    traffic: &'a Traffic<'a>,
    policy: &'a Policy,
    regions: Vec<Vec<usize>>,
) -> impl Iterator<Item = Task<'a>> {
    let each = budget_each(traffic, policy);
    let regions = regions.into_iter();
    regions.map(move |region| Task::new(traffic, policy, region, each))
}

/// One region with its search.
struct Task<'a> {
    traffic: &'a Traffic<'a>,
    policy: &'a Policy,
    jobs: Vec<usize>,
    given: Vec<u8>,
    setting: Setting<'a>,
    budget: u64,
}

/// What is in force in a region.
enum InForce {
    /// Every flow has a path that it had before.
    All(Position),
    /// Some flows run, others are new and stand where the other phases put them.
    Some(Position),
    /// Nothing runs.
    Nothing(Position),
}

impl<'a> Task<'a> {
    fn new(traffic: &'a Traffic<'a>, policy: &'a Policy, jobs: Vec<usize>, each: u64) -> Self {
        let given = policy.job_levels();
        let players = jobs.iter().map(|job| player(traffic, policy, &given, *job));
        Self {
            setting: Setting::new(traffic.fabric, players.collect()),
            budget: each * jobs.len() as u64,
            traffic,
            policy,
            jobs,
            given,
        }
    }

    /// Ordinals of the flows by choice.
    fn chosen_flows(&self) -> impl Iterator<Item = usize> + '_ {
        let choices = self.setting.choices.iter();
        choices.map(|choice| self.traffic.spans[self.jobs[choice.player]].start + choice.stream)
    }

    /// `found` as a position; a flow without a path counts as on the first way.
    fn position(&self, found: &Found) -> Position {
        let option = |flow: usize| self.option(flow, &found.paths[flow]).unwrap_or(0);
        Position {
            options: self.chosen_flows().map(option).collect(),
            classes: self.classes(|job| found.levels[job]),
        }
    }

    fn classes(&self, level: impl Fn(usize) -> u8) -> Vec<u8> {
        let class = |(player, job): (&Player<'_>, &usize)| {
            let at = self.given.partition_point(|given| *given < level(*job));
            let class = u8::try_from(at).unwrap_or(u8::MAX);
            class.clamp(*player.classes.start(), *player.classes.end())
        };
        self.setting
            .players
            .iter()
            .zip(&self.jobs)
            .map(class)
            .collect()
    }

    fn option(&self, flow: usize, path: &[LinkId]) -> Option<usize> {
        let flow = &self.traffic.flows[flow];
        let [up, segment @ .., down] = path else {
            return None;
        };
        let same_ends = (*up, *down) == (flow.up, flow.down);
        let mut segments = self.traffic.segments(flow).iter();
        segments.position(|other| same_ends && other[..] == *segment)
    }

    /// What `previous` says where it says something, else `found`.
    fn in_force(&self, previous: &Previous<'_>, found: &Found) -> InForce {
        let had: Vec<Option<usize>> = self
            .chosen_flows()
            .map(|flow| self.option(flow, previous.path(&self.traffic.flows[flow])?))
            .collect();
        let mut position = self.position(found);
        let all_levels = self.jobs.iter().all(|job| previous.level(*job).is_some());
        if all_levels {
            position.classes = self.classes(|job| previous.level(job).unwrap_or(0));
        }
        if had.iter().all(Option::is_none) {
            return if all_levels && had.is_empty() {
                InForce::All(position)
            } else {
                InForce::Nothing(position)
            };
        }
        match had.iter().copied().collect::<Option<Vec<usize>>>() {
            Some(options) => InForce::All(Position {
                options,
                ..position
            }),
            None => InForce::Some(position),
        }
    }

    /// The position to take; none if nothing can be judged within the budget.
    fn best(&self, in_force: &InForce) -> Option<Valued> {
        let mut search = Search::new(&self.setting, self.budget);
        let (InForce::All(position) | InForce::Some(position) | InForce::Nothing(position)) =
            in_force;
        let standing = search.settled(position)?;
        let total: f64 = self.setting.players.iter().map(|player| player.worth).sum();
        let price = match in_force {
            InForce::Nothing(_) => 0.0,
            InForce::All(_) | InForce::Some(_) => self.policy.move_gain_min * total,
        };
        let is_done = standing.value >= search.bound() || self.policy.paths == Paths::Greedy;
        if is_done || self.setting.choices.is_empty() {
            return Some(standing);
        }
        let other = search.anew();
        let other = other.filter(|other| other.value > standing.value + price);
        Some(other.unwrap_or(standing))
    }

    fn apply(&self, position: &Position, found: &mut Found) {
        let flows: Vec<usize> = self.chosen_flows().collect();
        for (flow, option) in flows.into_iter().zip(&position.options) {
            let route = &self.traffic.flows[flow];
            found.paths[flow] = Traffic::path(route, &self.traffic.segments(route)[*option]);
        }
        for (job, class) in self.jobs.iter().zip(&position.classes) {
            found.levels[*job] = self.given[usize::from(*class)];
        }
        let is_free = |job: &usize| {
            let rule = self.policy.override_for(self.traffic.jobs[*job]);
            !rule.is_some_and(Override::bounds_level)
        };
        found
            .searched
            .push(self.jobs.iter().copied().filter(is_free).collect());
    }
}

fn player<'a>(traffic: &'a Traffic<'_>, policy: &Policy, given: &[u8], job: usize) -> Player<'a> {
    let of = traffic.jobs[job];
    let flows = traffic.flows[traffic.spans[job].clone()].iter();
    let stream = |flow: &'a crate::traffic::RoutableFlow<'_>| Stream {
        bytes: flow.flow.bytes,
        ends: (flow.up, flow.down),
        segments: traffic.segments(flow),
    };
    Player {
        compute_seconds: of.compute_seconds,
        overlap_from: of.overlap_from,
        worth: worth(of, policy),
        classes: classes(of, policy, given),
        streams: flows.map(stream).collect(),
    }
}

/// What it counts that all GPUs of a job compute: its GPUs, or for a fair policy its slowdown too,
/// weighed as its priority is (Crux §7.2).
fn worth(job: &Job, policy: &Policy) -> f64 {
    let weight = policy.override_for(job).map_or(1.0, |rule| rule.weight);
    let fair = (1.0 - policy.fairness) + policy.fairness * job.recent_slowdown;
    f64::from(job.gpu_count()) * weight * fair
}

/// Classes that policy lets the job have.
fn classes(job: &Job, policy: &Policy, given: &[u8]) -> std::ops::RangeInclusive<u8> {
    let at = |position: usize| u8::try_from(position).unwrap_or(u8::MAX);
    let highest = at(given.len() - 1);
    let Some(rule) = policy.override_for(job) else {
        return 0..=highest;
    };
    if rule.exempt {
        return 0..=0;
    }
    let least = rule.min_level.unwrap_or(0);
    let most = rule.max_level.unwrap_or(u8::MAX);
    let low = at(given.partition_point(|level| *level < least)).min(highest);
    let above = at(given.partition_point(|level| *level <= most));
    low..=above.saturating_sub(1).max(low)
}
