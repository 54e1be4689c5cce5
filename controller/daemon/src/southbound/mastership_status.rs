//! How switches speak of mastership: one reading of `MasterArbitrationUpdate` for every server.
//!
//! [`arbitration`](super::arbitration) decides on what is read here. The two servers that matter
//! differ in what they say when the primary leaves: the specification (1.1 and later) promotes
//! nobody and says NOT_FOUND with the election id to beat; bmv2 promotes the best backup and tells
//! it so. The decision: never ask which server it is. Both are read from what they send, so a
//! switch that changes its mind with an upgrade is still understood.

use p4runtime_proto::v1 as p4rt;
use tonic::Code;

use super::arbitration::ElectionId;

/// What a switch says about who may write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MastershipStatus {
    /// This session is the primary.
    Primary,
    /// Another session is.
    Backup {
        /// Its election id, or the highest that the switch has seen.
        highest: ElectionId,
    },
    /// Nobody is; it takes a higher election id to become it.
    NoPrimary {
        /// The highest election id that the switch has seen.
        highest: ElectionId,
    },
}

impl MastershipStatus {
    /// Reads a switch's update. A server that leaves the status out means OK, as protobuf does; a
    /// status that the specification does not know counts as somebody else's mastership, which
    /// is the reading that writes nothing.
    pub fn from_update(update: &p4rt::MasterArbitrationUpdate) -> Self {
        let highest = update.election_id.map(ElectionId::from).unwrap_or_default();
        // An absent status is OK: protobuf does not send default values.
        let code = update.status.as_ref().map_or(0, |status| status.code);
        match Code::from(code) {
            Code::Ok => Self::Primary,
            Code::NotFound => Self::NoPrimary { highest },
            _ => Self::Backup { highest },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4runtime_proto::rpc;

    fn update(code: i32, high: u64) -> p4rt::MasterArbitrationUpdate {
        p4rt::MasterArbitrationUpdate {
            election_id: Some(p4rt::Uint128 { high, low: 0 }),
            status: Some(rpc::Status { code, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn statuses_are_read_as_the_specification_means_them() {
        let highest = ElectionId(7 << 64);
        let cases = [
            (0, MastershipStatus::Primary),
            (6, MastershipStatus::Backup { highest }),
            (5, MastershipStatus::NoPrimary { highest }),
            (13, MastershipStatus::Backup { highest }),
        ];
        for (code, expected) in cases {
            assert_eq!(MastershipStatus::from_update(&update(code, 7)), expected, "status {code}");
        }
    }

    #[test]
    fn a_missing_status_is_ok_and_a_missing_id_the_lowest() {
        let silent = p4rt::MasterArbitrationUpdate::default();
        assert_eq!(MastershipStatus::from_update(&silent), MastershipStatus::Primary);
    }
}
