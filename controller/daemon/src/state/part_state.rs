//! What a part of the fabric is, in one word: up, down, drained or returning.
//!
//! Every list, event and page takes the word from here. The decision: what works again and waits
//! until all switches know of it has a word of its own. It is kept out of use as a drained part is,
//! but no operator asked for that, and it ends by itself.

use topology::{FabricNode, Link, LinkId, SwitchId};

use super::PlanRollout;
use crate::liveness::FabricPart;

impl PlanRollout {
    /// What a switch is.
    pub fn switch_state(&self, switch: SwitchId) -> &'static str {
        let fabric = &self.fabric;
        match fabric.is_switch_up(switch) {
            false => "down",
            true if self.is_part_returning(FabricPart::Switch(switch)) => "returning",
            true if fabric.is_switch_drained(switch) => "drained",
            true => "up",
        }
    }

    /// What a link is, with what befalls the switches at its ends.
    pub fn link_state(&self, link: LinkId) -> &'static str {
        let fabric = &self.fabric;
        match fabric.is_up(link) {
            false => "down",
            true if self.is_link_returning(link) => "returning",
            true if fabric.is_drained(link) => "drained",
            true => "up",
        }
    }

    /// What a cable itself is: what befalls a switch is told once, and not of each of its cables.
    pub fn cable_state(&self, link: LinkId) -> &'static str {
        let is_drained = |switch| self.fabric.is_switch_drained(switch);
        match self.fabric.is_cable_up(link) {
            false => "down",
            true if self.is_part_returning(FabricPart::Cable(link.min(link.reverse()))) => {
                "returning"
            }
            true if self.fabric.is_drained(link) && !self.end_switches(link).any(is_drained) => {
                "drained"
            }
            true => "up",
        }
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
