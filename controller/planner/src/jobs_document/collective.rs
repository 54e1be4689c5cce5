//! Flows of a collective operation, derived from its volume and the hosts of its job.
//!
//! A ring passes the ranks of a host one after the other and crosses to the next host once; its
//! edge there carries what every edge does, so volumes follow from the number of ranks. Hosts are
//! in the order of ranks, which is that of `gpus` in the document. Channels take the NICs of the
//! members' GPUs in turn and an equal share of the bytes, and leave a host by the NIC on which they
//! enter it, as those of NCCL.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::HostId;

/// A collective operation in the Jobs document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectiveDocument {
    /// Kind of the operation.
    pub kind: CollectiveKind,
    /// Bytes of the operation in one iteration: of the whole buffer, or of the activations of a
    /// pipeline. The gradients of the profile if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Connections between neighbours, each with an equal share; if not given, one for each NIC
    /// that the job's GPUs of a host have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// The ranks that operate together, each group by itself on that many bytes; all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<RankGroups>,
    /// Fraction of the computation after which it may begin, 0..=1; that of the job if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_from: Option<f64>,
}

impl CollectiveDocument {
    /// An operation of all ranks, of which nothing else is stated.
    pub fn new(kind: CollectiveKind) -> Self {
        Self { kind, bytes: None, channels: None, groups: None, overlap_from: None }
    }

    /// The groups of a pipeline whose stages are ranks, each of which sends over one connection.
    pub(super) fn groups_of_stages(&self) -> Option<RankGroups> {
        let is_of_ranks = self.kind == CollectiveKind::Pipeline && self.channels.is_none();
        self.groups.filter(|_| is_of_ranks)
    }
}

/// Groups of ranks as frameworks make them: of `size` ranks that are `stride` apart, until all
/// ranks are in one. Tensor parallelism has stride 1, and each dimension outside of it the product
/// of those inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RankGroups {
    /// Ranks of a group.
    pub size: u32,
    /// From one rank of a group to the next.
    pub stride: u32,
}

impl RankGroups {
    /// The groups of so many ranks; none unless they divide them.
    pub(super) fn members(self, ranks: u32) -> Option<Vec<Vec<u32>>> {
        let block = self.size.checked_mul(self.stride).filter(|block| *block > 0)?;
        if !ranks.is_multiple_of(block) {
            return None;
        }
        let firsts = (0..ranks / block)
            .flat_map(|at| (0..self.stride).map(move |within| at * block + within));
        let group = |first: u32| (0..self.size).map(|place| first + place * self.stride).collect();
        Some(firsts.map(group).collect())
    }
}

/// Kinds of collective operation, with what a host sends over the network; n is the number of
/// ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// `2(n-1)/n * bytes` to the next host of the ring: a reduce-scatter, then an all-gather.
    RingAllReduce,
    /// `(n-1)/n * bytes` to the next host of the ring.
    AllGather,
    /// `(n-1)/n * bytes` to the next host of the ring.
    ReduceScatter,
    /// `bytes / n` from each rank to every other: `bytes` is what one rank holds.
    AllToAll,
    /// `bytes / 2` to the parent, `bytes / 2` to each child, in each of two binary trees of the
    /// hosts: leaves of one are inner nodes of the other (Sanders et al. 2009, as in NCCL).
    TreeAllReduce,
    /// `bytes` to the next host (activations) and `bytes` back (their gradients); no ring.
    Pipeline,
}

impl CollectiveKind {
    /// How many pairs of members send to each other in an operation of so many.
    pub(super) fn count_pairs(self, members: usize) -> usize {
        let others = members.saturating_sub(1);
        match self {
            Self::RingAllReduce | Self::AllGather | Self::ReduceScatter => members,
            Self::AllToAll => members.saturating_mul(others),
            Self::Pipeline => 2 * others,
            Self::TreeAllReduce => 4 * others,
        }
    }
}

/// One transfer between hosts over one channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HostTransfer {
    pub(super) src: HostId,
    pub(super) dst: HostId,
    pub(super) channel: u32,
    pub(super) bytes: f64,
}

/// The transfers of an operation on `bytes` among hosts with so many ranks each; none for one host.
pub(super) fn collective_transfers(
    kind: CollectiveKind,
    members: &[(HostId, u32)],
    bytes: f64,
    channels: u32,
) -> Vec<HostTransfer> {
    let ranks: f64 = members.iter().map(|(_, ranks)| f64::from(*ranks)).sum();
    let around = (ranks - 1.0) / ranks * bytes;
    let hosts: Vec<HostId> = members.iter().map(|(host, _)| *host).collect();
    let each = |pairs: Vec<(HostId, HostId)>, bytes: f64| {
        pairs.into_iter().map(|(src, dst)| (src, dst, bytes)).collect()
    };
    let sent: Vec<(HostId, HostId, f64)> = match kind {
        CollectiveKind::RingAllReduce => each(ring_pairs(&hosts), 2.0 * around),
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
            each(ring_pairs(&hosts), around)
        }
        CollectiveKind::AllToAll => all_pairs(members, bytes / ranks),
        CollectiveKind::Pipeline => each(neighbour_pairs(&hosts), bytes),
        CollectiveKind::TreeAllReduce => {
            let edges = tree_edges(hosts.len()).into_iter();
            each(edges.map(|(src, dst)| (hosts[src], hosts[dst])).collect(), bytes / 2.0)
        }
    };
    let share = 1.0 / f64::from(channels);
    sent.into_iter()
        .flat_map(|(src, dst, bytes)| {
            let bytes = bytes * share;
            (0..channels).map(move |channel| HostTransfer { src, dst, channel, bytes })
        })
        .collect()
}

fn ring_pairs(hosts: &[HostId]) -> Vec<(HostId, HostId)> {
    if hosts.len() < 2 {
        return Vec::new();
    }
    hosts.iter().copied().zip(hosts.iter().copied().cycle().skip(1)).collect()
}

/// Every pair of hosts, with `each` bytes from every rank of one to every rank of the other.
fn all_pairs(members: &[(HostId, u32)], each: f64) -> Vec<(HostId, HostId, f64)> {
    let pairs = members.iter().flat_map(|src| members.iter().map(move |dst| (src, dst)));
    pairs
        .filter(|(src, dst)| src.0 != dst.0)
        .map(|(src, dst)| (src.0, dst.0, each * f64::from(src.1) * f64::from(dst.1)))
        .collect()
}

/// Both ways of every edge of the two trees of so many hosts, each by its place among them. The
/// second is the first of the hosts in reverse, or, where their number is odd, shifted by one.
pub fn tree_edges(hosts: usize) -> Vec<(usize, usize)> {
    let second = |place: usize| match hosts.is_multiple_of(2) {
        true => hosts - 1 - place,
        false => (place + 1) % hosts,
    };
    let edges = (1..hosts).map(|place| (place, binary_tree_parent(place, hosts)));
    edges
        .flat_map(|(child, parent)| [(child, parent), (second(child), second(parent))])
        .flat_map(|(child, parent)| [(child, parent), (parent, child)])
        .collect()
}

/// The parent of a member other than 0 in a tree of `n` in which every other member is a leaf: one
/// of the two neighbours at twice the distance of its lowest bit, the lower where the higher does
/// not exist.
fn binary_tree_parent(member: usize, n: usize) -> usize {
    let bit = member & member.wrapping_neg();
    let lower = member ^ bit;
    Some(lower | (bit << 1)).filter(|higher| *higher < n).unwrap_or(lower)
}

fn neighbour_pairs(hosts: &[HostId]) -> Vec<(HostId, HostId)> {
    hosts.windows(2).flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: CollectiveKind, hosts: u32, channels: u32, expect: &[(u32, u32, u32, f64)]) {
        let hosts: Vec<(HostId, u32)> = (0..hosts).map(|host| (HostId(host), 1)).collect();
        let found = collective_transfers(kind, &hosts, 12.0, channels);
        let found: Vec<_> = found.iter().map(|t| (t.src.0, t.dst.0, t.channel, t.bytes)).collect();
        assert_eq!(found, expect, "{kind:?}");
    }

    #[test]
    fn groups_are_those_of_the_dimensions_of_a_model() {
        // Two stages of a pipeline, of two data-parallel copies on two GPUs each.
        let groups = |size, stride| RankGroups { size, stride }.members(8);
        let tensor = vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]];
        assert_eq!(groups(2, 1), Some(tensor));
        assert_eq!(groups(2, 2), Some(vec![vec![0, 2], vec![1, 3], vec![4, 6], vec![5, 7]]));
        assert_eq!(groups(2, 4), Some(vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]));
        for (size, stride) in [(0, 1), (1, 0), (3, 1), (2, 3), (u32::MAX, 2)] {
            assert_eq!(groups(size, stride), None);
        }
    }

    #[test]
    fn volumes_and_order() {
        use CollectiveKind::{AllGather, AllToAll, Pipeline, ReduceScatter, RingAllReduce};
        check(RingAllReduce, 1, 1, &[]);
        check(RingAllReduce, 2, 1, &[(0, 1, 0, 12.0), (1, 0, 0, 12.0)]);
        check(RingAllReduce, 3, 1, &[(0, 1, 0, 16.0), (1, 2, 0, 16.0), (2, 0, 0, 16.0)]);
        let two_channels = [(0, 1, 0, 6.0), (0, 1, 1, 6.0), (1, 0, 0, 6.0), (1, 0, 1, 6.0)];
        check(RingAllReduce, 2, 2, &two_channels);
        check(AllGather, 3, 1, &[(0, 1, 0, 8.0), (1, 2, 0, 8.0), (2, 0, 0, 8.0)]);
        check(ReduceScatter, 3, 1, &[(0, 1, 0, 8.0), (1, 2, 0, 8.0), (2, 0, 0, 8.0)]);
        check(AllToAll, 2, 1, &[(0, 1, 0, 6.0), (1, 0, 0, 6.0)]);
        let pipeline = [(0, 1, 0, 12.0), (1, 0, 0, 12.0), (1, 2, 0, 12.0), (2, 1, 0, 12.0)];
        check(Pipeline, 3, 1, &pipeline);
    }
}
