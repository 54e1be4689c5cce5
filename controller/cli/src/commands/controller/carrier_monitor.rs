//! The carrier of interfaces as the state of cables, for a fabric that is emulated on this machine.
//!
//! P4Runtime has no port events. Where the ports of switches are interfaces of this machine, named
//! `SWITCH-ethPORT` as Mininet does ([`port_interface`]), rtnetlink has. A change of carrier
//! reaches the controller as an observation like any other. The decision: a cable works while both
//! of its ends have carrier, so the order in which the ends are reported does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::{io, thread};

use ::controller::liveness::{FabricPart, PartHealth};
use command_io::interface_names::port_interface;
use link_monitor::{LinkMonitor, LinkState, LinkUpdate};
use tokio::sync::mpsc;
use topology::{Fabric, LinkId};

/// Observations that can wait for the controller; beyond it the kernel's buffer fills.
const SEEN_LIMIT: usize = 256;

/// The interfaces of this machine that are ends of the fabric's cables.
pub(super) struct CarrierMonitor {
    seen: mpsc::Receiver<(FabricPart, PartHealth)>,
}

/// Cables by the names of the interfaces at their ends.
#[derive(Debug)]
struct InterfaceCables {
    by_name: BTreeMap<String, LinkId>,
    /// Ends without carrier.
    without_carrier: BTreeSet<String>,
}

impl CarrierMonitor {
    /// Subscribes to link events on a thread of its own, and requests the current state.
    ///
    /// # Errors
    /// The netlink socket cannot be opened.
    pub(super) fn start_monitor(fabric: &Fabric) -> io::Result<Self> {
        let (links, cables) = (LinkMonitor::open()?, InterfaceCables::from_fabric(fabric));
        let (sender, seen) = mpsc::channel(SEEN_LIMIT);
        thread::Builder::new()
            .name("carriers".to_owned())
            .spawn(move || watch_links(links, cables, &sender))?;
        Ok(Self { seen })
    }

    /// The next observation of a cable.
    ///
    /// # Errors
    /// The netlink socket has failed.
    pub(super) async fn next(&mut self) -> io::Result<(FabricPart, PartHealth)> {
        let seen = self.seen.recv().await;
        seen.ok_or_else(|| io::Error::other("the monitor of interfaces has stopped"))
    }
}

/// Forwards observations until the receiver is dropped.
fn watch_links(
    mut links: LinkMonitor,
    mut cables: InterfaceCables,
    sender: &mpsc::Sender<(FabricPart, PartHealth)>,
) {
    while links.wait_readable().is_ok() {
        for update in links.receive_updates() {
            let seen = cables.update_interface(&update);
            if seen.is_some_and(|seen| sender.blocking_send(seen).is_err()) {
                return;
            }
        }
    }
}

impl InterfaceCables {
    fn from_fabric(fabric: &Fabric) -> Self {
        let named = fabric.switch_ids().flat_map(|switch| {
            let ports = fabric.switch(switch).ports.iter();
            ports.map(move |(port, link)| (port_interface(fabric, switch, *port), cable_id(*link)))
        });
        Self { by_name: named.collect(), without_carrier: BTreeSet::new() }
    }

    /// The state of a cable after that of one interface has changed.
    fn update_interface(&mut self, update: &LinkUpdate) -> Option<(FabricPart, PartHealth)> {
        let cable = *self.by_name.get(&update.name)?;
        match update.state {
            LinkState::Up => self.without_carrier.remove(&update.name),
            LinkState::Down | LinkState::Absent => self.without_carrier.insert(update.name.clone()),
        };
        let health = match self
            .without_carrier
            .iter()
            .find(|name| self.by_name.get(*name) == Some(&cable))
        {
            Some(_) => PartHealth::Down,
            None => PartHealth::Up,
        };
        Some((FabricPart::Cable(cable), health))
    }
}

/// One id for both directions of a cable.
fn cable_id(link: LinkId) -> LinkId {
    link.min(link.reverse())
}

#[cfg(test)]
mod tests {
    use topology::SwitchId;
    use topology::clos::{self, ClosSpec};

    use super::*;

    #[test]
    fn a_cable_is_down_while_one_of_its_ends_is() {
        let fabric = clos::build_clos("two by two", &ClosSpec::default()).unwrap();
        let (port, link) = fabric.switches()[0].ports.last_key_value().unwrap();
        let far = fabric.link(*link).to;
        let names = [
            port_interface(&fabric, SwitchId(0), *port),
            port_interface(&fabric, far.node.switch().unwrap(), far.port),
        ];
        let mut cables = InterfaceCables::from_fabric(&fabric);
        let mut receive = |name: &str, state| {
            let received =
                cables.update_interface(&LinkUpdate { name: name.to_owned(), index: 1, state });
            received.map(|(part, health)| (part == FabricPart::Cable(cable_id(*link)), health))
        };
        assert_eq!(receive("eth0", LinkState::Down), None);
        assert_eq!(receive(&names[0], LinkState::Down), Some((true, PartHealth::Down)));
        assert_eq!(receive(&names[1], LinkState::Absent), Some((true, PartHealth::Down)));
        assert_eq!(receive(&names[0], LinkState::Up), Some((true, PartHealth::Down)));
        assert_eq!(receive(&names[1], LinkState::Up), Some((true, PartHealth::Up)));
    }
}
