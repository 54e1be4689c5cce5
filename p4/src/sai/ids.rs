//! The ids of `sai.p4`. Those of fixed tables and their actions are those of the published P4Info.

use crate::entry::{ActionId, TableId};
use crate::ids::ids;

ids!(
    /// Tables, without `_table`.
    table: TableId {
        NEIGHBOR = 0x0200_0040,
        ROUTER_INTERFACE = 0x0200_0041,
        NEXTHOP = 0x0200_0042,
        WCMP_GROUP = 0x0200_0043,
        IPV4 = 0x0200_0044,
        IPV6 = 0x0200_0045,
        L3_ADMIT = 0x0200_0047,
        VRF = 0x0200_004a,
        ACL_INGRESS = 0x0200_0100,
        ACL_PRE_INGRESS = 0x0200_0101,
        ACL_INGRESS_QOS = 0x0200_0107,
    }
);

ids!(
    /// Actions of rows.
    action: ActionId {
        SET_DST_MAC = 0x0100_0001,
        SET_WCMP_GROUP_ID = 0x0100_0004,
        SET_NEXTHOP_ID = 0x0100_0005,
        DROP = 0x0100_0006,
        ADMIT_TO_L3 = 0x0100_0008,
        SET_IP_NEXTHOP = 0x0100_0014,
        UNICAST_SET_PORT_AND_SRC_MAC = 0x0100_0030,
        ACL_TRAP = 0x0100_0102,
        ACL_DROP = 0x0100_0109,
        SET_ACL_METADATA = 0x0100_010b,
        REDIRECT_TO_NEXTHOP = 0x0100_0112,
        SET_VRF_AND_ACL_METADATA = 0x0100_0180,
        SET_TC_AND_DSCP = 0x0100_0181,
        NO_ACTION = 0x0179_8b9e,
    }
);
