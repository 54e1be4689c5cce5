//! Dense identifiers of the parts of a [`Fabric`](crate::Fabric).
//!
//! Every id is an index into one of the fabric's tables, so that algorithms can keep their state in
//! plain vectors. Ids mean nothing outside the fabric that gave them; a change of state (a failed
//! link, a drained switch) keeps them.

use serde::{Deserialize, Serialize};

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub u32);

        impl $name {
            /// The position of this id in its table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            #[inline]
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).expect("a fabric has fewer than 2^32 parts of a kind"))
            }
        }
    };
}

dense_id!(
    /// A host: a server with GPUs and NICs.
    HostId
);
dense_id!(
    /// A switch of any tier.
    SwitchId
);
dense_id!(
    /// A NIC of a host.
    NicId
);
dense_id!(
    /// A directed link. The two directions of a cable are `2n` and `2n + 1`.
    LinkId
);

impl LinkId {
    /// The other direction of the cable.
    #[inline]
    pub fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The number of the cable that this link is one direction of.
    #[inline]
    pub fn cable_index(self) -> usize {
        self.index() / 2
    }
}

/// What stands at the end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FabricNode {
    /// A host.
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

impl FabricNode {
    /// The switch at this end, if it is one.
    #[inline]
    pub fn switch(self) -> Option<SwitchId> {
        match self {
            Self::Switch(id) => Some(id),
            Self::Host(_) => None,
        }
    }
}
