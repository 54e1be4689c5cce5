//! The state of cables as this machine sees it, for a fabric that is emulated on it.
//!
//! P4Runtime has no news of ports. Where the ports of switches are interfaces of this machine,
//! named as Mininet names them, `SWITCH-ethPORT`, rtnetlink has. What it says goes to the
//! controller as an observation like any other. The decision: a cable works while neither of its
//! ends is seen without carrier, so that it does not matter which end is looked at first.

use std::collections::{BTreeMap, BTreeSet};
use std::{io, thread};

use ::controller::liveness::{Health, Part};
use switch::ports::{LinkNews, Links, PortState};
use tokio::sync::mpsc;
use topology::{Fabric, LinkId};

/// Observations that may wait for the controller; then the kernel's buffer fills.
const SEEN_LIMIT: usize = 256;

/// The interfaces of this machine that are ends of the fabric's cables.
pub(super) struct Carriers {
    seen: mpsc::Receiver<(Part, Health)>,
}

/// Cables by the names of the interfaces at their ends.
#[derive(Debug)]
struct Cables {
    by_name: BTreeMap<String, LinkId>,
    /// Ends without carrier.
    dark: BTreeSet<String>,
}

impl Carriers {
    /// Listens on a thread of its own, and asks for what there is.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn open(fabric: &Fabric) -> io::Result<Self> {
        let (links, cables) = (Links::open()?, Cables::of(fabric));
        let (tell, seen) = mpsc::channel(SEEN_LIMIT);
        thread::Builder::new()
            .name("carriers".to_owned())
            .spawn(move || listen(links, cables, &tell))?;
        Ok(Self { seen })
    }

    /// The next observation of a cable.
    ///
    /// # Errors
    /// The kernel does not tell any more.
    pub(super) async fn next(&mut self) -> io::Result<(Part, Health)> {
        let seen = self.seen.recv().await;
        seen.ok_or_else(|| io::Error::other("no more news of interfaces"))
    }
}

/// Tells what is seen until nobody wants to know.
fn listen(mut links: Links, mut cables: Cables, tell: &mpsc::Sender<(Part, Health)>) {
    while links.wait().is_ok() {
        for news in links.news() {
            let seen = cables.hear(&news);
            if seen.is_some_and(|seen| tell.blocking_send(seen).is_err()) {
                return;
            }
        }
    }
}

impl Cables {
    fn of(fabric: &Fabric) -> Self {
        let switches = fabric.switches().iter();
        let named = switches.flat_map(|switch| {
            let ports = switch.ports.iter();
            ports.map(|(port, link)| (interface(&switch.name, *port), whole(*link)))
        });
        Self {
            by_name: named.collect(),
            dark: BTreeSet::new(),
        }
    }

    /// What an interface's state says of its cable.
    fn hear(&mut self, news: &LinkNews) -> Option<(Part, Health)> {
        let cable = *self.by_name.get(&news.name)?;
        match news.state {
            PortState::Up => self.dark.remove(&news.name),
            PortState::Down | PortState::Absent => self.dark.insert(news.name.clone()),
        };
        let is_end = |name: &&String| self.by_name.get(*name) == Some(&cable);
        let health = match self.dark.iter().find(is_end) {
            Some(_) => Health::Down,
            None => Health::Up,
        };
        Some((Part::Cable(cable), health))
    }
}

/// Mininet's name for the port of a switch.
fn interface(switch: &str, port: u32) -> String {
    format!("{switch}-eth{port}")
}

/// Both directions of a cable by one name.
fn whole(link: LinkId) -> LinkId {
    link.min(link.reverse())
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};

    use super::*;

    #[test]
    fn a_cable_is_down_while_one_of_its_ends_is() {
        let fabric = clos::build("two by two", &ClosSpec::default()).unwrap();
        let (port, link) = fabric.switches()[0].ports.last_key_value().unwrap();
        let far = fabric.link(*link).to;
        let names = [
            interface(&fabric.switches()[0].name, *port),
            interface(fabric.node_name(far.node), far.port),
        ];
        let mut cables = Cables::of(&fabric);
        let mut hear = |name: &str, state| {
            let heard = cables.hear(&LinkNews {
                name: name.to_owned(),
                index: 1,
                state,
            });
            heard.map(|(part, health)| (part == Part::Cable(whole(*link)), health))
        };
        assert_eq!(hear("eth0", PortState::Down), None);
        assert_eq!(hear(&names[0], PortState::Down), Some((true, Health::Down)));
        assert_eq!(
            hear(&names[1], PortState::Absent),
            Some((true, Health::Down))
        );
        assert_eq!(hear(&names[0], PortState::Up), Some((true, Health::Down)));
        assert_eq!(hear(&names[1], PortState::Up), Some((true, Health::Up)));
    }
}
