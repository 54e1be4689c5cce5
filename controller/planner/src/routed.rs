//! The phases after paths are chosen: priorities (Crux §4.2) and levels (Crux §4.3).
//!
//! `plan` takes them one after the other. Whoever judges a step alone, as the microbenchmark of
//! Crux §4.4 does, gives [`Routed`] the paths or the order of another step's optimum.

use topology::Path;

use crate::contention::Sharing;
use crate::input::Input;
use crate::intensity::{self, Demand};
use crate::levels::{self, Ranked};
use crate::policy::Policy;
use crate::previous::Previous;
use crate::priority::{self, Corrections, Priority};
use crate::search::{self, Found};
use crate::traffic::Traffic;

/// Jobs in the order of priority that their paths give them.
#[derive(Debug)]
pub(crate) struct Ranking {
    pub(crate) demands: Vec<Demand>,
    pub(crate) sharing: Sharing,
    pub(crate) priorities: Vec<Priority>,
    /// Jobs by descending priority.
    pub(crate) order: Vec<usize>,
}

impl Ranking {
    /// The ranking on `paths`, by flow.
    pub(crate) fn new(
        traffic: &Traffic<'_>,
        paths: &[Path],
        policy: &Policy,
        corrections: &Corrections,
    ) -> Self {
        let demands = intensity::on_paths(traffic, paths);
        let sharing = Sharing::new(traffic, paths);
        let priorities = priority::assign(traffic, &demands, &sharing, (policy, corrections));
        Self {
            order: priority::order(&priorities),
            demands,
            sharing,
            priorities,
        }
    }

    /// Levels by job for this order; those of the `searched` jobs are where a search begins.
    pub(crate) fn levels(
        &self,
        traffic: &Traffic<'_>,
        policy: &Policy,
        previous: &Previous<'_>,
        searched: &[usize],
    ) -> Vec<u8> {
        let intensities: Vec<f64> = self.demands.iter().map(|demand| demand.intensity).collect();
        let ranked = Ranked {
            order: &self.order,
            places: &priority::places(&self.order),
            intensities: &intensities,
            sharing: &self.sharing,
            searched,
        };
        levels::assign(traffic, &ranked, policy, previous)
    }

    /// The same, but that jobs searched together stand in the order of the `levels` found, in the
    /// places that they hold together.
    pub(crate) fn with_searched(mut self, levels: &[u8], searched: &[Vec<usize>]) -> Self {
        let mut places = priority::places(&self.order);
        for jobs in searched {
            let mut held: Vec<usize> = jobs.iter().map(|job| places[*job]).collect();
            held.sort_unstable();
            let mut ranked = jobs.clone();
            ranked.sort_by_key(|job| (std::cmp::Reverse(levels[*job]), places[*job]));
            for (place, job) in held.into_iter().zip(ranked) {
                self.order[place] = job;
                places[job] = place;
            }
        }
        self
    }
}

/// An input whose paths are chosen.
#[derive(Debug)]
pub struct Routed<'a> {
    traffic: Traffic<'a>,
    paths: Vec<Path>,
    sharing: Sharing,
    intensities: Vec<f64>,
}

impl<'a> Routed<'a> {
    /// `input` on `paths`: one per flow, by job in the order of ids and then in the order of the
    /// job's flows, as in [`Plan::flows`](crate::Plan::flows); empty where there is none.
    pub fn new(input: &'a Input, paths: Vec<Path>) -> Self {
        let traffic = Traffic::new(input);
        let demands = intensity::on_paths(&traffic, &paths);
        Self {
            sharing: Sharing::new(&traffic, &paths),
            intensities: demands.iter().map(|demand| demand.intensity).collect(),
            traffic,
            paths,
        }
    }

    /// Jobs, by position in the order of ids, by descending priority, searched as policy says.
    pub fn order(&self, policy: &Policy) -> Vec<usize> {
        let ranking = Ranking::new(&self.traffic, &self.paths, policy, &Corrections::default());
        let found = self.settled(&ranking.order, policy);
        ranking.with_searched(&found.levels, &found.searched).order
    }

    /// Level of every job, by position in the order of ids, that compression gives this `order` and
    /// the search then makes of it, as far as policy has one search.
    pub fn searched_levels(&self, order: &[usize], policy: &Policy) -> Vec<u8> {
        self.settled(order, policy).levels
    }

    fn settled(&self, order: &[usize], policy: &Policy) -> Found {
        let found = Found::new(self.paths.clone(), self.levels(order, policy));
        search::settle_levels(&self.traffic, policy, found)
    }

    /// Level of every job, by position in the order of ids, that compression gives this `order`.
    pub fn levels(&self, order: &[usize], policy: &Policy) -> Vec<u8> {
        let ranked = Ranked {
            order,
            places: &priority::places(order),
            intensities: &self.intensities,
            sharing: &self.sharing,
            searched: &[],
        };
        levels::assign(
            &self.traffic,
            &ranked,
            policy,
            &Previous::new(&self.traffic, None),
        )
    }
}
