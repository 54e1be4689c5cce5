//! The value of a position in the fluid model, within a budget of events.
//!
//! Values of contention groups are cached by signature and order of levels, so evaluating an equal
//! group again costs nothing. Starts are spread evenly and fixed: equal input has equal values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::contention_group::{ContentionGroup, LinkService, RoutedJob, contention_groups};
use super::group_run::{GroupRun, MeasureWindow, compute_share, spread_starts};
use super::hill_climb::ValuedPosition;
use super::search_space::{SearchPosition, SearchSpace};

/// How long contention groups are simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvaluationPrecision {
    /// Starts over which the mean is taken.
    pub(super) starts: u32,
    /// Iterations of the slowest job before anything counts.
    pub(super) warm_up_iterations: f64,
    /// Iterations of the slowest job that count.
    pub(super) counted_iterations: f64,
}

/// Evaluates positions.
#[derive(Debug)]
pub(super) struct PositionEvaluator<'a> {
    space: &'a SearchSpace<'a>,
    precision: EvaluationPrecision,
    known_values: BTreeMap<(Vec<u32>, Vec<Ordering>), f64>,
    /// Events that may still be simulated.
    events_left: u64,
}

impl<'a> PositionEvaluator<'a> {
    /// An evaluator without a budget yet.
    pub(super) fn new(space: &'a SearchSpace<'a>, precision: EvaluationPrecision) -> Self {
        Self { space, precision, known_values: BTreeMap::new(), events_left: 0 }
    }

    /// Adds `events` to the budget.
    pub(super) fn grant_events(&mut self, events: u64) {
        self.events_left += events;
    }

    /// Mean worth of the GPUs that compute; none if the budget does not suffice.
    pub(super) fn position_value(&mut self, position: &SearchPosition) -> Option<f64> {
        let groups = self.contention_groups(&position.options);
        let values = groups.iter().map(|group| {
            let levels: Vec<u8> = group.members.iter().map(|job| position.levels[*job]).collect();
            self.group_value(group, &levels)
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

    /// The contention groups of the jobs with these paths.
    pub(super) fn contention_groups(&self, options: &[usize]) -> Vec<ContentionGroup> {
        let space = self.space;
        let jobs = space.jobs.iter().enumerate();
        let jobs: Vec<RoutedJob<'_>> = jobs
            .map(|(job, of)| RoutedJob {
                compute_seconds: of.compute_seconds,
                overlap_from: of.overlap_from,
                flows: of
                    .flows
                    .iter()
                    .enumerate()
                    .filter_map(|(at, flow)| {
                        let path = space.path_of(job, at, options)?;
                        Some((flow.bytes, path.into()))
                    })
                    .collect(),
            })
            .collect();
        contention_groups(&jobs, |link| LinkService::of_link(space.fabric, link))
    }

    /// Contribution of a group with these `levels`; none if the budget does not suffice.
    pub(super) fn group_value(&mut self, group: &ContentionGroup, levels: &[u8]) -> Option<f64> {
        if let [job] = group.members[..] {
            let of = &self.space.jobs[job];
            let seconds = group.alone_seconds()[0];
            return Some(of.worth * compute_share(of.compute_seconds, seconds));
        }
        let key = (group.signature().to_vec(), group.level_relations(levels));
        if let Some(known) = self.known_values.get(&key) {
            return Some(*known);
        }
        let value = self.simulate_group(group, levels)?;
        self.known_values.insert(key, value);
        Some(value)
    }

    fn simulate_group(&mut self, group: &ContentionGroup, levels: &[u8]) -> Option<f64> {
        let alone = group.alone_seconds();
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let EvaluationPrecision { starts, warm_up_iterations: warm, counted_iterations: counted } =
            self.precision;
        let window = MeasureWindow { from: warm * slowest, until: (warm + counted) * slowest };
        let mut sum = 0.0;
        for sample in 1..=starts {
            let starts = spread_starts(group.members.iter().copied().zip(&alone), sample);
            // What the fluid model rejects has no value: the caller keeps what it has.
            let mut run = GroupRun::new(group, &starts).ok()?;
            let busy = run.busy_shares(levels, window, self.events_left).ok()??;
            self.events_left = self.events_left.saturating_sub(run.event_cost());
            let worth = group.members.iter().map(|job| self.space.jobs[*job].worth);
            sum += busy.iter().zip(worth).map(|(busy, worth)| busy * worth).sum::<f64>();
        }
        Some(sum / f64::from(starts))
    }
}
