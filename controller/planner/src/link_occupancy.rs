//! Load of every link by job: the state that the choice of paths reads and changes.
//!
//! Shares of link time are whole numbers of a small unit. Sums of whole numbers do not depend on
//! their order and are restored exactly when a flow leaves, so a state reached by many small
//! changes equals one built at once. Incremental planning depends on that.

use std::iter::Sum;
use std::ops::Add;

use topology::{Fabric, LinkId};

/// Share of a link's time, in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkShare(pub(crate) u64);

impl LinkShare {
    /// A whole link, all the time.
    pub(crate) const ONE: f64 = (1_u64 << 32) as f64;

    /// The most that one flow can count for: four links' time, so that sums of
    /// millions of them and their products with weights stay within 64 bits.
    const MOST: f64 = 4.0 * Self::ONE;

    /// The share of a flow that sends something: at least one unit, so that its job is listed on
    /// the link.
    pub(crate) fn from_fraction(fraction: f64) -> Self {
        Self((fraction * Self::ONE + 0.5).clamp(1.0, Self::MOST) as u64)
    }
}

impl Add for LinkShare {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sum for LinkShare {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self(0), Add::add)
    }
}

/// Load of every directed link by job.
#[derive(Clone, Debug)]
pub(crate) struct LinkOccupancy {
    totals: Vec<u64>,
    /// By link: the jobs on it, ascending, with their shares.
    jobs: Vec<Vec<(u32, u64)>>,
}

impl LinkOccupancy {
    /// No job on any link of `fabric`.
    pub(crate) fn new(fabric: &Fabric) -> Self {
        let links = fabric.links().len();
        Self { totals: vec![0; links], jobs: vec![Vec::new(); links] }
    }

    /// Adds a share of `job` to `link`.
    pub(crate) fn add_share(&mut self, link: LinkId, job: u32, share: LinkShare) {
        if share.0 == 0 {
            return;
        }
        self.totals[link.index()] += share.0;
        let jobs = &mut self.jobs[link.index()];
        match jobs.binary_search_by_key(&job, |(job, _)| *job) {
            Ok(place) => jobs[place].1 += share.0,
            Err(place) => jobs.insert(place, (job, share.0)),
        }
    }

    /// Removes a share that was added.
    pub(crate) fn remove_share(&mut self, link: LinkId, job: u32, share: LinkShare) {
        if share.0 == 0 {
            return;
        }
        self.totals[link.index()] -= share.0;
        let jobs = &mut self.jobs[link.index()];
        if let Ok(place) = jobs.binary_search_by_key(&job, |(job, _)| *job) {
            jobs[place].1 -= share.0;
            if jobs[place].1 == 0 {
                jobs.remove(place);
            }
        }
    }

    /// Load of a link, all jobs together.
    pub(crate) fn total_share(&self, link: LinkId) -> LinkShare {
        LinkShare(self.totals[link.index()])
    }

    /// The jobs on a link, ascending, with their shares in units.
    pub(crate) fn jobs_on(&self, link: LinkId) -> &[(u32, u64)] {
        &self.jobs[link.index()]
    }
}
