//! What a position is worth in the fluid model, within a budget of events.
//!
//! Contests are remembered by what they come to, so that trying again what is the same costs
//! nothing. Starts are spread evenly and fixed: the same question has the same answer.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::contention_group::{ContentionGroup, RoutedJob, contention_groups};
use super::group_run::{GroupRun, MeasureWindow};
use super::hill_climb::ValuedPosition;
use super::search_space::{SearchPosition, SearchSpace};

/// How long contests are played.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvaluationPrecision {
    /// Starts over which the mean is taken.
    pub(super) starts: u32,
    /// Iterations of the slowest job before anything counts.
    pub(super) warm_up_iterations: f64,
    /// Iterations of the slowest job that count.
    pub(super) counted_iterations: f64,
}

/// Multiples of the golden ratio, without whole parts, are spread evenly over 0..1.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// A judge of positions.
#[derive(Debug)]
pub(super) struct PositionEvaluator<'a> {
    space: &'a SearchSpace<'a>,
    precision: EvaluationPrecision,
    known_values: BTreeMap<(Vec<u32>, Vec<Ordering>), f64>,
    /// Events that may still be played.
    events_left: u64,
}

impl<'a> PositionEvaluator<'a> {
    /// An arena that may play nothing yet.
    pub(super) fn new(setting: &'a SearchSpace<'a>, precision: EvaluationPrecision) -> Self {
        Self { space: setting, precision, known_values: BTreeMap::new(), events_left: 0 }
    }

    /// Lets `events` more be played.
    pub(super) fn grant_events(&mut self, events: u64) {
        self.events_left += events;
    }

    /// Worth of the GPUs that compute, on average; none if the budget does not suffice.
    pub(super) fn position_value(&mut self, position: &SearchPosition) -> Option<f64> {
        let contests = self.contention_groups(&position.options);
        let values = contests.iter().map(|contest| {
            let levels = contest.members.iter();
            let levels: Vec<u8> = levels.map(|player| position.levels[*player]).collect();
            self.group_value(contest, &levels)
        });
        values.sum()
    }

    /// The position with its value; none if the budget does not suffice.
    pub(super) fn evaluate_position(
        &mut self,
        position: &SearchPosition,
    ) -> Option<ValuedPosition> {
        let value = self.position_value(position)?;
        Some(ValuedPosition { position: position.clone(), value })
    }

    /// The contests that players have with these ways.
    pub(super) fn contention_groups(&self, options: &[usize]) -> Vec<ContentionGroup> {
        let setting = self.space;
        let players = setting.jobs.iter().enumerate();
        let parties: Vec<RoutedJob<'_>> = players
            .map(|(player, of)| RoutedJob {
                compute_seconds: of.compute_seconds,
                overlap_from: of.overlap_from,
                flows: of
                    .flows
                    .iter()
                    .enumerate()
                    .filter_map(|(at, stream)| {
                        let path = setting.path_of(player, at, options)?;
                        Some((stream.bytes, path))
                    })
                    .collect(),
            })
            .collect();
        contention_groups(&parties, |link| setting.link_capacity(link))
    }

    /// What the parties of a contest add with these `levels`; none if the budget does not suffice.
    pub(super) fn group_value(&mut self, contest: &ContentionGroup, levels: &[u8]) -> Option<f64> {
        if let ([player], [seconds]) = (&contest.members[..], &contest.alone_seconds()[..]) {
            let of = &self.space.jobs[*player];
            return Some(of.worth * compute_share(of.compute_seconds, *seconds));
        }
        let key = (contest.signature().to_vec(), contest.level_relations(levels));
        if let Some(known) = self.known_values.get(&key) {
            return Some(*known);
        }
        let value = self.simulate_group(contest, levels)?;
        self.known_values.insert(key, value);
        Some(value)
    }

    fn simulate_group(&mut self, contest: &ContentionGroup, levels: &[u8]) -> Option<f64> {
        let alone = contest.alone_seconds();
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let EvaluationPrecision { starts, warm_up_iterations: warm, counted_iterations: counted } =
            self.precision;
        let window = MeasureWindow { from: warm * slowest, until: (warm + counted) * slowest };
        let mut sum = 0.0;
        for draw in 1..=starts {
            let start = |(player, seconds): (&usize, &f64)| {
                seconds * (GOLDEN * (*player as f64 + 1.0) * f64::from(draw)).fract()
            };
            let starts: Vec<f64> = contest.members.iter().zip(&alone).map(start).collect();
            // What the fluid model refuses is not judged: the caller keeps what it has.
            let mut trial = GroupRun::new(contest, &starts).ok()?;
            let busy = trial.busy_shares(levels, window, self.events_left).ok()??;
            self.events_left -= trial.event_count();
            let worth = contest.members.iter().map(|player| self.space.jobs[*player].worth);
            sum += busy.iter().zip(worth).map(|(busy, worth)| busy * worth).sum::<f64>();
        }
        Some(sum / f64::from(starts))
    }
}

/// Part of an iteration that is computation.
fn compute_share(compute: f64, iteration: f64) -> f64 {
    if iteration > 0.0 { compute / iteration } else { 1.0 }
}
