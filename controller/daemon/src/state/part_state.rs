//! The state of a part of the fabric in one word: up, down, drained or returning.
//!
//! Every list, event and page takes the word from here. The decision: a part that works again and
//! waits until all switches hold it is `returning`. It is out of use as a drained part is, but no
//! operator asked for that, and it ends by itself.

use topology::{FabricNode, Link, LinkId, SwitchId};

use super::PlanRollout;
use crate::liveness::FabricPart;

impl PlanRollout {
    /// The state of a switch.
    pub fn switch_state(&self, switch: SwitchId) -> &'static str {
        let fabric = &self.fabric;
        match fabric.is_switch_up(switch) {
            false => "down",
            true if self.is_part_returning(FabricPart::Switch(switch)) => "returning",
            true if fabric.is_switch_drained(switch) => "drained",
            true => "up",
        }
    }

    /// The state of a link, including that of the switches at its ends.
    pub fn link_state(&self, link: LinkId) -> &'static str {
        let fabric = &self.fabric;
        match fabric.is_up(link) {
            false => "down",
            true if self.is_link_returning(link) => "returning",
            true if fabric.is_drained(link) => "drained",
            true => "up",
        }
    }

    /// The state of a cable alone: a failed or drained switch does not show on each of its cables.
    pub fn cable_state(&self, link: LinkId) -> &'static str {
        match self.fabric.is_cable_up(link) {
            false => "down",
            true if self.is_part_returning(FabricPart::Cable(link.min(link.reverse()))) => {
                "returning"
            }
            true if self.is_cable_drained(link) => "drained",
            true => "up",
        }
    }

    /// Whether the cable itself is drained, not a switch at its ends.
    fn is_cable_drained(&self, link: LinkId) -> bool {
        self.fabric.is_drained(link)
            && !self.end_switches(link).any(|switch| self.fabric.is_switch_drained(switch))
    }

    fn is_link_returning(&self, link: LinkId) -> bool {
        self.is_part_returning(FabricPart::Cable(link.min(link.reverse())))
            || self
                .end_switches(link)
                .any(|switch| self.is_part_returning(FabricPart::Switch(switch)))
    }

    fn is_part_returning(&self, part: FabricPart) -> bool {
        self.returning.contains(&part)
    }

    fn end_switches(&self, link: LinkId) -> impl Iterator<Item = SwitchId> {
        let Link { from, to, .. } = *self.fabric.link(link);
        [from.node, to.node].into_iter().filter_map(FabricNode::switch)
    }
}
