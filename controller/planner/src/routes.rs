//! Routes: what of a flow, and of two leaves, does not depend on the path that is chosen.

use std::sync::OnceLock;

use topology::LinkId;

use crate::path_tables::LeafEnds;

/// Properties of a flow on any path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowRoute {
    /// Link from the sending NIC to its leaf.
    pub(crate) up: LinkId,
    /// Link from the last leaf to the receiving NIC.
    pub(crate) down: LinkId,
    /// Its pair in [`JobRoutes::pairs`].
    pub(crate) pair: usize,
    /// Whether there is any path: both host links usable, and the leaves joined.
    pub(crate) has_path: bool,
    /// Whether switches also choose the leaf at which it arrives: the receiver has a port at two.
    pub(crate) has_two_ends: bool,
}

/// Two leaves, and properties of all segments from the first to the second.
#[derive(Clone, Debug)]
pub(crate) struct LeafPair {
    /// The leaves and the number of links between them.
    pub(crate) ends: LeafEnds,
    /// Whether there is any segment.
    pub(crate) is_joined: bool,
    /// Whether there is more than one.
    pub(crate) has_choice: bool,
    /// Links in every segment: no choice can avoid them.
    pub(crate) unavoidable: Vec<LinkId>,
    /// Bytes per second that enter or leave the segments together, the smaller of both.
    pub(crate) capacity: f64,
    /// Bytes per second of the segment that is widest at its narrowest link.
    pub(crate) widest: f64,
    /// All segments, listed on first use.
    pub(crate) segments: OnceLock<Vec<Vec<LinkId>>>,
}

impl LeafPair {
    /// Whether a flow of this pair crosses the fabric above its leaves.
    pub(crate) fn crosses_fabric(&self) -> bool {
        self.ends.from != self.ends.to
    }
}
