//! What was observed of a fabric and is not stale.
//!
//! Sans-IO: frames and the time are arguments, [`ObservedTopology`] is the result. The decision: of
//! each port, only the latest round counts, so a probe that somebody recorded and sends again is
//! old news.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use topology::{Fabric, Finding, SwitchId};

use super::attachment_table::AttachmentTable;
use super::probe::{LinkProbe, ProbeKey};
use super::topology_learner::host_ports;
use super::{HostAttachment, ObservedTopology, SwitchPort, neighbour_packets};

/// For how long a host at a cable is a finding.
const FINDING_LASTS: Duration = Duration::from_secs(60);

/// One who sends probes and listens for them.
#[derive(Clone, Debug)]
pub struct TopologyObserver {
    key: ProbeKey,
    stale: Duration,
    round: u64,
    received: BTreeMap<SwitchPort, ReceivedProbe>,
    /// How many of `received` came in by each port, as every ARP frame asks whether any did.
    arrivals: BTreeMap<SwitchPort, usize>,
    hosts: AttachmentTable,
    /// Ports at which the fabric has hosts: probes that come in there were relayed.
    host_ports: BTreeSet<SwitchPort>,
    /// The latest sender of each port that leads to a switch, and when it was heard.
    senders_at_cables: BTreeMap<SwitchPort, (IpAddr, Instant)>,
}

/// The latest probe from a port.
#[derive(Clone, Copy, Debug)]
struct ReceivedProbe {
    to: SwitchPort,
    round: u64,
    at: Instant,
}

impl TopologyObserver {
    /// An observer of `fabric` for which links expire `stale` after their latest probe.
    pub fn new(fabric: &Fabric, key: ProbeKey, stale: Duration) -> Self {
        Self {
            key,
            stale,
            round: 0,
            received: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            hosts: AttachmentTable::from_fabric(fabric),
            host_ports: host_ports(fabric).collect(),
            senders_at_cables: BTreeMap::new(),
        }
    }

    /// Begins another round of probes and returns its number.
    pub fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// The probe of this round that leaves by a port.
    pub fn encode_probe(&self, from: SwitchPort) -> Vec<u8> {
        let round = self.round;
        LinkProbe { from, round }.encode(&self.key)
    }

    /// Takes in a frame that arrived at a port; frames other than valid probes, ARP and neighbour
    /// discovery are ignored.
    pub fn receive_frame(&mut self, at: SwitchPort, frame: &[u8], now: Instant) {
        if let Some((ip, mac)) = neighbour_packets::parse_sender(frame) {
            if !self.is_cabled(at) {
                self.hosts.record_sender(ip, HostAttachment { at, mac }, now);
            } else if !self.hosts.has_address(ip) && !is_link_local(ip) {
                // Switches that flood repeat what hosts send, whose ports are known.
                self.senders_at_cables.insert(at, (ip, now));
            }
        }
        let Some(probe) = LinkProbe::decode(frame, &self.key) else {
            return;
        };
        let known = self.received.get(&probe.from).map_or(0, |received| received.round);
        // A host may replay recorded probes, so each round counts once and none from the future.
        if probe.round > known && probe.round <= self.round {
            let received = ReceivedProbe { to: at, round: probe.round, at: now };
            self.record_probe(probe.from, received);
        }
    }

    /// Keeps the latest probe from a port, and the index by the port at which it arrived.
    fn record_probe(&mut self, from: SwitchPort, received: ReceivedProbe) {
        if !self.is_cabled(received.to) {
            self.hosts.forget_port(received.to);
        }
        *self.arrivals.entry(received.to).or_default() += 1;
        if let Some(before) = self.received.insert(from, received)
            && let Entry::Occupied(mut count) = self.arrivals.entry(before.to)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        debug_assert_eq!(self.arrivals.values().sum::<usize>(), self.received.len());
    }

    /// Whether the latest probe of any port came in by this one, which then leads to a switch and
    /// to no host.
    fn is_cabled(&self, port: SwitchPort) -> bool {
        self.arrivals.contains_key(&port) && !self.host_ports.contains(&port)
    }

    /// The addresses that several ports claim, with those of the ports that belong to `switch`.
    pub fn disputed_addresses(&self, switch: SwitchId) -> Vec<(SwitchPort, IpAddr)> {
        self.hosts.disputed_addresses(switch)
    }

    /// Settles claims to addresses by what was received since the last call; called before each
    /// round of requests. Silence at a switch that is not `listening` proves nothing.
    pub fn settle_claims(
        &mut self,
        fabric: &Fabric,
        listening: impl Fn(SwitchId) -> bool,
        now: Instant,
    ) {
        self.hosts.finish_round(fabric, listening, now);
    }

    /// Claims to addresses that were refused a short time ago, and hosts that were heard at ports
    /// which lead to switches.
    pub fn claim_findings(&self, fabric: &Fabric, now: Instant) -> Vec<Finding> {
        let senders = self.senders_at_cables.iter();
        let recent = senders.filter(|(_, (_, at))| now.duration_since(*at) < FINDING_LASTS);
        let at_cables = recent.map(|(port, (ip, _))| {
            let text = format!(
                "a host with {ip} sends where a cable to a switch is: a host relays probes there, or \
                 is connected in between"
            );
            Finding::warning(port.port_name(fabric), text)
        });
        self.hosts.findings(fabric, now).into_iter().chain(at_cables).collect()
    }

    /// Ports of a switch at which a cable was ever seen.
    pub fn observed_ports(&self, switch: SwitchId) -> impl Iterator<Item = u16> + '_ {
        let probes = self.received.iter();
        let ends = probes.flat_map(|(from, received)| [*from, received.to]);
        let here = ends.filter(move |end| end.switch == switch);
        here.map(|end| end.port)
    }

    /// Links and hosts that are observed at `now`.
    pub fn observed_topology(&self, now: Instant) -> ObservedTopology {
        let probes = self.received.iter();
        let fresh = probes.filter(|(_, received)| now.duration_since(received.at) < self.stale);
        let links: BTreeMap<SwitchPort, SwitchPort> =
            fresh.map(|(from, received)| (*from, received.to)).collect();
        let hosts = self.hosts.received_attachments(&links);
        ObservedTopology { links, hosts }
    }
}

/// Whether an address is of one link, as those that switches give to their own ports.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::link_discovery::link_ends;
    use super::*;
    use proptest::prelude::*;
    use topology::clos::{self, ClosSpec};

    const STALE: Duration = Duration::from_millis(600);

    fn end(switch: u32, port: u16) -> SwitchPort {
        let switch = SwitchId(switch);
        SwitchPort { switch, port }
    }

    fn observer() -> TopologyObserver {
        let fabric = Fabric::new(topology::FabricParts::default());
        TopologyObserver::new(&fabric, ProbeKey::new([1; 32]), STALE)
    }

    #[test]
    fn a_probe_expires_and_its_repetition_is_ignored() {
        let (mut observer, now) = (observer(), Instant::now());
        observer.begin_round();
        let frame = observer.encode_probe(end(0, 4));
        observer.receive_frame(end(2, 1), &frame, now);
        assert_eq!(observer.observed_topology(now).links, [(end(0, 4), end(2, 1))].into());
        // A recording, at another port.
        observer.receive_frame(end(3, 9), &frame, now);
        assert_eq!(observer.observed_topology(now).links, [(end(0, 4), end(2, 1))].into());
        assert!(observer.observed_topology(now + STALE).links.is_empty());
        observer.receive_frame(end(2, 1), &frame, now + STALE);
        assert!(observer.observed_topology(now + STALE).links.is_empty());
        observer.begin_round();
        let moved = observer.encode_probe(end(0, 4));
        observer.receive_frame(end(3, 9), &moved, now + STALE);
        let observed = observer.observed_topology(now + STALE);
        assert_eq!(observed.links, [(end(0, 4), end(3, 9))].into());
    }

    /// An ARP request of a host for its own address.
    fn announcement(ip: [u8; 4]) -> Vec<u8> {
        let mac = [2, 0, 0, 0, 0, 9];
        let head: &[u8] = &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        [&[0xff; 6][..], &mac, head, &mac, &ip, &[0; 6], &ip, &[0; 18]].concat()
    }

    #[test]
    fn hosts_where_cables_are_and_relayed_probes_hide_nobody() {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let (mut observer, now) =
            (TopologyObserver::new(&fabric, ProbeKey::new([1; 32]), STALE), Instant::now());
        let (a, b) = link_ends(&fabric, fabric.links_named("leaf1-spine1")[0]).unwrap();
        observer.begin_round();
        let probe = observer.encode_probe(a);
        observer.receive_frame(b, &probe, now);
        let IpAddr::V4(known) = fabric.nics()[0].ip else { panic!("an IPv4 fabric") };
        for silent in [known.octets(), [169, 254, 1, 1]] {
            observer.receive_frame(b, &announcement(silent), now);
            assert_eq!(observer.claim_findings(&fabric, now), []);
        }
        observer.receive_frame(b, &announcement([10, 9, 9, 9]), now);
        let findings = observer.claim_findings(&fabric, now);
        assert_eq!(findings[0].about, b.port_name(&fabric), "{findings:?}");
        assert_eq!(observer.claim_findings(&fabric, now + FINDING_LASTS), []);

        // A probe that comes in where a host is does not have the host forgotten.
        let host = host_ports(&fabric).next().unwrap();
        observer.begin_round();
        let relayed = observer.encode_probe(b);
        observer.receive_frame(host, &relayed, now);
        observer.receive_frame(host, &announcement(known.octets()), now);
        assert_eq!(observer.observed_topology(now).hosts[&IpAddr::V4(known)].at, host);
    }

    /// Wires by number of port: a permutation of ports, some of them cut in one direction.
    fn wires() -> impl Strategy<Value = Vec<(SwitchPort, SwitchPort)>> {
        let ends = (0..24u16).map(|n| end(u32::from(n) / 4, n % 4)).collect::<Vec<_>>();
        let pairs = |ends: Vec<SwitchPort>| ends.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        Just(ends).prop_shuffle().prop_map(pairs)
    }

    proptest! {
        /// Whatever is cabled and whatever is lost: what is seen was delivered, and what was
        /// delivered in time is seen.
        #[test]
        fn links_are_those_of_fresh_probes(
            wires in wires(),
            rounds in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 24), 1..8),
        ) {
            let (mut observer, mut now) = (observer(), Instant::now());
            let mut last = BTreeMap::new();
            for arrives in &rounds {
                observer.begin_round();
                let directions = wires.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
                for ((from, to), arrives) in directions.zip(arrives) {
                    if *arrives {
                        observer.receive_frame(to, &observer.encode_probe(from), now);
                        last.insert(from, (to, now));
                    }
                }
                now += STALE / 3;
                let fresh = last.iter().filter(|(_, (_, at))| now.duration_since(*at) < STALE);
                let expected: BTreeMap<SwitchPort, SwitchPort> =
                    fresh.map(|(from, (to, _))| (*from, *to)).collect();
                prop_assert_eq!(observer.observed_topology(now).links, expected);
                let reached: BTreeSet<SwitchPort> = last.values().map(|(to, _)| *to).collect();
                for port in (0..24).map(|n| end(n / 4, n as u16 % 4)) {
                    prop_assert_eq!(observer.is_cabled(port), reached.contains(&port));
                }
            }
        }
    }
}
