//! When jobs begin their iterations: the third decision, beside paths and levels.
//!
//! Jobs of nearly equal periods whose communication fills their tightest link keep, on one level, the
//! phases that they began with, and under strict levels the lower one misses its slot at every
//! iteration. If each begins in a slot of its own, both run as fast as the link allows. As in CASSINI
//! (Rajasekaran et al., NSDI 2024), the iterations of the jobs of a contention group are turned around
//! a circle until they ask least of links beyond their capacity. Unlike there, all links of the group
//! count at once, so that there are no loops to leave out, levels may go with the shifts, and the
//! judge has the last word: against the same group without shifts, over the length of a forecast.
//!
//! A group has slots only if all of its jobs wait when they are asked to (`Job::can_wait`): one that
//! does not has no place on the circle.

use std::collections::BTreeSet;

use topology::LinkPath;

use super::choice::{Alternative, AlternativesByRegion, CandidateOutcome, PlanComparison};
use super::contention_group::ContentionGroup;
use super::decisions::Decisions;
use super::forecast::{ShiftedRuns, forecast_iterations};
use super::judge::{DecisionValue, Judge};
use super::objective::PlanObjective;
use super::region_evaluation::moving_price;
use super::{LevelOrigin, PathOrigin};
use crate::input::Job;
use crate::path_selection;
use crate::plan::{MOST_CORRECTED, StartShift};
use crate::plan_context::{PlanContext, PlanDepth, PlanRegion};
use crate::priority::timeline::PeriodicOccupation;

/// Periods differ by this share at most.
const PERIOD_SPREAD: f64 = 0.2;

/// Load of the busiest link, over the longest period, for which shifts are tried: below, strict
/// levels separate jobs by themselves; above, nothing is left to separate.
const LOADS: std::ops::RangeInclusive<f64> = 0.9..=1.5;

/// Shares of the period that slots are longer than the jobs need: a job that is late catches up.
const ROOM: [f64; 4] = [0.0, 0.003, 0.01, 0.03];

/// What slots may cost, as a share of what the jobs compute without them in the long run: jobs lose
/// more until they have found phases that last.
const SETTLING_COST: f64 = 0.01;

/// Angles of a circle: one every 5 degrees, as in CASSINI.
const ANGLES: usize = 72;

/// Angles in one of these, in which rotations are refined: where slots touch, a job that is late by an
/// angle meets the next one.
const FINER: usize = 10;

/// Sweeps over the jobs of a circle; each lowers the excess, so few are needed.
const MAX_SWEEPS: usize = 8;

/// Differences of excess below this are rounding.
const NOISE: f64 = 1e-9;

/// Shifts are simulated from all starts if they are worth at least this share of the best so far from
/// the first.
const PROMISING_SHARE: f64 = 0.98;

/// Jobs of a group of which all orders are tried: each is simulated as long as a forecast.
const MAX_ORDERED: usize = 3;

/// Puts start shifts, and the levels that go with them, into `decided` where the judge finds them
/// better, in all `regions`: on the paths decided, or on those of an alternative that was not as good
/// without slots.
pub(crate) fn shift_starts(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    decided: &mut Decisions,
    (comparison, alternatives): (&mut PlanComparison, &AlternativesByRegion),
) {
    for region in regions {
        // A region in which the model rejects a job was not compared.
        let Some(others) = alternatives.get(&region.digest) else { continue };
        let judge = Judge::new(context.traffic, context.policy, &region.jobs);
        let mut trial = RegionTrial { context, region, judge, objective: others.objective };
        let Some(found) = trial.find_best(decided, &others.candidates) else { continue };
        *decided = found.decisions;
        let compared = comparison.regions.iter_mut().find(|of| of.digest == region.digest);
        let Some(compared) = compared else { continue };
        let mut origin = compared.candidates.first().map_or(PathOrigin::Selected, |of| of.paths);
        if let Some(other) = found.alternative {
            origin = other.candidate.origin();
            compared.wait_seconds.clone_from(&other.wait_seconds);
        }
        compared.forecasts = forecast_iterations(
            context.traffic,
            &region.jobs,
            &decided.paths,
            (&decided.levels, &decided.shifts),
        );
        let seconds: Vec<f64> = compared.forecasts.iter().map(|of| of.seconds).collect();
        let value = trial.judge.value_of_seconds(&seconds);
        compared.candidates.insert(
            0,
            CandidateOutcome {
                paths: origin,
                levels: vec![LevelOrigin::Shifted],
                gpu_utilization: value.value / trial.judge.job_worth().iter().sum::<f64>(),
                worst_slowdown: value.worst_slowdown,
                worst_wait_seconds: value.worst_wait,
            },
        );
    }
}

/// Decisions with slots in a region, and what they are worth in the long run.
struct SlottedDecisions<'o> {
    decisions: Decisions,
    value: DecisionValue,
    /// The one that has the paths; none for those decided without slots.
    alternative: Option<&'o Alternative>,
}

/// One region in which jobs might begin in slots of their own.
struct RegionTrial<'a> {
    context: &'a PlanContext<'a>,
    region: &'a PlanRegion,
    judge: Judge<'a>,
    objective: PlanObjective,
}

impl RegionTrial<'_> {
    /// The best decisions with slots, if they are better than `decided` without.
    fn find_best<'o>(
        &mut self,
        decided: &Decisions,
        others: &'o [Alternative],
    ) -> Option<SlottedDecisions<'o>> {
        let mut best = self.find_slots(decided, None);
        let mut without_slots = None;
        for other in others {
            let mut with = decided.clone();
            let levels = other.candidate.levels.iter().copied();
            with.adopt(self.context.traffic, &self.region.jobs, levels, other.candidate.paths());
            let Some(next) = self.find_slots(&with, Some(other)) else { continue };
            let so_far = match &best {
                Some(best) => best.value,
                None => *without_slots.get_or_insert_with(|| self.value_without_slots(decided)),
            };
            let price = self.moving_price(&decided.paths, &next.decisions.paths);
            if self.objective.is_better(next.value, so_far, price) {
                best = Some(next);
            }
        }
        best.map(|found| self.keep_running(found))
    }

    /// The running paths where they are as good with slots as those of an alternative: paths that
    /// differ by names alone.
    fn keep_running<'o>(&mut self, found: SlottedDecisions<'o>) -> SlottedDecisions<'o> {
        let PlanContext { traffic, previous, .. } = *self.context;
        if found.alternative.is_none() {
            return found;
        }
        let running = path_selection::usable_previous_paths(traffic, previous).into_iter();
        let running = running.zip(&found.decisions.paths);
        let paths: Vec<LinkPath> = running.map(|(had, new)| had.unwrap_or(*new)).collect();
        let mut with = found.decisions.clone();
        let levels: Vec<u8> = self.region.jobs.iter().map(|job| with.levels[*job]).collect();
        with.adopt(traffic, &self.region.jobs, levels, &paths);
        if with.paths == found.decisions.paths {
            return found;
        }
        let kept = self.find_slots(&with, found.alternative);
        kept.filter(|kept| !self.objective.is_better(found.value, kept.value, 0.0)).unwrap_or(found)
    }

    /// `decided` with slots in all groups that gain by them; none if no group does.
    fn find_slots<'o>(
        &mut self,
        decided: &Decisions,
        alternative: Option<&'o Alternative>,
    ) -> Option<SlottedDecisions<'o>> {
        let mut decisions = decided.clone();
        let (mut slotted, mut without) = (Vec::new(), Vec::new());
        let groups = self.judge.contention_groups(&decided.paths);
        for group in &*groups {
            // A job that does not wait takes the link whenever it likes, and spoils the slots of all.
            let waits =
                |member: &usize| self.context.traffic.jobs[self.region.jobs[*member]].can_wait;
            let can_wait = group.members.iter().all(waits);
            let proposals = if can_wait { propose_slots(group) } else { Vec::new() };
            if proposals.is_empty() {
                without.push(group);
                continue;
            }
            let orders = self.orders(group);
            let trial = ShiftTrial::new(self, group);
            let Some((levels, shifts, value)) = trial.find_best(decided, proposals, orders) else {
                without.push(group);
                continue;
            };
            for ((job, level), shift) in trial.jobs.iter().zip(levels).zip(shifts) {
                decisions.levels[*job] = level;
                decisions.shifts[*job] = Some(shift);
            }
            slotted.push(value);
        }
        if slotted.is_empty() {
            return None;
        }
        let without = without.iter().map(|group| ShiftTrial::new(self, group).value(decided));
        let value = slotted.into_iter().chain(without);
        let value = value.fold(DecisionValue::NOTHING, DecisionValue::combine);
        Some(SlottedDecisions { decisions, value, alternative })
    }

    /// The orders of a small group under which no flow waits too long. With phases that last, an order
    /// may be good that is not from other starts.
    fn orders(&mut self, group: &ContentionGroup) -> Vec<Vec<u8>> {
        let PlanContext { policy, traffic, .. } = *self.context;
        let job_levels = policy.job_levels();
        let jobs = group.members.iter().map(|member| traffic.jobs[self.region.jobs[*member]]);
        let jobs: Vec<&Job> = jobs.collect();
        let count = jobs.len();
        let is_small = (2..=MAX_ORDERED).contains(&count) && count <= job_levels.len();
        if !is_small {
            return Vec::new();
        }
        let all = permutations(&job_levels[job_levels.len() - count..]).into_iter();
        let permitted = all.map(|levels| {
            let levels = jobs.iter().zip(levels);
            levels.map(|(job, level)| policy.nearest_level(job, level, &job_levels)).collect()
        });
        let permitted: BTreeSet<Vec<u8>> = permitted.collect();
        let is_held = |levels: &Vec<u8>| {
            let value = self.judge.mean_value(group, levels);
            value.is_some_and(|value| !self.objective.misses_service_bound(value))
        };
        permitted.into_iter().filter(is_held).collect()
    }

    fn value_without_slots(&mut self, decided: &Decisions) -> DecisionValue {
        let groups = self.judge.contention_groups(&decided.paths);
        let values = groups.iter().map(|group| ShiftTrial::new(self, group).value(decided));
        values.fold(DecisionValue::NOTHING, DecisionValue::combine)
    }

    /// A settled plan is that from nothing, so nothing holds it back.
    fn moving_price(&self, running: &[LinkPath], paths: &[LinkPath]) -> f64 {
        if self.context.depth == PlanDepth::Settled {
            return 0.0;
        }
        moving_price(self.context, self.region, self.judge.job_worth(), [running, paths])
    }
}

/// One group whose jobs might begin in slots of their own.
struct ShiftTrial<'a> {
    context: &'a PlanContext<'a>,
    judge: &'a Judge<'a>,
    objective: PlanObjective,
    group: &'a ContentionGroup,
    /// Its members, as jobs of the plan.
    jobs: Vec<usize>,
}

impl<'a> ShiftTrial<'a> {
    fn new(region: &'a RegionTrial<'_>, group: &'a ContentionGroup) -> Self {
        let jobs = group.members.iter().map(|member| region.region.jobs[*member]).collect();
        Self {
            context: region.context,
            judge: &region.judge,
            objective: region.objective,
            group,
            jobs,
        }
    }

    /// What is decided is worth in the long run without slots.
    fn value(&self, decided: &Decisions) -> DecisionValue {
        let shares = self.runs().busy_shares(&self.levels(decided), &[]);
        self.judge.value_of_shares(&self.group.members, &shares)
    }

    fn levels(&self, decided: &Decisions) -> Vec<u8> {
        self.jobs.iter().map(|job| decided.levels[*job]).collect()
    }

    /// The best of the proposed slots and of phases, with the levels decided, one, or those of `orders`, and what they are worth, if that is
    /// as good as what is decided: the slots spare jobs what they lose until they have found phases
    /// that last.
    fn find_best(
        &self,
        decided: &Decisions,
        mut proposals: Vec<Vec<StartShift>>,
        orders: Vec<Vec<u8>>,
    ) -> Option<(Vec<u8>, Vec<StartShift>, DecisionValue)> {
        // Phases are tried only where slots are possible, as each trial costs runs of the length of a
        // forecast.
        proposals.extend(self.propose_phases());
        let had = self.levels(decided);
        let objective = self.objective;
        let members = &self.group.members;
        let mut tried = vec![had.clone(), self.one_level(&had, decided)];
        // A group that is on one level already is tried once.
        tried.dedup();
        tried.extend(orders.into_iter().filter(|levels| *levels != had));
        let alone: Vec<Vec<f64>> =
            tried.iter().map(|levels| self.runs().busy_shares(levels, &[])).collect();
        let unshifted = self.judge.value_of_shares(members, &alone[0]);
        let mut best: Option<(Vec<u8>, Vec<StartShift>, DecisionValue)> = None;
        for shifts in proposals {
            let given: Vec<Option<StartShift>> = shifts.iter().copied().map(Some).collect();
            for (levels, alone) in tried.iter().zip(&alone) {
                let from_one = self.runs().shares_from(1, levels, &given);
                let from_one = self.judge.value_of_shares(members, &from_one);
                let so_far = best.as_ref().map_or(unshifted, |(_, _, most)| *most);
                let is_worth_less = from_one.value < so_far.value * PROMISING_SHARE;
                if is_worth_less && !objective.misses_floor(so_far) {
                    continue;
                }
                let shifted = self.runs().busy_shares(levels, &given);
                // Nobody waits to be slower.
                let mut jobs = shifted.iter().zip(alone);
                if !jobs.all(|(with, without)| *with >= without * (1.0 - SETTLING_COST)) {
                    continue;
                }
                let value = self.judge.value_of_shares(members, &shifted);
                let is_better = match &best {
                    // The first shift may cost a little, because phases that nobody holds are lost
                    // again; a second one has to be better.
                    None => !objective.is_better(unshifted, value, unshifted.value * SETTLING_COST),
                    Some(_) => objective.is_better(value, so_far, 0.0),
                };
                if is_better {
                    best = Some((levels.clone(), shifts.clone(), value));
                }
            }
        }
        best
    }

    /// Phases without slots: under strict levels, good ones last by themselves. They are of one
    /// period, since jobs find them by themselves on one clock.
    fn propose_phases(&self) -> Vec<Vec<StartShift>> {
        let period_seconds = self.group.alone_seconds().into_iter().fold(0.0, f64::max);
        let of_job = |seconds: f64| StartShift { seconds, period_seconds, most_wait_seconds: 0.0 };
        let starts = self.runs();
        let starts = starts.all_spread_starts();
        starts.map(|starts| starts.into_iter().map(of_job).collect()).collect()
    }

    fn runs(&self) -> ShiftedRuns<'_> {
        ShiftedRuns { traffic: self.context.traffic, group: self.group, jobs: &self.jobs }
    }

    /// One level for all of them, as far as policy permits it.
    fn one_level(&self, had: &[u8], decided: &Decisions) -> Vec<u8> {
        let highest = had.iter().copied().max().unwrap_or(0);
        let mut all = decided.levels.clone();
        self.jobs.iter().for_each(|job| all[*job] = highest);
        let permitted = self.context.permit_levels(all);
        self.jobs.iter().map(|job| permitted[*job]).collect()
    }
}

/// All orders of `items`.
fn permutations(items: &[u8]) -> Vec<Vec<u8>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let begun_with = |place: usize| {
        let rest = [&items[..place], &items[place + 1..]].concat();
        permutations(&rest).into_iter().map(move |tail| [&items[place..=place], &tail].concat())
    };
    (0..items.len()).flat_map(begun_with).collect()
}

/// What a job asks of the links of its group in an iteration alone.
struct JobPattern {
    /// Seconds from the begin of an iteration to that of its communication.
    from: f64,
    /// Seconds of communication.
    lasts: f64,
    /// Links, and the share of each that it needs meanwhile.
    shares: Vec<(usize, f64)>,
}

/// Slots for the members of a group, with more and more room; none if their periods or the load do
/// not ask for them.
fn propose_slots(group: &ContentionGroup) -> Vec<Vec<StartShift>> {
    let alone = group.alone_seconds();
    let (shortest, longest) =
        alone.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), seconds| {
            (least.min(*seconds), most.max(*seconds))
        });
    if alone.len() < 2 || longest > shortest * (1.0 + PERIOD_SPREAD) {
        return Vec::new();
    }
    let mut seconds = vec![0.0; group.links().len()];
    let patterns: Vec<JobPattern> =
        group.fluid_jobs().iter().map(|job| JobPattern::new(job, group, &mut seconds)).collect();
    let busiest = seconds.iter().copied().fold(0.0, f64::max);
    if !LOADS.contains(&(busiest / longest)) {
        return Vec::new();
    }
    let with_room = |room: &f64| {
        let period = longest.max(busiest) * (1.0 + room);
        let circle = |angles: usize| Circle::new(period, &patterns, (seconds.len(), angles));
        let mut rotations = circle(ANGLES).find_rotations();
        // Coarsely around the whole circle, and then finely around what was found: a fine search of
        // all would cost ten times as much.
        rotations.iter_mut().for_each(|rotation| *rotation *= FINER);
        let rotations = circle(FINER * ANGLES).refine_rotations(rotations, FINER);
        let shift = |(rotation, alone): (usize, &f64)| StartShift {
            seconds: rotation as f64 / (FINER * ANGLES) as f64 * period,
            period_seconds: period,
            most_wait_seconds: period - alone + MOST_CORRECTED * period,
        };
        rotations.into_iter().zip(&alone).map(shift).collect()
    };
    ROOM.iter().map(with_room).collect()
}

impl JobPattern {
    /// The pattern of a job; `seconds` of each link grow by what it needs of it.
    fn new(job: &fluid::FluidJob, group: &ContentionGroup, seconds: &mut [f64]) -> Self {
        let mut own = std::collections::BTreeMap::new();
        for flow in &job.flows {
            for link in &flow.path {
                let link = *link as usize;
                *own.entry(link).or_insert(0.0) += flow.bytes / group.links()[link].capacity;
            }
        }
        own.iter().for_each(|(link, needs)| seconds[*link] += needs);
        let lasts = own.values().copied().fold(0.0, f64::max);
        let starts = job.flows.iter().map(|flow| job.overlap_of(flow));
        let first = starts.reduce(f64::min).unwrap_or(job.overlap_from);
        let shares = own.into_iter().filter(|_| lasts > 0.0);
        let shares = shares.map(|(link, needs)| (link, needs / lasts)).collect();
        Self { from: first * job.compute_seconds, lasts, shares }
    }
}

/// The jobs of a group around a circle: what each asks of each link at every angle.
struct Circle<'a> {
    patterns: &'a [JobPattern],
    /// By job and angle, the share of the angle in which it communicates.
    busy: Vec<Vec<f64>>,
    /// By link and angle, what is asked.
    asked: Vec<Vec<f64>>,
    angles: usize,
}

impl<'a> Circle<'a> {
    fn new(period: f64, patterns: &'a [JobPattern], (links, angles): (usize, usize)) -> Self {
        let arc = period / angles as f64;
        let busy = patterns.iter().map(|pattern| {
            let (first, length) = (pattern.from, pattern.lasts.min(period));
            let busy = PeriodicOccupation { first, period, length };
            let share = |angle: usize| {
                // In the second round, as the first begins with what the one before it would have sent.
                let from = period + angle as f64 * arc;
                (busy.busy_until(from + arc) - busy.busy_until(from)) / arc
            };
            (0..angles).map(share).collect()
        });
        let asked = vec![vec![0.0; angles]; links];
        Self { patterns, busy: busy.collect(), asked, angles }
    }

    /// The rotations that ask least of links beyond their capacity. The first job stays; the others
    /// follow, each where it is best with those before it, and then with all, until none moves.
    fn find_rotations(mut self) -> Vec<usize> {
        let mut rotations = vec![0; self.patterns.len()];
        for (job, rotation) in rotations.iter_mut().enumerate() {
            // Only differences count, so the first job stays where it is.
            if job > 0 {
                *rotation = self.best_rotation(job, 0..self.angles);
            }
            self.add_demand(job, *rotation, 1.0);
        }
        self.settle(&mut rotations, self.angles);
        rotations
    }

    /// The best rotations at most so far from these.
    fn refine_rotations(mut self, mut rotations: Vec<usize>, most: usize) -> Vec<usize> {
        for (job, rotation) in rotations.iter().enumerate() {
            self.add_demand(job, *rotation, 1.0);
        }
        self.settle(&mut rotations, 2 * most + 1);
        rotations
    }

    /// Moves jobs, each within so many angles around where it is, until none gains by it.
    fn settle(&mut self, rotations: &mut [usize], width: usize) {
        for _ in 0..MAX_SWEEPS {
            let before = rotations.to_vec();
            for (job, rotation) in rotations.iter_mut().enumerate().skip(1) {
                self.add_demand(job, *rotation, -1.0);
                let from = *rotation + self.angles - (width / 2).min(self.angles);
                *rotation = self.best_rotation(job, from..from + width);
                self.add_demand(job, *rotation, 1.0);
            }
            if rotations == before {
                break;
            }
        }
    }

    /// Where among these rotations a job adds the least excess: the middle of the longest run of
    /// equals, where it has most room on both sides.
    fn best_rotation(&self, job: usize, among: std::ops::Range<usize>) -> usize {
        let excess = |rotation: usize| -> f64 {
            let of_link = |(link, share): &(usize, f64)| -> f64 {
                let asked = self.asked[*link].iter().enumerate();
                asked
                    .map(|(angle, asked)| {
                        (asked + share * self.busy_at(job, rotation, angle) - 1.0).max(0.0)
                    })
                    .sum()
            };
            self.patterns[job].shares.iter().map(of_link).sum()
        };
        let worth: Vec<f64> = among.clone().map(excess).collect();
        let least = worth.iter().copied().fold(f64::INFINITY, f64::min);
        let is_best = |place: usize| worth[place % worth.len()] <= least + NOISE;
        // Around the whole circle, a run may go on at its beginning.
        let is_whole = worth.len() == self.angles;
        let begin = (0..worth.len()).find(|place| !is_best(*place)).filter(|_| is_whole);
        let (mut longest, mut run) = ((0, 0), 0);
        for place in begin.unwrap_or(0)..begin.unwrap_or(0) + worth.len() {
            run = if is_best(place) { run + 1 } else { 0 };
            if run > longest.0 {
                // The middle of the longest run of best places has most room on both sides.
                longest = (run, place - (run - 1) / 2);
            }
        }
        (among.start + longest.1 % worth.len()) % self.angles
    }

    fn busy_at(&self, job: usize, rotation: usize, angle: usize) -> f64 {
        self.busy[job][(angle + 2 * self.angles - rotation % self.angles) % self.angles]
    }

    fn add_demand(&mut self, job: usize, rotation: usize, sign: f64) {
        for (link, share) in &self.patterns[job].shares {
            for angle in 0..self.angles {
                let more = sign * share * self.busy_at(job, rotation, angle);
                self.asked[*link][angle] += more;
            }
        }
    }
}
