//! The ids of `fabric.p4`, as its `@id` annotations give them.

use crate::entry::{ActionId, TableId};
use crate::ids::ids;

/// The counter of packets and bytes that left, by port and level; see
/// [`port_level_index`](super::port_level_index).
pub const PORT_LEVEL: u32 = 0x1200_0001;

/// The counter of packets of IP that were refused, by ingress port and reason; see
/// [`refusal_index`](super::refusal_index).
pub const REFUSED: u32 = 0x1200_0002;

/// The digest of RoCEv2 connections that no row knows. p4c chooses the number by the name of the
/// type.
pub const ROCE_FLOW_DIGEST: u32 = 0x171a_253f;

ids!(
    /// Tables.
    table: TableId {
        ACL_PUNT = 0x0200_0001,
        LOCAL_HOST = 0x0200_0002,
        DST_LEAF = 0x0200_0003,
        FLOW_PIN = 0x0200_0004,
        JOB_CLASSIFY = 0x0200_0005,
        JOB_QOS = 0x0200_0006,
        FABRIC_PORT = 0x0200_0007,
        PATH = 0x0200_0008,
        PORT_DOWN = 0x0200_0009,
        BACKUP_DOWN = 0x0200_000a,
        SWITCH_SALT = 0x0200_000b,
        ECMP_GROUP = 0x0200_000c,
        DSCP_LEVEL = 0x0200_000d,
        ROCE_ANSWER = 0x0200_000e,
        PUNT_RATE = 0x0200_000f,
        SOURCE_GUARD = 0x0200_0010,
        ARP_ANSWER = 0x0200_0011,
        QP_PIN = 0x0200_0012,
        ANSWER_RATE = 0x0200_0013,
        ANSWER_SHARE = 0x0200_0014,
        ROCE_LEARN = 0x0200_0015,
        JOB_PAIR = 0x0200_0016,
        FOREIGN_SOURCE = 0x0200_0017,
        HOST_PORT = 0x0200_0018,
        SPRAYING = 0x0200_0019,
        ACL_PUNT6 = 0x0200_0021,
        SOURCE_GUARD6 = 0x0200_0022,
        ND_ANSWER = 0x0200_0023,
        LOCAL_HOST6 = 0x0200_0024,
        DST_LEAF6 = 0x0200_0025,
        FLOW_PIN6 = 0x0200_0026,
        QP_PIN6 = 0x0200_0027,
        TRANSIT_PIN6 = 0x0200_0028,
        TRANSIT_QP_PIN6 = 0x0200_0029,
        JOB_CLASSIFY6 = 0x0200_002a,
        JOB_PAIR6 = 0x0200_002b,
        FOREIGN_SOURCE6 = 0x0200_002c,
    }
);

ids!(
    /// Actions.
    action: ActionId {
        DROP = 0x0100_0001,
        PUNT = 0x0100_0002,
        TO_HOST = 0x0100_0003,
        SET_DST_LEAF = 0x0100_0004,
        PIN = 0x0100_0005,
        SET_JOB = 0x0100_0006,
        SET_CLASS = 0x0100_0007,
        SET_LEVEL = 0x0100_0008,
        TO_UPLINK = 0x0100_0009,
        TO_ECMP_PORT = 0x0100_000a,
        MARK_DOWN = 0x0100_000b,
        SET_SALT = 0x0100_000c,
        TRUST_DSCP = 0x0100_000d,
        PIN_QP = 0x0100_000e,
        SET_ANSWER_LEVEL = 0x0100_000f,
        ADMIT = 0x0100_0010,
        LIMIT_PUNTS = 0x0100_0011,
        LIMIT_ANSWERS = 0x0100_0012,
        LIMIT_ANSWER_SHARE = 0x0100_0013,
        LEARN = 0x0100_0014,
        ANSWER_ARP = 0x0100_0015,
        SET_ANSWER = 0x0100_0016,
        SET_PAIR_JOB = 0x0100_0017,
        REFUSE_SOURCE = 0x0100_0018,
        ALLOW_SOURCE = 0x0100_0019,
        CHECK_SOURCE = 0x0100_001a,
        SPRAY = 0x0100_001b,
        SET_DST_LEAF_OF_HOSTS = 0x0100_001c,
        PIN6 = 0x0100_0021,
        PIN6_QP = 0x0100_0022,
        PIN_TRANSIT = 0x0100_0023,
        SET_JOB6 = 0x0100_0024,
        ANSWER_ND = 0x0100_0025,
        SET_PAIR_JOB6 = 0x0100_0026,
    }
);
