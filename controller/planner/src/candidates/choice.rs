//! The choice between candidates: by value in the fluid model, under a floor for the worst job.

use topology::LinkPath;

use super::group_values::{DecisionValue, GroupEvaluator};
use super::level_climb::{ValuedLevels, climb_levels};
use super::origins::{
    CandidatePaths, ECMP_DRAWS, LevelOrigin, PathOrigin, hashed_paths, ranked_levels,
};
use crate::decision::PlanContext;
use crate::path_selection;
use crate::search::SearchResult;
use crate::search::contention_group::ContentionGroup;

/// A candidate is better if it gains this share; less is noise of the evaluation.
const LEAST_GAIN: f64 = 1e-3;

/// After the first start, candidates worse than the best by this share are not simulated again.
const RACE_MARGIN: f64 = 0.03;

/// Nor those that miss the floor by more than this factor.
const RACE_SLOWDOWN: f64 = 1.5;

/// No job may be slower than the slowest under ECMP by more than this factor (the floor).
const ECMP_SLOWDOWN_FACTOR: f64 = 2.0;

/// A floor that is missed by less counts as held: the noise of the evaluation.
const FLOOR_TOLERANCE: f64 = 0.02;

/// Candidates of one region and what each was worth.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionComparison {
    /// Positions in [`Plan::jobs`](crate::Plan::jobs) of the jobs that were decided together.
    pub jobs: Vec<usize>,
    /// What was compared, the adopted one first.
    pub candidates: Vec<CandidateOutcome>,
    /// Mean utilisation under ECMP, over draws of its hash; none if it was not needed.
    pub ecmp_utilization: Option<f64>,
    /// No job may be slower than alone by more than this factor; none if no job came near it.
    pub slowdown_limit: Option<f64>,
}

/// A candidate of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateOutcome {
    /// Where its paths come from.
    pub paths: PathOrigin,
    /// Where the levels of its contention groups come from, each once.
    pub levels: Vec<LevelOrigin>,
    /// Share of the region's GPU worth that computes.
    pub gpu_utilization: f64,
    /// How many times longer than alone an iteration of the worst job takes.
    pub worst_slowdown: f64,
}

/// What was compared for a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanComparison {
    /// Regions with several jobs.
    pub regions: Vec<RegionComparison>,
}

/// What a comparison needs.
#[derive(Clone, Copy)]
pub(crate) struct ComparisonInputs<'a> {
    pub(crate) context: &'a PlanContext<'a>,
    /// Regions to decide; their jobs ascend.
    pub(crate) regions: &'a [Vec<usize>],
    /// The jobs of all of them.
    pub(crate) compared: &'a [usize],
    /// Events of the fluid model for each job.
    pub(crate) events_per_job: u64,
}

/// Puts the best candidate of each region into `decided` and says what was compared.
pub(crate) fn adopt_best(
    inputs: ComparisonInputs<'_>,
    candidates: &[CandidatePaths],
    decided: &mut SearchResult,
) -> PlanComparison {
    let mut comparison = PlanComparison::default();
    let mut contest = RegionContests { inputs, draws: Vec::new() };
    for region in inputs.regions {
        let mut evaluator = GroupEvaluator::new(
            inputs.context.traffic,
            inputs.context.policy,
            region,
            inputs.events_per_job,
        );
        let Some(found) = contest.decide_region(region, candidates, &mut evaluator) else {
            continue;
        };
        for (position, job) in region.iter().enumerate() {
            decided.levels[*job] = found.adopted.levels[position];
            let span = inputs.context.traffic.spans[*job].clone();
            decided.paths[span.clone()].copy_from_slice(&found.paths[span]);
        }
        decided.searched.retain(|jobs| !jobs.iter().all(|job| region.contains(job)));
        let rules = inputs.context;
        let free = region.iter().copied().filter(|job| !rules.bounds_level(*job));
        decided.searched.push(free.collect());
        comparison.regions.push(found.comparison);
    }
    comparison
}

/// A candidate with its value.
#[derive(Clone, Debug, PartialEq)]
struct ValuedCandidate {
    origin: PathOrigin,
    /// By position in the region.
    levels: Vec<u8>,
    level_origins: Vec<LevelOrigin>,
    value: DecisionValue,
}

/// The result of a region.
struct RegionDecision {
    adopted: ValuedCandidate,
    /// By flow of the plan.
    paths: Vec<LinkPath>,
    comparison: RegionComparison,
}

/// The contests of all regions, with the paths drawn for all of them.
struct RegionContests<'a> {
    inputs: ComparisonInputs<'a>,
    /// One level on drawn paths.
    draws: Vec<CandidatePaths>,
}

impl RegionContests<'_> {
    /// The best candidate for a region; none if the budget does not suffice for the first.
    fn decide_region(
        &mut self,
        region: &[usize],
        candidates: &[CandidatePaths],
        evaluator: &mut GroupEvaluator<'_>,
    ) -> Option<RegionDecision> {
        let bound = evaluator.upper_bound() * (1.0 - LEAST_GAIN);
        let total: f64 = evaluator.job_worth().iter().sum();
        let objective = Objective { limit: f64::INFINITY };
        let mut contest = RegionContest { region, evaluator, objective };
        let mut valued: Vec<(ValuedCandidate, &CandidatePaths)> = Vec::new();
        for candidate in candidates {
            let Some(found) = contest.value_candidate(candidate) else { break };
            let is_optimal = found.value.value >= bound;
            valued.push((found, candidate));
            if is_optimal {
                break;
            }
        }
        let is_optimal = valued.last().is_some_and(|(candidate, _)| candidate.value.value >= bound);
        let mut ecmp = None;
        let improved;
        if !is_optimal && !valued.is_empty() {
            self.draw_paths();
            ecmp = contest.expect_ecmp(&self.draws);
            if let Some(expected) = &ecmp {
                contest.objective.limit = ECMP_SLOWDOWN_FACTOR * expected.worst_slowdown;
                improved = self.improve_draw(expected.best_draw);
                // Under the limit that is known now, other levels may be better.
                let all = candidates.iter().chain([&self.draws[expected.best_draw], &improved]);
                let again = all
                    .map_while(|candidate| Some((contest.value_candidate(candidate)?, candidate)));
                let unbounded = std::mem::replace(&mut valued, again.collect());
                self.climb_best(&mut contest, unbounded, &mut valued);
            }
        }
        let (adopted, source) = self.choose_adopted(&contest, &valued)?;
        let comparison = RegionComparison {
            jobs: region.to_vec(),
            candidates: outcomes(&adopted, &valued, total),
            ecmp_utilization: ecmp.as_ref().map(|expected| expected.mean_value / total),
            slowdown_limit: contest.objective.limit.is_finite().then_some(contest.objective.limit),
        };
        Some(RegionDecision { adopted, paths: source.paths.clone(), comparison })
    }

    /// Adds candidates with better levels: from the best one, and from the best without the floor
    /// on each paths, for between both may lie what no ranking has. The plan in force is left as it
    /// is, so that planning again from its own result changes nothing.
    fn climb_best<'c>(
        &self,
        contest: &mut RegionContest<'_, '_>,
        unbounded: Vec<(ValuedCandidate, &'c CandidatePaths)>,
        valued: &mut Vec<(ValuedCandidate, &'c CandidatePaths)>,
    ) {
        let is_new =
            |next: &&(ValuedCandidate, &CandidatePaths)| next.0.origin != PathOrigin::InForce;
        let best = valued.iter().filter(is_new).reduce(|best, next| {
            match contest.objective.is_better(next.0.value, best.0.value, 0.0) {
                true => next,
                false => best,
            }
        });
        let mut starts: Vec<(ValuedCandidate, &CandidatePaths)> =
            best.cloned().into_iter().collect();
        let starving = unbounded.into_iter().filter(|next| is_new(&next));
        starts.extend(starving.filter(|(start, _)| contest.objective.misses_floor(start.value)));
        for (start, paths) in starts {
            let climbed = contest.climb_candidate(self.inputs.context, start, paths);
            valued.push((climbed, paths));
        }
    }

    fn draw_paths(&mut self) {
        let context = self.inputs.context;
        if !self.draws.is_empty() {
            return;
        }
        let highest = context.policy.job_levels().last().copied().unwrap_or(0);
        self.draws = (0..ECMP_DRAWS)
            .map(|draw| CandidatePaths {
                origin: PathOrigin::Hashed(draw),
                paths: hashed_paths(context.traffic, draw),
                levels: vec![(
                    LevelOrigin::Ranked(1),
                    context.permit_levels(vec![highest; context.traffic.jobs.len()]),
                )],
            })
            .collect();
    }

    fn improve_draw(&self, draw: usize) -> CandidatePaths {
        let ComparisonInputs { context, compared, .. } = self.inputs;
        let paths = path_selection::improve_given_paths(
            context.traffic,
            &self.draws[draw].paths,
            context.policy,
        );
        let levels = ranked_levels(context, compared, &paths);
        CandidatePaths { origin: PathOrigin::ImprovedHashed, paths, levels }
    }

    /// The candidate to adopt: the best one, but the plan in force unless the best gains the price
    /// of the flows that it moves.
    fn choose_adopted<'c>(
        &self,
        contest: &RegionContest<'_, '_>,
        valued: &[(ValuedCandidate, &'c CandidatePaths)],
    ) -> Option<(ValuedCandidate, &'c CandidatePaths)> {
        let (first, rest) = valued.split_first()?;
        let in_force = (first.0.origin == PathOrigin::InForce).then_some(&first.1.paths[..]);
        let mut best = first;
        for next in rest {
            let price = in_force.map_or(0.0, |running| {
                contest.moving_price(self.inputs.context, running, &next.1.paths)
            });
            if contest.objective.is_better(next.0.value, best.0.value, price) {
                best = next;
            }
        }
        Some((best.0.clone(), best.1))
    }
}

fn outcomes(
    adopted: &ValuedCandidate,
    valued: &[(ValuedCandidate, &CandidatePaths)],
    total: f64,
) -> Vec<CandidateOutcome> {
    let outcome = |candidate: &ValuedCandidate| CandidateOutcome {
        paths: candidate.origin,
        levels: candidate.level_origins.clone(),
        gpu_utilization: if total > 0.0 { candidate.value.value / total } else { 0.0 },
        worst_slowdown: candidate.value.worst_slowdown,
    };
    let others = valued.iter().map(|(candidate, _)| candidate);
    let others = others.filter(|candidate| *candidate != adopted);
    std::iter::once(adopted).chain(others).map(outcome).collect()
}

/// Position of a level among those that jobs may have.
fn index_of_level(job_levels: &[u8], level: u8) -> u8 {
    let index = job_levels.partition_point(|given| *given < level).min(job_levels.len() - 1);
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// ECMP over draws of its hash.
struct EcmpExpectation {
    mean_value: f64,
    /// Of the slowest job, the mean over draws.
    worst_slowdown: f64,
    best_draw: usize,
}

/// What makes one decision better than another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    /// The largest slowdown that the floor allows.
    limit: f64,
}

impl Objective {
    /// Whether `next` is better than `best` by more than noise and a price: first by the floor,
    /// then by value.
    pub(super) fn is_better(self, next: DecisionValue, best: DecisionValue, price: f64) -> bool {
        let (missed, missed_best) = (self.missed_floor(next), self.missed_floor(best));
        if missed < missed_best {
            return true;
        }
        missed <= missed_best && next.value > best.value * (1.0 + LEAST_GAIN) + price
    }

    fn misses_floor(self, value: DecisionValue) -> bool {
        self.missed_floor(value) > 0
    }

    /// The value below which a candidate cannot become the best from other starts.
    fn race_limit(self, firsts: impl Iterator<Item = DecisionValue>) -> f64 {
        let holding = firsts.filter(|first| first.worst_slowdown <= self.limit);
        holding.map(|first| first.value).fold(0.0, f64::max) * (1.0 - RACE_MARGIN)
    }

    /// Whether a candidate may be the best in the mean over all starts.
    fn stays_in_race(self, first: DecisionValue, least: f64) -> bool {
        first.value >= least && first.worst_slowdown <= self.limit * RACE_SLOWDOWN
    }

    /// By what factor the floor is missed, in steps of the noise; 0 if it is held.
    fn missed_floor(self, value: DecisionValue) -> u32 {
        let excess = value.worst_slowdown / self.limit - 1.0;
        (excess / FLOOR_TOLERANCE).max(0.0).min(f64::from(u32::MAX)) as u32
    }
}

/// The contest of one region.
struct RegionContest<'a, 'e> {
    region: &'a [usize],
    evaluator: &'a mut GroupEvaluator<'e>,
    objective: Objective,
}

impl RegionContest<'_, '_> {
    /// The candidate with the best of its levels in each contention group; none if the budget does
    /// not suffice.
    fn value_candidate(&mut self, candidate: &CandidatePaths) -> Option<ValuedCandidate> {
        let mut valued = ValuedCandidate {
            origin: candidate.origin,
            levels: vec![0; self.region.len()],
            level_origins: Vec::new(),
            value: DecisionValue { value: 0.0, worst_slowdown: 1.0 },
        };
        for group in self.evaluator.contention_groups(&candidate.paths) {
            let (origin, levels, value) = self.best_levels(&group, candidate)?;
            valued.value = valued.value.combine(value);
            for (position, level) in group.members.iter().zip(levels) {
                valued.levels[*position] = level;
            }
            if group.members.len() > 1 && !valued.level_origins.contains(&origin) {
                valued.level_origins.push(origin);
            }
        }
        Some(valued)
    }

    /// The best levels of the candidate for a group: all from one start, then the good ones from
    /// the others.
    fn best_levels(
        &mut self,
        group: &ContentionGroup,
        candidate: &CandidatePaths,
    ) -> Option<(LevelOrigin, Vec<u8>, DecisionValue)> {
        let mut racers = Vec::new();
        for (origin, levels) in &candidate.levels {
            let members = group.members.iter();
            let levels: Vec<u8> = members.map(|position| levels[self.region[*position]]).collect();
            let first = self.evaluator.evaluate_levels(group, &levels, 0)?;
            racers.push((*origin, levels, first));
        }
        let least = self.objective.race_limit(racers.iter().map(|racer| racer.2));
        let stays = |(origin, _, first): &(LevelOrigin, Vec<u8>, DecisionValue)| {
            matches!(origin, LevelOrigin::InForce | LevelOrigin::Ranked(1))
                || self.objective.stays_in_race(*first, least)
        };
        // Of candidates that all miss the floor, all stay.
        if racers.iter().any(stays) {
            racers.retain(stays);
        }
        let mut chosen: Option<(LevelOrigin, Vec<u8>, DecisionValue)> = None;
        for (origin, levels, _) in racers {
            let value = self.evaluator.mean_value(group, &levels)?;
            if chosen.as_ref().is_none_or(|best| self.objective.is_better(value, best.2, 0.0)) {
                chosen = Some((origin, levels, value));
            }
        }
        chosen
    }

    /// The candidate with better levels in each contention group.
    fn climb_candidate(
        &mut self,
        context: &PlanContext<'_>,
        start: ValuedCandidate,
        paths: &CandidatePaths,
    ) -> ValuedCandidate {
        let job_levels = context.policy.job_levels();
        let mut climbed = ValuedCandidate {
            level_origins: vec![LevelOrigin::Climbed],
            value: DecisionValue { value: 0.0, worst_slowdown: 1.0 },
            ..start
        };
        for group in self.evaluator.contention_groups(&paths.paths) {
            let members = group.members.iter();
            let jobs = members.clone().map(|position| context.traffic.jobs[self.region[*position]]);
            let allowed: Vec<_> =
                jobs.map(|job| context.policy.allowed_levels(job, &job_levels)).collect();
            let levels: Vec<u8> = members
                .map(|position| index_of_level(&job_levels, climbed.levels[*position]))
                .collect();
            let Some(value) = self.evaluator.mean_value(&group, &levels) else { break };
            let from = ValuedLevels { levels, value };
            let found = climb_levels(self.evaluator, self.objective, &group, &allowed, from);
            climbed.value = climbed.value.combine(found.value);
            for (position, index) in group.members.iter().zip(found.levels) {
                climbed.levels[*position] = job_levels[usize::from(index)];
            }
        }
        climbed
    }

    /// What ECMP would give, each draw from another start.
    fn expect_ecmp(&mut self, draws: &[CandidatePaths]) -> Option<EcmpExpectation> {
        let mut expected = EcmpExpectation { mean_value: 0.0, worst_slowdown: 0.0, best_draw: 0 };
        let (mut best, count) = (f64::NEG_INFINITY, draws.len() as f64);
        for (number, draw) in draws.iter().enumerate() {
            let mut value = DecisionValue { value: 0.0, worst_slowdown: 1.0 };
            for group in self.evaluator.contention_groups(&draw.paths) {
                let members = group.members.iter();
                let levels: Vec<u8> =
                    members.map(|position| draw.levels[0].1[self.region[*position]]).collect();
                value = value.combine(self.evaluator.evaluate_levels(
                    &group,
                    &levels,
                    number as u32,
                )?);
            }
            expected.mean_value += value.value / count;
            expected.worst_slowdown += value.worst_slowdown / count;
            if value.value > best {
                (best, expected.best_draw) = (value.value, number);
            }
        }
        Some(expected)
    }

    /// What moving from the running paths to others must gain: a share of the worth of the jobs
    /// whose flows move.
    fn moving_price(
        &self,
        context: &PlanContext<'_>,
        running: &[LinkPath],
        paths: &[LinkPath],
    ) -> f64 {
        let moved = self.region.iter().zip(self.evaluator.job_worth()).filter(|(job, _)| {
            let span = context.traffic.spans[**job].clone();
            context.previous.job_level(**job).is_some() && running[span.clone()] != paths[span]
        });
        context.policy.move_gain_min * moved.map(|(_, worth)| worth).sum::<f64>()
    }
}
