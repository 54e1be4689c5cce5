//! The ids of `fabric.p4`, as its `@id` annotations give them.

use crate::entry::{ActionId, TableId};

/// The counter of packets and bytes that left, by port and level; see
/// [`port_level_index`](super::port_level_index).
pub const PORT_LEVEL: u32 = 0x1200_0001;

macro_rules! ids {
    ($(#[$doc:meta])* $module:ident: $kind:ident { $($name:ident = $id:literal,)* }) => {
        $(#[$doc])*
        pub mod $module {
            use super::$kind;

            $(
                #[doc = concat!("`", stringify!($name), "`, in lower case.")]
                pub const $name: $kind = $kind($id);
            )*

            /// All of them with their names.
            pub const ALL: &[($kind, &str)] = &[$(($name, stringify!($name))),*];
        }
    };
}

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
    }
);
