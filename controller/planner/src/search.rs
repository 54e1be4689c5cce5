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
mod classes;
mod climb;
pub mod contest;
mod estimate;
mod refine;
mod region;
mod setting;
pub mod trial;

use arena::{Arena, Precision};
use climb::{Climbed, Freedom, Valued, climb};
use contest::Contest;
use estimate::Estimate;
pub(crate) use refine::{Found, refine, regions, settle_levels};
use setting::{Position, Setting};

/// Combinations of ways that are estimated at most; with more, so many drawn ones.
const ESTIMATED: u64 = 16_384;

/// Combinations that the fluid model judges with plausible classes; exchanging all spines gives
/// each one twice.
const JUDGED: usize = 512;

/// Combinations from which climbs begin.
const CLIMBED: usize = 16;

/// Of those, combinations whose classes are all looked at.
const ENUMERATED: usize = 8;

/// Classes of a contest that are judged finely, of all that are judged roughly.
const FINELY: usize = 6;

/// For the many positions at the beginning.
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

/// What a budget is divided into. Twice `SETTLE`: what is in force is settled, and what is found.
/// Of its quarters two are for all classes roughly, one for the best of them finely, one for own.
const PARTS: u64 = JUDGE + 3 * CLIMB + 2 * ENUMERATE + 2 * SETTLE;
const JUDGE: u64 = 4;
const CLIMB: u64 = 2;
const ENUMERATE: u64 = 2;
const SETTLE: u64 = 4;

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

    fn parts(&self, parts: u64) -> u64 {
        self.budget / PARTS * parts
    }

    /// The best position found from nothing, settled; none if the budget does not suffice.
    fn anew(&mut self) -> Option<Valued> {
        let mut rough = Arena::new(self.setting, ROUGH);
        let mut fine = Arena::new(self.setting, FINE);
        rough.grant(self.parts(JUDGE));
        let starts = self.starts(&mut rough);
        rough.grant(self.parts(CLIMB));
        let tops = self.climbed(starts, &mut rough);
        rough.grant(self.parts(ENUMERATE));
        fine.grant(self.parts(ENUMERATE));
        let tops = tops.iter().filter_map(|top| {
            let best = self.best_classes(&top.position.options, &mut rough, &mut fine);
            best.or_else(|| fine.valued(&top.position))
        });
        let best = best_first(tops.collect()).into_iter().next()?;
        fine.grant(self.parts(CLIMB));
        let top = climb(self.setting, &mut fine, best, Freedom::Choices).valued();
        self.settled(&top.position)
    }

    /// Combinations of ways that are good by estimate and by a rough judgement, the best first.
    fn starts(&mut self, rough: &mut Arena<'_>) -> Vec<Valued> {
        let mut estimated: Vec<(f64, Vec<usize>)> = combinations(self.setting)
            .map(|options| (self.estimate.of(&options), options))
            .collect();
        // A stable sort: of equals the first combination.
        estimated.sort_by(|a, b| b.0.total_cmp(&a.0));
        estimated.truncate(JUDGED);
        let estimated = estimated.into_iter();
        let judged =
            estimated.map_while(|(_, options)| self.with_plausible_classes(options, rough));
        let mut starts = best_first(judged.collect());
        starts.truncate(CLIMBED);
        starts
    }

    /// The best positions that climbs from `starts` end at. Where all combinations of ways were
    /// estimated, these are good already, and only classes change.
    fn climbed(&self, starts: Vec<Valued>, rough: &mut Arena<'_>) -> Vec<Valued> {
        let freedom = match self.setting.combinations() > ESTIMATED {
            true => Freedom::Choices,
            false => Freedom::Classes,
        };
        let climbs = starts.into_iter();
        let climbs = climbs.map(|start| climb(self.setting, rough, start, freedom).valued());
        let mut tops = best_first(climbs.collect());
        tops.truncate(ENUMERATED);
        tops
    }

    /// These ways with the better of the plausible classes in each contest.
    fn with_plausible_classes(&self, options: Vec<usize>, arena: &mut Arena<'_>) -> Option<Valued> {
        let ranked = self.estimate.ranked();
        self.assembled(options, arena, |contest, arena| {
            let members = ranked.iter();
            let members = members.filter_map(|player| contest.parties.binary_search(player).ok());
            let members: Vec<usize> = members.collect();
            let candidates = classes::plausible(&members, self.count());
            self.best_of(contest, candidates.to_vec(), arena)
        })
    }

    /// These ways with the best of all classes, or of as many as the budget allows; none where
    /// there are too many to begin with.
    fn best_classes(
        &self,
        options: &[usize],
        rough: &mut Arena<'_>,
        fine: &mut Arena<'_>,
    ) -> Option<Valued> {
        self.assembled(options.to_vec(), fine, |contest, fine| {
            let mut judged = Vec::new();
            for classes in classes::all(contest, self.count())? {
                let classes = self.fitted(contest, classes);
                let Some(value) = rough.value_of(contest, &classes) else {
                    break;
                };
                judged.push((value, classes));
            }
            judged.sort_by(|a, b| b.0.total_cmp(&a.0));
            let few = judged.into_iter().take(FINELY).map(|(_, classes)| classes);
            self.best_of(contest, few.collect(), fine)
        })
    }

    /// The position that has these ways, and in each contest the classes that `choose` finds.
    fn assembled(
        &self,
        options: Vec<usize>,
        arena: &mut Arena<'_>,
        mut choose: impl FnMut(&Contest, &mut Arena<'_>) -> Option<(f64, Vec<u8>)>,
    ) -> Option<Valued> {
        let mut classes = vec![0; self.setting.players.len()];
        let mut value = 0.0;
        for contest in arena.contests(&options) {
            let (worth, chosen) = choose(&contest, arena)?;
            value += worth;
            for (player, class) in contest.parties.iter().zip(chosen) {
                classes[*player] = class;
            }
        }
        let position = Position { options, classes };
        Some(Valued { position, value })
    }

    /// The best of `candidates` for a contest, as far as the budget goes; of equals the first.
    fn best_of(
        &self,
        contest: &Contest,
        candidates: Vec<Vec<u8>>,
        arena: &mut Arena<'_>,
    ) -> Option<(f64, Vec<u8>)> {
        let mut best: Option<(f64, Vec<u8>)> = None;
        for classes in candidates {
            let classes = self.fitted(contest, classes);
            let Some(value) = arena.value_of(contest, &classes) else {
                break;
            };
            if best.as_ref().is_none_or(|(most, _)| value > *most) {
                best = Some((value, classes));
            }
        }
        best
    }

    /// `classes` of the parties of a contest, each within its player's bounds.
    fn fitted(&self, contest: &Contest, classes: Vec<u8>) -> Vec<u8> {
        let parties = contest.parties.iter().zip(classes);
        let fitted = parties.map(|(player, class)| {
            let may = &self.setting.players[*player].classes;
            class.clamp(*may.start(), *may.end())
        });
        fitted.collect()
    }

    /// Number of classes.
    fn count(&self) -> u8 {
        let players = self.setting.players.iter();
        let highest = players.map(|player| *player.classes.end()).max();
        highest.unwrap_or(0).saturating_add(1)
    }

    /// The position with better classes, if there are: the best of all where those are few, else
    /// what climbs find from its own and from plausible ones. Settling what is settled changes
    /// nothing: what is looked at depends on nothing but ways, or a climb has no change left that
    /// is better. None if not even the position can be judged.
    fn settled(&self, position: &Position) -> Option<Valued> {
        let mut rough = Arena::new(self.setting, ROUGH);
        let mut fine = Arena::new(self.setting, FINE);
        rough.grant(self.parts(SETTLE) / 2);
        fine.grant(self.parts(SETTLE) / 4);
        let best = self.best_classes(&position.options, &mut rough, &mut fine);
        fine.grant(self.parts(SETTLE) / 4);
        let own = fine.valued(position)?;
        let tops = best.map_or_else(|| self.tops(position), |best| vec![best]);
        // Of equals the first.
        Some(tops.into_iter().fold(
            own,
            |best, top| if top.value > best.value { top } else { best },
        ))
    }

    /// Where climbs by classes from the position's own and from plausible ones end. Each has a
    /// budget of its own, and one that it cuts short is not counted.
    fn tops(&self, position: &Position) -> Vec<Valued> {
        let arena = || {
            let mut arena = Arena::new(self.setting, FINE);
            arena.grant(self.parts(SETTLE) / 2);
            arena
        };
        let top = |start: Valued, mut arena: Arena<'_>| match climb(
            self.setting,
            &mut arena,
            start,
            Freedom::Classes,
        ) {
            Climbed::Top(top) => Some(top),
            Climbed::Tired(_) => None,
        };
        let (mut first, mut second) = (arena(), arena());
        let own = first.valued(position).and_then(|own| top(own, first));
        let plausible = self.with_plausible_classes(position.options.clone(), &mut second);
        let other = plausible.and_then(|start| top(start, second));
        own.into_iter().chain(other).collect()
    }
}

/// The best first, and of equal values, which is the same with spines exchanged, one.
fn best_first(mut valued: Vec<Valued>) -> Vec<Valued> {
    valued.sort_by(|a, b| b.value.total_cmp(&a.value));
    valued.dedup_by(|a, b| a.value.total_cmp(&b.value).is_eq());
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
