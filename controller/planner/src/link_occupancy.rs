//! Load of every link: the state that the choice of paths reads and changes.
//!
//! Shares of link time are whole numbers of a small unit. Sums of whole numbers do not depend on
//! their order and are restored exactly when a flow leaves, so a state reached by many small
//! changes equals one built at once. Incremental planning depends on that.

use topology::{Fabric, LinkId};

/// Share of a link's time, in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkShare(pub(crate) u64);

impl LinkShare {
    /// A whole link, all the time.
    pub(crate) const ONE: f64 = (1_u64 << 32) as f64;

    /// The most that one flow can count for: four links' time, so that sums of millions of them
    /// stay within 64 bits.
    const MOST: f64 = 4.0 * Self::ONE;

    /// The share of a flow that sends something: at least one unit.
    pub(crate) fn from_fraction(fraction: f64) -> Self {
        Self((fraction * Self::ONE + 0.5).clamp(1.0, Self::MOST) as u64)
    }
}

/// Load of every directed link.
#[derive(Clone, Debug)]
pub(crate) struct LinkOccupancy(Vec<u64>);

impl LinkOccupancy {
    /// Nothing on any link of `fabric`.
    pub(crate) fn new(fabric: &Fabric) -> Self {
        Self(vec![0; fabric.links().len()])
    }

    /// Adds a share to `link`.
    pub(crate) fn add_share(&mut self, link: LinkId, share: LinkShare) {
        self.0[link.index()] += share.0;
    }

    /// Removes a share that was added.
    pub(crate) fn remove_share(&mut self, link: LinkId, share: LinkShare) {
        self.0[link.index()] -= share.0;
    }

    /// Load of a link.
    pub(crate) fn share_of(&self, link: LinkId) -> LinkShare {
        LinkShare(self.0[link.index()])
    }
}
