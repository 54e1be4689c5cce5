//! Flows of a collective operation, derived from its volume and the hosts of its job.
//!
//! Members of one host are one member of the ring, since they reach each other without the network.
//! Hosts are in the order of ranks, which is that of `gpus` in the document. Channels take the NICs
//! of the members' GPUs in turn and an equal share of the bytes, and leave a host by the NIC on which
//! they enter it, as those of NCCL.

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
    /// Connections between neighbours, each with an equal share; if not given, one for each NIC that
    /// the job's GPUs of a host have.
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
}

/// Groups of ranks as frameworks make them: of `size` ranks that are `stride` apart, until all ranks
/// are in one. Tensor parallelism has stride 1, and each dimension outside of it the product of those
/// inside.
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

/// Kinds of collective operation, with what each member sends; n is the number of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// `2(n-1)/n * bytes` to the next host of the ring: a reduce-scatter, then an all-gather.
    RingAllReduce,
    /// `(n-1)/n * bytes` to the next host of the ring.
    AllGather,
    /// `(n-1)/n * bytes` to the next host of the ring.
    ReduceScatter,
    /// `bytes / n` to every other host.
    AllToAll,
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

/// The transfers of an operation on `bytes` among `hosts`; none for one host.
pub(super) fn collective_transfers(
    kind: CollectiveKind,
    hosts: &[HostId],
    bytes: f64,
    channels: u32,
) -> Vec<HostTransfer> {
    let n = hosts.len() as f64;
    let (pairs, each) = match kind {
        CollectiveKind::RingAllReduce => (ring_pairs(hosts), 2.0 * (n - 1.0) / n * bytes),
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
            (ring_pairs(hosts), (n - 1.0) / n * bytes)
        }
        CollectiveKind::AllToAll => (all_pairs(hosts), bytes / n),
        CollectiveKind::Pipeline => (neighbour_pairs(hosts), bytes),
    };
    let share = each / f64::from(channels);
    pairs
        .into_iter()
        .flat_map(|(src, dst)| {
            (0..channels).map(move |channel| HostTransfer { src, dst, channel, bytes: share })
        })
        .collect()
}

fn ring_pairs(hosts: &[HostId]) -> Vec<(HostId, HostId)> {
    if hosts.len() < 2 {
        return Vec::new();
    }
    hosts.iter().copied().zip(hosts.iter().copied().cycle().skip(1)).collect()
}

fn all_pairs(hosts: &[HostId]) -> Vec<(HostId, HostId)> {
    hosts
        .iter()
        .flat_map(|src| hosts.iter().map(move |dst| (*src, *dst)))
        .filter(|(src, dst)| src != dst)
        .collect()
}

fn neighbour_pairs(hosts: &[HostId]) -> Vec<(HostId, HostId)> {
    hosts.windows(2).flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: CollectiveKind, hosts: u32, channels: u32, expect: &[(u32, u32, u32, f64)]) {
        let hosts: Vec<HostId> = (0..hosts).map(HostId).collect();
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
