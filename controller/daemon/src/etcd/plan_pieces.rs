//! The plan in force, cut into pieces that etcd takes.
//!
//! etcd refuses requests above 1.5 MiB, and the plan of a large fabric is larger. The decision: the
//! pieces of a plan have keys of their own that are never written again, and the manifest, which is
//! written last, names them. A reader of the manifest therefore has all of one plan or nothing, and
//! the transaction that replaces the manifest deletes every other piece.

use serde::{Deserialize, Serialize};

use super::lease_state::ElectedLeader;

/// The largest piece. Three fit into a request of the default limit, and one is written within the
/// deadline of a call on a slow disk.
const PIECE_BYTES: usize = 512 << 10;

/// Names the pieces of one stored plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanManifest {
    /// The revision at which the leader that stored it was elected.
    pub election: u64,
    /// Its number among the plans of that leader.
    pub number: u64,
    /// How many pieces it has, numbered from 0.
    pub pieces: u32,
}

impl PlanManifest {
    /// The manifest of an encoded plan, the `number`-th that this leader stores.
    pub(crate) fn new(leader: ElectedLeader, number: u64, encoded: &[u8]) -> Self {
        let pieces = encoded.len().div_ceil(PIECE_BYTES) as u32;
        Self { election: leader.revision, number, pieces }
    }

    /// The pieces of an encoded plan, in order.
    pub(crate) fn cut_plan(encoded: &[u8]) -> impl ExactSizeIterator<Item = &[u8]> {
        encoded.chunks(PIECE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_counts_the_pieces_that_are_cut() {
        let leader = ElectedLeader { revision: 7, lease: 1, controller: 1 };
        for bytes in [1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let encoded = vec![b'x'; bytes];
            let manifest = PlanManifest::new(leader, 2, &encoded);
            let pieces: Vec<&[u8]> = PlanManifest::cut_plan(&encoded).collect();
            assert_eq!(manifest.pieces as usize, pieces.len());
            assert_eq!(pieces.concat(), encoded);
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        }
    }
}
