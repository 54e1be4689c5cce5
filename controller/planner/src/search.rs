//! Search: paths and levels of small groups of jobs, judged by the fluid model (scheduling beyond
//! Crux §4; `docs/algorithms/priority.md` is the essay).
//!
//! The phases before it look at jobs one or two at a time. Where few jobs meet it pays to play what
//! they would do to each other: a cheap estimate ranks all combinations of ways, the fluid model
//! judges the best of them, and from the best of those single changes of ways and classes climb
//! until none is better. Effort is counted in events of the fluid model, never in time, and a
//! region's share depends on nothing but its jobs and how many jobs there are, so that the result
//! is a function of the input.
//!
//! Stability: what a search finds from scratch does not depend on the plan in force. It replaces
//! what is in force only for the gain that policy asks, and finding it again gains nothing.

mod arena;
mod climb;
pub mod contest;
mod estimate;
mod refine;
mod region;
mod setting;
pub mod trial;

use arena::{Arena, Precision};
use climb::{Climbed, Freedom, Valued, climb};
use estimate::Estimate;
pub(crate) use refine::{Found, refine, settle_levels};
use setting::{Position, Setting};

/// Combinations of ways that are estimated at most; with more, so many drawn ones.
const ESTIMATED: u64 = 4096;

/// Combinations that the fluid model judges; exchanging all spines gives each one twice.
const JUDGED: usize = 128;

/// Combinations from which climbs begin.
const CLIMBED: usize = 6;

/// For the many positions of the first climbs.
const ROUGH: Precision = Precision {
    starts: 1,
    warm: 2.0,
    counted: 4.0,
};

/// For what is decided in the end.
const FINE: Precision = Precision {
    starts: 4,
    warm: 2.0,
    counted: 8.0,
};

/// One part in so many of a budget is for one climb by classes alone. There are four: two ends of
/// each of two settlings.
const SETTLING: u64 = 8;

/// What is left for the climbs from scratch, in parts, half of it for each precision.
const SCRATCH: u64 = SETTLING - 4;

/// A search over one setting within `budget` events.
struct Search<'a> {
    setting: &'a Setting<'a>,
    estimate: Estimate,
    budget: u64,
}

impl<'a> Search<'a> {
    fn new(setting: &'a Setting<'a>, budget: u64) -> Self {
        Self {
            setting,
            estimate: Estimate::new(setting),
            budget,
        }
    }

    /// What no position exceeds, but for the noise of judging: all jobs as if alone.
    fn bound(&self) -> f64 {
        self.estimate.bound() * (1.0 - climb::LEAST_GAIN)
    }

    /// The best position found from nothing, settled; none if the budget does not suffice.
    fn anew(&mut self) -> Option<Valued> {
        let budget = self.budget / SETTLING * SCRATCH / 2;
        let mut rough = Arena::new(self.setting, ROUGH, budget);
        let starts = self.starts(&mut rough);
        let mut tops: Vec<Valued> = starts
            .into_iter()
            .map(|start| climb(self.setting, &mut rough, start, Freedom::Choices).valued())
            .collect();
        let mut fine = Arena::new(self.setting, FINE, budget);
        for top in &mut tops {
            top.value = fine.value(&top.position)?;
        }
        let best = best_first(tops).into_iter().next()?;
        let top = climb(self.setting, &mut fine, best, Freedom::Choices).valued();
        self.settled(&top.position)
    }

    /// Combinations of ways that are good by estimate and by a rough judgement, the best first.
    fn starts(&mut self, arena: &mut Arena<'_>) -> Vec<Valued> {
        let classes = self.by_worth();
        let mut estimated: Vec<(f64, Vec<usize>)> = combinations(self.setting)
            .map(|options| (self.estimate.of(&options), options))
            .collect();
        // A stable sort: of equals the first combination.
        estimated.sort_by(|a, b| b.0.total_cmp(&a.0));
        estimated.truncate(JUDGED);
        let judged = estimated.into_iter().map_while(|(_, options)| {
            let classes = classes.clone();
            let position = Position { options, classes };
            let value = arena.value(&position)?;
            Some(Valued { position, value })
        });
        let mut starts = best_first(judged.collect());
        starts.dedup_by(|a, b| a.value == b.value);
        starts.truncate(CLIMBED);
        starts
    }

    /// A class each for the jobs whose link seconds are worth most, as far as classes go.
    fn by_worth(&self) -> Vec<u8> {
        let mut classes = vec![0; self.setting.players.len()];
        let ranked = self.estimate.ranked();
        let highest = self.setting.players.iter().map(|of| *of.classes.end());
        let mut class = highest.max().unwrap_or(0);
        for player in ranked {
            let may = &self.setting.players[player].classes;
            classes[player] = class.clamp(*may.start(), *may.end());
            class = class.saturating_sub(1);
        }
        classes
    }

    /// The position with the best classes that climbing finds from its own and from those by
    /// worth. Settling what is settled changes nothing: each climb has a budget of its own, and one
    /// that it cuts short is not counted. None if not even the position can be judged.
    fn settled(&self, position: &Position) -> Option<Valued> {
        let by_worth = Position {
            classes: self.by_worth(),
            ..position.clone()
        };
        let (own, top) = self.topped(position)?;
        let other = self.topped(&by_worth).and_then(|(_, top)| top);
        let tops = [top, other].into_iter().flatten();
        // Of equals the first.
        Some(tops.fold(
            own,
            |best, top| if top.value > best.value { top } else { best },
        ))
    }

    /// The position, and the one that climbing by classes ends at if the budget suffices.
    fn topped(&self, position: &Position) -> Option<(Valued, Option<Valued>)> {
        let mut arena = Arena::new(self.setting, FINE, self.budget / SETTLING);
        let value = arena.value(position)?;
        let own = Valued {
            position: position.clone(),
            value,
        };
        let top = match climb(self.setting, &mut arena, own.clone(), Freedom::Classes) {
            Climbed::Top(top) => Some(top),
            Climbed::Tired(_) => None,
        };
        Some((own, top))
    }
}

fn best_first(mut valued: Vec<Valued>) -> Vec<Valued> {
    valued.sort_by(|a, b| b.value.total_cmp(&a.value));
    valued
}

/// Every combination of ways, the first choice changing fastest; if there are too many, drawn ones.
fn combinations(setting: &Setting<'_>) -> impl Iterator<Item = Vec<usize>> {
    let options: Vec<u64> = setting.choices.iter().map(|of| of.options as u64).collect();
    let all = setting.combinations();
    let mut draw = Draw(1);
    (0..all.min(ESTIMATED)).map(move |number| {
        let mut rest = number;
        let digit = |of: &u64| {
            if all > ESTIMATED {
                return draw.below(*of);
            }
            let digit = rest % of;
            rest /= of;
            digit as usize
        };
        options.iter().map(digit).collect()
    })
}

/// Numbers without order, the same every time (Knuth's MMIX generator).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> usize {
        let Self(state) = self;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 33) % bound) as usize
    }
}
