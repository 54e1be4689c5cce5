//! Which packets a link sends first, as the controller and the hosts have set it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fabric, FabricNode};

/// Which packets a link sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkScheduler {
    /// Higher levels first: the port of a switch that the controller programs.
    Strict,
    /// Higher levels first, because an agent on the host gave its NIC the traffic classes of jobs.
    HostStrict,
    /// All alike: a NIC that knows no levels, or the port of a switch that ignores them.
    Fifo,
}

impl LinkScheduler {
    /// Whether flows of higher levels are sent first.
    #[inline]
    pub fn serves_levels(self) -> bool {
        matches!(self, Self::Strict | Self::HostStrict)
    }
}

impl Fabric {
    /// The fabric whose hosts send with this scheduler from their NICs.
    #[must_use]
    pub fn with_host_scheduler(self, scheduler: LinkScheduler) -> Self {
        let mut parts = self.parts().clone();
        let links = parts.links.iter_mut();
        for link in links.filter(|link| matches!(link.from.node, FabricNode::Host(_))) {
            link.scheduler = scheduler;
        }
        Self::new(parts).with_changes(self.availability_changes())
    }
}
