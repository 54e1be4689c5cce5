//! The explicit form of the Fabric document: every name, port and address written out.
//!
//! Reading resolves names to ids and refuses what cannot be a fabric, naming the field. A fabric
//! that can be but should not (an unreachable host, uneven tiers) is left to
//! [`crate::check_fabric`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::interconnects;
use super::{
    FabricDocument, FabricFieldError, HostDocument, LinkDocument, SwitchDocument, checked_metres,
    checked_speed, is_valid_name,
};
use crate::document::nearest_name;
use crate::draft::{DraftCable, DraftHost, FabricDraft, MAX_CABLES};
use crate::fabric::{Fabric, Host, LinkEndpoint, LinkScheduler, PipelineKind, Switch, Tier};
use crate::ids::{FabricNode, LinkId};
use crate::lossless::SwitchQueues;
use crate::server_address::ServerAddress;
use crate::units::MacAddress;

/// What to do with NICs that share an address: they are how bonds look elsewhere.
pub(super) const BOND_REMEDY: &str = "each NIC has an address of its own. If this is a bond (two ports under one address, perhaps to \
     two leaves), write it as one NIC with two cables: its address once, and its end in two links";
/// Cables of a NIC: of a bond, one for each port.
pub(crate) const CABLES_OF_NIC: usize = 2;
/// What to do with more.
pub(crate) const PORTS_REMEDY: &str = "a NIC has one cable, or two as a bond; write further cables as NICs with addresses of their own";

/// The document that describes `fabric` in full; reading it gives an equal fabric in which
/// everything works.
pub fn explicit_document(fabric: &Fabric) -> FabricDocument {
    let host_interconnect = interconnects::common_interconnect(fabric);
    let is_common = host_interconnect.is_some();
    let hosts = fabric.hosts().iter().map(|host| HostDocument {
        interconnect: interconnects::own_interconnect(host, is_common),
        ..host_document(fabric, host)
    });
    FabricDocument {
        name: fabric.name().to_owned(),
        clos: None,
        switches: fabric.switches().iter().map(SwitchDocument::from).collect(),
        hosts: hosts.collect(),
        links: fabric.cables().map(|cable| link_document(fabric, cable)).collect(),
        host_interconnect,
        forwarding: fabric.forwarding(),
        ..FabricDocument::default()
    }
}

impl From<&Switch> for SwitchDocument {
    /// The document that describes a switch in full.
    fn from(switch: &Switch) -> Self {
        Self {
            name: switch.name.clone(),
            tier: switch.tier,
            device_id: switch.device_id,
            p4runtime: switch.p4runtime.clone(),
            gnmi: switch.gnmi.clone(),
            port_names: switch
                .port_names
                .iter()
                .map(|(port, name)| (name.clone(), *port))
                .collect(),
            pipeline: Some(switch.pipeline).filter(|pipeline| *pipeline != PipelineKind::default()),
            queues: Some(switch.queues).filter(|queues| *queues != SwitchQueues::default()),
        }
    }
}

fn host_document(fabric: &Fabric, host: &Host) -> HostDocument {
    let nics = || host.nics.iter().map(|&nic| fabric.nic(nic));
    HostDocument {
        name: host.name.clone(),
        gpus: host.gpus,
        ips: nics().map(|nic| nic.ip.to_string()).collect(),
        macs: nics().map(|nic| nic.mac.to_string()).collect(),
        interconnect: None,
    }
}

fn link_document(fabric: &Fabric, cable: LinkId) -> LinkDocument {
    let link = fabric.link(cable);
    LinkDocument {
        a: fabric.endpoint_name(link.from),
        b: fabric.endpoint_name(link.to),
        gbps: link.bandwidth.gbps(),
        scheduler: unusual_scheduler(fabric, cable),
        metres: link.metres,
    }
}

/// The scheduler that a document names: that of the direction from a host, if there is one.
fn unusual_scheduler(fabric: &Fabric, cable: LinkId) -> Option<LinkScheduler> {
    let from_host = [cable, cable.reverse()]
        .map(|link| fabric.link(link))
        .into_iter()
        .find(|link| link.from.node.switch().is_none());
    let (usual, scheduler) = match from_host {
        Some(link) => (LinkScheduler::Fifo, link.scheduler),
        None => (LinkScheduler::Strict, fabric.link(cable).scheduler),
    };
    (scheduler != usual).then_some(scheduler)
}

/// Whether the document lists nothing.
pub(super) fn has_no_lists(document: &FabricDocument) -> bool {
    document.switches.is_empty() && document.hosts.is_empty() && document.links.is_empty()
}

/// The fabric of an explicit document.
pub(super) fn build_explicit(document: &FabricDocument) -> Result<Fabric, FabricFieldError> {
    if document.switches.is_empty() {
        let problem = "a fabric needs at least one switch; list them or generate a [clos]";
        return Err(FabricFieldError::new("switches", problem));
    }
    if document.links.len() as u64 > MAX_CABLES {
        let problem = format!("{} links; at most {MAX_CABLES}", document.links.len());
        return Err(FabricFieldError::new("links", problem));
    }
    let names = NodeNames::from_document(document)?;
    let cables = parse_cables(document, &names)?;
    check_server_addresses(&document.switches)?;
    check_port_names(&document.switches)?;
    let mut draft = FabricDraft::with_name(&document.name);
    let switches = document.switches.iter();
    draft.switches =
        switches.map(|switch| switch_from_document(switch, &document.pipelines)).collect();
    draft.hosts = parse_hosts(document, &cables)?;
    draft.cables = cables;
    Ok(draft.into_fabric())
}

/// An address that no client can call would be refused at every attempt, for as long as a
/// controller runs.
fn check_server_addresses(switches: &[SwitchDocument]) -> Result<(), FabricFieldError> {
    for (number, switch) in switches.iter().enumerate() {
        for (field, example, address) in
            [("p4runtime", 9559, &switch.p4runtime), ("gnmi", 9339, &switch.gnmi)]
        {
            let unknown = |address: &&String| ServerAddress::parse(address).is_none();
            if let Some(address) = address.as_ref().filter(unknown) {
                let problem = format!(
                    "{address:?} is not an address; write host:port, for example 10.0.0.1:{example}"
                );
                return Err(FabricFieldError::new(format!("switches[{number}].{field}"), problem));
            }
        }
    }
    Ok(())
}

/// A port has one name, and lists of names have commas between them.
fn check_port_names(switches: &[SwitchDocument]) -> Result<(), FabricFieldError> {
    for (number, switch) in switches.iter().enumerate() {
        let mut named: BTreeMap<u32, &str> = BTreeMap::new();
        for (name, port) in &switch.port_names {
            let field = || format!("switches[{number}].port_names");
            if name.trim().is_empty() || name.contains(|c: char| c == ',' || c.is_control()) {
                let problem = format!("{name:?} is not the name of a port; leave out commas");
                return Err(FabricFieldError::new(field(), problem));
            }
            if let Some(other) = named.insert(*port, name) {
                let problem = format!("{other} and {name} are both port {port}; give it one name");
                return Err(FabricFieldError::new(field(), problem));
            }
        }
    }
    Ok(())
}

fn switch_from_document(
    document: &SwitchDocument,
    of_tiers: &BTreeMap<Tier, PipelineKind>,
) -> Switch {
    let of_tier = of_tiers.get(&document.tier).copied();
    Switch {
        name: document.name.clone(),
        tier: document.tier,
        pipeline: document.pipeline.or(of_tier).unwrap_or_default(),
        device_id: document.device_id,
        p4runtime: document.p4runtime.clone(),
        gnmi: document.gnmi.clone(),
        ports: BTreeMap::new(),
        port_names: document.port_names.iter().map(|(name, port)| (*port, name.clone())).collect(),
        queues: document.queues.unwrap_or_default(),
    }
}

/// Hosts and switches by name, with the field that named each.
struct NodeNames<'a> {
    document: &'a FabricDocument,
    nodes: BTreeMap<&'a str, (FabricNode, String)>,
}

impl<'a> NodeNames<'a> {
    fn from_document(document: &'a FabricDocument) -> Result<Self, FabricFieldError> {
        let switches = document.switches.iter().enumerate().map(|(id, switch)| {
            (&*switch.name, FabricNode::Switch(id.into()), format!("switches[{id}].name"))
        });
        let hosts = document.hosts.iter().enumerate().map(|(id, host)| {
            (&*host.name, FabricNode::Host(id.into()), format!("hosts[{id}].name"))
        });
        let mut nodes = BTreeMap::new();
        for (name, node, field) in switches.chain(hosts) {
            if !is_valid_name(name) {
                let problem = format!("{name:?} is not a name; use letters, digits and -_.");
                return Err(FabricFieldError::new(field, problem));
            }
            if let Some((_, first)) = nodes.insert(name, (node, field.clone())) {
                return Err(FabricFieldError::new(
                    field,
                    format!("{name} is already named by {first}"),
                ));
            }
        }
        Ok(Self { document, nodes })
    }

    /// Resolves `text` (`name:port`) to the end of a cable.
    fn parse_endpoint(&self, text: &str) -> Result<LinkEndpoint, String> {
        let form =
            || format!("{text:?} is not an end of a link; write name:port, for example leaf1:4");
        let (name, port) = text.rsplit_once(':').ok_or_else(form)?;
        let port = port.parse().map_err(|_| form())?;
        let Some(&(node, _)) = self.nodes.get(name) else {
            let meant = nearest_name(name, self.nodes.keys().copied());
            let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            return Err(format!("unknown host or switch {name}{hint}"));
        };
        if let FabricNode::Host(host) = node {
            let nics = self.document.hosts[host.index()].ips.len();
            if port as usize >= nics {
                return Err(format!(
                    "{name} has {nics} NICs (its ips), counted from 0; found {port}"
                ));
            }
        }
        Ok(LinkEndpoint { node, port })
    }
}

fn parse_cables(
    document: &FabricDocument,
    names: &NodeNames<'_>,
) -> Result<Vec<DraftCable>, FabricFieldError> {
    let mut cables = Vec::with_capacity(document.links.len());
    let mut used: BTreeMap<LinkEndpoint, Vec<String>> = BTreeMap::new();
    for (index, link) in document.links.iter().enumerate() {
        let mut end = |text: &str, side: &str| {
            let field = format!("links[{index}].{side}");
            let endpoint = names
                .parse_endpoint(text)
                .map_err(|problem| FabricFieldError::new(&*field, problem))?;
            let fields = used.entry(endpoint).or_default();
            let (cables_max, hint) = match endpoint.node {
                FabricNode::Host(_) => (CABLES_OF_NIC, format!("; {PORTS_REMEDY}")),
                FabricNode::Switch(_) => (1, String::new()),
            };
            if fields.len() == cables_max {
                let problem = format!("{text} is already used by {}{hint}", fields.join(" and "));
                return Err(FabricFieldError::new(field, problem));
            }
            fields.push(field);
            Ok(endpoint)
        };
        let (a, b) = (end(&link.a, "a")?, end(&link.b, "b")?);
        let nodes = check_connection(document, a.node, b.node);
        nodes.map_err(|problem| FabricFieldError::new(format!("links[{index}].b"), problem))?;
        let bandwidth = checked_speed(&format!("links[{index}].gbps"), link.gbps)?;
        check_scheduler([a.node, b.node], link.scheduler).map_err(|problem| {
            FabricFieldError::new(format!("links[{index}].scheduler"), problem)
        })?;
        if let Some(metres) = link.metres {
            checked_metres(&format!("links[{index}].metres"), metres)?;
        }
        let (scheduler, metres) = (link.scheduler, link.metres);
        cables.push(DraftCable { a, b, bandwidth, scheduler, metres });
    }
    Ok(cables)
}

/// NICs and the ports of switches know different schedulers.
fn check_scheduler(ends: [FabricNode; 2], scheduler: Option<LinkScheduler>) -> Result<(), String> {
    let joins_host = ends.iter().any(|node| node.switch().is_none());
    match (joins_host, scheduler) {
        (true, Some(LinkScheduler::Strict)) => {
            Err("a NIC is fifo or host-strict, found strict".to_owned())
        }
        (false, Some(LinkScheduler::HostStrict)) => {
            Err("the port of a switch is strict or fifo, found host-strict".to_owned())
        }
        _ => Ok(()),
    }
}

/// Hosts connect to leaves, and nothing to itself.
fn check_connection(document: &FabricDocument, a: FabricNode, b: FabricNode) -> Result<(), String> {
    match (a, b) {
        (FabricNode::Host(_), FabricNode::Host(_)) => {
            Err("connects two hosts; hosts connect to leaves".to_owned())
        }
        (FabricNode::Host(_), FabricNode::Switch(switch))
        | (FabricNode::Switch(switch), FabricNode::Host(_)) => {
            let SwitchDocument { name, tier, .. } = &document.switches[switch.index()];
            match tier {
                Tier::Leaf => Ok(()),
                _ => Err(format!("connects a host to {name}, a {tier}; hosts connect to leaves")),
            }
        }
        _ if a == b => Err("connects a switch to itself".to_owned()),
        _ => Ok(()),
    }
}

fn parse_hosts(
    document: &FabricDocument,
    cables: &[DraftCable],
) -> Result<Vec<DraftHost>, FabricFieldError> {
    let mut seen = UsedAddresses::default();
    let hosts = document.hosts.iter().enumerate();
    let hosts = hosts.map(|(index, host)| {
        let addresses = seen.claim_host_addresses(index, host)?;
        Ok(DraftHost { name: host.name.clone(), gpus: host.gpus, addresses })
    });
    let hosts: Vec<DraftHost> = hosts.collect::<Result<_, FabricFieldError>>()?;
    check_nics_cabled(&hosts, cables)?;
    Ok(hosts)
}

/// Addresses used so far, with the field that used each.
#[derive(Default)]
struct UsedAddresses {
    ips: BTreeMap<IpAddr, String>,
    macs: BTreeMap<MacAddress, String>,
}

impl UsedAddresses {
    fn claim_host_addresses(
        &mut self,
        index: usize,
        host: &HostDocument,
    ) -> Result<Vec<(IpAddr, MacAddress)>, FabricFieldError> {
        let (ips, macs) = (host.ips.len(), host.macs.len());
        if macs != 0 && macs != ips {
            let problem = format!("{macs} for {ips} ips; give one for each or none");
            return Err(FabricFieldError::new(format!("hosts[{index}].macs"), problem));
        }
        (0..ips).map(|nic| self.claim_nic_addresses(index, host, nic)).collect()
    }

    fn claim_nic_addresses(
        &mut self,
        index: usize,
        host: &HostDocument,
        nic: usize,
    ) -> Result<(IpAddr, MacAddress), FabricFieldError> {
        let field = format!("hosts[{index}].ips[{nic}]");
        let ip =
            parse_address(&host.ips[nic], &field, "no IP address, such as 10.0.1.1 or fd00::1")?;
        claim_address(&mut self.ips, ip, field).map_err(with_bond_remedy)?;
        let field = format!("hosts[{index}].macs[{nic}]");
        let mac = match host.macs.get(nic) {
            Some(mac) => {
                parse_address(mac, &field, "not an Ethernet address like 02:00:0a:00:01:01")?
            }
            None => MacAddress::from_ip(ip),
        };
        claim_address(&mut self.macs, mac, field).map_err(with_bond_remedy)?;
        Ok((ip, mac))
    }
}

fn with_bond_remedy(error: FabricFieldError) -> FabricFieldError {
    FabricFieldError { problem: format!("{}; {BOND_REMEDY}", error.problem), ..error }
}

fn parse_address<T: std::str::FromStr>(
    text: &str,
    field: &str,
    problem: &str,
) -> Result<T, FabricFieldError> {
    text.parse().map_err(|_| FabricFieldError::new(field, format!("{text:?} is {problem}")))
}

/// Notes that `field` uses `address`, unless another does.
fn claim_address<T: Ord + Copy + ToString>(
    used: &mut BTreeMap<T, String>,
    address: T,
    field: String,
) -> Result<(), FabricFieldError> {
    match used.get(&address) {
        Some(first) => {
            let problem = format!("{} is already used by {first}", address.to_string());
            Err(FabricFieldError::new(field, problem))
        }
        None => {
            used.insert(address, field);
            Ok(())
        }
    }
}

fn check_nics_cabled(hosts: &[DraftHost], cables: &[DraftCable]) -> Result<(), FabricFieldError> {
    let mut cabled: Vec<Vec<bool>> =
        hosts.iter().map(|host| vec![false; host.addresses.len()]).collect();
    for end in cables.iter().flat_map(|cable| [cable.a, cable.b]) {
        if let FabricNode::Host(host) = end.node {
            cabled[host.index()][end.port as usize] = true;
        }
    }
    for (index, nics) in cabled.iter().enumerate() {
        if let Some(nic) = nics.iter().position(|&cabled| !cabled) {
            let problem = format!("no link leads to {}:{nic}", hosts[index].name);
            return Err(FabricFieldError::new(format!("hosts[{index}].ips[{nic}]"), problem));
        }
    }
    Ok(())
}
