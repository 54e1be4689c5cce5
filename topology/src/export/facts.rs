//! What a fabric document says of a device or a cable and other formats have no field for.
//!
//! Exports write these facts where a format has room for text (labels of containerlab, descriptions
//! of NetBox), and imports read them, so that nothing is lost on the way. What follows from
//! something else, such as an Ethernet address that is made of the IP address, is left out. So are
//! queues, buffers and lengths of cables, which other documents do not carry.

use std::collections::BTreeMap;

use crate::fabric::{Fabric, Host, LinkScheduler, Switch};
use crate::ids::LinkId;
use crate::spec::explicit_document;
use crate::units::MacAddress;

pub(crate) const TIER: &str = "tier";
pub(crate) const DEVICE_ID: &str = "device-id";
pub(crate) const P4RUNTIME: &str = "p4runtime";
pub(crate) const GNMI: &str = "gnmi";
pub(crate) const GPUS: &str = "gpus";
pub(crate) const IPS: &str = "ips";
pub(crate) const MACS: &str = "macs";
pub(crate) const BONDS: &str = "bonds";
pub(crate) const GBPS: &str = "gbps";
pub(crate) const PORT_NAMES: &str = "port-names";
pub(crate) const PORT: &str = "port";
pub(crate) const SCHEDULER: &str = "scheduler";
/// What is said of a device.
pub(crate) const OF_DEVICES: [&str; 9] =
    [TIER, DEVICE_ID, P4RUNTIME, GNMI, GPUS, IPS, MACS, BONDS, PORT_NAMES];
/// What is said of a cable, or of its interfaces.
pub(crate) const OF_CABLES: [&str; 3] = [GBPS, SCHEDULER, PORT];
/// Where the labels of a format belong to many programs, ours begin with this.
pub(crate) const LABEL_PREFIX: &str = "crux.";

/// A name and its value, without white space.
pub(crate) type Fact = (&'static str, String);

/// The device id and the addresses of a switch; its tier has a field of its own in some formats.
pub(crate) fn switch_facts(switch: &Switch) -> Vec<Fact> {
    let id = (DEVICE_ID, switch.device_id.to_string());
    let address = switch.p4runtime.iter().map(|address| (P4RUNTIME, address.clone()));
    let gnmi = switch.gnmi.iter().map(|address| (GNMI, address.clone()));
    std::iter::once(id).chain(address).chain(gnmi).collect()
}

/// The names of a switch's ports, for formats whose interfaces have other names.
pub(crate) fn port_names_fact(switch: &Switch) -> Option<Fact> {
    let names = switch.port_names.iter().map(|(port, name)| format!("{name}={port}"));
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| (PORT_NAMES, names.join(",")))
}

/// The reverse of [`port_names_fact`]; an error has the invalid part.
pub(crate) fn read_port_names(list: &str) -> Result<BTreeMap<String, u32>, &str> {
    let parts = list.split(',').filter(|part| !part.is_empty());
    let named = parts.map(|part| {
        let (name, port) = part.rsplit_once('=').ok_or(part)?;
        Ok((name.to_owned(), port.parse().map_err(|_| part)?))
    });
    named.collect()
}

/// The GPUs of a host, the Ethernet addresses of its NICs unless all follow from the others, and
/// which of its interfaces are two ports of one NIC, by their numbers: `0+8,1+9`.
pub(crate) fn host_facts(fabric: &Fabric, host: &Host) -> Vec<Fact> {
    let nics = || host.nics.iter().map(|nic| fabric.nic(*nic));
    let mut facts = vec![(GPUS, host.gpus.to_string())];
    if nics().any(|nic| nic.mac != MacAddress::from_ip(nic.ip)) {
        let macs: Vec<String> = nics().map(|nic| nic.mac.to_string()).collect();
        facts.push((MACS, macs.join(",")));
    }
    let bonds = host.nics.iter().filter_map(|nic| {
        let ports = [*nic, fabric.nic(*nic).bond?];
        let [first, second] = ports.map(|port| fabric.port_number(fabric.nic(port).uplink));
        Some(format!("{first}+{second}"))
    });
    let bonds: Vec<String> = bonds.collect();
    if !bonds.is_empty() {
        facts.push((BONDS, bonds.join(",")));
    }
    facts
}

/// The reverse of the list of bonds: the numbers of both interfaces of each; the invalid part in
/// an error.
pub(crate) fn read_bonds(list: &str) -> Result<Vec<[usize; 2]>, &str> {
    let parts = list.split(',').filter(|part| !part.is_empty());
    let bonds = parts.map(|part| {
        let (first, second) = part.split_once('+').ok_or(part)?;
        let number = |text: &str| text.parse().map_err(|_| part);
        Ok([number(first)?, number(second)?])
    });
    bonds.collect()
}

/// The addresses of a host, in the order of its NICs.
pub(crate) fn address_fact(fabric: &Fabric, host: &Host) -> Fact {
    let ips: Vec<String> = host.nics.iter().map(|nic| fabric.nic(*nic).ip.to_string()).collect();
    (IPS, ips.join(","))
}

/// By cable, in their order: the scheduler, where it is not the usual one.
pub(crate) fn unusual_schedulers(fabric: &Fabric) -> Vec<(LinkId, Option<Fact>)> {
    let named = explicit_document(fabric).links.into_iter().map(|link| link.scheduler);
    let fact = |scheduler: LinkScheduler| (SCHEDULER, scheduler_name(scheduler).to_owned());
    fabric.cables().zip(named.map(|scheduler| scheduler.map(fact))).collect()
}

/// As fabric documents spell it.
pub(crate) fn scheduler_name(scheduler: LinkScheduler) -> &'static str {
    match scheduler {
        LinkScheduler::Strict => "strict",
        LinkScheduler::HostStrict => "host-strict",
        LinkScheduler::Fifo => "fifo",
    }
}

/// The reverse of [`scheduler_name`].
pub(crate) fn scheduler_named(name: &str) -> Option<LinkScheduler> {
    let all = [LinkScheduler::Strict, LinkScheduler::HostStrict, LinkScheduler::Fifo];
    all.into_iter().find(|scheduler| scheduler_name(*scheduler) == name)
}
