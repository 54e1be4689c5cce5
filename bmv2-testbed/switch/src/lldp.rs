//! LLDP (IEEE 802.1AB): what a switch says of itself at each port, and what it hears there.
//!
//! An [`LldpAgent`] is sans-IO: frames and the time are arguments. The decision: it announces every
//! second at first and then every thirty, as the standard recommends, so that switches that start
//! together know each other at once. A neighbour is forgotten when its time to live has passed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::port_names::PortNames;
use crate::time::Nanos;

const ETHERTYPE: [u8; 2] = [0x88, 0xcc];
/// The nearest bridge: no bridge forwards frames to it.
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
const ETHERNET: usize = 14;
/// The shortest Ethernet frame without its check sequence.
const FRAME_MIN: usize = 60;

const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const SYSTEM_NAME: u8 = 5;
/// Subtypes of chassis and port ids (IEEE 802.1AB-2016, tables 8-2 and 8-3).
const CHASSIS_MAC: u8 = 4;
const PORT_MAC: u8 = 3;
const PORT_INTERFACE: u8 = 5;
const LOCALLY_ASSIGNED: u8 = 7;

/// Announcements one second apart.
const FAST_ANNOUNCEMENTS: u32 = 4;
const FAST_INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(30);
/// Four intervals.
const LIFETIME_SECONDS: u16 = 120;

/// The other end of a port, by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LldpNeighbour {
    /// Its name, or the id of its chassis where it has none.
    pub system: String,
    /// The port of it.
    pub port: String,
}

/// What a switch is called by its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LldpIdentity {
    /// The name of the switch.
    pub system: String,
    /// The names of its ports; one without a name is `EthernetN` by its number.
    pub port_names: PortNames,
}

/// The LLDP agent of one switch.
#[derive(Debug)]
pub(crate) struct LldpAgent {
    identity: LldpIdentity,
    announced: u32,
    due: Nanos,
    received: BTreeMap<u16, (LldpNeighbour, Nanos)>,
}

impl LldpAgent {
    pub(crate) fn new(identity: LldpIdentity) -> Self {
        Self { identity, announced: 0, due: 0, received: BTreeMap::new() }
    }

    /// When the next announcement is due.
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// Whether announcements are due; if so, the next are later.
    pub(crate) fn take_due(&mut self, now: Nanos) -> bool {
        if now < self.due {
            return false;
        }
        self.announced = self.announced.saturating_add(1);
        let is_fast = self.announced < FAST_ANNOUNCEMENTS;
        let interval = if is_fast { FAST_INTERVAL } else { INTERVAL };
        self.due = now.saturating_add(interval.as_nanos() as Nanos);
        true
    }

    /// The announcement at a port.
    pub(crate) fn announcement(&self, port: u16) -> Vec<u8> {
        let name = self.identity.port_names.interface_name(port);
        encode_announcement(port, &self.identity.system, &name)
    }

    /// Takes a frame that arrived at a port; false if it is not a frame of LLDP.
    pub(crate) fn receive_frame(&mut self, port: u16, frame: &[u8], now: Nanos) -> bool {
        if frame.get(12..ETHERNET) != Some(&ETHERTYPE) {
            return false;
        }
        match parse_announcement(&frame[ETHERNET..]) {
            Some((neighbour, 1..)) => {
                let lifetime = Duration::from_secs(LIFETIME_SECONDS.into()).as_nanos() as Nanos;
                self.received.insert(port, (neighbour, now.saturating_add(lifetime)));
            }
            // A time to live of 0 is a farewell.
            Some((_, 0)) => drop(self.received.remove(&port)),
            None => {}
        }
        true
    }

    /// Who was heard last at a port and has not expired.
    pub(crate) fn neighbour(&self, port: u16, now: Nanos) -> Option<&LldpNeighbour> {
        let (neighbour, until) = self.received.get(&port)?;
        (now < *until).then_some(neighbour)
    }
}

/// Whether a frame is one of LLDP, for the agent of a switch alone.
pub(crate) fn takes_frame(
    agent: &mut Option<LldpAgent>,
    port: u16,
    frame: &[u8],
    now: Nanos,
) -> bool {
    agent.as_mut().is_some_and(|agent| agent.receive_frame(port, frame, now))
}

/// A frame that announces a port of a system.
fn encode_announcement(number: u16, system: &str, port: &str) -> Vec<u8> {
    let mut frame = NEAREST_BRIDGE.to_vec();
    frame.extend([0x02, 0, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend(ETHERTYPE);
    push_element(&mut frame, CHASSIS_ID, &[&[LOCALLY_ASSIGNED], system.as_bytes()]);
    push_element(&mut frame, PORT_ID, &[&[PORT_INTERFACE], port.as_bytes()]);
    push_element(&mut frame, TIME_TO_LIVE, &[&LIFETIME_SECONDS.to_be_bytes()]);
    push_element(&mut frame, SYSTEM_NAME, &[system.as_bytes()]);
    frame.extend([0, 0]);
    frame.resize(frame.len().max(FRAME_MIN), 0);
    frame
}

/// An element: seven bits of type, nine of length, the value, which is cut where it is too long.
fn push_element(frame: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let value: Vec<u8> = parts.concat().into_iter().take(255).collect();
    frame.extend([kind << 1, value.len() as u8]);
    frame.extend(value);
}

/// The neighbour and its time to live in seconds; none where an obligatory element is missing.
fn parse_announcement(mut elements: &[u8]) -> Option<(LldpNeighbour, u16)> {
    let (mut chassis, mut port, mut lifetime, mut system) = (None, None, None, None);
    while let [first, second, rest @ ..] = elements {
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let value = rest.get(..length)?;
        match (first >> 1, value) {
            (0, _) => break,
            (CHASSIS_ID, [subtype, id @ ..]) => {
                chassis = Some(id_text(id, *subtype == CHASSIS_MAC));
            }
            (PORT_ID, [subtype, id @ ..]) => port = Some(id_text(id, *subtype == PORT_MAC)),
            (TIME_TO_LIVE, [high, low, ..]) => lifetime = Some(u16::from_be_bytes([*high, *low])),
            (SYSTEM_NAME, name) => system = Some(id_text(name, false)),
            _ => {}
        }
        elements = &rest[length..];
    }
    let neighbour = LldpNeighbour { system: system.or(chassis)?, port: port? };
    Some((neighbour, lifetime?))
}

fn id_text(id: &[u8], is_mac: bool) -> String {
    match is_mac {
        true => id.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        false => String::from_utf8_lossy(id).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn agent(system: &str) -> LldpAgent {
        let identity = LldpIdentity { system: system.to_owned(), port_names: PortNames::default() };
        LldpAgent::new(identity)
    }

    #[test]
    fn a_neighbour_is_known_until_its_time_has_passed() {
        let (leaf, mut spine) = (agent("leaf1"), agent("spine1"));
        assert!(spine.receive_frame(3, &leaf.announcement(13), 5));
        let known = LldpNeighbour { system: "leaf1".to_owned(), port: "Ethernet13".to_owned() };
        assert_eq!(spine.neighbour(3, 119 * SECOND), Some(&known));
        assert_eq!(spine.neighbour(3, 121 * SECOND), None);
        assert_eq!(spine.neighbour(4, 5), None);
        let mut farewell = leaf.announcement(13);
        let at = farewell.windows(4).position(|part| part == [6, 2, 0, 120]).unwrap();
        farewell[at + 3] = 0;
        assert!(spine.receive_frame(3, &farewell, 6));
        assert_eq!(spine.neighbour(3, 6), None);
    }

    #[test]
    fn announcements_are_fast_at_first() {
        let mut agent = agent("leaf1");
        let due = (0..100).filter(|second| agent.take_due(second * SECOND));
        assert_eq!(due.collect::<Vec<_>>(), [0, 1, 2, 3, 33, 63, 93]);
    }

    #[test]
    fn addresses_are_names_where_there_are_no_others() {
        let mut frame = vec![CHASSIS_ID << 1, 7, CHASSIS_MAC, 2, 0, 0, 0, 0, 0xab];
        frame.extend([PORT_ID << 1, 3, LOCALLY_ASSIGNED, b'p', b'7', TIME_TO_LIVE << 1, 2, 1, 0]);
        let expected = LldpNeighbour { system: "02:00:00:00:00:ab".into(), port: "p7".into() };
        assert_eq!(parse_announcement(&frame), Some((expected, 256)));
        assert_eq!(parse_announcement(&frame[..frame.len() - 4]), None, "no time to live");
    }

    proptest! {
        #[test]
        fn other_frames_are_refused_or_ignored(
            frame in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut agent = agent("leaf1");
            let is_lldp = frame.get(12..14) == Some(&ETHERTYPE[..]);
            prop_assert_eq!(agent.receive_frame(1, &frame, 0), is_lldp);
            let mut typed = frame.clone();
            typed.resize(typed.len().max(14), 0);
            typed[12..14].copy_from_slice(&ETHERTYPE);
            prop_assert!(agent.receive_frame(1, &typed, 0));
        }
    }
}
