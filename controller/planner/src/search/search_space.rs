//! What a search is about: jobs with what a GPU-second of each counts, and the ways of their flows.
//!
//! A search knows nothing of plans. Jobs are players, flows with several ways are choices, and both
//! are numbers here; so the phases before and after may change without it.

use std::ops::RangeInclusive;

use topology::{Fabric, LinkId};

/// A job in a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchedJob<'a> {
    /// `comp_j` in seconds.
    pub(crate) compute_seconds: f64,
    /// `o_j`.
    pub(crate) overlap_from: f64,
    /// What it counts when all its GPUs compute.
    pub(crate) worth: f64,
    /// Levels it may have.
    pub(crate) levels: RangeInclusive<u8>,
    /// Its flows.
    pub(crate) flows: Vec<SearchedFlow<'a>>,
}

/// A flow in a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchedFlow<'a> {
    /// Bytes of one iteration.
    pub(crate) bytes: f64,
    /// Its first and its last link.
    pub(crate) ends: (LinkId, LinkId),
    /// The ways between them; none where there is no path.
    pub(crate) segments: &'a [Vec<LinkId>],
}

/// The players of a search and all that they could do.
#[derive(Debug)]
pub(super) struct SearchSpace<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) jobs: Vec<SearchedJob<'a>>,
    /// Streams with more than one way, by player.
    pub(super) choices: Vec<PathChoice>,
    /// Whole paths by player, stream and segment.
    pub(super) paths: Vec<Vec<Vec<Vec<LinkId>>>>,
    /// Choice of each stream, by player; none where there is only one way.
    pub(super) choice_of: Vec<Vec<Option<usize>>>,
}

/// A stream with more than one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathChoice {
    pub(super) job: usize,
    /// Position among the player's streams.
    pub(super) flow: usize,
    /// Number of ways.
    pub(super) options: usize,
}

/// A way for every choice, a level for every player.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchPosition {
    pub(super) options: Vec<usize>,
    pub(super) levels: Vec<u8>,
}

impl<'a> SearchSpace<'a> {
    pub(super) fn new(fabric: &'a Fabric, players: Vec<SearchedJob<'a>>) -> Self {
        let mut setting = Self {
            fabric,
            jobs: Vec::new(),
            choices: Vec::new(),
            paths: Vec::new(),
            choice_of: Vec::new(),
        };
        for player in players {
            setting.add_job(player);
        }
        setting
    }

    fn add_job(&mut self, player: SearchedJob<'a>) {
        let mut choice_of = vec![None; player.flows.len()];
        for (position, stream) in player.flows.iter().enumerate() {
            if stream.segments.len() > 1 && stream.bytes > 0.0 {
                choice_of[position] = Some(self.choices.len());
                self.choices.push(PathChoice {
                    job: self.jobs.len(),
                    flow: position,
                    options: stream.segments.len(),
                });
            }
        }
        let whole = |stream: &SearchedFlow<'_>| -> Vec<Vec<LinkId>> {
            let (up, down) = stream.ends;
            let path = |segment: &Vec<LinkId>| [&[up], &segment[..], &[down]].concat();
            stream.segments.iter().map(path).collect()
        };
        self.paths.push(player.flows.iter().map(whole).collect());
        self.choice_of.push(choice_of);
        self.jobs.push(player);
    }

    /// Combinations of ways; saturates.
    pub(super) fn combination_count(&self) -> u64 {
        let options = self.choices.iter().map(|choice| choice.options as u64);
        options.fold(1, u64::saturating_mul)
    }

    /// The path of a stream in `options`; none where there is no way.
    pub(super) fn path_of(
        &self,
        player: usize,
        stream: usize,
        options: &[usize],
    ) -> Option<&[LinkId]> {
        let option = self.choice_of[player][stream].map_or(0, |choice| options[choice]);
        self.paths[player][stream].get(option).map(Vec::as_slice)
    }

    /// Bytes/s of a link.
    pub(super) fn link_capacity(&self, link: LinkId) -> f64 {
        self.fabric.link(link).bandwidth.bytes_per_second()
    }
}
