//! What a position is worth in the fluid model, within a budget of events.
//!
//! Contests are remembered by what they come to, so that trying again what is the same costs
//! nothing. Starts are spread evenly and fixed: the same question has the same answer.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::climb::Valued;
use super::contest::{Contest, Party, contests};
use super::setting::{Position, Setting};
use super::trial::{Trial, Window};

/// How long contests are played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Precision {
    /// Starts over which the mean is taken.
    pub(super) starts: u32,
    /// Iterations of the slowest job before anything counts.
    pub(super) warm: f64,
    /// Iterations of the slowest job that count.
    pub(super) counted: f64,
}

/// Multiples of the golden ratio, without whole parts, are spread evenly over 0..1.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// A judge of positions.
#[derive(Debug)]
pub(super) struct Arena<'a> {
    setting: &'a Setting<'a>,
    precision: Precision,
    known: BTreeMap<(Vec<u32>, Vec<Ordering>), f64>,
    /// Events that may still be played.
    left: u64,
}

impl<'a> Arena<'a> {
    /// An arena that may play nothing yet.
    pub(super) fn new(setting: &'a Setting<'a>, precision: Precision) -> Self {
        Self {
            setting,
            precision,
            known: BTreeMap::new(),
            left: 0,
        }
    }

    /// Lets `events` more be played.
    pub(super) fn grant(&mut self, events: u64) {
        self.left += events;
    }

    /// Worth of the GPUs that compute, on average; none if the budget does not suffice.
    pub(super) fn value(&mut self, position: &Position) -> Option<f64> {
        let contests = self.contests(&position.options);
        let values = contests.iter().map(|contest| {
            let classes = contest.parties.iter();
            let classes: Vec<u8> = classes.map(|player| position.classes[*player]).collect();
            self.value_of(contest, &classes)
        });
        values.sum()
    }

    /// The position with its value; none if the budget does not suffice.
    pub(super) fn valued(&mut self, position: &Position) -> Option<Valued> {
        let value = self.value(position)?;
        Some(Valued {
            position: position.clone(),
            value,
        })
    }

    /// The contests that players have with these ways.
    pub(super) fn contests(&self, options: &[usize]) -> Vec<Contest> {
        let setting = self.setting;
        let players = setting.players.iter().enumerate();
        let parties: Vec<Party<'_>> = players
            .map(|(player, of)| Party {
                compute_seconds: of.compute_seconds,
                overlap_from: of.overlap_from,
                flows: of
                    .streams
                    .iter()
                    .enumerate()
                    .filter_map(|(at, stream)| {
                        let path = setting.path(player, at, options)?;
                        Some((stream.bytes, path))
                    })
                    .collect(),
            })
            .collect();
        contests(&parties, |link| setting.capacity(link))
    }

    /// What the parties of a contest add with these `classes`; none if the budget does not suffice.
    pub(super) fn value_of(&mut self, contest: &Contest, classes: &[u8]) -> Option<f64> {
        if let ([player], [seconds]) = (&contest.parties[..], &contest.alone_seconds()[..]) {
            let of = &self.setting.players[*player];
            return Some(of.worth * share(of.compute_seconds, *seconds));
        }
        let key = (contest.signature().to_vec(), contest.relations(classes));
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        let value = self.play(contest, classes)?;
        self.known.insert(key, value);
        Some(value)
    }

    fn play(&mut self, contest: &Contest, classes: &[u8]) -> Option<f64> {
        let alone = contest.alone_seconds();
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let Precision {
            starts,
            warm,
            counted,
        } = self.precision;
        let window = Window {
            from: warm * slowest,
            until: (warm + counted) * slowest,
        };
        let mut sum = 0.0;
        for draw in 1..=starts {
            let start = |(player, seconds): (&usize, &f64)| {
                seconds * (GOLDEN * (*player as f64 + 1.0) * f64::from(draw)).fract()
            };
            let starts: Vec<f64> = contest.parties.iter().zip(&alone).map(start).collect();
            // What the fluid model refuses is not judged: the caller keeps what it has.
            let mut trial = Trial::new(contest, &starts).ok()?;
            let busy = trial.busy(classes, window, self.left).ok()??;
            self.left -= trial.events();
            let worth = contest
                .parties
                .iter()
                .map(|player| self.setting.players[*player].worth);
            sum += busy
                .iter()
                .zip(worth)
                .map(|(busy, worth)| busy * worth)
                .sum::<f64>();
        }
        Some(sum / f64::from(starts))
    }
}

/// Part of an iteration that is computation.
fn share(compute: f64, iteration: f64) -> f64 {
    if iteration > 0.0 {
        compute / iteration
    } else {
        1.0
    }
}
