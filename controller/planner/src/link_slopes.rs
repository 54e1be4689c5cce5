//! Which links climb and which descend.

use topology::{Fabric, FabricNode, LinkId};

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkSlope {
    /// From a host or to one.
    Host,
    Up,
    Down,
    /// To a switch of the same tier.
    Level,
}

/// The slope of every link.
#[derive(Clone, Debug)]
pub(crate) struct LinkSlopes(Vec<LinkSlope>);

impl LinkSlopes {
    /// Those of `fabric`; they do not depend on its state.
    pub(crate) fn new(fabric: &Fabric) -> Self {
        let tier = |node: FabricNode| node.switch().map(|switch| fabric.switch(switch).tier);
        let slopes =
            fabric.links().iter().map(|link| match (tier(link.from.node), tier(link.to.node)) {
                (Some(from), Some(to)) if from < to => LinkSlope::Up,
                (Some(from), Some(to)) if from > to => LinkSlope::Down,
                (Some(_), Some(_)) => LinkSlope::Level,
                _ => LinkSlope::Host,
            });
        Self(slopes.collect())
    }

    /// Whether a path climbs and then descends, and does nothing else.
    pub(crate) fn is_valley_free(&self, path: &[LinkId]) -> bool {
        let mut descends = false;
        path.iter().all(|link| match self.0[link.index()] {
            LinkSlope::Host => true,
            LinkSlope::Up => !descends,
            LinkSlope::Down => {
                descends = true;
                true
            }
            LinkSlope::Level => false,
        })
    }

    /// Whether packets that go from one link to the other may be part of a cycle.
    pub(crate) fn is_valley(&self, from: LinkId, to: LinkId) -> bool {
        !self.is_valley_free(&[from, to])
    }
}
