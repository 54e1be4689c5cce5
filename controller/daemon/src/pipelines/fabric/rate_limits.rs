//! `punt_rate`, `answer_rate`, `answer_share` and `roce_learn`: what a host may send past the
//! levels.
//!
//! Packets to the controller and RoCEv2 answers travel before all data, so both are limited by
//! direct meters: punts at each port where they enter, answers where they enter from a host and
//! again on every link, as many hosts may answer one.

use std::collections::BTreeSet;

use p4::entry::{MeterRates, TableEntry};
use p4::fabric::{self, PortNumber};
use topology::{Bandwidth, LinkId};

use super::switch_context::SwitchContext;

/// Packets per second to the controller from each port: probes of link discovery, ARP and neighbour
/// discovery. The limit is the same for hosts and switches, as the controller may not know yet
/// which of them is there.
const PUNTS: MeterRates = MeterRates { cir: 256, cburst: 256, pir: 256, pburst: 256 };
/// Digests of unknown flows per second from all host ports of a switch, in equal parts.
const SWITCH_DIGESTS: u64 = 100;
/// Digests from one host port at once: the connections of a job that starts. A flow that goes on
/// takes as many of them as it has packets among those of all unknown flows of the port, until its
/// list is sent.
const DIGEST_BURST: u64 = 32;
/// Answers may take one part in so many of a link. An acknowledgment of 62 bytes for every packet
/// of 1,024 bytes, the smallest usual MTU of RoCEv2, is one in 17.
const ANSWER_PART: f64 = 16.0;
/// The least burst of answers in bytes: as many as one window of packets is answered with.
const ANSWER_BURST: u64 = 16 * 1024;

/// The first ports of every switch, which have a limit of their own though no document says what is
/// there. All further ports without a cable in the document share one.
const UNKNOWN_PORTS: u32 = 64;

pub(super) fn build_punt_rates(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    if !site.shared.wiring.reports.probes {
        return Vec::new();
    }
    let unknown = (0..=UNKNOWN_PORTS).filter_map(|port| PortNumber::new(port).ok());
    let ports: BTreeSet<PortNumber> =
        site.links().filter_map(|link| site.port(link)).chain(unknown).collect();
    let rows = ports.into_iter().map(|port| fabric::punt_rate(port, PUNTS));
    rows.chain([fabric::other_ports_punt_rate(PUNTS)]).collect()
}

pub(super) fn build_answer_rates(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let links = site.nics().iter().map(|nic| site.shared.fabric.nic(*nic).uplink.reverse());
    links.filter_map(|link| answer_row(site, link, fabric::answer_rate)).collect()
}

pub(super) fn build_answer_shares(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    site.links().filter_map(|link| answer_row(site, link, fabric::answer_share)).collect()
}

/// The ports whose unknown flows are reported: those of hosts.
pub(super) fn build_learn_rates(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    if !site.shared.wiring.reports.unknown_flows {
        return Vec::new();
    }
    let links = site.nics().iter().map(|nic| site.shared.fabric.nic(*nic).uplink.reverse());
    let ports: Vec<PortNumber> = links.filter_map(|link| site.port(link)).collect();
    let rate = (SWITCH_DIGESTS / ports.len().max(1) as u64).max(1);
    let rates = MeterRates::single_rate(rate, DIGEST_BURST);
    ports.into_iter().map(|port| fabric::roce_learn(port, rates)).collect()
}

/// A row for the port at which `link` leaves the switch, with its part of the link's bandwidth.
fn answer_row(
    site: &SwitchContext<'_>,
    link: LinkId,
    build_entry: fn(PortNumber, MeterRates) -> TableEntry,
) -> Option<TableEntry> {
    let bandwidth = site.shared.fabric.link(link).bandwidth;
    Some(build_entry(site.port(link)?, answer_rates(bandwidth)))
}

fn answer_rates(bandwidth: Bandwidth) -> MeterRates {
    let bytes = (bandwidth.bytes_per_second() / ANSWER_PART) as u64;
    MeterRates::single_rate(bytes, (bytes / 1_000).max(ANSWER_BURST))
}
