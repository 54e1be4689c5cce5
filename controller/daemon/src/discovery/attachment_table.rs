//! Where hosts are attached, from packets that any host can forge.
//!
//! Sans-IO: senders and the time are arguments. Three decisions. The first port at which an address
//! is received keeps it: another takes it over only after [`MOVE_PROBES`] requests out of the old
//! port found nobody there, while the new one goes on sending. A port has at most
//! [`PORT_ADDRESSES`] addresses; what it claims beyond is not kept. An address that is silent for
//! [`SILENCE`] and that no document has is forgotten.
//!
//! A NIC with two ports is where its document says, at both: what comes from one of them is as if it
//! came from the first. Without a document, an address at two ports is a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use topology::{Fabric, Finding, SwitchId};

use super::{HostAttachment, SwitchPort};

/// Addresses of one port: the interfaces of a large host with its virtual machines.
const PORT_ADDRESSES: usize = 16;
/// Requests that must stay unanswered at the old port before an address moves.
const MOVE_PROBES: u32 = 3;
/// After so long without a packet from an address, it is forgotten.
const SILENCE: Duration = Duration::from_secs(900);
/// For how long a refused claim is a finding.
const FINDING_LASTS: Duration = Duration::from_secs(60);

/// The addresses of hosts, with the claims to them that are not proved.
#[derive(Clone, Debug, Default)]
pub(super) struct AttachmentTable {
    attachments: BTreeMap<IpAddr, KnownAttachment>,
    /// How many of them each port has, as every packet of an unknown sender asks for it.
    addresses_at: BTreeMap<SwitchPort, usize>,
    /// Ports that claimed more addresses than they may have, and when they last did.
    overfull: BTreeMap<SwitchPort, Instant>,
}

#[derive(Clone, Copy, Debug)]
struct KnownAttachment {
    attachment: HostAttachment,
    /// The second port of a NIC that a document has at two.
    second: Option<SwitchPort>,
    /// When a packet last came from it; never, if only a document says that it is there.
    received_at: Option<Instant>,
    claim: Option<AddressClaim>,
    /// Where the address was claimed although it answered at its port, and when.
    refuted: Option<(SwitchPort, Instant)>,
}

/// A packet from an address at another port, or from another interface, than is known.
#[derive(Clone, Copy, Debug)]
struct AddressClaim {
    attachment: HostAttachment,
    /// Requests out of the old port since then.
    probes: u32,
    /// Whether the new port has sent again after the last request.
    is_repeated: bool,
}

impl AttachmentTable {
    /// The attachments that the fabric has, so that a newcomer must prove that they have changed.
    pub(super) fn from_fabric(fabric: &Fabric) -> Self {
        let nics = fabric.host_nics().filter_map(|nic| {
            let at = |port| SwitchPort::at_endpoint(fabric.link(fabric.nic(port).uplink).to);
            let second = fabric.nic(nic).bond.and_then(at);
            let (at, nic) = (at(nic)?, fabric.nic(nic));
            let known = KnownAttachment::new(HostAttachment { at, mac: nic.mac }, None);
            Some((nic.ip, KnownAttachment { second, ..known }))
        });
        let mut table = Self { attachments: nics.collect(), ..Self::default() };
        table.count_addresses();
        table
    }

    /// Whether an address is known at any port.
    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        self.attachments.contains_key(&ip)
    }

    /// Takes in the sender of a packet.
    pub(super) fn record_sender(&mut self, ip: IpAddr, attachment: HostAttachment, now: Instant) {
        if let Some(known) = self.attachments.get_mut(&ip) {
            known.record_packet(attachment, now);
            return;
        }
        let addresses = self.addresses_at.entry(attachment.at).or_default();
        if *addresses < PORT_ADDRESSES {
            *addresses += 1;
            self.attachments.insert(ip, KnownAttachment::new(attachment, Some(now)));
        } else {
            self.overfull.insert(attachment.at, now);
        }
    }

    /// Counts the addresses of all ports anew. Addresses move and are forgotten only where all of
    /// them are looked at anyway.
    fn count_addresses(&mut self) {
        self.addresses_at.clear();
        for known in self.attachments.values() {
            *self.addresses_at.entry(known.attachment.at).or_default() += 1;
        }
    }

    /// Addresses to ask for out of the ports of `switch`: those that somebody else claims, at the
    /// old port and at the new.
    pub(super) fn disputed_addresses(&self, switch: SwitchId) -> Vec<(SwitchPort, IpAddr)> {
        let claims =
            self.attachments.iter().filter_map(|(ip, known)| Some((ip, known, known.claim?)));
        let ports = claims.flat_map(|(ip, known, claim)| {
            let ports: BTreeSet<SwitchPort> = known.ports().chain([claim.attachment.at]).collect();
            ports.into_iter().map(|port| (port, *ip))
        });
        ports.filter(|(port, _)| port.switch == switch).collect()
    }

    /// Moves the addresses whose old ports stayed silent, and forgets those that nobody uses; to be
    /// called before each round of requests. Silence counts at the ports of `listening` switches.
    pub(super) fn finish_round(
        &mut self,
        fabric: &Fabric,
        listening: impl Fn(SwitchId) -> bool,
        now: Instant,
    ) {
        for known in self.attachments.values_mut() {
            known.advance_claim(known.ports().all(|port| listening(port.switch)), now);
        }
        self.attachments.retain(|ip, known| {
            let is_silent = known.received_at.is_none_or(|at| now.duration_since(at) >= SILENCE);
            !is_silent || fabric.nic_with_ip(*ip).is_some()
        });
        self.count_addresses();
        self.overfull.retain(|_, at| now.duration_since(*at) < FINDING_LASTS);
    }

    /// The attachments from which a packet has come, without those at `links`: switches that flood
    /// repeat what hosts send.
    pub(super) fn received_attachments(
        &self,
        links: &BTreeMap<SwitchPort, SwitchPort>,
    ) -> BTreeMap<IpAddr, HostAttachment> {
        let received = self.attachments.iter().filter(|(_, known)| known.received_at.is_some());
        let hosts = received.map(|(ip, known)| (*ip, known.attachment));
        hosts.filter(|(_, attachment)| !links.contains_key(&attachment.at)).collect()
    }

    /// Gives up the attachments at a port that turned out to lead to another switch.
    pub(super) fn forget_port(&mut self, port: SwitchPort) {
        self.attachments.retain(|_, known| known.attachment.at != port);
        self.addresses_at.remove(&port);
        for known in self.attachments.values_mut() {
            known.claim = known.claim.filter(|claim| claim.attachment.at != port);
        }
    }

    /// Claims that were refused a short time ago.
    pub(super) fn findings(&self, fabric: &Fabric, now: Instant) -> Vec<Finding> {
        let refuted = self.attachments.iter().filter_map(|(ip, known)| {
            let (port, at) = known.refuted?;
            let text = format!(
                "claims {ip}, which answers at {}; the claim is refused",
                known.attachment.at.port_name(fabric)
            );
            let is_recent = now.duration_since(at) < FINDING_LASTS;
            is_recent.then(|| Finding::warning(port.port_name(fabric), text))
        });
        let overfull = self.overfull.keys().map(|port| {
            let text = format!("claims more than {PORT_ADDRESSES} addresses; the rest is ignored");
            Finding::warning(port.port_name(fabric), text)
        });
        refuted.chain(overfull).collect()
    }
}

impl KnownAttachment {
    fn new(attachment: HostAttachment, received_at: Option<Instant>) -> Self {
        Self { attachment, second: None, received_at, claim: None, refuted: None }
    }

    /// Where the address is.
    fn ports(&self) -> impl Iterator<Item = SwitchPort> + use<> {
        std::iter::once(self.attachment.at).chain(self.second)
    }

    fn record_packet(&mut self, mut sender: HostAttachment, now: Instant) {
        if self.second == Some(sender.at) {
            sender.at = self.attachment.at;
        }
        // The Ethernet address of a document may be one that was made up for the NIC.
        if self.received_at.is_none() && sender.at == self.attachment.at {
            self.attachment = sender;
        }
        if sender == self.attachment {
            self.received_at = Some(now);
            if let Some(claim) = self.claim.take() {
                self.refuted = Some((claim.attachment.at, now));
            }
            return;
        }
        match &mut self.claim {
            Some(claim) if claim.attachment == sender => claim.is_repeated = true,
            // The first claim is settled before another counts.
            Some(_) => {}
            None => {
                let claim = AddressClaim { attachment: sender, probes: 0, is_repeated: false };
                self.claim = Some(claim);
            }
        }
    }

    fn advance_claim(&mut self, is_listening: bool, now: Instant) {
        let Some(claim) = &mut self.claim else {
            return;
        };
        if !is_listening {
            return;
        }
        if claim.probes >= MOVE_PROBES && claim.is_repeated {
            *self = Self::new(claim.attachment, Some(now));
        } else if claim.probes >= MOVE_PROBES {
            self.claim = None;
        } else {
            claim.probes += 1;
            claim.is_repeated = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::MacAddress;
    use topology::clos::{self, ClosSpec};

    fn fabric() -> Fabric {
        clos::build_clos("lab", &ClosSpec::default()).unwrap()
    }

    fn at(switch: u32, port: u16, mac: u8) -> HostAttachment {
        let at = SwitchPort { switch: SwitchId(switch), port };
        HostAttachment { at, mac: MacAddress([2, 0, 0, 0, 0, mac]) }
    }

    fn ip() -> IpAddr {
        "10.9.9.9".parse().unwrap()
    }

    /// Rounds in which the attachments `answer` and everybody listens.
    fn run_rounds(table: &mut AttachmentTable, rounds: u32, answer: &[HostAttachment]) {
        let now = Instant::now();
        for _ in 0..rounds {
            for sender in answer {
                table.record_sender(ip(), *sender, now);
            }
            table.finish_round(&fabric(), |_| true, now);
        }
    }

    fn attachment(table: &AttachmentTable) -> HostAttachment {
        table.received_attachments(&BTreeMap::new())[&ip()]
    }

    #[test]
    fn an_address_moves_only_from_a_silent_port() {
        let (old, new) = (at(0, 9, 1), at(1, 9, 2));
        let mut table = AttachmentTable::default();
        run_rounds(&mut table, 1, &[old]);
        run_rounds(&mut table, 20, &[new, old]);
        assert_eq!(attachment(&table), old);
        assert_eq!(table.findings(&fabric(), Instant::now()).len(), 1);
        run_rounds(&mut table, MOVE_PROBES, &[new]);
        assert_eq!(attachment(&table), old);
        let asked = table.disputed_addresses(SwitchId(0));
        assert_eq!(asked, [(old.at, ip())]);
        run_rounds(&mut table, 2, &[new]);
        assert_eq!(attachment(&table), new);
    }

    #[test]
    fn a_nic_with_two_ports_is_at_both() {
        let spec = ClosSpec { ports_per_nic: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("dual", &spec).unwrap();
        let nic = fabric.host(topology::HostId(0)).nics[0];
        let [first, second] = [0, 1].map(|place| {
            let port = fabric.nic(fabric.ports_of(nic).nth(place).unwrap());
            let at = SwitchPort::at_endpoint(fabric.link(port.uplink).to).unwrap();
            HostAttachment { at, mac: port.mac }
        });
        let (ip, now) = (fabric.nic(nic).ip, Instant::now());
        let mut table = AttachmentTable::from_fabric(&fabric);
        table.record_sender(ip, second, now);
        assert_eq!(table.received_attachments(&BTreeMap::new())[&ip], first);
        assert!(table.findings(&fabric, now).is_empty());
        // A stranger is asked about at both, and the answer of either refutes it.
        let stranger = at(3, 9, 9);
        for _ in 0..20 {
            table.record_sender(ip, stranger, now);
            table.record_sender(ip, second, now);
            table.finish_round(&fabric, |_| true, now);
        }
        table.record_sender(ip, stranger, now);
        for attachment in [first, second] {
            let asked = table.disputed_addresses(attachment.at.switch);
            assert!(asked.contains(&(attachment.at, ip)));
        }
        assert_eq!(table.received_attachments(&BTreeMap::new())[&ip], first);
        assert_eq!(table.findings(&fabric, now).len(), 1);
    }

    #[test]
    fn one_forged_packet_moves_nothing() {
        let (old, new) = (at(0, 9, 1), at(1, 9, 2));
        let mut table = AttachmentTable::default();
        run_rounds(&mut table, 1, &[old]);
        run_rounds(&mut table, 1, &[new]);
        run_rounds(&mut table, 20, &[]);
        assert_eq!(attachment(&table), old);
    }

    #[test]
    fn silence_of_a_switch_that_does_not_listen_proves_nothing() {
        let (old, new, now) = (at(0, 9, 1), at(1, 9, 2), Instant::now());
        let mut table = AttachmentTable::default();
        table.record_sender(ip(), old, now);
        for _ in 0..20 {
            table.record_sender(ip(), new, now);
            table.finish_round(&fabric(), |switch| switch != SwitchId(0), now);
        }
        assert_eq!(attachment(&table), old);
    }

    #[test]
    fn a_port_has_a_bounded_number_of_addresses() {
        let mut table = AttachmentTable::default();
        let now = Instant::now();
        for last in 0..1_000_000u32 {
            table.record_sender(std::net::Ipv4Addr::from_bits(last).into(), at(0, 9, 1), now);
        }
        assert_eq!(table.attachments.len(), PORT_ADDRESSES);
        assert_eq!(table.findings(&fabric(), now).len(), 1);
        // Others are not affected.
        table.record_sender(ip(), at(0, 8, 1), now);
        assert_eq!(table.attachments.len(), PORT_ADDRESSES + 1);
        let later = now + SILENCE;
        table.finish_round(&fabric(), |_| true, later);
        assert!(table.attachments.is_empty() && table.overfull.is_empty());
    }

    #[test]
    fn a_documented_address_is_taken_over_with_proof_only() {
        let fabric = fabric();
        let nic = &fabric.nics()[0];
        let mut table = AttachmentTable::from_fabric(&fabric);
        assert!(table.received_attachments(&BTreeMap::new()).is_empty());
        let now = Instant::now();
        table.record_sender(nic.ip, at(3, 3, 7), now);
        assert!(table.received_attachments(&BTreeMap::new()).is_empty());
        table.finish_round(&fabric, |_| true, now + SILENCE);
        assert!(!table.attachments.is_empty());
    }
}
